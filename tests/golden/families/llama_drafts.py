"""Adds to NAME.json what llama.cpp's layer for drafting drafts after every token of a recorded text.

usage: llama_drafts.py PROGRAM GGUF_DIR   (PROGRAM: llama_drafts.cpp, compiled; GGUF_DIR: of record.py)
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DRAFTS = 3


def main() -> None:
    program, directory = sys.argv[1:]
    for path in sorted(HERE.glob("*_nextn.json")):
        recorded = json.loads(path.read_text())
        ids = recorded["prompt"] + recorded["greedy"]
        command = [program, str(Path(directory) / f"{recorded['name']}.gguf"), "2", str(DRAFTS), *map(str, ids)]
        says = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        recorded["llama_cpp_drafts"] = says
        lines = [f"  {json.dumps(key)}: {json.dumps(part, separators=(',', ':'))}" for key, part in recorded.items()]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        same = [says[size] == drafts for size, (drafts, _) in recorded["drafts"].items()]
        print(f"{recorded['name']}: {sum(same)} of {len(same)} recorded chains are PyTorch's")


if __name__ == "__main__":
    main()
