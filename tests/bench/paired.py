"""The bursts of paired.sh: paired.py PROGRAMS TREE FILE SERVER..."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from engines import commit, free_port, hearthd, machine, output, post, serving, version

PROGRAMS, TREE, FILE = map(Path, sys.argv[1:4])
PEERS = [Path(peer).resolve() for peer in sys.argv[4:]]
THREADS = int(os.environ.get("HEARTH_THREADS", os.cpu_count() or 1))
ROUNDS = int(os.environ.get("HEARTH_ROUNDS", 40))
BURST = float(os.environ.get("HEARTH_BURST", 1))
FLAGS = shlex.split(os.environ.get("HEARTH_PEER_FLAGS", ""))


class Engine:
    """A server that decodes one sequence. `more`: fields of its requests."""

    def __init__(self, name: str, port: int, **more):
        self.name, self.port, self.more, self.tokens = name, port, more, 8

    def burst(self) -> float:
        """tokens/s of one request, from its sending to its whole answer; the prompt is a token that it has cached."""
        body = {"model": FILE.stem, "prompt": "a", "max_tokens": self.tokens, "temperature": 0, "ignore_eos": True, **self.more}
        began = time.monotonic()
        answer = json.loads(post(self.port, body).read())
        seconds = time.monotonic() - began
        met = answer["usage"]["completion_tokens"]
        if met != self.tokens:
            sys.exit(f"{self.name}: {met} tokens, want {self.tokens}")
        return met / seconds

    def settle(self) -> None:
        """Finds how many tokens a burst takes; the engine has packed and mapped what it wants by then."""
        for _ in range(3):
            self.tokens = max(8, min(int(self.burst() * BURST), 1000))


class Reader:
    """Bursts of nothing but reading, in bytes per second."""

    def __init__(self):
        self.name = "read"
        self.program = subprocess.Popen([str(PROGRAMS / "hearth-read-bench"), "--threads", str(THREADS), "--seconds", str(BURST)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def burst(self) -> float:
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        return float(self.program.stdout.readline())

    def close(self) -> None:
        self.program.stdin.close()
        self.program.wait(60)


def bytes_per_token() -> float:
    """What decoding one token reads, as `hearth bench` counts it."""
    case = json.loads(output([PROGRAMS / "hearth", "bench", FILE, "--quick", "--rounds", 1, "--threads", THREADS, "--json"]))
    decode = next(each for each in case["cases"] if each["case"] == "decode")
    return decode["share"] * decode["seconds"] * case["ceilings"]["read_bytes_per_s"]


def spread(values: list[float], digits: int = 2) -> str:
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def sign_test(ratios: list[float]) -> tuple[int, float]:
    """Rounds above 1, and the chance of at least so many if above and below were equally likely."""
    won = sum(ratio > 1 for ratio in ratios)
    return won, sum(math.comb(len(ratios), k) for k in range(won, len(ratios) + 1)) / 2 ** len(ratios)


def report(bursts: dict[str, list[float]], token_bytes: float) -> None:
    print(f"{machine(THREADS)}. {FILE.name}, {token_bytes / 1e6:.0f} MB a token; hearth {commit(TREE)}, "
          f"{ROUNDS} rounds of bursts of {BURST:g} s.")
    for i, peer in enumerate(PEERS):
        print(f"peer {i + 1}: {version(peer)}")
    print(f"\nread {spread([rate / 1e9 for rate in bursts['read']], 1)} GB/s\n")
    print("| one sequence | tokens/s | share of the round's read | hearth over it | rounds won | chance if equal |\n|---|---|---|---|---|---|")
    for name, rates in bursts.items():
        if name == "read":
            continue
        share = [token_bytes * rate / read for rate, read in zip(rates, bursts["read"])]
        line = f"| {name} | {spread(rates, 1)} | {spread(share)} |"
        if name != "hearth":
            ratios = [ours / theirs for ours, theirs in zip(bursts["hearth"], rates)]
            won, chance = sign_test(ratios)
            line += f" {spread(ratios)} | {won} of {len(ratios)} | {chance:.2g} |"
        else:
            line += " | | |"
        print(line)


def main() -> None:
    token_bytes = bytes_per_token()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hearth-paired.")))
        port = free_port()
        stack.enter_context(serving(hearthd(PROGRAMS, FILE, THREADS, port, work), port, FILE.stem, work / "hearthd.log"))
        engines = [Engine("hearth", port, speculate=False)]
        for i, peer in enumerate(PEERS):
            port = free_port()
            if peer.name == "hearthd":
                own = work / f"peer{i}"
                own.mkdir()
                command = hearthd(peer.parent, FILE, THREADS, port, own)
                more = {"speculate": False}
            else:
                command = [peer, "-m", FILE, "-t", THREADS, "-np", 1, "-c", 2048, "--host", "127.0.0.1", "--port", port, *FLAGS]
                more = {}
            stack.enter_context(serving(command, port, FILE.stem, work / f"peer{i}.log"))
            engines.append(Engine(f"peer {i + 1}", port, **more))
        for engine in engines:
            engine.settle()
        reader = stack.enter_context(contextlib.closing(Reader()))
        takes = [*engines, reader]
        bursts: dict[str, list[float]] = {each.name: [] for each in takes}
        for _ in range(ROUNDS):
            for each in random.sample(takes, len(takes)):
                bursts[each.name].append(each.burst())
    report(bursts, token_bytes)


main()
