"""Serves mixed requests for a long time and checks what is left over.

    python3 tests/soak/soak.py BIN MODELS [--hours H]      default: 24; tests/run.sh --full takes 0.1

BIN holds hearth, hearthd and hearth-worker-cpu, MODELS tales.gguf. A daemon of its own serves six clients over HTTP:
streams that are read to their end, streams that are dropped half-way, several samples, embeddings, new prompts and
prompts that were seen before; every few seconds the model is unloaded, which drains and restarts its worker. Fails when

* an answer differs from the first answer to the same request, or a request fails;
* the resident memory of the broker, or descriptors of broker or worker, grow from the middle third of the time to the last;
* a worker died, a KV block is still referenced when all is idle, or `hearth cache verify` finds something.
"""
import argparse
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from daemon import JSON, Daemon, descriptors, events_of, resident_kib

# Allocators keep what a burst took; a leak of one small object per request is more than this in an hour.
MOST_GROWTH_KIB = 4096
CLIENTS = 6
PROMPTS = ["Once upon a time", "The king had three sons", "In a dark wood there lived", "A poor miller had"]

parser = argparse.ArgumentParser()
parser.add_argument("bin")
parser.add_argument("models")
parser.add_argument("--hours", type=float, default=24)
args = parser.parse_args()
seconds = args.hours * 3600

work = tempfile.mkdtemp(prefix="hearth-soak.")
daemon = Daemon(args.bin, args.models, work)
problems, first, counts = [], {}, {}
lock, stop = threading.Lock(), threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("ended by a signal"))


def ask(path, body):
    connection = daemon.connection()
    connection.request("POST", path, json.dumps(body), JSON)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {text[:200]}")
    return json.loads(text)


def stream(body, leave_after):
    """The text of a stream, or of its first events."""
    connection = daemon.connection()
    connection.request("POST", "/v1/completions", json.dumps(dict(body, stream=True)), JSON)
    answer = connection.getresponse()
    text, events = "", 0
    for event in events_of(answer):
        if event is None:
            raise RuntimeError("the stream ended without [DONE]")
        if "error" in event:
            raise RuntimeError(str(event))
        text += "".join(choice["text"] for choice in event["choices"])
        events += 1
        if leave_after and events >= leave_after:
            break
    connection.close()
    return text


def same(key, value):
    with lock:
        if first.setdefault(key, value) != value:
            problems.append(f"{key}: {value[:80]!r}, at first {first[key][:80]!r}")


def client(number):
    draw = random.Random(number)
    while not stop.is_set():
        kind = draw.choice(["whole", "stream", "dropped", "samples", "embedding", "new"])
        seed, prompt = draw.randrange(3), draw.choice(PROMPTS)
        body = dict(model="tales", prompt=prompt, seed=seed, max_tokens=48)
        try:
            if kind == "whole":
                same(f"{prompt}/{seed}", ask("/v1/completions", body)["choices"][0]["text"])
            elif kind == "stream":
                same(f"{prompt}/{seed}", stream(body, 0))
            elif kind == "dropped":
                stream(dict(body, max_tokens=400), draw.randrange(1, 20))
            elif kind == "samples":
                choices = ask("/v1/completions", dict(body, n=3))["choices"]
                same(f"{prompt}/{seed}/3", "|".join(choice["text"] for choice in choices))
            elif kind == "embedding":
                same(prompt, str(ask("/v1/embeddings", dict(model="tales", input=prompt, pooling="mean"))["data"]))
            else:
                ask("/v1/completions", dict(body, prompt=prompt + f" {draw.random()}"))
            with lock:
                counts[kind] = counts.get(kind, 0) + 1
        except Exception as error:  # whatever it is, it is a finding
            with lock:
                problems.append(f"{kind}: {error!r}")
            time.sleep(1)


def verb(*words):
    """What a verb prints. On a machine with too much to do the daemon may answer too late for one try (status 3)."""
    for _ in range(5):
        answer = daemon.hearth(*words)
        if answer.returncode == 0:
            return answer.stdout
        if answer.returncode != 3:
            break
        time.sleep(2)
    problems.append(f"{words}: status {answer.returncode}: {answer.stderr}")
    return ""


def workers():
    stats = verb("stats", "--json")
    return json.loads(stats)["workers"] if stats else []


daemon.start()
process = daemon.process
samples = []
try:
    if daemon.hearth("ping", "--wait-ms", "10000").returncode != 0:
        sys.exit("the daemon does not answer: " + open(daemon.log).read()[-2000:])
    threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    begun, unloaded = time.time(), time.time()
    pause = max(1.0, seconds / 600)
    while time.time() - begun < seconds and process.poll() is None and len(problems) < 100:
        time.sleep(pause)
        sample = [resident_kib(process.pid), len(descriptors(process.pid)), 0]
        try:
            sample[2] = max((len(descriptors(worker["pid"])) for worker in workers()), default=0)
        except FileNotFoundError:
            pass  # a worker ended just now
        samples.append(sample)
        if time.time() - unloaded > max(10, seconds / 100):
            unloaded = time.time()
            verb("unload", "tales")
    stop.set()
    for thread in threads:
        thread.join(180)
        if thread.is_alive():
            problems.append("a client waits for an answer that does not come")
    if process.poll() is not None:
        problems.append(f"the daemon ended with {process.returncode}")
    else:
        time.sleep(2)  # several heartbeats: they describe an idle worker
        for worker in workers():
            if worker["restarts"] != 0 or any(worker["snapshot"]["kv_blocks_used"]):
                problems.append(f"worker: {worker['restarts']} restarts, blocks {worker['snapshot']['kv_blocks_used']}")
        connection = daemon.connection()
        connection.request("GET", "/health")
        health = json.loads(connection.getresponse().read())
        if health["status"] != "ok":
            problems.append(f"health: {health}")
        verified = daemon.hearth("cache", "verify")
        if verified.returncode != 0:
            problems.append("cache verify: " + verified.stdout + verified.stderr)
finally:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            if process.wait(60) != 0:
                problems.append(f"hearthd ended with {process.returncode}")
        except subprocess.TimeoutExpired:
            problems.append("hearthd does not stop")
            process.kill()

third = len(samples) // 3
if third == 0:
    problems.append("there was no time for three samples")
else:
    middle, last = samples[third:2 * third], samples[2 * third:]
    print(f"{sum(counts.values())} requests {counts}")
    for at, what, most in ((0, "broker, resident KiB", MOST_GROWTH_KIB), (1, "broker, descriptors", 8),
                           (2, "worker, descriptors", 8)):
        before, after = (statistics.median(sample[at] for sample in part) for part in (middle, last))
        hours = args.hours / 3
        print(f"{what}: {before:.0f} in the middle third, {after:.0f} in the last, {(after - before) / hours:+.1f} an hour")
        if after - before > most:
            problems.append(f"{what}: grew from {before:.0f} to {after:.0f}, want {most} more at most")
if sum(counts.values()) < CLIENTS:
    problems.append("hardly anything was served")
for problem in problems[:20]:
    print("FAILED:", problem)
if problems:
    print(f"{len(problems)} problems; the log and the state are in {work}")
    sys.exit(1)
shutil.rmtree(work)
