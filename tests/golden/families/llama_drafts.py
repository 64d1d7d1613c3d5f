"""Adds to recordings what drafts in llama.cpp after every token of a recorded text: layers for drafting of NAME.json,
EAGLE-3 heads of ../eagle3, and DFlash drafters of ../dflash.

usage: llama_drafts.py PROGRAM GGUF_DIR [KIND...]   (PROGRAM: llama_drafts.cpp, compiled; GGUF_DIR: of record.py, with all
targets; KIND: layer, eagle3 or dflash, default all)
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gguf_file import write_gguf
from tiny_models import Tensor, TinyModel

HERE = Path(__file__).parent
DRAFTS = {"eagle3": 3, "dflash": 5}


def add_drafts(path: Path, recorded: dict, program: str, model: Path, head: str, ids: list[int]) -> None:
    command = [program, str(model), head, "2", str(DRAFTS.get(recorded["architecture"], 3)), *map(str, ids)]
    says = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    recorded["llama_cpp_drafts"] = says
    lines = [f"  {json.dumps(key)}: {json.dumps(part, separators=(',', ':'))}" for key, part in recorded.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    same = [says[size] == drafts for size, (drafts, _) in recorded["drafts"].items() if size in says]
    print(f"{recorded['name']}: {sum(same)} of {len(same)} recorded chains are PyTorch's")


def ids_of(family: dict) -> list[int]:
    return family["prompt"] + family["greedy"]


def main() -> None:
    program, directory = sys.argv[1], Path(sys.argv[2])
    kinds = sys.argv[3:] or ["layer", *DRAFTS]
    for path in sorted(HERE.glob("*_nextn.json")) if "layer" in kinds else []:
        recorded = json.loads(path.read_text())
        add_drafts(path, recorded, program, directory / f"{recorded['name']}.gguf", "-", ids_of(recorded))
    for path in sorted(path for kind in DRAFTS if kind in kinds for path in (HERE.parent / kind).glob("*.json")):
        recorded = json.loads(path.read_text())
        target = recorded["target"]
        family = json.loads((HERE / f"{target}.json").read_text())
        prefix = recorded["architecture"] + "."
        if family["metadata"][f"{family['architecture']}.block_count"] in recorded["metadata"][prefix + "target_layers"]:
            continue  # most models of llama.cpp do not give their rows after the last layer
        metadata = {key.removeprefix(prefix): value for key, value in recorded["metadata"].items() if key.startswith(prefix)}
        mask = recorded["metadata"].get("tokenizer.ggml.mask_token_id")
        tensors = [Tensor(*tensor) for tensor in recorded["tensors"]]
        head = directory / f"{prefix}{recorded['name']}.gguf"
        model = TinyModel(recorded["name"], recorded["architecture"], metadata, tensors, recorded["seed"])
        write_gguf(model, head, recorded["tokens"], mask)
        add_drafts(path, recorded, program, directory / f"{target}.gguf", str(head), ids_of(family))


if __name__ == "__main__":
    main()
