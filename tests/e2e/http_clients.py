"""The Python clients of OpenAI, Anthropic and Ollama against a daemon: http_clients.py SOCKET

clients.sh installs them. The model "tiny" of the test has no chat template, so
conversations with it are refused, in each API's own shape; "caller" has one with calls of functions,
"thinker" one whose prompt begins the reasoning.
"""
import json
import struct
import sys
import time

import anthropic
import httpx as ollama_httpx
import ollama
import openai
import pydantic

try:
    import httpx2 as httpx  # since version 3 of openai
except ImportError:
    import httpx

# httpx gives up after 5 s by default, which a busy machine may need for one answer.
http = httpx.Client(transport=httpx.HTTPTransport(uds=sys.argv[1]), timeout=300)
client = openai.OpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)

assert "tiny" in [model.id for model in client.models.list()]
assert client.models.retrieve("tiny").id == "tiny"

ask = dict(model="tiny", prompt="the", max_tokens=20, seed=7, temperature=1, extra_body={"ignore_eos": True})
whole = client.completions.create(**ask, logprobs=2)
assert whole.usage.completion_tokens == 20 and whole.choices[0].finish_reason == "length"
assert len(whole.choices[0].logprobs.tokens) == 20

lines = [{"custom_id": name, "method": "POST", "url": "/v1/completions", "body": dict(
    model="tiny", prompt="the", max_tokens=20, seed=7, temperature=1, ignore_eos=True)} for name in ("a", "b")]
sent = "".join(json.dumps(line) + "\n" for line in lines).encode()
file = client.files.create(file=("in.jsonl", sent), purpose="batch")
assert file.bytes == len(sent) and client.files.content(file.id).read() == sent
batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
while batch.status in ("validating", "in_progress", "finalizing"):
    time.sleep(0.05)
    batch = client.batches.retrieve(batch.id)
assert batch.status == "completed" and batch.request_counts.completed == 2, batch
for line in client.files.content(batch.output_file_id).text.splitlines():
    assert json.loads(line)["response"]["body"]["choices"][0]["text"] == whole.choices[0].text
assert [each.id for each in client.batches.list(limit=1)] == [batch.id]
assert client.files.delete(file.id).deleted and file.id not in [each.id for each in client.files.list()]

text, usage = "", None
for chunk in client.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
    if chunk.choices:
        text += chunk.choices[0].text
    usage = chunk.usage or usage
assert text == whole.choices[0].text, (text, whole.choices[0].text)
assert usage.completion_tokens == 20

echoed = client.completions.create(**ask, echo=True, logprobs=1)
assert echoed.choices[0].text == "the" + whole.choices[0].text
assert echoed.choices[0].logprobs.token_logprobs[0] is None
assert echoed.choices[0].logprobs.token_logprobs[-20:] == whole.choices[0].logprobs.token_logprobs
pieces = {}
for chunk in client.completions.create(**{**ask, "prompt": ["the", "abc"]}, stream=True):
    for part in chunk.choices:
        pieces[part.index] = pieces.get(part.index, "") + part.text
assert sorted(pieces) == [0, 1] and pieces[0] == text, pieces
several = client.completions.create(**{**ask, "prompt": ["the", "abc"]})
assert several.choices[1].text == pieces[1]
assert len(client.models.list(extra_query={"limit": 1}).data) > 1
assert [choice.index for choice in several.choices] == [0, 1]
assert several.choices[0].text == whole.choices[0].text and several.usage.completion_tokens == 40
scored = client.completions.create(model="tiny", prompt=["the", "abc"], echo=True, logprobs=0, max_tokens=0)
assert [choice.text for choice in scored.choices] == ["the", "abc"] and scored.usage.completion_tokens == 0
assert scored.choices[0].logprobs.token_logprobs == echoed.choices[0].logprobs.token_logprobs[:-20]
try:
    client.completions.create(**ask, suffix="x")
    raise AssertionError("suffix was taken")
except openai.BadRequestError as error:
    assert error.param == "suffix" and error.code == "unsupported", error

