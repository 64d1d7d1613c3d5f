"""All attacks at once by one user, kills and stops at random, and another user's streams with their texts unchanged.

    python3 tests/soak/siege.py BIN MODELS [--minutes M] [--seed N]     default: 60; tests/run.sh --full takes 3

BIN holds hearth, hearthd, hearth-worker-cpu and hearth-attack-bench, MODELS tales.gguf. First every answer is taken
undisturbed. Then, as user 65534, every attack of tests/bench/attacks.cpp runs at once, while root's clients ask for the same
answers over ZeroMQ (`hearth run`, and with --detach and `hearth attach`) and HTTP (whole and streamed). At random moments,
drawn from the seed, the worker, a client or, less often, the broker is killed (-9), and the worker or a client is stopped for
a moment. A client whose request was interrupted must get an error; it then asks again, or attaches. Fails when

* a text differs from the undisturbed one, or what came of it before an error is not its beginning;
* a stream ends without its whole text and without an error, or is not whole after repeated tries;
* a process of the daemon ends in any other way than by our signals;
* afterwards `hearth cache verify` finds something, a request or a KV block is left, the broker or its worker holds more
  descriptors than before, the daemon does not stop in good order, or a process is left.

Attacks need root, to be of another user; without it there are kills and stops alone. The moments depend on the machine, so a seed
repeats what is done and in which order, and not how it turns out.
"""
import argparse
import collections
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from daemon import JSON, Daemon, command_of, descriptors, events_of, resident_kib

ATTACKER = 65534
CLIENTS = 6
MAX_TOKENS = 160
# After so long without its whole text a request is lost: the attacks slow the machine down, kills make it begin anew.
PATIENCE_S = 600
BEGINNINGS = ["Once upon a time", "The king had three sons", "In a dark wood there lived", "A poor miller had"]
# The errors by which `hearth` and HTTP report that an answer is unavailable now.
ERRORS = {"lost", "unavailable", "busy", "poison", "rate_limit_exceeded"}

parser = argparse.ArgumentParser()
parser.add_argument("bin")
parser.add_argument("models")
parser.add_argument("--minutes", type=float, default=60)
parser.add_argument("--seed", type=int, default=int(os.environ.get("HEARTH_NIGHT_SEED", "0")) or random.randrange(1 << 32))
args = parser.parse_args()
print(f"seed {args.seed}", flush=True)

work = tempfile.mkdtemp(prefix="hearth-siege.")
daemon = Daemon(args.bin, args.models, work)
lock, stop = threading.Lock(), threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("ended by a signal"))
problems, counts, errors, done = [], collections.Counter(), collections.Counter(), collections.Counter()
running = {}  # process id: Popen of the clients that are at work
broker_life = 0  # odd while there is none: a connection that breaks in an even one that goes on is an error


def problem(text):
    with lock:
        problems.append(text)
    print("PROBLEM:", text, flush=True)


def count(what):
    with lock:
        counts[what] += 1


class Failed(Exception):
    """An answer that ended with an error, or with its connection; the argument is the error's code."""


def let_in():
    """The attacker may connect, as a member of the daemon's group could."""
    if os.geteuid() != 0:
        return
    os.chmod(work, 0o711)
    for name in ("", "/api.sock", "/events.sock", "/http.sock"):
        os.chown(work + "/run" + name, -1, ATTACKER)
    os.chmod(work + "/run", 0o750)


def start():
    daemon.start()
    if daemon.hearth("ping", "--wait-ms", "30000").returncode != 0:
        return False
    let_in()
    return True


# ---- The clients ------------------------------------------------------------------------------------------------------


def make_requests(draw):
    """Prompts that share beginnings of several KV blocks, so that stored prefixes are found."""
    words = "the a old king wolf child wood went saw came little great house night gold bread and then but his her".split()
    tales = [f"{begin}, {' '.join(draw.choice(words) for _ in range(60))}." for begin in BEGINNINGS]
    return [(tale[:draw.randrange(40, len(tale))], seed) for tale in tales for seed in (1, 2, 3)]


