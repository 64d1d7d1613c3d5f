"""The tokenizer: 4096 pieces, SentencePiece BPE with byte fallback, as GGUF's `llama` tokenizer reads it.

Pieces 0, 1, 2 are <unk>, <s> (BOS) and </s> (EOS), 3..258 the bytes, then the merges by falling score and the
single characters. Text is taken as it is: no normalization, no space put in front, so decode(encode(x)) == x.
A line feed has no piece of its own and is the byte <0x0A>.
"""

import heapq
from pathlib import Path

import sentencepiece

VOCAB_SIZE = 4096
SPACE = "\u2581"

# Token types of GGUF's tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# No roles and no special words: the user writes a beginning and the assistant continues it; a later message
# opens a new paragraph. The encoder adds the BOS (add_bos_token).
CHAT_TEMPLATE = ("{% for message in messages %}{% if message['role'] == 'user' and not loop.first %}"
                 "{{ '\\n\\n' }}{% endif %}{{ message['content'] }}{% endfor %}")


def train(tales: list[str], model_file: Path) -> None:
    paragraphs = (line for tale in tales for line in tale.split("\n") if line)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=paragraphs,
        model_prefix=str(model_file.with_suffix("")),
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_digits=True,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        max_sentence_length=1 << 20,
        num_threads=2,
        minloglevel=1,
    )


def load(model_file: Path) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(model_file))


def vocabulary(tokenizer) -> tuple[list[str], list[float], list[int]]:
    """Pieces, scores and GGUF token types, by id."""
    pieces, scores, types = [], [], []
    for i in range(tokenizer.get_piece_size()):
        pieces.append(tokenizer.id_to_piece(i))
        scores.append(tokenizer.get_score(i))
        if tokenizer.is_unknown(i):
            types.append(UNKNOWN)
        elif tokenizer.is_control(i):
            types.append(CONTROL)
        elif tokenizer.is_byte(i):
            types.append(BYTE)
        else:
            types.append(NORMAL)
    return pieces, scores, types


class MergeTokenizer:
    """The same encoding written out: join the neighbouring pair whose piece scores highest (the leftmost of
    equals), until no pair is a piece; then what is no piece becomes its UTF-8 bytes. The goldens use it, and
    train.py checks it against SentencePiece."""

    def __init__(self, pieces: list[str], scores: list[float], types: list[int]):
        self.pieces = pieces
        self.types = types
        self.rank = {p: (s, i) for i, (p, s, t) in enumerate(zip(pieces, scores, types)) if t == NORMAL}
        self.byte_id = {int(p[1:-1], 16): i for i, (p, t) in enumerate(zip(pieces, types)) if t == BYTE}

    def encode(self, text: str) -> list[int]:
        symbols = list(text.replace(" ", SPACE))
        left = list(range(-1, len(symbols) - 1))
        right = list(range(1, len(symbols) + 1))
        queue = []

        def offer(i: int, j: int) -> None:
            if i >= 0 and j < len(symbols) and symbols[i] + symbols[j] in self.rank:
                joined = symbols[i] + symbols[j]
                heapq.heappush(queue, (-self.rank[joined][0], i, j, joined))

        for i in range(len(symbols) - 1):
            offer(i, i + 1)
        while queue:
            _, i, j, joined = heapq.heappop(queue)
            if right[i] != j or symbols[i] + symbols[j] != joined or not symbols[i] or not symbols[j]:
                continue  # one of the two has grown since
            symbols[i], symbols[j] = joined, ""
            right[i] = right[j]
            if right[j] < len(symbols):
                left[right[j]] = i
            offer(left[i], i)
            offer(i, right[i])
        ids = []
        for symbol in filter(None, symbols):
            if symbol in self.rank:
                ids.append(self.rank[symbol][1])
            else:
                ids += [self.byte_id[b] for b in symbol.encode("utf-8")]
        return ids

    def decode(self, ids: list[int]) -> str:
        out = b""
        for i in ids:
            if self.types[i] == BYTE:
                out += bytes([int(self.pieces[i][1:-1], 16)])
            elif self.types[i] == NORMAL:
                out += self.pieces[i].replace(SPACE, " ").encode("utf-8")
        return out.decode("utf-8", errors="replace")
