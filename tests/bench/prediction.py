"""What a prediction of the answer saves: prediction.py SOCKET MODEL [ROUNDS [TOKENS]]

The answer is what MODEL writes with a seed; its prediction is that text in 200 pieces, of which 5 have other words. It is
generated without drafts, with lookup alone and with the prediction, in turn; the text must be the same each time.
SOCKET is a running daemon's http.sock.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import sys
import time
from statistics import median

SOCKET, MODEL = sys.argv[1], sys.argv[2]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
TOKENS = int(sys.argv[4]) if len(sys.argv) > 4 else 2000
PIECES, CHANGED = 200, 5


class Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)


def ask(**more) -> dict:
    connection = Connection("localhost", timeout=3600)
    body = {"model": MODEL, "prompt": "The history of the town, in short lines:\n", "max_tokens": TOKENS, "seed": 11,
            "temperature": 1.0, "ignore_eos": True, "cache": "memory", **more}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    if "error" in answer:
        sys.exit(f"refused: {answer['error']}")
    return answer


def changed(text: str) -> str:
    words = text.split(" ")
    choose = random.Random(5)
    size = max(1, len(words) // PIECES)
    for piece in range(CHANGED):
        at = (2 * piece + 1) * len(words) // (2 * CHANGED)
        words[at:at + size] = [choose.choice(words) for _ in range(size + piece - 2)]
    return " ".join(words)


first = ask(speculate=False)["choices"][0]["text"]
ways = {"plain": {"speculate": False}, "lookup": {}, "prediction": {"prediction": changed(first)}}
rates: dict[str, list[float]] = {way: [] for way in ways}
details = {}
for _ in range(ROUNDS):
    for way, more in ways.items():
        begun = time.monotonic()
        answer = ask(**more)
        took = time.monotonic() - begun
        if answer["choices"][0]["text"] != first:
            sys.exit(f"{way}: another text")
        rates[way].append(TOKENS / took)
        details[way] = answer["usage"]["completion_tokens_details"]
for way, values in rates.items():
    ratio = median(values) / median(rates["plain"])
    print(f"{way}: {median(values):.1f} tokens/s ({min(values):.1f} to {max(values):.1f}), {ratio:.2f} x plain")
print(f"of {TOKENS} tokens: {details['prediction']}")
