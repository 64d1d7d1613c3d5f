"""The comparisons of compare_engines.sh: compare_engines.py PROGRAMS TREE PEER FILE ROUNDS"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from engines import commit, free_port, hearthd, machine, output, post, serving, version

PROGRAMS, TREE, PEER, FILE, ROUNDS = (*map(Path, sys.argv[1:5]), int(sys.argv[5]))
THREADS = int(os.environ.get("HEARTH_THREADS", os.cpu_count() or 1))
FLAGS = shlex.split(os.environ.get("HEARTH_PEER_FLAGS", ""))
CLIENTS, NEW_TOKENS = 16, 64
HEARTH = str(PROGRAMS / "hearth")


def spread(values: list[float], digits: int = 1) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def heading(what: str) -> None:
    print(f"### {what}\n")
    print(f"{machine(THREADS)}. {FILE.name}; hearth {commit(TREE)}, {PEER.name} ({version(PEER)}); {ROUNDS} rounds, the engines "
          f"in turn: `bash tests/bench/compare_engines.sh {PEER.name} {FILE.name} {ROUNDS}`.\n")


def table(rows: list[tuple[str, list[float], list[float]]], unit: str, digits: int = 1, less_is_better=False) -> None:
    print(f"| {unit} | hearth | {PEER.name} | hearth over the peer |\n|---|---|---|---|")
    for name, ours, theirs in rows:
        ratio = median(ours) / median(theirs)
        print(f"| {name} | {spread(ours, digits)} | {spread(theirs, digits)} | "
              f"{ratio:.2f}{' (less is better)' if less_is_better else ''} |")


def hearth_bench() -> dict[str, float]:
    said = json.loads(output([HEARTH, "bench", FILE, "--quick", "--rounds", 1, "--threads", THREADS, "--json"]))
    rates = {case["case"]: case["tokens_per_s"] for case in said["cases"]}
    rates["read, GB/s"] = said["ceilings"]["read_bytes_per_s"] / 1e9
    return rates


def llama_bench() -> None:
    heading("Prefill and decode")
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, rate in hearth_bench().items():
            ours.setdefault(name, []).append(rate)
        for case in json.loads(output([PEER, "-m", FILE, "-p", 512, "-n", 32, "-t", THREADS, "-r", 1, "-o", "json", *FLAGS])):
            theirs.setdefault("prefill 512" if case["n_prompt"] else "decode", []).append(case["avg_ts"])
    table([(name, ours[name], theirs[name]) for name in ("prefill 512", "decode")], "tokens/s")
    print(f"\nRead bandwidth meanwhile: {spread(ours['read, GB/s'])} GB/s.")


def batched_bench() -> None:
    heading("Eight sequences together")
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(hearth_bench()["decode, 8 sequences"])
        said = output([PEER, "-m", FILE, "-npp", 32, "-ntg", 32, "-npl", 8, "-c", 2048, "-t", THREADS,
                       "--output-format", "jsonl", *FLAGS])
        theirs.append(next(json.loads(line)["speed_tg"] for line in said.splitlines() if line.startswith("{")))
    table([("decode, 8 sequences", ours, theirs)], "tokens/s")


def stream(port: int, prompt: str) -> tuple[int, float]:
    """Events of one completion of NEW_TOKENS tokens, and seconds to the first."""
    body = {"model": FILE.stem, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True}}
    asked, first, tokens = time.monotonic(), 0.0, 0
    for line in post(port, body):
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if not first and event.get("choices") and event["choices"][0]["text"]:
            first = time.monotonic() - asked
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    return tokens, first


def clients(port: int, round_number: int) -> tuple[float, float]:
    """tokens/s and the median time to the first token of CLIENTS streams at once, with prompts not asked before."""
    words = (TREE / "tests/published/text.txt").read_text().split()
    prompts = [" ".join([f"{round_number}.{i}"] + words[40 * i:40 * i + 48]) for i in range(CLIENTS)]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        results = list(pool.map(lambda prompt: stream(port, prompt), prompts))
    seconds = time.monotonic() - began
    tokens = [n for n, _ in results]
    if set(tokens) != {NEW_TOKENS}:
        sys.exit(f"tokens per stream: met {sorted(set(tokens))}, want {NEW_TOKENS}")
    return sum(tokens) / seconds, median(first for _, first in results)


def llama_server() -> None:
    heading(f"{CLIENTS} clients that stream {NEW_TOKENS} tokens each")
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="hearth-compare.") as directory:
        work = Path(directory)
        for number in range(ROUNDS):
            port = free_port()
            with serving(hearthd(PROGRAMS, FILE, THREADS, port, work), port, FILE.stem, work / "hearthd.log"):
                ours.append(clients(port, number))
            port = free_port()
            with serving([PEER, "-m", FILE, "-t", THREADS, "-np", CLIENTS, "-c", 4096, "--host", "127.0.0.1", "--port",
                          port, *FLAGS], port, FILE.stem, work / "peer.log"):
                theirs.append(clients(port, number))
    table([("tokens/s", [a for a, _ in ours], [a for a, _ in theirs])], "all clients")
    print()
    table([("time to the first token, s, median of the clients", [b for _, b in ours], [b for _, b in theirs])], "each",
          digits=2, less_is_better=True)


def llama_perplexity() -> None:
    heading("KL divergence from F32")
    text = TREE / "tests/published/text.txt"
    with tempfile.TemporaryDirectory(prefix="hearth-compare.") as directory:
        f32, base = Path(directory) / "f32.gguf", Path(directory) / "base"
        output([HEARTH, "quantize", FILE, f32, "--type", "F32", "--requantize"])
        ours = json.loads(output([HEARTH, "perplexity", FILE, "-f", text, "--against", f32, "--json"]))["kl"]
        common = ["-f", text, "-c", 512, "-t", THREADS, "--kl-divergence-base", base, *FLAGS]
        output([PEER, "-m", f32, *common])
        said = output([PEER, "-m", FILE, *common, "--kl-divergence"])
        met = re.search(r"Mean\s+KLD:\s+([0-9.]+)", said)
        if met is None:
            sys.exit(f"{PEER.name} printed no mean KLD:\n{said[-2000:]}")
    table([("mean KL, nats per token", [ours], [float(met.group(1))])], "windows of 512", digits=6, less_is_better=True)
    print("\nllama-perplexity scores the second half of each window, hearth every token once behind 256 others.")


KINDS = {"llama-bench": llama_bench, "llama-batched-bench": batched_bench, "llama-server": llama_server,
         "llama-perplexity": llama_perplexity}
if PEER.name not in KINDS:
    sys.exit(f"{PEER.name}: want one of {', '.join(KINDS)}")
KINDS[PEER.name]()
