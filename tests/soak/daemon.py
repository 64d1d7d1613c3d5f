"""A daemon of one's own, and the ways to ask it, for the programs of this folder."""
import http.client
import json
import os
import socket
import subprocess

JSON = {"Content-Type": "application/json"}


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path, timeout=120):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.connect(self.path)  # without a timeout: it waits where many others connect
        except OSError:
            self.sock.close()
            raise
        self.sock.settimeout(self.timeout)


class Daemon:
    """hearthd of the directory `bin`, with its directories run and state and its log below `work`."""

    def __init__(self, bin, models, work, settings=()):
        self.bin, self.work = bin, work
        self.env = dict(os.environ, HEARTH_RUNTIME_DIR=work + "/run", HEARTH_STATE_DIR=work + "/state")
        self.log = work + "/log"
        self.argv = [bin + "/hearthd", "--config", "/dev/null", "--set", "server.log_level=warn", "--model-dir", models]
        if os.geteuid() == 0:
            self.argv.append("--allow-root")
        for setting in settings:
            self.argv += ["--set", setting]
        self.process = None

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.argv, env=self.env, stdin=subprocess.DEVNULL, stderr=log)

    def hearth(self, *words, timeout=120):
        return subprocess.run([self.bin + "/hearth", *words], env=self.env, capture_output=True, text=True, timeout=timeout)

    def connection(self):
        return UnixConnection(self.work + "/run/http.sock")

    def workers(self):
        """The process ids of its workers."""
        try:
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as children:
                pids = [int(pid) for pid in children.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            return []
        return [pid for pid in pids if b"\0serve\0" in command_of(pid)]


def command_of(pid):
    """The words of a process's command line, each with a zero byte after it; none of one that has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def descriptors(pid):
    """What they refer to, without the numbers of sockets and pipes."""
    open_files = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            open_files.append(os.readlink(f"/proc/{pid}/fd/{number}").split(":[")[0])
        except FileNotFoundError:
            pass  # closed meanwhile
    return sorted(open_files)


def events_of(answer):
    """The events of a stream until [DONE]; the last is None where that did not come."""
    for line in answer:
        if line.startswith(b"data: [DONE]"):
            return
        if line.startswith(b"data: "):
            yield json.loads(line[6:])
    yield None
