"""The Python clients of OpenAI, Anthropic and Ollama, unchanged, against a daemon with a published model.

    clients.py ADDRESS MODEL

What the model writes is checked only where the daemon binds it, or where two ways to ask must give the same. Prints a
line per case; ends with status 1 if one fails.
"""
import json
import math
import re
import sys

import anthropic
import ollama
import openai
import pydantic

ADDRESS, MODEL = sys.argv[1:3]
client = openai.OpenAI(base_url=ADDRESS + "/v1", api_key="none", timeout=600, max_retries=0)
claude = anthropic.Anthropic(base_url=ADDRESS, api_key="none", timeout=600, max_retries=0)
local = ollama.Client(host=ADDRESS, timeout=600)
QUESTION = [{"role": "system", "content": "You answer in one sentence."},
            {"role": "user", "content": "What is the capital of Italy?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"enum": [1, 2, 3]}},
          "required": ["city", "days"], "additionalProperties": False}
GREEDY = {"extra_body": {"temperature": 0}}  # Anthropic's client has no such parameter any more
failed = 0


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=150)


def case(name):
    def run(function):
        global failed
        try:
            function()
            print("ok     ", name, flush=True)
        except Exception as error:  # of any client
            failed += 1
            print("FAILED ", name, type(error).__name__, str(error)[:600].replace("\n", " "), flush=True)
    return run


def same(*texts):
    assert texts[0].strip() and all(text == texts[0] for text in texts), texts


@case("models, by all clients")
def _():
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL
    assert MODEL in [model.id for model in claude.models.list()]
    assert MODEL in [model.model for model in local.list().models]
    shown = local.show(MODEL)
    assert shown.modelinfo["llama.context_length"] == 8192 and "tools" in shown.capabilities, shown


@case("one conversation: the same answer by all clients, whole and streamed")
def _():
    ask = dict(model=MODEL, messages=QUESTION, temperature=0, max_tokens=40)
    whole = client.chat.completions.create(**ask)
    text = whole.choices[0].message.content
    assert "Rome" in text, text
    stream = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert stream[-1].usage.completion_tokens == whole.usage.completion_tokens, stream[-1]
    response = client.responses.create(model=MODEL, instructions=QUESTION[0]["content"], input=QUESTION[1:], temperature=0,
                                       max_output_tokens=40)
    with client.responses.stream(model=MODEL, instructions=QUESTION[0]["content"], input=QUESTION[1:], temperature=0,
                                 max_output_tokens=40) as events:
        streamed_response = events.get_final_response()
    turn = dict(model=MODEL, system=QUESTION[0]["content"], messages=QUESTION[1:], max_tokens=40, **GREEDY)
    message = claude.messages.create(**turn)
    with claude.messages.stream(**turn) as events:
        streamed_message = events.get_final_message()
    options = {"temperature": 0, "num_predict": 40}
    chat = local.chat(MODEL, QUESTION, options=options)
    parts = list(local.chat(MODEL, QUESTION, options=options, stream=True))
    same(text, "".join(part.choices[0].delta.content or "" for part in stream if part.choices), response.output_text,
         streamed_response.output_text, message.content[0].text, streamed_message.content[0].text, chat.message.content,
         "".join(part.message.content for part in parts))
    count = {key: value for key, value in turn.items() if key not in ("extra_body", "max_tokens")}
    prompt = whole.usage.prompt_tokens
    assert prompt == claude.messages.count_tokens(**count).input_tokens == response.usage.input_tokens
    # Anthropic counts cached tokens apart.
    assert prompt == message.usage.input_tokens + message.usage.cache_read_input_tokens == chat.prompt_eval_count
    assert parts[-1].eval_count == whole.usage.completion_tokens == message.usage.output_tokens


