"""What compare_engines.py and paired.py share: programs that are run, servers that are waited for, lines of a report."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path


def output(argv: list[object], **more) -> str:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{argv[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def machine(threads: int) -> str:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return (f"{cpu.group(1) if cpu else 'unknown CPU'}, {os.cpu_count()} cores, {threads} threads, load "
            f"{os.getloadavg()[0]:.1f} at the start, {datetime.date.today()}")


def commit(tree: Path) -> str:
    git = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip() if shutil.which("git") else "?"


def version(program: Path) -> str:
    told = subprocess.run([str(program), "--version"], capture_output=True, text=True)
    lines = (told.stdout + told.stderr).strip().splitlines()
    return next((line for line in lines if "version" in line), "names no version")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def post(port: int, body: dict) -> http.client.HTTPResponse:
    """The answer to one request for a completion; its connection closes once it is read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        sys.exit(f"port {port}: status {reply.status}: {reply.read(500)!r}")
    return reply


@contextlib.contextmanager
def serving(argv: list[object], port: int, model: str, log: Path):
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
                    {"model": model, "prompt": "a", "max_tokens": 1}), {"Content-Type": "application/json"})
                if connection.getresponse().status == 200:
                    break
            time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait(60)


def hearthd(programs: Path, file: Path, threads: int, port: int, work: Path) -> list[object]:
    """The command of a daemon of its own that answers at `port` and keeps its files in `work`."""
    root = ["--allow-root"] if os.getuid() == 0 else []
    settings = {"server.state_dir": work / "state", "http.listen": f"127.0.0.1:{port}", "worker.threads": threads,
                "cache.tier": "memory"}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return [programs / "hearthd", *root, "--config", "/dev/null", "--runtime-dir", work / "run", "--model-dir", file.parent,
            *sets]