pool = {"extra_body": {"pooling": "mean"}}
vectors = client.embeddings.create(model="tiny", input=["the abc", "the"], **pool)  # asks for base64
numbers = client.embeddings.create(model="tiny", input="the abc", encoding_format="float", **pool)
assert len(vectors.data) == 2 and len(vectors.data[0].embedding) == 64
as_floats = lambda values: struct.pack(f"<{len(values)}f", *values)  # decimals name a float, not a double
assert as_floats(vectors.data[0].embedding) == as_floats(numbers.data[0].embedding)
assert vectors.usage.prompt_tokens > numbers.usage.prompt_tokens > 0
for body, param in (({"dimensions": 8}, "dimensions"),):
    try:
        client.embeddings.create(model="tiny", input="a", **body)
        raise AssertionError(f"taken: {body}")
    except openai.BadRequestError as error:
        assert error.param == param, error
try:
    client.completions.create(model="nonesuch", prompt="a")
    raise AssertionError("a model that is not there was found")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error

hello = [{"role": "user", "content": "Hi"}]
for refused in (
    lambda: client.chat.completions.create(model="tiny", messages=hello),
    lambda: client.responses.create(model="tiny", input="Hi"),
):
    try:
        refused()
        raise AssertionError("a conversation without a template was taken")
    except openai.BadRequestError as error:
        assert error.code == "unsupported", error

claude = anthropic.Anthropic(base_url="http://localhost", api_key="none", http_client=http, max_retries=0)
try:
    claude.messages.create(model="tiny", max_tokens=5, messages=hello)
    raise AssertionError("a conversation without a template was taken")
except anthropic.BadRequestError as error:
    assert error.body["error"]["type"] == "invalid_request_error", error.body
try:
    claude.messages.count_tokens(model="tiny", messages=hello)
    raise AssertionError("a conversation without a template was counted")
except anthropic.BadRequestError as error:
    assert "chat template" in error.body["error"]["message"], error.body
# A prediction changes nothing but the time.
guess = dict(model="caller", messages=hello, max_tokens=40, seed=7)
plain = client.chat.completions.create(**guess).choices[0].message.content
predicted = client.chat.completions.create(**guess, prediction={"type": "content", "content": plain})
assert predicted.choices[0].message.content == plain
assert predicted.usage.completion_tokens_details.accepted_prediction_tokens is not None

# Calls of functions, which the grammar enforces.
schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 4}}, "required": ["city"]}
function = {"name": "get_weather", "description": "d", "parameters": schema}
ask = dict(model="caller", messages=hello, tools=[{"type": "function", "function": function}], seed=7,
           tool_choice={"type": "function", "function": {"name": "get_weather"}}, parallel_tool_calls=False)
choice = client.chat.completions.create(**ask).choices[0]
call = choice.message.tool_calls[0]
assert choice.finish_reason == "tool_calls" and choice.message.content is None, choice
assert call.function.name == "get_weather" and list(json.loads(call.function.arguments)) == ["city"], call
arguments = ""
for chunk in client.chat.completions.create(**ask, stream=True):
    for part in chunk.choices[0].delta.tool_calls or []:
        arguments += part.function.arguments or ""
assert arguments == call.function.arguments, arguments
answer = client.chat.completions.create(
    model="caller", max_tokens=5, tools=ask["tools"], messages=hello + [
        choice.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "rain"}])
assert answer.usage.prompt_tokens > 0

# A strict function that the model need not call: what the SDK's helpers send.
class GetWeather(pydantic.BaseModel):
    """d"""
    city: str = pydantic.Field(max_length=4)
strict = openai.pydantic_function_tool(GetWeather)
assert strict["function"]["strict"] is True, strict
loose = {**strict, "function": {**strict["function"], "strict": False}}
# Text without calls is the same, unless a control token would have been drawn.
same = 0
for seed in range(8):
    ask = dict(model="caller", messages=hello, tools=[strict], seed=seed, max_tokens=12)
    bound, free = client.chat.completions.create(**ask), client.chat.completions.create(**{**ask, "tools": [loose]})
    same += bound.choices[0].message == free.choices[0].message
assert same >= 3, same
assert "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**ask, stream=True)) == \
    bound.choices[0].message.content
parsed = client.chat.completions.parse(**{**ask, "tool_choice": "required", "max_tokens": 400})
assert isinstance(parsed.choices[0].message.tool_calls[0].function.parsed_arguments, GetWeather), parsed

ask = dict(model="caller", input="Hi", tool_choice="required", parallel_tool_calls=False,
           tools=[{"type": "function", "strict": True, **function}])
