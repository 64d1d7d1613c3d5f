"""Token ids of random texts: hearth's against those of the libraries that models' authors use.

    python3 compare_tokenizers.py PROGRAM [TEXTS] [VOCABULARY ...]

PROGRAM is tokenizer_ids of the build, TEXTS how many for each vocabulary (default 300). The small tokenizers of
tests/golden/convert are read by Hugging Face's `tokenizers` from the same file; the vocabularies of
HEARTH_TEST_DATA/tokenizers are given to `tokenizers` (byte-level BPE) or to `sentencepiece` with the rules of the models'
own tokenizer.json. Texts are random and mutated ones; the seed is printed, and HEARTH_NIGHT_SEED chooses another. A
disagreement is made smaller before it is shown. compare_tokenizers.sh installs what this needs.
"""
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent.parent

# ---- References ---------------------------------------------------------------------------------------------------------


def gguf_metadata(path):
    data, at = path.read_bytes(), 0
    kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(kind):
        nonlocal at
        value = struct.unpack_from("<" + kind, data, at)[0]
        at += struct.calcsize("<" + kind)
        return value

    def value(kind):
        nonlocal at
        if kind == 8:
            size = take("Q")
            at += size
            return data[at - size:at].decode()
        if kind == 9:
            of, count = take("I"), take("Q")
            return [value(of) for _ in range(count)]
        return take(kinds[kind])

    magic, _, _, count = take("I"), take("I"), take("Q"), take("Q")
    assert magic == 0x46554747
    return {value(8): value(take("I")) for _ in range(count)}


BYTES = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
GPT2 = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
SPLITS = [
    r"[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    r"Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1f7d}ᾀ-ᾴᾶ-ᾼ\x{1fbe}ῂ-ῄῆ-ῌῐ-\x{1fd3}ῖ-\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ"
    r"Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
RULES = {
    "gpt-2": GPT2,
    "starcoder": [pre_tokenizers.Digits(individual_digits=True)] + GPT2,
    "deepseek-llm": [pre_tokenizers.Split(Regex(split), "isolated") for split in SPLITS] +
                    [pre_tokenizers.Digits(individual_digits=True)] + BYTES,
}


def of_json(path):
    reference = Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    return lambda text: reference.encode(text, add_special_tokens=False).ids


def of_merges(keys):
    tokens, types = keys["tokens"], keys["token_type"]
    merges = [tuple(merge.split(" ")) for merge in keys["merges"]]
    reference = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    reference.pre_tokenizer = pre_tokenizers.Sequence(RULES[keys["pre"]])
    reference.add_tokens([AddedToken(token, normalized=False) for token, kind in zip(tokens, types) if kind == 4])
    return lambda text: reference.encode(text, add_special_tokens=False).ids


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """A field of a protocol buffer: a number, a float or bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def of_scores(keys):
    """sentencepiece's own reader, given a model file with these pieces: GGUF has its numbers of types."""
    model = b"".join(
        field(1, field(1, piece.encode()) + field(2, score) + field(3, kind))
        for piece, score, kind in zip(keys["tokens"], keys["scores"], keys["token_type"]))
    bpe, no = 2, 0
    model += field(2, field(3, bpe) + field(35, 1) + field(40, 0) + field(41, 1) + field(42, 2))
    model += field(3, field(1, b"identity") + field(3, 1) + field(4, no) + field(5, 1))
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    return lambda text: reference.encode(text)


def references():
    for path in sorted((TESTS / "golden/convert").glob("tokenizer_*.json")):
        yield path.stem.removeprefix("tokenizer_") + " (small)", path, of_json(path)
    data = os.environ.get("HEARTH_TEST_DATA")
    for path in sorted(Path(data, "tokenizers").glob("*.gguf")) if data else []:
        prefix = "tokenizer.ggml."
        keys = {key.removeprefix(prefix): value for key, value in gguf_metadata(path).items() if key.startswith(prefix)}
        yield path.stem, path, of_merges(keys) if keys["model"] == "gpt2" else of_scores(keys)


# ---- Texts --------------------------------------------------------------------------------------------------------------

SCRIPTS = [(0x20, 0x7E)] * 8 + [(0x9, 0xD), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F),
                                (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x214F),
                                (0x2150, 0x218F), (0x2460, 0x24FF), (0x2500, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x9FFF),
                                (0xAC00, 0xD7A3), (0xFB00, 0xFB06), (0xFF00, 0xFFEF), (0x10400, 0x1044F), (0x1D400, 0x1D7FF),
                                (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF)]
