"""The corpus: public-domain tales in two text files, one tale after another.

Every tale opens with its title and closes with a line `<|end|>`; one paragraph a line, a blank line
between paragraphs, lines of verse on lines of their own.
"""

import subprocess
from pathlib import Path

import numpy as np

END_OF_TALE = "<|end|>"


def read_tales(folder: Path, split: str) -> list[str]:
    """The tales of one split ("train" or "heldout"), in file order."""
    plain = folder / f"tales-{split}.txt"
    if plain.exists():
        text = plain.read_text(encoding="utf-8")
    else:
        packed = folder / f"tales-{split}.txt.zst"
        text = subprocess.run(["zstd", "-dc", packed], check=True, capture_output=True).stdout.decode("utf-8")
    tales = [tale.strip("\n") for tale in text.split(END_OF_TALE)]
    return [tale for tale in tales if tale]


def is_prose(tale: str) -> bool:
    """A filter for training text only: rhymes, lists and fragments teach a small model little."""
    lines = [line for line in tale.split("\n") if line]
    short = sum(len(line) for line in lines if len(line) < 50 and '"' not in line)
    return len(tale) >= 400 and short <= 0.3 * len(tale)


def token_stream(tokenizer, tales: list[str]) -> np.ndarray:
    """All tales as one row of token ids, each between BOS and EOS."""
    parts = [np.array([tokenizer.bos_id(), *ids, tokenizer.eos_id()], dtype=np.uint16)
             for ids in tokenizer.encode(tales)]
    return np.concatenate(parts)
