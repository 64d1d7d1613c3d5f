"""Records ids_kimi.json: a small vocabulary in Kimi's form with the ids of tiktoken.

usage: kimi_vocabulary.py      needs tiktoken and what record.py needs
"""

from __future__ import annotations

import base64
import json

import tiktoken
from tiktoken._educational import bpe_train

from record import TEXTS, corpus
from recording import HERE

# As tokenization_kimi.py has it.
HAN = r"[\p{Han}]+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LED, ENDED = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([HAN, f"{LED}{UPPER}*{LOWER}+{ENDED}", f"{LED}{UPPER}+{LOWER}*{ENDED}", r"\p{N}{1,3}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# The trainer's regular expressions have no sets within sets.
PLAIN = PATTERN.replace(UPPER, r"(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])").replace(
    LOWER, r"(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])")
MORE = ["\u4e2d\u6587ABC\u3068\u304b\u306a \u6f22\u5b571\u3007 \u3005\u3005 x\u2e80y a/b//\n",
        "HelloWorld'S \u65e5\u672cGo\u8a00\u8a9e \uff11\uff12\uff13 \u3007\u30211 mcDONALD's \U00020000\u4e00e\u0301"]


def main() -> None:
    ranks = bpe_train("\n".join([*corpus(), *MORE]), 480, PLAIN, visualise=None)
    ranks[b"Nobody"] = len(ranks)  # no merges lead to it
    base = len(ranks)
    decoder = {str(base + at): {"content": text, "special": special} for at, (text, special) in enumerate(
        [("[BOS]", True), ("[EOS]", True), ("<|im_end|>", True), ("[EOT]", True), ("<|tool_call_begin|>", False)])}
    kimi = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    (HERE / "ids_kimi.json").write_text(json.dumps({
        "lines": [f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks.items()],
        "settings": {"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]",
                     "added_tokens_decoder": decoder},
        "texts": [{"text": text, "ids": kimi.encode_ordinary(text)} for text in [*TEXTS, *MORE]],
    }, separators=(",", ":")) + "\n")
    print(base, "tokens")


if __name__ == "__main__":
    main()