output = client.responses.create(**ask).output
assert output[0].type == "function_call" and "city" in json.loads(output[0].arguments), output
with client.responses.stream(**ask) as stream:
    final = stream.get_final_response()
assert final.output[0].type == "function_call" and "city" in json.loads(final.output[0].arguments), final
client.responses.create(model="caller", max_output_tokens=5, input=[
    {"role": "user", "content": "Hi"}, output[0].model_dump(),
    {"type": "function_call_output", "call_id": output[0].call_id, "output": "rain"}])

# The same by its id, with a call that a stream has made, and what is kept of it.
result = [{"type": "function_call_output", "call_id": final.output[0].call_id, "output": "rain"}]
turn = client.responses.create(model="caller", max_output_tokens=5, input=result, previous_response_id=final.id)
assert turn.previous_response_id == final.id and turn.store is True, turn
resent = client.responses.create(model="caller", max_output_tokens=5, store=False, input=[
    {"role": "user", "content": "Hi"}, final.output[0].model_dump(exclude={"parsed_arguments"}), *result])
assert resent.usage.input_tokens == turn.usage.input_tokens and resent.store is False, (resent, turn)
found = client.responses.retrieve(turn.id)
assert found.output_text == turn.output_text and found.usage == turn.usage, (found, turn)
items = list(client.responses.input_items.list(turn.id, limit=2, order="asc"))  # two pages
assert [item.type for item in items] == ["message", "function_call", "function_call_output"], items
assert items[0].content[0].text == "Hi" and items[1].call_id == items[2].call_id, items
client.responses.delete(turn.id)
for gone in (
    lambda: client.responses.retrieve(turn.id),
    lambda: client.responses.delete(turn.id),
    lambda: client.responses.retrieve(resent.id),
):
    try:
        gone()
        raise AssertionError("an answer that is not kept was found")
    except openai.NotFoundError as error:
        assert error.code == "not_found", error
try:
    client.responses.create(model="caller", input="so?", previous_response_id=turn.id)
    raise AssertionError("a deleted answer was continued")
except openai.BadRequestError as error:
    assert error.code == "previous_response_not_found" and error.param == "previous_response_id", error
try:
    client.responses.create(model="caller", input="so?", conversation="conv_1")
    raise AssertionError("a conversation was taken")
except openai.BadRequestError as error:
    assert error.param == "conversation", error

