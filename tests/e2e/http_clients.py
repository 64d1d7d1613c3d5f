"""OpenAI's and Anthropic's own Python clients against a daemon: http_clients.py SOCKET

Exit status 77: a client is not installed. The model of the test has no chat template, so
conversations are refused, in each API's own shape.
"""
import sys

try:
    import anthropic
    import openai

    try:
        import httpx2 as httpx  # since version 3 of openai
    except ImportError:
        import httpx
except ImportError as missing:
    print(f"not installed: {missing.name}")
    sys.exit(77)

http = httpx.Client(transport=httpx.HTTPTransport(uds=sys.argv[1]))
client = openai.OpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)

assert "tiny" in [model.id for model in client.models.list()]
assert client.models.retrieve("tiny").id == "tiny"

ask = dict(model="tiny", prompt="the", max_tokens=20, seed=7, temperature=1, extra_body={"ignore_eos": True})
whole = client.completions.create(**ask, logprobs=2)
assert whole.usage.completion_tokens == 20 and whole.choices[0].finish_reason == "length"
assert len(whole.choices[0].logprobs.tokens) == 20

text, usage = "", None
for chunk in client.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
    if chunk.choices:
        text += chunk.choices[0].text
    usage = chunk.usage or usage
assert text == whole.choices[0].text, (text, whole.choices[0].text)
assert usage.completion_tokens == 20

try:
    client.completions.create(**ask, echo=True)
    raise AssertionError("echo was taken")
except openai.BadRequestError as error:
    assert error.param == "echo" and error.code == "unsupported", error
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
print("ok")
