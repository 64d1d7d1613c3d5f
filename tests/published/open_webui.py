"""Asks a published model through open-webui's server, as its page does: open_webui.py ADDRESS MODEL"""
import json
import sys
import time

import httpx

ADDRESS, MODEL = sys.argv[1:3]
http = httpx.Client(base_url=ADDRESS, timeout=300)
for _ in range(180):
    try:
        if http.get("/health").status_code == 200:
            break
    except httpx.TransportError:
        pass
    time.sleep(1)


def ask(path, **body):
    answer = http.post(path, json=body)
    assert answer.status_code == 200, (path, answer.status_code, answer.text)
    return answer


token = ask("/api/v1/auths/signin", email="admin@localhost", password="admin").json()["token"]
http.headers["Authorization"] = "Bearer " + token
models = {model["id"]: model for model in http.get("/api/models").json()["data"]}
assert models[MODEL]["owned_by"] == "ollama" and "default" in models, list(models)

messages = [{"role": "user", "content": "What is the capital of Italy?"}]
bound = {"temperature": 0, "max_tokens": 20}
whole = ask("/openai/chat/completions", model="default", messages=messages, **bound).json()["choices"][0]["message"]["content"]
streamed = ""
for line in ask("/openai/chat/completions", model="default", messages=messages, stream=True, **bound).text.splitlines():
    if line.startswith("data: {"):
        for choice in json.loads(line[6:])["choices"]:
            streamed += choice["delta"].get("content") or ""
options = {"temperature": 0, "num_predict": 20}
local = ask("/ollama/api/chat", model=MODEL, messages=messages, options=options, stream=False).json()["message"]["content"]
lines = ask("/ollama/api/chat", model=MODEL, messages=messages, options=options).text.splitlines()
assert whole.strip() and whole == streamed == local, (whole, streamed, local)
assert "".join(json.loads(line)["message"]["content"] for line in lines) == whole, lines
for model in (MODEL, "default"):  # what its page asks
    chat = ask("/api/chat/completions", model=model, messages=messages, stream=False).json()
    assert chat["choices"][0]["message"]["content"], chat
assert ask("/ollama/api/generate", model=MODEL, prompt="Hi", stream=False, options=options).json()["done"]
assert len(ask("/ollama/api/embed", model=MODEL, input=["a"]).json()["embeddings"][0]) == 576
print("ok      open-webui: models, chats of both APIs, whole and streamed, generate, embed")