@case("what a client sends back as it came: model_dump() of each answer")
def _():
    ask = dict(model=MODEL, messages=list(QUESTION), temperature=0, max_tokens=30)
    first = client.chat.completions.create(**ask).choices[0].message
    more = [first.model_dump(), {"role": "user", "content": "And of France?"}]
    by_chat = client.chat.completions.create(**{**ask, "messages": QUESTION + more}).choices[0].message.content
    kept = client.responses.create(model=MODEL, input=QUESTION, temperature=0, max_output_tokens=30)
    by_id = client.responses.create(model=MODEL, input="And of France?", previous_response_id=kept.id, temperature=0,
                                    max_output_tokens=30)
    by_items = client.responses.create(
        model=MODEL, input=QUESTION + [item.model_dump() for item in kept.output] + [more[1]], temperature=0,
        max_output_tokens=30, store=False)
    turn = dict(model=MODEL, system=QUESTION[0]["content"], max_tokens=30, **GREEDY)
    message = claude.messages.create(**turn, messages=QUESTION[1:])
    by_message = claude.messages.create(**turn, messages=QUESTION[1:] + [
        {"role": "assistant", "content": [block.model_dump() for block in message.content]}, more[1]])
    options = {"temperature": 0, "num_predict": 30}
    answer = local.chat(MODEL, QUESTION, options=options).message
    by_ollama = local.chat(MODEL, QUESTION + [answer.model_dump(), more[1]], options=options)
    same(by_chat, by_id.output_text, by_items.output_text, by_message.content[0].text, by_ollama.message.content)
    assert by_items.usage.input_tokens == by_id.usage.input_tokens
    client.responses.delete(kept.id)


@case("seeds, completions, log probabilities")
def _():
    ask = dict(model=MODEL, prompt="Once upon a time", max_tokens=20, seed=7, temperature=1)
    whole = client.completions.create(**ask, logprobs=2)
    again = client.completions.create(**ask, stream=True)
    raw = local.generate(MODEL, "Once upon a time", raw=True, options={"seed": 7, "temperature": 1, "num_predict": 20})
    same(whole.choices[0].text, "".join(chunk.choices[0].text for chunk in again), raw.response)
    logprobs = whole.choices[0].logprobs
    assert len(logprobs.tokens) == whole.usage.completion_tokens and max(logprobs.token_logprobs) <= 0, logprobs
    scored = client.completions.create(model=MODEL, prompt="The sky is blue", echo=True, logprobs=0, max_tokens=0)
    assert all(value < 0 for value in scored.choices[0].logprobs.token_logprobs[1:]), scored


@case("schemas: parsed answers of all clients")
def _():
    prompt = [{"role": "user", "content": "John is 30 years old. Who is that?"}]
    chat = client.chat.completions.parse(model=MODEL, messages=prompt, response_format=Person, temperature=0, max_tokens=200)
    response = client.responses.parse(model=MODEL, input=prompt, text_format=Person, temperature=0, max_output_tokens=200)
    message = claude.messages.create(
        model=MODEL, messages=prompt, max_tokens=200, **GREEDY,
        output_config={"format": {"type": "json_schema", "schema": Person.model_json_schema()}})
    answer = local.chat(MODEL, prompt, format=Person.model_json_schema(), options={"temperature": 0, "num_predict": 200})
    people = [chat.choices[0].message.parsed, response.output_parsed, Person.model_validate_json(message.content[0].text),
              Person.model_validate_json(answer.message.content)]
    assert all(person == people[0] for person in people) and isinstance(people[0], Person), people


