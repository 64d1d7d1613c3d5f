"""Writes plamo2.json: a small random vocabulary, random texts, and the ids of PLaMo 2's published tokenizer.

usage: record_plamo2.py TOKENIZATION_PLAMO.PY   (the file that is published with PLaMo 2; it is not carried here)

Scores are multiples of 1/4, so that many segmentations have equal sums.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import types
from pathlib import Path

HERE = Path(__file__).parent
ALPHABET = "ab c\n\u00e9\u3042\u3044\u65e5\u672c\U0001f98a"
OTHERS = "z<\u00fc\u8a9e\ufeff\U0001f680"  # in no token


def published(path: str):
    """The published class, without the compiler that it asks for."""
    plain = {"numba": {"njit": lambda f: f}, "numba.core": {}, "numba.core.types": {"int64": int, "int32": int},
             "numba.typed": {"Dict": types.SimpleNamespace(empty=lambda **_: {}), "List": list}}
    for name, members in plain.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
    sys.modules["numba.core"].types = sys.modules["numba.core.types"]
    spec = importlib.util.spec_from_file_location("tokenization_plamo", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.AhoCorasick()


def main() -> None:
    draw = random.Random(7)
    word = lambda letters, most: "".join(draw.choice(letters) for _ in range(draw.randint(1, most)))
    tokens = [["<|plamo:unk|>", 0.0, "UNKNOWN"], ["<|plamo:bos|>", 0.0, "CONTROL"], ["<|plamo:eos|>", 0.0, "CONTROL"]]
    tokens += [[f"<0x{byte:02X}>", 0.0, "BYTE"] for byte in range(256)]
    entries = {letter for letter in ALPHABET if letter != "c"}
    while len(entries) < 120:
        entries.add(word(ALPHABET, 6))
    tokens += [[entry, -draw.randint(4, 24) / 4 * len(entry), "NORMAL"] for entry in sorted(entries)]
    tokens[-1][1] = -5000.0  # worse than byte tokens may be
    tokenizer = published(sys.argv[1])
    tokenizer.build(tokens)
    texts = [word(ALPHABET, 40) for _ in range(150)] + [word(ALPHABET + OTHERS, 60) for _ in range(50)]
    texts += ["a" * 300, "ab" * 200, "\u3042\u3044" * 100, "\U0001f680" * 5]
    # As compiled, its sums take 64 bits.
    encode = lambda text: tokenizer._encode(tokenizer._to_suffix_id, tokenizer._table.astype("int64"), tokenizer._bytes,
                                            [ord(c) for c in text])
    cases = [{"text": text, "ids": encode(text).tolist()} for text in texts]
    (HERE / "plamo2.json").write_text(json.dumps({"tokens": tokens, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
