"""Writes NAME.json of every tiny model: how to make its file, and what the reference computes.

usage: record.py [--gguf-dir DIR] [NAME...]   (DIR: also writes the files, for llama_cpp.py)
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch

from gguf_file import write_gguf
from reference import Reference, reference
from tiny_models import VOCAB, TinyModel, all_models

HERE = Path(__file__).parent
PROMPT_TOKENS = 48
NEW_TOKENS = 32
DRAFTS = 3
LAST_ID = VOCAB - 1  # ends a text in the files' vocabulary, so that nothing else does


def prompt_of(model: TinyModel) -> list[int]:
    """Some ids come again, so that there is something to attend to."""
    state, ids = sum(model.name.encode()), []
    for i in range(PROMPT_TOKENS):
        state = (state * 1103515245 + 12345) % (1 << 31)
        ids.append(ids[(state >> 8) % i] if i > 8 and state & 64 else 3 + (state >> 16) % (VOCAB - 4))
    return ids


def continued(engine: Reference, prompt: list[int]) -> tuple[list[int], list[float]]:
    """The prompt with what greedy decoding adds, and the margins it was decided by."""
    ids, margins = list(prompt), []
    for _ in range(NEW_TOKENS):
        best = torch.topk(engine.forward(ids)[-1], 2)
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        ids.append(int(best.indices[0]))
    return ids, margins


def json_value(value):
    """JSON has no infinity: null stands for -inf in an array."""
    if isinstance(value, list):
        return [None if entry == -math.inf else entry for entry in value]
    return value


def record(model: TinyModel) -> dict:
    """Takes the first seed whose text does not end early and does not repeat itself."""
    prompt = prompt_of(model)
    while True:
        engine = reference(model)
        ids, margins = continued(engine, prompt)
        if LAST_ID not in ids and len(set(ids[len(prompt):])) >= NEW_TOKENS // 3:
            break
        model.seed += 1
        assert model.seed < 50, f"{model.name}: every seed ends early or goes round in circles"
    logits = engine.forward(ids[:-1])
    rows = [0, 1, len(prompt) - 1, len(ids) - 2]
    shown = lambda row: [float(f"{v:.7g}") for v in row.tolist()]
    drafts = {}
    if "nextn_predict_layers" in model.metadata:  # after so many of the ids, guesses and their logits
        for size in (2, len(prompt) + 1, len(ids) - 1):
            guesses, rows_of = engine.drafts(ids[:size], DRAFTS)
            drafts[str(size)] = [guesses, [shown(row) for row in rows_of]]
    return {
        "name": model.name,
        "architecture": model.architecture,
        "context": model.context,
        "seed": model.seed,
        "metadata": {key: json_value(value) for key, value in model.full_metadata().items()},
        "tensors": [[t.name, t.dims, t.mean, t.amplitude] for t in model.tensors],
        "prompt": prompt,
        "greedy": ids[len(prompt):],
        "margins": margins,
        "logits": {str(row): shown(logits[row]) for row in rows},
        **({"drafts": drafts} if drafts else {}),
    }


def dump(value: dict) -> str:
    """One line per key, so that a change shows where it is."""
    lines = [f"  {json.dumps(key)}: {json.dumps(part, separators=(',', ':'))}" for key, part in value.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf-dir", type=Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    for model in all_models():
        if args.names and model.name not in args.names:
            continue
        path = HERE / f"{model.name}.json"
        recorded = record(model)
        if path.exists():  # what llama_cpp.py and llama_drafts.py have added, while it is of the same model
            old = json.loads(path.read_text())
            if all(old[k] == recorded[k] for k in ("seed", "metadata", "tensors", "prompt")):
                recorded |= {key: old[key] for key in ("llama_cpp", "llama_cpp_drafts") if key in old}
        path.write_text(dump(recorded))
        if args.gguf_dir:
            write_gguf(model, args.gguf_dir / f"{model.name}.gguf")
        margins = sorted(recorded["margins"])
        distinct = len(set(recorded["greedy"]))
        print(f"{model.name}: least margins {margins[:3]}, {distinct} distinct ids of {NEW_TOKENS}, "
              f"{path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
