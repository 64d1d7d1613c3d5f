#!/usr/bin/python3
"""Streams a story from the hearth daemon over plain pyzmq (Debian: python3-zmq).
Usage: hearth_client.py [MODEL [PROMPT...]]; fields, events and errors: docs/protocol.md"""
import json, os, sys, zmq

def runtime_dir():
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    own = f"{xdg}/hearth" if xdg else os.path.expanduser("~/.cache/hearth/run")
    return os.environ.get("HEARTH_RUNTIME_DIR") or (own if os.path.exists(own) else "/run/hearth")

def generate(socket, **fields):
    """Yields each piece of text as it comes, and last the `done` event, a dict."""
    def send(request_id, **request):
        socket.send_multipart([b"HEARTH/1", request_id, json.dumps(request).encode()])
    send(b"story", verb="generate", **fields)
    answered = True
    while answered:  # a daemon that answers no ping within a second is gone
        answered = False
        send(b"ping", verb="ping")
        while socket.poll(1000):
            answered = True
            _, request_id, kind, payload, *ids = socket.recv_multipart()
            if kind == b"delta":
                yield payload[16:].decode()  # after sample, first index, count, 0 (<4I)
            elif request_id == b"story":
                event = json.loads(payload)
                if event["event"] == "error":
                    sys.exit(f"{event['code']}: {event['message']}")
                if event["event"] == "done":
                    yield event
                    return
    sys.exit("the daemon does not answer")

if __name__ == "__main__":
    model, *words = sys.argv[1:] or ["default"]
    dealer = zmq.Context().socket(zmq.DEALER)
    dealer.linger = 0
    dealer.connect(f"ipc://{runtime_dir()}/api.sock")
    for piece in generate(dealer, model=model, prompt=" ".join(words) or "Once upon a time"):
        print(piece if isinstance(piece, str) else f"\n{piece['usage']}\n", end="", flush=True)
