#!/usr/bin/env python3
"""Records what the official Python clients send in an agent's typical calls, as fixtures for sdk_requests_test.cpp.

    pip install openai anthropic ollama
    python3 tests/e2e/record_sdk_requests.py tests/e2e/sdk_requests

A server here answers each call in the API's form, so that the clients go on and send back what they got: calls of
functions, their results, reasoning. What only a daemon can make (sealed reasoning, signatures) is a placeholder that
the test replaces. Keys, host names and the description of the machine are not recorded.
"""
import http.server
import json
import pathlib
import sys
import threading

import anthropic
import ollama
import openai
import pydantic

KEPT_HEADERS = ("content-type", "accept", "anthropic-version", "anthropic-beta")
SEALED, THINKING, SIGNATURE = "@sealed@", "@thinking@", "@signature@"
recorded = []
name = ""


class Weather(pydantic.BaseModel):
    """The weather in a city."""
    city: str
    celsius: int
    notes: list[str] = []


class GetWeather(pydantic.BaseModel):
    city: str = pydantic.Field(description="Where")
    unit: str = "celsius"


CHAT_CALLS = [{"id": f"call_{i}", "type": "function", "index": i,
               "function": {"name": "get_weather", "arguments": json.dumps({"city": city})}}
              for i, city in enumerate(["Oslo", "Rome"])]
WEATHER = json.dumps({"city": "Oslo", "celsius": 7, "notes": []})


def is_first(messages):
    return not any(m.get("role") == "tool" or m.get("type") == "function_call_output" or
                   isinstance(m.get("content"), list) and any(b.get("type") == "tool_result" for b in m["content"])
                   for m in messages if isinstance(m, dict))


def chat(body):
    calls = bool(body.get("tools")) and is_first(body["messages"])
    text = WEATHER if "response_format" in body else "It is mild."
    message = {"role": "assistant", "content": None if calls else text, "refusal": None, "reasoning_content": "Hm."}
    if calls:
        message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in CHAT_CALLS]
    head = {"id": "chatcmpl-1", "created": 1, "model": "tiny"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    reason = "tool_calls" if calls else "stop"
    if not body.get("stream"):
        return {**head, "object": "chat.completion", "usage": usage,
                "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}]}
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"tool_calls": [call]} for call in CHAT_CALLS] if calls else [{"content": text}]
    chunks = [{**head, "object": "chat.completion.chunk",
               "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "object": "chat.completion.chunk",
                   "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    return ["data: " + json.dumps(chunk) + "\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]


def responses(body):
    items = body["input"] if isinstance(body["input"], list) else []
    calls = bool(body.get("tools")) and is_first(items)
    text = WEATHER if "text" in body else "It is mild."
    output = [{"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed", "encrypted_content": SEALED}]
    if calls:
        output += [{"type": "function_call", "id": f"fc_{i}", "call_id": call["id"], "status": "completed",
                    **call["function"]} for i, call in enumerate(CHAT_CALLS)]
    else:
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                       "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
    answer = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": None,
              "incomplete_details": None, "instructions": None, "metadata": {}, "model": "tiny", "output": output,
              "parallel_tool_calls": True, "temperature": None, "tool_choice": "auto", "tools": [], "top_p": None,
              "usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12,
                        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 1}}}
    if not body.get("stream"):
        return answer
    events = [{"type": "response.created", "response": {**answer, "output": [], "status": "in_progress"}}]
    for i, item in enumerate(output):
        events += [{"type": "response.output_item.added", "output_index": i, "item": item},
                   {"type": "response.output_item.done", "output_index": i, "item": item}]
    events.append({"type": "response.completed", "response": answer})
    return [f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': i})}\n\n"
            for i, event in enumerate(events)]