def check_beginning(request, text):
    if not answers[request].startswith(text):
        problem(f"wrong text before an error: {request}: {text!r}, want {answers[request]!r}")


def run_client(words, request=None):
    """Its output; Failed where it ended with an error, or by our signal."""
    client = subprocess.Popen([args.bin + "/hearth", *words], env=daemon.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="surrogateescape")
    with lock:
        running[client.pid] = client
    try:
        output, errors_shown = client.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        client.kill()
        client.communicate()
        problem(f"hearth {words} did not end in {PATIENCE_S} s")
        raise Failed("hang") from None
    finally:
        with lock:
            del running[client.pid]
    if client.returncode == 0:
        return output
    if request is not None:
        check_beginning(request, output)
    if client.returncode == -signal.SIGKILL:
        raise Failed("client killed")
    code = re.search(r"\[([a-z_]+)\]$", errors_shown, re.MULTILINE)
    if client.returncode == 3 and code is None:
        raise Failed("no daemon")
    if code is None or code[1] not in ERRORS | {"not_found"}:
        problem(f"hearth {words} ended with {client.returncode}: {errors_shown!r}")
        raise Failed("other")
    raise Failed(code[1])


def flags(request):
    prompt, seed = request
    return ["tales", "--raw", "--no-start", "--seed", str(seed), "--max-tokens", str(MAX_TOKENS), prompt]


def by_command_line(request, draw):
    return run_client(["run", *flags(request)], request)


def by_attaching(request, draw):
    """Started with --detach; what follows an error is attached to, which begins with the first token."""
    number = run_client(["run", "--detach", *flags(request)]).strip()
    for _ in range(20):
        time.sleep(draw.random())
        try:
            return run_client(["attach", number], request)
        except Failed as failed:
            if failed.args[0] in ("not_found", "poison"):  # the broker that knew it is gone; or it ended so
                raise
            with lock:
                errors[failed.args[0]] += 1
    raise Failed("unavailable")


def body_of(request, **more):
    prompt, seed = request
    return json.dumps(dict(model="tales", prompt=prompt, seed=seed, max_tokens=MAX_TOKENS, **more))


def error_code(error):
    return error.get("code") or error.get("type") or "none"


def ask(request, handle, **more):
    """Posts the request; `handle` reads its answer."""
    life = broker_life
    connection = daemon.connection()
    try:
        connection.request("POST", "/v1/completions", body_of(request, **more), JSON)
        answer = connection.getresponse()
        if answer.status != 200:
            code = error_code(json.loads(answer.read())["error"])
            if code not in ERRORS:
                problem(f"HTTP: {answer.status} {code}")
            raise Failed(code)
        return handle(answer)
    except (http.client.HTTPException, OSError, ValueError) as error:
        if life % 2 == 0 and life == broker_life:
            problem(f"HTTP: {error!r}, and the broker was not killed")
        raise Failed("connection") from None
    finally:
        connection.close()


def by_http(request, draw):
    return ask(request, lambda answer: json.loads(answer.read())["choices"][0]["text"])


def by_http_stream(request, draw):
    def read(answer):
        text = ""
        try:
            for event in events_of(answer):
                if event is None:
                    raise http.client.IncompleteRead(b"")
                if "error" in event:
                    code = error_code(event["error"])
                    if code not in ERRORS:
                        problem(f"HTTP stream: {event}")
                    raise Failed(code)
                text += "".join(choice["text"] for choice in event["choices"])
                if draw.random() < 0.003:
                    count("HTTP readers paused")
                    time.sleep(draw.random() * 2)
            return text
        except (Failed, http.client.HTTPException, OSError):
            check_beginning(request, text)
            raise

    return ask(request, read, stream=True)


KINDS = {"hearth run": by_command_line, "hearth attach": by_attaching, "HTTP": by_http, "HTTP stream": by_http_stream}


