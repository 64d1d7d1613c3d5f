"""Conversations through SGLang's router: routers.py PROGRAMS MODEL_FILE

The router is in front of three daemons. Its policy cache_aware keeps a tree of the prompts that each has had. Four conversations of eight
turns, at once, must have the texts that one daemon gives them and compute at most 1.1 times its prompt tokens. Then the daemon
that served most dies: each conversation goes on with the same text, and what its daemon had is computed again.
"""
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import httpx

PROGRAMS, MODEL_FILE = map(pathlib.Path, sys.argv[1:3])
MODEL = MODEL_FILE.stem
TURNS = 8
PATIENCE_S = 120
SUBJECTS = ["the sea in winter", "a lamp that is never lit", "three stones on a road", "a clock without hands"]


def eventually(condition, what):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"FAILED  {what}: not within {PATIENCE_S} s")


class Program:
    all = []

    def __init__(self, argv, folder, **environment):
        self.folder = folder
        self.log = folder / "log"
        folder.mkdir()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **environment})
        Program.all.append(self.process)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(PATIENCE_S)


class Daemon(Program):
    def __init__(self, folder):
        own = {name: str(folder / name) for name in
               ("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        super().__init__(
            [PROGRAMS / "hearthd", "--config", "/dev/null", "--model-dir", MODEL_FILE.parent, "--set", f"roles.default={MODEL}",
             "--set", "server.start=loaded", "--set", "worker.threads=1", "--set", "http.listen=127.0.0.1:0",
             "--set", f"server.runtime_dir={folder / 'run'}", "--set", f"server.state_dir={folder / 'state'}"],
            folder, HEARTH_ALLOW_ROOT="1", HOME=str(folder), **own)
        found = eventually(lambda: re.search(rb"tcp_port=(\d+)", self.log.read_bytes()), "a daemon's port")
        self.address = f"http://127.0.0.1:{int(found[1])}"
        eventually(self.ready, "a daemon's model")

    def ready(self):
        try:
            return httpx.get(f"{self.address}/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def served(self):
        text = httpx.get(f"{self.address}/metrics").text
        return int(re.search(r'^hearth_requests_ended_total\{how="done"\} (\d+)', text, re.M)[1])


class Router(Program):
    def __init__(self, folder, daemons):
        port, metrics = free_port(), free_port()
        super().__init__(
            [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
             "--prometheus-port", str(metrics), "--policy", "cache_aware", "--cache-threshold", "0.5",
             "--health-check-endpoint", "/ready", "--health-check-interval-secs", "1", "--health-failure-threshold", "1",
             "--worker-urls", *[daemon.address for daemon in daemons]], folder)
        self.address = f"http://127.0.0.1:{port}"
        eventually(self.ready, "the router")

    def ready(self):
        try:
            return httpx.get(f"{self.address}/readiness").status_code == 200
        except httpx.HTTPError:
            return False


def free_port():
    import socket
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Conversation:
    def __init__(self, subject):
        self.subject = subject
        self.messages = [{"role": "system", "content": f"You write about {subject}. " * 12}]
        self.turns = []  # (text, prompt tokens that no cache had)

    def turn(self, address):
        self.messages.append({"role": "user", "content": f"Part {len(self.turns) + 1} of {self.subject}, please."})
        answer = httpx.post(f"{address}/v1/chat/completions", timeout=PATIENCE_S, json={
            "model": MODEL, "messages": self.messages, "max_tokens": 24, "temperature": 0})
        if answer.status_code != 200:
            sys.exit(f"FAILED  {answer.status_code} {answer.text}")
        body = answer.json()
        text, usage = body["choices"][0]["message"]["content"], body["usage"]
        self.messages.append({"role": "assistant", "content": text})
        self.turns.append((text, usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]))


def turn_of_all(conversations, address):
    """At once: the router chooses by load where no daemon knows a prompt."""
    with concurrent.futures.ThreadPoolExecutor(len(conversations)) as pool:
        list(pool.map(lambda conversation: conversation.turn(address), conversations))


def computed(conversations):
    return sum(tokens for conversation in conversations for _, tokens in conversation.turns)


def compare(name, wanted, met):
    if wanted != met:
        sys.exit(f"FAILED  {name}: want {wanted!r}, met {met!r}")
    print(f"ok      {name}")


def main(work):
    one = Daemon(work / "one")
    alone = [Conversation(subject) for subject in SUBJECTS]
    for conversation in alone:
        for _ in range(TURNS):
            conversation.turn(one.address)
    one.end()

    daemons = [Daemon(work / f"daemon{i}") for i in range(3)]
    router = Router(work / "router", daemons)
    routed = [Conversation(subject) for subject in SUBJECTS]
    for _ in range(TURNS):
        turn_of_all(routed, router.address)
    texts = [[text for text, _ in conversation.turns] for conversation in alone]
    compare("texts through the router", texts, [[text for text, _ in each.turns] for each in routed])
    ratio = computed(routed) / computed(alone)
    print(f"prompt tokens computed: {computed(routed)} by three daemons, {computed(alone)} by one: {ratio:.3f}x")
    compare("at most 1.1 times the prompt tokens of one daemon", True, ratio <= 1.1)
    print("requests served:", *(daemon.served() for daemon in daemons))
    compare("more than one daemon has served", True, sum(daemon.served() > 0 for daemon in daemons) > 1)

    # A daemon dies in the middle of conversations: their next turns are computed elsewhere, once.
    again = [Conversation(subject + ", once more") for subject in SUBJECTS]
    expected = [Conversation(subject + ", once more") for subject in SUBJECTS]
    before = [daemon.served() for daemon in daemons]
    for _ in range(TURNS // 2):
        turn_of_all(again, router.address)
    gained = [daemon.served() - had for daemon, had in zip(daemons, before)]
    busiest = gained.index(max(gained))
    daemons[busiest].end(signal.SIGKILL)
    time.sleep(3)  # the router's next check of its health
    for _ in range(TURNS // 2, TURNS):
        turn_of_all(again, router.address)
    last = Daemon(work / "last")
    for conversation in expected:
        for _ in range(TURNS):
            conversation.turn(last.address)
    compare("texts after a daemon's death", [[text for text, _ in each.turns] for each in expected],
            [[text for text, _ in each.turns] for each in again])
    for met, want in zip(again, expected):
        extra = [tokens - least for (_, tokens), (_, least) in zip(met.turns, want.turns)]
        # The router sometimes moves a conversation a second time.
        moved = [turn for turn in range(TURNS) if extra[turn] > 32]
        compare(f"computed again only after the death: {met.subject}", True,
                set(moved) <= {TURNS // 2, TURNS // 2 + 1})


with tempfile.TemporaryDirectory(prefix="hearth-routers.") as folder:
    try:
        main(pathlib.Path(folder))
    finally:
        for process in Program.all:
            process.terminate()
        for process in Program.all:
            process.wait(PATIENCE_S)