def messages(body):
    calls = bool(body.get("tools")) and is_first(body["messages"])
    content = [{"type": "thinking", "thinking": THINKING, "signature": SIGNATURE}] if "thinking" in body else []
    if calls:
        content += [{"type": "tool_use", "id": f"toolu_{i}", "name": "get_weather", "input": {"city": city}}
                    for i, city in enumerate(["Oslo", "Rome"])]
    else:
        structured = "output_config" in body or "output_format" in body
        content.append({"type": "text", "text": WEATHER if structured else "It is mild."})
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "content": content,
              "stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None,
              "usage": {"input_tokens": 9, "output_tokens": 3}}
    if not body.get("stream"):
        return answer
    events = [{"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}]
    for i, block in enumerate(content):
        kind = block["type"]
        begin = {"thinking": {"type": kind, "thinking": "", "signature": ""}, "text": {"type": kind, "text": ""},
                 "tool_use": {**block, "input": {}}}[kind]
        deltas = {"thinking": [{"type": "thinking_delta", "thinking": THINKING},
                               {"type": "signature_delta", "signature": SIGNATURE}],
                  "text": [{"type": "text_delta", "text": block.get("text")}],
                  "tool_use": [{"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}]}[kind]
        events.append({"type": "content_block_start", "index": i, "content_block": begin})
        events += [{"type": "content_block_delta", "index": i, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": i})
    events.append({"type": "message_delta", "usage": {"output_tokens": 3},
                   "delta": {"stop_reason": answer["stop_reason"], "stop_sequence": None}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]


def ollama_answer(path, body):
    head = {"model": "tiny", "created_at": "2026-11-28T00:00:00Z"}
    if path.endswith("embed"):
        return {"model": "tiny", "embeddings": [[0.5, 0.5]]}
    if path.endswith("show"):
        return {"details": {}, "model_info": {}, "capabilities": []}
    if path.endswith(("tags", "ps")):
        return {"models": []}
    if path.endswith("generate"):
        lines = [{**head, "response": "Mild.", "done": True, "done_reason": "stop"}]
    else:
        message = {"role": "assistant", "content": "Mild."}
        if body.get("format"):
            message["content"] = WEATHER
        if body.get("think"):
            message["thinking"] = "Hm."
        if body.get("tools") and is_first(body["messages"]):
            message["content"] = ""
            message["tool_calls"] = [{"function": {"name": "get_weather", "arguments": {"city": city}}}
                                     for city in ("Oslo", "Rome")]
        lines = [{**head, "message": message, "done": True, "done_reason": "stop"}]
    return [json.dumps(line) + "\n" for line in lines] if body.get("stream") else lines[0]


class Recorder(http.server.BaseHTTPRequestHandler):
    def answer(self):
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        body = json.loads(text) if text else None
        headers = {key.lower(): value for key, value in self.headers.items() if key.lower() in KEPT_HEADERS}
        recorded.append({"name": name, "method": self.command, "path": self.path, "headers": headers, "body": body})
        path = self.path.split("?")[0]
        if path.startswith("/api/"):
            out = ollama_answer(path, body or {})
        elif path.endswith("/chat/completions"):
            out = chat(body)
        elif path.endswith("/responses"):
            out = responses(body)
        elif path.endswith("/count_tokens"):
            out = {"input_tokens": 9}
        elif path.endswith("/messages"):
            out = messages(body)
        elif path.endswith("/embeddings"):
            out = {"object": "list", "model": "tiny", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
                   "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        else:
            out = {"object": "list", "data": []}
        kind = "application/json"
        if isinstance(out, list):
            kind = "application/x-ndjson" if path.startswith("/api/") else "text/event-stream"
        data = ("".join(out) if isinstance(out, list) else json.dumps(out)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


def called(what):
    global name
    name = what


SYSTEM = "You answer questions about the weather. Be brief."
QUESTION = "How is the weather in Oslo and in Rome?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}},
              "required": ["city"], "additionalProperties": False}


def openai_calls(client):
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather in a city",
                                               "parameters": PARAMETERS, "strict": True}},
             {"type": "function", "function": {"name": "now", "description": "The time",
                                               "parameters": {"type": "object", "properties": {}}}}]
    conversation = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    for stream in (False, True):
        said = list(conversation)
        called(f"chat, tools{', stream' if stream else ''}")
        args = {"model": "tiny", "tools": tools, "parallel_tool_calls": True, "max_completion_tokens": 24,
                "temperature": 0.7, "seed": 3}
        if stream:
            with client.chat.completions.stream(messages=said, stream_options={"include_usage": True}, **args) as events:
                for _ in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(messages=said, tool_choice="auto", **args).choices[0].message
        called(f"chat, results of calls{', stream' if stream else ''}")
        said.append(message.model_dump())
        said += [{"role": "tool", "tool_call_id": call.id, "content": "7 degrees"} for call in message.tool_calls]
        if stream:
            for _ in client.chat.completions.create(messages=said, stream=True, **args):
                pass
        else:
            client.chat.completions.create(messages=said, **args)
    called("chat, structured by pydantic")
    parsed = client.chat.completions.parse(model="tiny", messages=conversation, response_format=Weather, max_tokens=24)
    called("chat, a structured answer sent back")
    client.chat.completions.create(model="tiny", max_tokens=24, messages=[
        *conversation, parsed.choices[0].message.model_dump(), {"role": "user", "content": "And tomorrow?"}])
    called("chat, a tool by pydantic")
    client.chat.completions.parse(model="tiny", messages=conversation, max_tokens=24,
                                  tools=[openai.pydantic_function_tool(GetWeather, name="get_weather")])
    called("chat, an effort and what has no effect")
    client.chat.completions.create(
        model="tiny", messages=[{"role": "developer", "content": SYSTEM}, {"role": "user", "content": QUESTION}],
        reasoning_effort="low", max_completion_tokens=24, store=False, metadata={"run": "1"}, user="someone",
        service_tier="auto", prompt_cache_key="weather", verbosity="low", stop=["END"], n=2, logprobs=True,
        top_logprobs=2, frequency_penalty=0.1, logit_bias={"5": -10})

    flat = [{"type": "function", "strict": True, **{k: v for k, v in tools[0]["function"].items() if k != "strict"}}]
    for stream in (False, True):
        called(f"responses, reasoning and tools{', stream' if stream else ''}")
        said = [{"role": "user", "content": QUESTION}]
        args = {"model": "tiny", "instructions": SYSTEM, "tools": flat, "store": False, "max_output_tokens": 40,
                "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        if stream:
            with client.responses.stream(input=said, **args) as events:
                for _ in events:
                    pass
                answer = events.get_final_response()
        else:
            answer = client.responses.create(input=said, **args)
        called(f"responses, items sent back{', stream' if stream else ''}")
        said += [item.model_dump() for item in answer.output] if stream else answer.output
        said += [{"type": "function_call_output", "call_id": item.call_id, "output": "7 degrees"}
                 for item in answer.output if item.type == "function_call"]
        if stream:
            for _ in client.responses.create(input=said, stream=True, **args):
                pass
        else:
            client.responses.create(input=said, **args)
    called("responses, structured by pydantic")
    parsed = client.responses.parse(model="tiny", input=QUESTION, text_format=Weather, max_output_tokens=24)
    called("responses, a structured answer sent back")
    client.responses.create(model="tiny", max_output_tokens=24, input=[
        {"role": "user", "content": QUESTION}, *[item.model_dump() for item in parsed.output],
        {"role": "user", "content": "And tomorrow?"}])
    called("embeddings")
    client.embeddings.create(model="tiny", input=["Oslo", "Rome"])
    called("models")
    client.models.list()


def anthropic_calls(client):
    tools = [{"name": "get_weather", "description": "The weather in a city", "input_schema": PARAMETERS},
             {"name": "now", "description": "The time", "input_schema": {"type": "object", "properties": {}},
              "cache_control": {"type": "ephemeral"}}]
    system = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    for stream in (False, True):
        called(f"messages, thinking and tools{', stream' if stream else ''}")
        said = [{"role": "user", "content": QUESTION}]
        args = {"model": "tiny", "system": system, "tools": tools, "max_tokens": 1100, "thinking": thinking}
        if stream:
            with client.messages.stream(messages=said, **args) as events:
                for _ in events:
                    pass
                answer = events.get_final_message()
        else:
            answer = client.messages.create(messages=said, metadata={"user_id": "someone"}, **args)
        called(f"messages, blocks sent back{', stream' if stream else ''}")
        said.append({"role": "assistant",
                     "content": [block.model_dump() for block in answer.content] if stream else answer.content})
        uses = [block for block in answer.content if block.type == "tool_use"]
        said.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": uses[0].id, "content": "7 degrees"},
            {"type": "tool_result", "tool_use_id": uses[1].id, "is_error": True,
             "content": [{"type": "text", "text": "no such city", "cache_control": {"type": "ephemeral"}}]}]})
        if stream:
            for _ in client.messages.create(messages=said, stream=True, **args):
                pass
        else:
            client.messages.create(messages=said, tool_choice={"type": "auto"}, **args)
    called("messages, structured by pydantic")
    said = [{"role": "user", "content": QUESTION}]
    parsed = client.messages.parse(model="tiny", max_tokens=24, messages=said, output_format=Weather)
    called("messages, a structured answer sent back")
    said += [{"role": "assistant", "content": [block.model_dump() for block in parsed.content]},
             {"role": "user", "content": "And tomorrow?"}]
    client.messages.create(model="tiny", max_tokens=24, messages=said)
    called("messages, beta")
    client.beta.messages.create(model="tiny", max_tokens=24, betas=["interleaved-thinking-2025-05-14"],
                                stop_sequences=["END"], service_tier="auto",
                                messages=[{"role": "user", "content": [{"type": "text", "text": QUESTION}]}])
    called("count_tokens")
    client.messages.count_tokens(model="tiny", system=system, tools=tools, thinking=thinking,
                                 messages=[{"role": "user", "content": QUESTION}])


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
      city: Where
    """
    return f"7 degrees in {city}"


def ollama_calls(client):
    said = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    options = {"num_predict": 16, "temperature": 0.5, "num_ctx": 4096, "stop": ["END"], "seed": 3}
    called("chat, tools")
    answer = client.chat(model="tiny", messages=said, tools=[get_weather], think=True, options=options, keep_alive="5m")
    called("chat, results of calls")
    said.append(answer.message)
    said += [{"role": "tool", "tool_name": "get_weather", "content": get_weather("Oslo")} for _ in answer.message.tool_calls]
    client.chat(model="tiny", messages=said, tools=[get_weather], think=True, options=options)
    called("chat, stream")
    for _ in client.chat(model="tiny", messages=said[:2], stream=True, options=options, keep_alive=-1):
        pass
    called("chat, structured by pydantic")
    client.chat(model="tiny", messages=said[:2], format=Weather.model_json_schema(), options=options)
    called("generate")
    client.generate(model="tiny", prompt=QUESTION, system=SYSTEM, options=options, keep_alive=60)
    called("generate, stream")
    for _ in client.generate(model="tiny", prompt=QUESTION, raw=True, stream=True, options=options):
        pass
    called("embed")
    client.embed(model="tiny", input=["Oslo", "Rome"], truncate=True)
    called("show")
    client.show("tiny")
    called("list")
    client.list()
    called("ps")
    client.ps()


def main():
    out = pathlib.Path(sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for package, calls in (
            (openai, lambda: openai_calls(openai.OpenAI(base_url=url + "/v1", api_key="none"))),
            (anthropic, lambda: anthropic_calls(anthropic.Anthropic(base_url=url, api_key="none"))),
            (ollama, lambda: ollama_calls(ollama.Client(host=url)))):
        recorded.clear()
        calls()
        version = getattr(package, "__version__", None) or __import__("importlib.metadata").metadata.version("ollama")
        text = json.dumps({"client": package.__name__, "version": version, "requests": recorded}, indent=1)
        (out / f"{package.__name__}.json").write_text(text + "\n")
        print(f"{package.__name__} {version}: {len(recorded)} requests, {len(text)} bytes")


main()