def client(number):
    draw = random.Random(f"{args.seed}/{number}")
    while not stop.is_set():
        request, kind = draw.choice(requests), draw.choice(list(KINDS))
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                text = KINDS[kind](request, draw)
                if text != answers[request]:
                    problem(f"wrong text: {kind} {request}: {text!r}, want {answers[request]!r}")
                with lock:
                    done[kind] += 1
                break
            except Failed as failed:
                with lock:
                    errors[failed.args[0]] += 1
                if time.monotonic() > give_up:
                    problem(f"lost: {kind} {request} was not whole in {PATIENCE_S} s, last {failed.args[0]}")
                    break
                time.sleep(0.2 + draw.random() * 0.3)
            except Exception as error:  # whatever it is, it is a finding
                problem(f"{kind} {request}: {error!r}")
                break


# ---- Kills and stops ----------------------------------------------------------------------------------------------------


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def hold(pid, seconds):
    """Stopped for a moment. It may be killed meanwhile, or end."""
    if send(pid, signal.SIGSTOP):
        stop.wait(seconds)
        send(pid, signal.SIGCONT)
        return True
    return False


def some_client(draw):
    """One that is not reaped before the lock is given back."""
    with lock:
        return draw.choice(sorted(running)) if running else None


def kill_client(draw):
    with lock:
        if not running:
            return
        pid = draw.choice(sorted(running))
        if running[pid].returncode is None and send(pid, signal.SIGKILL):
            counts["clients killed"] += 1


def stop_client(draw):
    pid = some_client(draw)
    if pid is not None and hold(pid, draw.uniform(0.1, 2.5)):
        count("clients stopped")


def kill_worker(draw):
    for pid in daemon.workers():
        if send(pid, signal.SIGKILL):
            count("workers killed")


def stop_worker(draw):
    for pid in daemon.workers():
        if hold(pid, draw.uniform(0.1, 2.5)):
            count("workers stopped")


def died(daemon):
    """What ended a broker that we did not kill, as words."""
    return f"the broker ended with {daemon.process.returncode}: {tail()}"


def tail():
    with open(daemon.log, errors="replace") as log:
        return log.read()[-3000:]


def kill_broker(draw):
    global broker_life
    if daemon.process.poll() is not None:
        return problem(died(daemon))
    broker_life += 1
    daemon.process.kill()
    if daemon.process.wait() != -signal.SIGKILL:
        problem(died(daemon))
    count("brokers killed")
    time.sleep(draw.random())
    if not start():
        problem("after a kill the broker does not start: " + tail())
    broker_life += 1


def besiege(draw, seconds):
    # Weights: the model is loaded within a second or two, and requests are to end between the kills.
    deeds = [kill_worker] * 4 + [stop_worker] * 4 + [kill_client] * 3 + [stop_client] * 4 + [kill_broker]
    end = time.monotonic() + seconds
    next_word = time.monotonic() + 60
    while time.monotonic() < end and len(problems) < 20:
        stop.wait(draw.uniform(0.5, 6))
        draw.choice(deeds)(draw)
        if daemon.process.poll() is not None:
            return problem(died(daemon))
        if attack is not None and attack.poll() is not None:
            return problem(f"the attack ended by itself, status {attack.returncode}")
        if time.monotonic() > next_word:
            next_word += 60
            with lock:
                print(f"{sum(done.values())} texts whole, {sum(errors.values())} errors, {dict(counts)}, broker "
                      f"{resident_kib(daemon.process.pid) >> 10} MiB", flush=True)


# ---- Before and after ---------------------------------------------------------------------------------------------------


def held():
    """Open files of broker and worker, with their number."""
    return [collections.Counter(descriptors(pid)) for pid in [daemon.process.pid, *daemon.workers()]]


def more_held(before):
    """What each of them holds more than before."""
    now = held()
    return [dict(files - then) for files, then in zip(now, before)] if any(
        files - then for files, then in zip(now, before)) or len(now) != len(before) else []


