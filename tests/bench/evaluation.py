#!/usr/bin/env python3
"""What an evaluation by log likelihoods gains: the requests that lm-eval's local-completions sends.

    evaluation.py http://127.0.0.1:PORT MODEL [ROUNDS]

A question has ten lines of examples before it, the same before each, and four answers. Each pair of question and answer is a
prompt of which the log probabilities are wanted (`echo`). Ways of asking take turns: one request at a time or eight, without
and with the prefix cache. Each round has texts of its own. Prints requests per second of each round (computed anew, with the
cache) and the medians of the rounds after the first, and checks that cached prefixes change no number.
"""
import http.client
import json
import pathlib
import statistics
import sys
import threading
import time

address, model = sys.argv[1].removeprefix("http://"), sys.argv[2]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
words = (pathlib.Path(__file__).parent.parent / "published/text.txt").read_text().split()


def prompts_from(word):
    """Prompts that share nothing with those from another word."""
    text = words[word:]
    examples = "\n".join(" ".join(text[at:at + 30]) for at in range(0, 300, 30))
    out = []
    for at in range(300, 460, 16):
        question = examples + "\n" + " ".join(text[at:at + 20])
        out += [question + " " + " ".join(text[start:start + 4]) for start in (at + 20, at + 5, at + 30, at + 42)]
    return out


def ask(connection, prompt, cache):
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    if not cache:
        body["cache"] = "off"
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return json.loads(text)["choices"][0]["logprobs"]["token_logprobs"]


def run(prompts, clients, cache):
    results = [None] * len(prompts)
    left = list(range(len(prompts)))
    lock = threading.Lock()

    def work():
        connection = http.client.HTTPConnection(address)
        while True:
            with lock:
                if not left:
                    return
                each = left.pop(0)
            results[each] = ask(connection, prompts[each], cache)

    begun = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, len(prompts) / (time.monotonic() - begun)


ways = {(clients, cache): [] for clients in (1, 8) for cache in (False, True)}
for turn in range(rounds + 1):
    for clients in (1, 8):
        prompts = prompts_from(2 * turn + (clients > 1))
        anew, cached = (run(prompts, clients, cache) for cache in (False, True))
        assert anew[0] == cached[0]
        if turn > 0:
            ways[clients, False].append(anew[1])
            ways[clients, True].append(cached[1])
        print(f"round {turn}, {clients} at a time: {anew[1]:.2f}, {cached[1]:.2f} requests/s", flush=True)
alone = statistics.median(ways[1, False])
for (clients, cache), rates in ways.items():
    rate = statistics.median(rates)
    print(f"{clients} at a time, {'prefixes cached' if cache else 'computed anew'}: {rate:.1f} requests/s "
          f"({min(rates):.1f} to {max(rates):.1f}), {rate / alone:.2f}x")
