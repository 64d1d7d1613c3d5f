"""What every recording of the converter has, and how it is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SEED = 7
VOCAB = 96
PROMPT = [(i * 37 + 11) % (VOCAB - 4) + 2 for i in range(24)]
ROWS = [0, 1, 11, 23]


def write(name: str, config: dict, tensors: list, logits, more: dict) -> None:
    for key in ("transformers_version", "dtype"):
        config.pop(key, None)
    out = {
        "config": config,
        "seed": SEED,
        "tensors": tensors,
        "prompt": PROMPT,
        "logits": {str(row): [float(f"{x:.7g}") for x in logits[row].tolist()] for row in ROWS},
        **more,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in out.items()]
    (HERE / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(name, "largest logit", float(np.abs(logits.numpy()).max()))