def at_rest():
    stats = daemon.hearth("stats", "--json")
    if stats.returncode != 0:
        return False
    stats = json.loads(stats.stdout)
    return (stats["requests_live"] == 0 and
            not any(any(worker["snapshot"]["kv_blocks_used"]) for worker in stats["workers"]))


def eventually(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def check_deaths():
    """Each death that a broker has logged is one of ours."""
    with open(daemon.log, errors="replace") as log:
        lines = log.read().splitlines()
    deaths = [line for line in lines if "worker_died" in line]
    for line in deaths:
        if 'how="signal 9' not in line:
            problem("a worker died otherwise than by us: " + line)
    if len(deaths) > counts["workers killed"]:
        problem(f"{len(deaths)} workers died of signal 9, {counts['workers killed']} by us")
    for line in lines:
        ours = "model_failed" in line and "signal 9" in line  # killed three times while it was loaded
        if ("worker_killed" in line or "model_failed" in line or "check failed" in line) and not ours:
            problem("the log: " + line)


def left_over():
    """Processes that name our directory."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in pids if work.encode() in command_of(pid)]


def finish(threads, before):
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_S + 60)
        if thread.is_alive():
            problem("a client waits for an answer that does not come")
    if daemon.process.poll() is not None:
        return problem(died(daemon))
    # One more answer: a worker is there, and serves.
    for request in requests[:2]:
        if run_client(["run", *flags(request)], request) != answers[request]:
            problem(f"wrong text after the attacks: {request}")
    if not eventually(at_rest):
        problem("a request or a KV block is left: " + daemon.hearth("stats", "--json").stdout)
    if not eventually(lambda: not more_held(before)):
        problem(f"descriptors of broker and worker that were not there before: {more_held(before)}")
    verified = daemon.hearth("cache", "verify")
    print("cache verify:", verified.stdout.strip() or verified.stderr.strip())
    if verified.returncode != 0:
        problem("cache verify: " + verified.stdout + verified.stderr)
    daemon.process.send_signal(signal.SIGTERM)
    if daemon.process.wait(60) != 0:
        problem(died(daemon))
    if not eventually(lambda: not left_over(), 10):
        problem(f"processes are left: {[(pid, command_of(pid)) for pid in left_over()]}")
    check_deaths()


attack, answers = None, {}
try:
    if not start():
        sys.exit("the daemon does not answer: " + tail())
    draw = random.Random(args.seed)
    requests = make_requests(draw)
    for request in requests:
        answers[request] = run_client(["run", *flags(request)])
        answers_over_http = {kind: KINDS[kind](request, draw) for kind in ("HTTP", "HTTP stream")}
        for kind, text in answers_over_http.items():
            if text != answers[request]:
                problem(f"undisturbed, {kind} differs: {text!r}, want {answers[request]!r}")
    eventually(at_rest)
    before = held()
    if os.geteuid() == 0:
        attack = subprocess.Popen([args.bin + "/hearth-attack-bench", "--against", work + "/run"])
    else:
        print("not root: no other user, hence no attacks")
    threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    besiege(draw, args.minutes * 60)
    if attack is not None:
        attack.kill()
        attack.wait()
    took = time.monotonic() - begun
    finish(threads, before)
except Failed as failed:
    problem(f"an undisturbed request failed: {failed.args[0]}")
finally:
    for process in (attack, daemon.process):
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

print(f"{sum(done.values())} texts whole and equal {dict(done)}")
print(f"errors that clients received and recovered from: {dict(errors)}")
print(f"done to them: {dict(counts)}")
if set(done) != set(KINDS) or not counts["workers killed"]:
    problem("hardly anything happened")
print(f"{len(problems)} problems, seed {args.seed}")
if problems:
    print(f"the log and the state are in {work}")
    sys.exit(1)
print(f"{took / 60:.0f} min: no crash, no wrong text, no lost stream")
shutil.rmtree(work)