@case("tools: calls and their results, by all clients")
def _():
    prompt = [{"role": "user", "content": "What is the weather in Paris?"}]
    function = {"name": "weather", "description": "Weather of a city", "parameters": SCHEMA}
    tools = [{"type": "function", "function": {**function, "strict": True}}]
    check = lambda arguments: list(arguments) == ["city", "days"] and arguments["days"] in (1, 2, 3)
    called = client.chat.completions.create(model=MODEL, messages=prompt, tools=tools, tool_choice="required", temperature=0,
                                            parallel_tool_calls=False, max_tokens=200).choices[0].message
    assert check(json.loads(called.tool_calls[0].function.arguments)), called
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "sunny, 25 degrees"}
    text = client.chat.completions.create(model=MODEL, messages=prompt + [called.model_dump(), result], tools=tools,
                                          tool_choice="none", temperature=0, max_tokens=30).choices[0].message.content
    assert text, text
    response = client.responses.create(model=MODEL, input=prompt, tool_choice="required", parallel_tool_calls=False,
                                       temperature=0, max_output_tokens=200, tools=[{"type": "function", **function, "strict": True}])
    call = response.output[-1]
    assert check(json.loads(call.arguments)), call
    follow = client.responses.create(model=MODEL, max_output_tokens=20, previous_response_id=response.id, input=[
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}])
    assert follow.status in ("completed", "incomplete"), follow
    ask = dict(model=MODEL, max_tokens=200, messages=prompt, **GREEDY,
               tools=[{"name": "weather", "description": "Weather of a city", "input_schema": SCHEMA}])
    used = claude.messages.create(**ask, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert used.stop_reason == "tool_use" and check(used.content[-1].input), used
    with claude.messages.stream(**ask, tool_choice={"type": "any", "disable_parallel_tool_use": True}) as events:
        assert events.get_final_message().content[-1].input == used.content[-1].input
    ask["messages"] = prompt + [{"role": "assistant", "content": used.content}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": used.content[-1].id, "content": "sunny"}]}]
    assert claude.messages.create(**ask, tool_choice={"type": "none"}).content[0].text
    made = ollama.Message(role="assistant", tool_calls=[{"function": {"name": "weather", "arguments": {"city": "Paris", "days": 1}}}])
    asked = local.chat(MODEL, prompt + [made, {"role": "tool", "content": "sunny", "tool_name": "weather"}], tools=tools,
                      options={"num_predict": 20})
    assert asked.done, asked


@case("custom tools: a grammar in Lark's notation and a regular expression")
def _():
    lark = "start: INT (OP INT)+\nOP: \" + \" | \" * \"\n%import common.INT"
    pattern = r"[0-9]+( [+*] [0-9]+)+"
    for syntax, definition in (("lark", lark), ("regex", pattern)):
        response = client.responses.create(
            model=MODEL, input="Compute 3 plus 4 by the tool.", tool_choice="required", parallel_tool_calls=False, temperature=0,
            max_output_tokens=120, tools=[{"type": "custom", "name": "compute", "description": "computes", "format": {
                "type": "grammar", "syntax": syntax, "definition": definition}}])
        call = response.output[-1]
        assert call.type == "custom_tool_call", call
        assert response.status == "incomplete" or re.fullmatch(pattern, call.input), call
        called = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Compute 3 plus 4."}], tool_choice="required", temperature=0,
            parallel_tool_calls=False, max_tokens=120, tools=[{"type": "custom", "custom": {"name": "compute", "format": {
                "type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}}}]).choices[0]
        text = called.message.tool_calls[0].custom.input
        assert called.finish_reason == "length" or re.fullmatch(pattern, text), called


@case("cache marks, and what is cached of a prompt")
def _():
    system = [{"type": "text", "text": "Rules: " + "be kind, be brief, be right. " * 30, "cache_control": {"type": "ephemeral"}}]
    usages = [claude.messages.create(model=MODEL, max_tokens=5, system=system,
                                     messages=[{"role": "user", "content": text}]).usage for text in ("Hi", "Who are you?")]
    assert usages[1].cache_read_input_tokens >= 200 and usages[1].input_tokens < 60, usages


@case("embeddings of both clients")
def _():
    ours = client.embeddings.create(model=MODEL, input=["the sky", "a lake"])
    theirs = local.embed(MODEL, ["the sky", "a lake"])
    for one, other in zip((each.embedding for each in ours.data), theirs.embeddings):
        length = math.sqrt(sum(value * value for value in one))
        assert len(one) == 576 and max(abs(a / length - b) for a, b in zip(one, other)) < 1e-4


@case("errors of each client")
def _():
    for call, kind in ((lambda: client.chat.completions.create(model="nonesuch", messages=QUESTION), openai.NotFoundError),
                       (lambda: client.completions.create(model=MODEL, prompt="a", max_tokens=9000), openai.BadRequestError),
                       (lambda: claude.messages.create(model="nonesuch", max_tokens=5, messages=QUESTION[1:]), anthropic.NotFoundError),
                       (lambda: claude.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "a " * 9000}]),
                        anthropic.BadRequestError),
                       (lambda: local.generate("nonesuch", "a"), ollama.ResponseError)):
        try:
            call()
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")


sys.exit(1 if failed else 0)
