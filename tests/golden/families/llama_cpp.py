"""Runs the files of record.py --gguf-dir through llama.cpp (package xllamacpp) and adds to NAME.json
what it says: greedy ids, and which of the reference's steps it decides otherwise.

usage: llama_cpp.py GGUF_DIR [NAME...]

F32 KV, one thread, no cached prefix. Every step is asked for alone, from the reference's ids, so
that a near tie early in a text does not hide what follows.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

import xllamacpp

from record import HERE, dump


def start(path: Path, context: int) -> xllamacpp.Server:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.n_gpu_layers = 0
    params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.swa_full = True
    params.warmup = False
    params.fit_params = False
    return xllamacpp.Server(params)


def complete(server: xllamacpp.Server, prompt: list[int], count: int) -> list[int]:
    body = {"prompt": prompt, "n_predict": count, "temperature": 0, "top_k": 1, "cache_prompt": False,
            "return_tokens": True, "samplers": ["top_k"]}
    request = urllib.request.Request(server.listening_address + "/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["tokens"]


def main() -> None:
    directory = Path(sys.argv[1])
    for path in sorted(HERE.glob("*.json")):
        recorded = json.loads(path.read_text())
        if len(sys.argv) > 2 and recorded["name"] not in sys.argv[2:]:
            continue
        server = start(directory / f"{recorded['name']}.gguf", recorded["context"])
        prompt, greedy = recorded["prompt"], recorded["greedy"]
        says = complete(server, prompt, len(greedy))
        steps = [complete(server, prompt + greedy[:i], 1)[0] for i in range(len(greedy))]
        others = [i for i, (a, b) in enumerate(zip(steps, greedy)) if a != b]
        recorded["llama_cpp"] = {"version": xllamacpp.__version__, "greedy": says, "steps": steps}
        path.write_text(dump(recorded))
        same = next((i for i, (a, b) in enumerate(zip(says, greedy)) if a != b), len(greedy))
        print(f"{recorded['name']}: same for {same} of {len(greedy)}, other steps "
              f"{[(i, recorded['margins'][i]) for i in others]}")
        del server


if __name__ == "__main__":
    main()
