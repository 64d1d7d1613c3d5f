"""The comparisons of compare_engines.sh: compare_engines.py PROGRAMS TREE PEER FILE ROUNDS"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import http.client
import json
import os
import re
import shutil
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

PROGRAMS, TREE, PEER, FILE, ROUNDS = (*map(Path, sys.argv[1:5]), int(sys.argv[5]))
THREADS = int(os.environ.get("HEARTH_THREADS", os.cpu_count() or 1))
FLAGS = shlex.split(os.environ.get("HEARTH_PEER_FLAGS", ""))
CLIENTS, NEW_TOKENS = 16, 64
HEARTH = str(PROGRAMS / "hearth")


def output(argv: list[object], **more) -> str:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{argv[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def spread(values: list[float], digits: int = 1) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def heading(what: str) -> None:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    version = subprocess.run([str(PEER), "--version"], capture_output=True, text=True)
    said = (version.stdout + version.stderr).strip().splitlines()
    git = ["git", "-C", str(TREE), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip() if shutil.which("git") else "?"
    print(f"### {what}, {datetime.date.today()}\n")
    print(f"{cpu.group(1) if cpu else 'unknown CPU'}, {os.cpu_count()} cores, {THREADS} threads, load "
          f"{os.getloadavg()[0]:.1f} at the start. {FILE.name}; hearth {commit}, {PEER.name} "
          f"({next((s for s in said if 'version' in s), 'says no version')}); {ROUNDS} rounds, the engines in turn: "
          f"`bash tests/bench/compare_engines.sh {PEER.name} {FILE.name} {ROUNDS}`.\n")


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stream(port: int, prompt: str, headers: dict[str, str]) -> tuple[int, float]:
    """Events of one completion of NEW_TOKENS tokens, and seconds to the first."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"model": FILE.stem, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True}}
    asked, first, tokens = time.monotonic(), 0.0, 0
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", **headers})
    reply = connection.getresponse()
    if reply.status != 200:
        sys.exit(f"port {port}: status {reply.status}: {reply.read(500)!r}")
    for line in reply:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if not first and event.get("choices") and event["choices"][0]["text"]:
            first = time.monotonic() - asked
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    connection.close()
    return tokens, first


def clients(port: int, round_number: int) -> tuple[float, float]:
    """tokens/s and the median time to the first token of CLIENTS streams at once, with prompts not asked before."""
    words = (TREE / "tests/published/text.txt").read_text().split()
    prompts = [" ".join([f"{round_number}.{i}"] + words[40 * i:40 * i + 48]) for i in range(CLIENTS)]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        results = list(pool.map(lambda prompt: stream(port, prompt, {}), prompts))
    seconds = time.monotonic() - began
    tokens = [n for n, _ in results]
    if set(tokens) != {NEW_TOKENS}:
        sys.exit(f"tokens per stream: met {sorted(set(tokens))}, want {NEW_TOKENS}")
    return sum(tokens) / seconds, median(first for _, first in results)


@contextlib.contextmanager
def serving(argv: list[object], port: int, log: Path):
    """A server, from when it answers a completion to its end."""
    with log.open("wb") as out:
        server = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if server.poll() is not None:
                sys.exit(f"{argv[0]} ended:\n{log.read_text(errors='replace')[-2000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("POST", "/v1/completions", json.dumps(
                    {"model": FILE.stem, "prompt": "a", "max_tokens": 1}), {"Content-Type": "application/json"})
                if connection.getresponse().status == 200:
                    break
            time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait(60)


def llama_server() -> None:
    heading(f"{CLIENTS} clients that stream {NEW_TOKENS} tokens each")
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="hearth-compare.") as directory:
        work = Path(directory)
        for number in range(ROUNDS):
            port = free_port()
            root = ["--allow-root"] if os.getuid() == 0 else []
            with serving([PROGRAMS / "hearthd", *root, "--config", "/dev/null", "--runtime-dir", work / "run",
                          "--model-dir", FILE.parent, "--set", f"server.state_dir={work / 'state'}", "--set",
                          f"http.listen=127.0.0.1:{port}", "--set", f"worker.threads={THREADS}", "--set",
                          "cache.tier=memory"], port, work / "hearthd.log"):
                ours.append(clients(port, number))
            port = free_port()
            with serving([PEER, "-m", FILE, "-t", THREADS, "-np", CLIENTS, "-c", 4096, "--host", "127.0.0.1", "--port",
                          port, *FLAGS], port, work / "peer.log"):
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