ask = dict(model="caller", max_tokens=300, messages=hello,
           tools=[{"name": "get_weather", "description": "d", "input_schema": schema}],
           tool_choice={"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True})
message = claude.messages.create(**ask)
assert message.stop_reason == "tool_use" and "city" in message.content[0].input, message
with claude.messages.stream(**ask) as stream:
    streamed = stream.get_final_message()
assert streamed.stop_reason == "tool_use" and "city" in streamed.content[0].input, streamed
claude.messages.create(model="caller", max_tokens=5, messages=hello + [
    {"role": "assistant", "content": message.content},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": message.content[0].id, "content": "rain"}]}])

# What a coding agent sends: blocks, marks of the cache, members without effect, and a line that differs each time.
def agent(cch, **more):
    return dict(
        model="caller", max_tokens=8, metadata={"user_id": "u"}, extra_headers={"anthropic-beta": "a-1,b-2"},
        system=[{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"},
                {"type": "text", "text": "the abc " * 12, "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        tools=[{"type": "custom", "name": "get_weather", "description": "d", "input_schema": schema,
                "input_examples": [{"city": "a"}], "eager_input_streaming": True,
                "cache_control": {"type": "ephemeral"}}],
        messages=hello + [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "a"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True,
                                          "content": [{"type": "text", "text": "rain", "cache_control": {"type": "ephemeral"}}]}]}],
        **more)

first = claude.messages.with_raw_response.create(**agent("1a2b3"))
assert first.headers["x-hearth-volatile-lines"] == "1", first.headers
assert set(first.headers["x-hearth-ignored"].split(", ")) == {
    "metadata", "tool_result.is_error", "tools.input_examples", "tools.eager_input_streaming"}, first.headers
usage = first.parse().usage
assert usage.volatile_lines == 1 and usage.cache_read_input_tokens == 0, usage
next = claude.beta.messages.create(**agent("9z8y7"), betas=["c-3"])  # ?beta=true
assert next.usage.cache_read_input_tokens >= 48, next.usage
sent = usage.input_tokens + usage.cache_read_input_tokens
assert next.usage.input_tokens + next.usage.cache_read_input_tokens == sent, next.usage
count = {key: value for key, value in agent("0").items() if key not in ("max_tokens", "metadata")}
assert claude.messages.count_tokens(**count).input_tokens == sent
bound = claude.messages.create(model="caller", max_tokens=99, messages=hello,
                               output_config={"format": {"type": "json_schema", "schema": {"type": "boolean"}}})
assert bound.content[0].text in ("true", "false"), bound
try:
    claude.messages.create(**agent("0", stop_sequences=["x"]) | {
        "tools": [{"type": "web_search_20250305", "name": "web_search"}]})
    raise AssertionError("a tool of another server was taken")
except anthropic.BadRequestError as error:
    assert error.body["request_id"] == error.request_id and "web_search_20250305" in str(error), error.body

# What became of a request is in the answer's headers.
relaxed = {"type": "json_schema", "json_schema": {"name": "n", "strict": False, "schema": {"type": "boolean", "not": {}}}}
raw = client.chat.completions.with_raw_response.create(
    model="caller", messages=hello, max_tokens=500_000, store=False, response_format=relaxed)
assert raw.parse().choices[0].message.content in ("true", "false"), raw.text
assert raw.headers["x-hearth-ignored"] == "store", raw.headers
assert raw.headers["x-hearth-relaxed"] == "the keyword 'not'", raw.headers
assert 0 < int(raw.headers["x-hearth-max-tokens"]) < 500_000, raw.headers
assert raw.parse().id.endswith(raw.headers["x-request-id"]), raw.headers
relaxed["json_schema"]["strict"] = True
try:
    client.chat.completions.create(model="caller", messages=hello, response_format=relaxed)
    raise AssertionError("a keyword that cannot be enforced was taken")
except openai.BadRequestError as error:
    assert error.param == "json_schema" and "'not'" in str(error), error

# Reasoning. This template cannot switch it off.
try:
    client.chat.completions.create(model="thinker", messages=hello, reasoning_effort="none")
    raise AssertionError("reasoning was switched off")
except openai.BadRequestError as error:
    assert error.param == "reasoning", error
ask = dict(model="thinker", messages=hello, max_tokens=20, seed=7, extra_body={"ignore_eos": True})
whole = client.chat.completions.create(**ask)
assert whole.choices[0].message.reasoning_content and whole.usage.completion_tokens_details.reasoning_tokens == 20
told = ""
for chunk in client.chat.completions.create(**ask, stream=True):
    told += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
assert told == whole.choices[0].message.reasoning_content, told
# A bound on reasoning: the same text up to there, then the mark that ends it, and an answer.
ask["max_tokens"] = 40
free = client.chat.completions.create(**ask)
ask["extra_body"] = {"ignore_eos": True, "reasoning_budget": 8}
short = client.chat.completions.create(**ask)
thought, answer = short.choices[0].message.reasoning_content, short.choices[0].message.content
assert free.choices[0].message.reasoning_content.startswith(thought) and answer, (free, short)
assert len(thought) < len(free.choices[0].message.reasoning_content), (free, short)
assert client.chat.completions.create(**ask).choices[0].message.content == answer
message = claude.messages.create(model="thinker", max_tokens=40, messages=hello,
                                 thinking={"type": "enabled", "budget_tokens": 8})
assert [block.type for block in message.content][:1] == ["thinking"], message
assert 0 < message.usage.output_tokens_details.thinking_tokens < 20, message
# What is sent back as it came is taken; of thinking only what the daemon signed.
def sent_back(blocks):
    return claude.messages.with_raw_response.create(model="thinker", max_tokens=5, messages=hello + [
        {"role": "assistant", "content": blocks}, hello[0]])
blocks = [block.model_dump() for block in message.content]
assert "x-hearth-ignored" not in sent_back(blocks).headers
assert sent_back([{**blocks[0], "signature": ""}, *blocks[1:]]).headers["x-hearth-ignored"] == "thinking.signature"
for include in ([], ["reasoning.encrypted_content"]):
    items = client.responses.create(model="thinker", input="Hi", max_output_tokens=20, include=include).output
    assert items[0].type == "reasoning" and bool(items[0].encrypted_content) == bool(include), items
    again = client.responses.with_raw_response.create(model="thinker", max_output_tokens=5, store=False, input=hello + [
        item.model_dump() for item in items] + hello)
    assert "x-hearth-ignored" not in again.headers, again.headers
# Ended while it streams.
ask.update(max_tokens=600, stream=True, extra_body={"ignore_eos": True})
told, said, ended = "", "", False
for chunk in client.chat.completions.create(**ask):
    told += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
    said += chunk.choices[0].delta.content or ""
    if told and not ended:
        ended = True
        assert http.post(f"http://localhost/v1/requests/{chunk.id}/end_reasoning", json={}).status_code == 200
assert told and said, (told, said)
gone = http.post(f"http://localhost/v1/requests/{chunk.id}/end_reasoning", json={})
assert gone.status_code == 404, gone.text

# Ollama's client.
local = ollama.Client(host="http://localhost", transport=ollama_httpx.HTTPTransport(uds=sys.argv[1]))
listed = {model.model: model for model in local.list().models}
assert listed["tiny"].details.family == "llama" and listed["tiny"].size > 0, listed
assert local.ps().models[0].context_length > 0
shown = local.show("caller")
assert shown.capabilities == ["completion", "tools"] and shown.modelinfo["general.architecture"] == "llama", shown
assert "thinking" in local.show("thinker:latest").capabilities
options = {"seed": 7, "temperature": 1, "num_predict": 20, "num_ctx": 64, "repeat_penalty": 1.0}
same = client.completions.create(model="tiny", prompt="the", max_tokens=20, seed=7, temperature=1)
whole = local.generate("tiny", "the", options=options, keep_alive="5m")
assert whole.response == same.choices[0].text, (whole, same)
assert whole.done and whole.eval_count == same.usage.completion_tokens and whole.total_duration > 0, whole
parts = list(local.generate("tiny", "the", raw=True, stream=True, options=options, logprobs=True))
assert "".join(part.response for part in parts) == whole.response and parts[-1].done, parts
assert sum(len(part.logprobs or []) for part in parts) == whole.eval_count, parts
assert local.generate("tiny").done_reason == "load"
bound = local.generate("tiny", "the", format={"type": "boolean"})
assert json.loads(bound.response) in (True, False), bound
assert local.chat("caller", hello, format="json", options={"num_predict": 3}).message.content.startswith("{")

def get_weather(city: str) -> str:
    """Weather.

    Args:
        city: where
    """
    return "rain"
same = client.chat.completions.create(model="caller", messages=hello, seed=7, max_tokens=30)
chat = local.chat("caller", hello, options={"seed": 7, "num_predict": 30})
assert chat.message.content == same.choices[0].message.content, (chat, same)
assert "".join(part.message.content for part in local.chat("caller", hello, stream=True, options={"seed": 7, "num_predict": 30})) \
    == chat.message.content
local.chat("caller", hello, tools=[get_weather], options={"num_predict": 5})
made = ollama.Message(role="assistant", tool_calls=[{"function": {"name": "get_weather", "arguments": {"city": "a"}}}])
local.chat("caller", hello + [made, {"role": "tool", "content": "rain", "tool_name": "get_weather"}],
           tools=[get_weather], options={"num_predict": 5})
thought = local.chat("thinker", hello, think=True, options={"num_predict": 20, "seed": 7})
assert thought.message.thinking, thought
vectors = local.embed("tiny", ["the abc", "the"])
assert len(vectors.embeddings) == 2 and len(vectors.embeddings[0]) == 64 and vectors.prompt_eval_count > 0, vectors
assert abs(sum(value * value for value in vectors.embeddings[0]) - 1) < 1e-3
assert len(local.embeddings("tiny", "the").embedding) == 64
for refused, why in ((lambda: local.pull("llama3.2"), "hearth pull"), (lambda: local.delete("tiny"), "remove the file"),
                     (lambda: local.generate("nonesuch", "a"), "nonesuch"),
                     (lambda: local.chat("caller", [{"role": "user", "content": "a", "images": [b"x"]}]), "images")):
    try:
        refused()
        raise AssertionError(f"taken: {why}")
    except ollama.ResponseError as error:
        assert why in error.error, error

print("ok")