PARTS = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "'s", "'S", "'ll", "'RE", "don't", "\u2581", "\u00a0", "\u3000", "<s>", "</s>",
         "<unk>", "<|endoftext|>", "<0x41>", "[PAD100015]", "12345", "3.14", "e\u0301", "\u200d", "\ufe0f", "\u0000", "://", "_", "camelCase", "SHOUT", "١٢٣", "½",
         "ǅ", "ß", "İ", "中文", "日本語", "한국어", "привет", "😀", "👩\u200d👩\u200d👧", "ﬁ", "ø", "÷"]
# U+180E is white space for some libraries' tables and none for Unicode's.
ODD = {0x180E}


def known(code):
    """A character of Unicode as Python knows it: libraries' tables may be younger or older than ours for others."""
    return code not in ODD and unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")


def words():
    with open(TESTS / "published/text.txt", encoding="utf-8") as text:
        return text.read()


def random_text(draw, corpus):
    kind = draw.randrange(4)
    if kind == 0:
        parts = [draw.choice(PARTS) for _ in range(draw.randrange(1, 12))]
    elif kind == 1:
        parts = []
        for _ in range(draw.randrange(1, 8)):
            first, last = draw.choice(SCRIPTS)
            codes = [draw.randint(first, last) for _ in range(draw.randrange(1, 6))]
            parts.append("".join(chr(code) for code in codes if known(code)))
    else:
        at = draw.randrange(len(corpus))
        parts = list(corpus[at:at + draw.randrange(1, 120)])
        for _ in range(draw.randrange(0, 6)):  # changed here and there
            place = draw.randrange(len(parts) + 1)
            change = draw.randrange(4)
            if change == 0:
                del parts[place:place + draw.randrange(1, 4)]
            elif change == 1:
                parts[place:place] = parts[place:place + 5] * draw.randrange(1, 5)
            elif change == 2:
                parts.insert(place, draw.choice(PARTS))
            else:
                parts[place:place] = [part.swapcase() for part in parts[place:place + 8]]
    return "".join(parts)


# ---- Comparing ----------------------------------------------------------------------------------------------------------


class Hearth:
    def __init__(self, program, path):
        self.folder = tempfile.TemporaryDirectory()
        if path.suffix == ".json":
            path = Path(shutil.copy(path, self.folder.name + "/tokenizer.json"))
        self.process = subprocess.Popen([program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def encode(self, text):
        raw = text.encode()
        self.process.stdin.write(struct.pack("<I", len(raw)) + raw)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            sys.exit(f"{self.process.args} ended at {text!r}")
        return [int(token) for token in line.split()]

    def close(self):
        self.process.stdin.close()
        self.folder.cleanup()
        if self.process.wait() != 0:
            sys.exit(f"{self.process.args} ended with {self.process.returncode}")


def smaller(text, differs):
    """Of its parts, the smallest found on which they still differ."""
    size = len(text) // 2
    while size > 0:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size:]
            if differs(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


program = sys.argv[1]
texts = int(sys.argv[2]) if len(sys.argv) > 2 else 300
only = sys.argv[3:]
seed = int(os.environ.get("HEARTH_NIGHT_SEED", "1"))
print(f"seed {seed}, {texts} texts for each vocabulary")
corpus = words()
wrong = compared = 0
for name, path, encode in references():
    if only and not any(word in name for word in only):
        continue
    hearth = Hearth(program, path)
    draw = random.Random(f"{seed}/{name}")
    bytes_compared = shown = 0
    for _ in range(texts):
        text = random_text(draw, corpus)
        bytes_compared += len(text.encode())
        if hearth.encode(text) == encode(text):
            continue
        wrong += 1
        if shown < 5:
            shown += 1
            text = smaller(text, lambda shorter: hearth.encode(shorter) != encode(shorter))
            print(f"{name}: {text!r} = {[f'U+{ord(c):04X}' for c in text]}: {hearth.encode(text)}, want {encode(text)}")
    hearth.close()
    compared += 1
    print(f"{name}: {bytes_compared} bytes compared")
if not os.environ.get("HEARTH_TEST_DATA"):
    print("without HEARTH_TEST_DATA the small vocabularies alone")
print(f"{compared} vocabularies, {wrong} texts with other ids")
sys.exit(wrong != 0 or compared == 0)
