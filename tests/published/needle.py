"""Numbers that a model finds again in a long text, per KV type: needle.py PROGRAMS MODEL.gguf [TYPE...]

PROGRAMS is the folder of hearth, hearthd and hearth-worker-cpu. A text of generated sentences fills the context up to a question; ten sentences
with a number are hidden in it at even depths. For each KV type the daemon continues the beginning of each of them greedily, and the score is
how many of the numbers it gives. --tokens: of the text, 32000; --threads: of the worker; --texts: that many texts with other numbers; --least: fail if a
type finds less than this share of what f16 finds. Prints a row of a table per type.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import time

PATIENCE_S = 1800
FACTS = ["The password of the harbour master is", "The old mill was sold for exactly", "On the baker's door is painted the figure",
         "The lighthouse keeper counted waves up to", "The oldest tree in the orchard has the label", "The wooden bridge was built with nails numbering",
         "The bell of the chapel carries the inscription", "The largest stone from the quarry has the mark",
         "The stall of the fishmonger has the licence", "The gate of the rose garden opens with the code"]
PEOPLE = ["The miller", "A young sailor", "The old queen", "My neighbour", "The shepherd", "A tired messenger", "The tailor", "Her brother"]
DID = ["walked along", "looked over", "painted", "repaired", "remembered", "measured", "crossed", "described"]
WHAT = ["the narrow road", "a wooden fence", "the silver river", "an empty house", "the green hills", "a broken cart", "the high wall",
        "the quiet forest"]
WHEN = ["in the morning", "before the rain", "after supper", "on a cold day", "without a word", "as the bells rang", "at midsummer",
        "for the third time"]


def sentence(rng):
    return f"{rng.choice(PEOPLE)} {rng.choice(DID)} {rng.choice(WHAT)} {rng.choice(WHEN)}."


def text_with_numbers(seed, num_sentences):
    """The text, and the number of each fact in the order of depths."""
    rng = random.Random(seed)
    numbers = {fact: str(rng.randrange(10000, 99999)) for fact in rng.sample(FACTS, len(FACTS))}
    at = {(2 * i + 1) * num_sentences // (2 * len(numbers)): fact for i, fact in enumerate(numbers)}
    lines = []
    for i in range(num_sentences):
        if i in at:
            lines.append(f"{at[i]} {numbers[at[i]]}.")
        lines.append(sentence(rng))
    return " ".join(lines), numbers


class Daemon:
    def __init__(self, programs, model, settings, work):
        env = dict(os.environ, HEARTH_ALLOW_ROOT="1", HOME=work)
        for name in [name for name in env if name.startswith(("XDG_", "HEARTH_")) and name != "HEARTH_ALLOW_ROOT"]:
            del env[name]
        for folder in ("RUNTIME_DIR", "STATE_HOME", "CONFIG_HOME", "CACHE_HOME"):
            env[f"XDG_{folder}"] = f"{work}/{folder}"
            os.mkdir(env[f"XDG_{folder}"], mode=0o700)
        self.name = model.stem
        argv = [f"{programs}/hearthd", "--config", "/dev/null", "--model-dir", str(model.parent), "--set", "http.listen=127.0.0.1:0"]
        for key, value in settings.items():
            argv += ["--set", f"{key}={value}"]
        self.log = pathlib.Path(work, "log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(argv, env=env, stdout=log, stderr=log)
        self.port = self.find_port()

    def find_port(self):
        for _ in range(300):
            found = re.findall(r"tcp_port=(\d+)", self.log.read_text())
            if found:
                return int(found[-1])
            time.sleep(0.1)
        raise SystemExit(self.log.read_text())

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        reply = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {reply}")
        return reply

    def complete(self, prompt):
        reply = self.post("/v1/completions", {"model": self.name, "prompt": prompt, "max_tokens": 8, "temperature": 0})
        return reply["choices"][0]["text"], reply["usage"]["prompt_tokens"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def sentences_for(daemon, tokens):
    """How many sentences have about that many tokens, with the numbers and a question."""
    (_, few), (_, more) = [daemon.complete(text_with_numbers(0, count)[0]) for count in (100, 200)]
    return 100 + int(100 * (tokens - 64 - few) / (more - few))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("types", nargs="*", default=["f16", "q8_0", "fp8", "q4_0", "q8_0/q4_0"])
    parser.add_argument("--tokens", type=int, default=32000)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    scores = {}
    print("| KV type | found | by depth, from the beginning |")
    for kv_type in options.types:
        settings = {"worker.threads": options.threads, "worker.kv_type": kv_type, "worker.context_length": options.tokens + 256, "worker.max_seqs": 2,
                    "worker.prefix_store": "false"}
        with tempfile.TemporaryDirectory() as work, Daemon(options.programs, options.model, settings, work) as daemon:
            num_sentences = sentences_for(daemon, options.tokens)
            found = [0] * len(FACTS)
            for seed in range(options.texts):
                text, numbers = text_with_numbers(seed, num_sentences)
                for depth, (fact, number) in enumerate(numbers.items()):
                    answer, length = daemon.complete(f"{text} {fact}")
                    found[depth] += number in answer
                    if options.verbose:
                        print(f"  {kv_type} text {seed} depth {depth}: {number}, {answer!r}, {length} tokens", flush=True)
        scores[kv_type] = sum(found)
        print(f"| {kv_type} | {sum(found)} of {len(FACTS) * options.texts} | {' '.join(map(str, found))} |", flush=True)
    if "f16" in scores:
        for kv_type, score in scores.items():
            assert score >= options.least * scores["f16"], f"{kv_type} finds {score}, f16 {scores['f16']}"


if __name__ == "__main__":
    main()
