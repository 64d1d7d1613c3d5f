"""Programs that others wrote, unchanged, against a running daemon.

    programs.py ADDRESS MODEL BIN CASE...

ADDRESS is http://127.0.0.1:PORT, BIN the folder with the programs of this Python's environment. A case is named by its
program. Prints a line per case; ends with status 1 if one fails.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import openai
import pydantic

ADDRESS, MODEL, BIN = sys.argv[1:4]
wanted = set(sys.argv[4:])
V1 = ADDRESS + "/v1"
os.environ.update(OPENAI_BASE_URL=V1, OPENAI_API_BASE=V1, OPENAI_API_KEY="x", ANTHROPIC_API_KEY="x")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", LITELLM_LOCAL_MODEL_COST_MAP="True",
                  OPENAI_AGENTS_DISABLE_TRACING="1")
client = openai.OpenAI()
SENTENCE = "John is 30 years old."
failed = 0


class Person(pydantic.BaseModel):
    name: str
    age: int


def weather(city: str) -> str:
    """Tells the weather of a city.

    Args:
        city: its name
    """
    return "sunny"


def case(name):
    def run(function):
        global failed
        program = name.split(":")[0]
        if program not in wanted:
            return
        wanted.remove(program)
        try:
            function()
            print("ok     ", name, flush=True)
        except Exception as error:  # of any library
            failed += 1
            print("FAILED ", name, type(error).__name__, str(error)[:600].replace("\n", " "), flush=True)
    return run


def check_text(text):
    assert isinstance(text, str) and text.strip(), text


@case("instructor: calls, strict calls, schemas, responses with calls")
def _():
    import instructor
    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
        made = instructor.from_openai(client, mode=mode).chat.completions.create(
            model=MODEL, response_model=Person, max_retries=1, temperature=0,
            messages=[{"role": "user", "content": SENTENCE}])
        assert isinstance(made, Person), mode
    made = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS).responses.create(
        model=MODEL, response_model=Person, max_retries=1, temperature=0, input=SENTENCE)
    assert isinstance(made, Person)


@case("langchain-openai: chat, streams, tools, schemas, responses, completions, embeddings")
def _():
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
    chat = ChatOpenAI(model=MODEL, temperature=0, max_tokens=40)
    check_text(chat.invoke("Say hi").content)
    check_text("".join(chunk.content for chunk in chat.stream("Say hi")))
    called = chat.bind_tools([tool(weather)], tool_choice="required").invoke("Weather in Paris?")
    assert called.tool_calls[0]["name"] == "weather"
    for method in ("json_schema", "function_calling"):
        assert isinstance(chat.with_structured_output(Person, method=method).invoke(SENTENCE), Person)
    check_text(ChatOpenAI(model=MODEL, temperature=0, max_tokens=40, use_responses_api=True).invoke("Say hi").text)
    check_text(OpenAI(model=MODEL, temperature=0, max_tokens=10).invoke("Once upon a time"))
    assert len(OpenAIEmbeddings(model=MODEL, check_embedding_ctx_length=False).embed_query("a")) > 100


@case("langchain-anthropic: chat, streams, tools, schemas")
def _():
    from langchain_anthropic import ChatAnthropic
    from langchain_core.tools import tool
    chat = ChatAnthropic(model=MODEL, base_url=ADDRESS, max_tokens=80, temperature=0)
    check_text(chat.invoke("Say hi").content)
    check_text("".join(str(chunk.content) for chunk in chat.stream("Say hi")))
    called = chat.bind_tools([tool(weather)], tool_choice="any").invoke("Weather in Paris?")
    assert called.tool_calls[0]["name"] == "weather"
    assert isinstance(chat.with_structured_output(Person).invoke(SENTENCE), Person)
    assert isinstance(chat.with_structured_output(Person, method="json_schema").invoke(SENTENCE), Person)


@case("litellm: its routes to OpenAI, Anthropic and Ollama")
def _():
    import litellm
    litellm.telemetry = False
    ask = dict(messages=[{"role": "user", "content": "Say hi"}], max_tokens=20, temperature=0, api_key="x")
    check_text(litellm.completion(model="openai/" + MODEL, api_base=V1, **ask).choices[0].message.content)
    check_text("".join(chunk.choices[0].delta.content or ""
                 for chunk in litellm.completion(model="openai/" + MODEL, api_base=V1, stream=True, **ask)))
    check_text(litellm.completion(model="anthropic/" + MODEL, api_base=ADDRESS, **ask).choices[0].message.content)
    check_text(litellm.completion(model="ollama_chat/" + MODEL, api_base=ADDRESS, **ask).choices[0].message.content)
    made = litellm.embedding(model="openai/" + MODEL, input=["a"], api_base=V1, api_key="x", encoding_format="float")
    assert len(made.data[0]["embedding"]) > 100


@case("pydantic-ai: text, typed output, responses")
def _():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=V1, api_key="x")
    settings = {"temperature": 0, "max_tokens": 80}
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        model = kind(MODEL, provider=provider)
        check_text(Agent(model, model_settings=settings).run_sync("Say hi").output)
        assert isinstance(Agent(model, output_type=Person, model_settings=settings).run_sync(SENTENCE).output, Person)


@case("llm: a prompt")
def _():
    folder = pathlib.Path("llm")
    folder.mkdir()
    (folder / "extra-openai-models.yaml").write_text(
        f"- model_id: hearth\n  model_name: {MODEL}\n  api_base: {V1}\n")
    done = subprocess.run([BIN + "/llm", "-m", "hearth", "-o", "max_tokens", "20", "Say hi"], capture_output=True, text=True,
                          timeout=120, env=dict(os.environ, LLM_USER_PATH=str(folder.resolve())))
    assert done.returncode == 0, done.stderr
    check_text(done.stdout)


@case("llama-index: completions, chat, structured answers, an index with its query")
def _():
    from llama_index.core import Document, Settings, VectorStoreIndex
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import PromptTemplate
    from llama_index.embeddings.openai import OpenAIEmbedding
    from llama_index.llms.openai_like import OpenAILike
    like = dict(model=MODEL, api_base=V1, api_key="x", context_window=8192, temperature=0, max_tokens=60)
    check_text(OpenAILike(is_chat_model=False, **like).complete("The capital of France is").text)
    chat = OpenAILike(is_chat_model=True, is_function_calling_model=True, **like)
    check_text("".join(part.delta for part in chat.stream_chat([ChatMessage(role="user", content="Say hi")])))
    made = chat.structured_predict(Person, PromptTemplate(SENTENCE), llm_kwargs={"tool_choice": "required"})
    assert isinstance(made, Person)
    Settings.llm = chat
    Settings.embed_model = OpenAIEmbedding(model_name=MODEL, api_base=V1, api_key="x")
    index = VectorStoreIndex.from_documents([Document(text="The sky of Mars is pink."), Document(text="Cats drink milk.")])
    check_text(str(index.as_query_engine().query("Which colour is the sky of Mars?")))


@case("smolagents: a model, an agent that calls")
def _():
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool
    model = OpenAIServerModel(model_id=MODEL, api_base=V1, api_key="x", temperature=0, max_tokens=100)
    check_text(model.generate([{"role": "user", "content": [{"type": "text", "text": "Say hi"}]}]).content)
    agent = ToolCallingAgent(tools=[tool(weather)], model=model, max_steps=2, verbosity_level=0)
    agent.run("Weather in Paris?")


@case("outlines: text, streams, types, regular expressions, choices")
def _():
    import outlines
    from outlines.types import Choice, Regex
    model = outlines.from_openai(client, MODEL)
    check_text(model("Hi", max_tokens=5))
    check_text("".join(model.stream("Hi", max_tokens=5)))
    Person.model_validate_json(model(SENTENCE, Person, temperature=0))
    served = outlines.from_vllm(client, MODEL)
    assert re.fullmatch("[0-9]{3}", served("Three digits:", Regex("[0-9]{3}"), temperature=0))
    assert served("yes or no?", Choice(["yes", "no"]), temperature=0) in ("yes", "no")
    Person.model_validate_json(served(SENTENCE, Person, temperature=0))


@case("openai-agents: text and typed output through chat and responses, with a tool")
def _():
    from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                        set_tracing_disabled)
    set_tracing_disabled(True)
    calls = openai.AsyncOpenAI()
    settings = ModelSettings(temperature=0, max_tokens=200)
    for model in (OpenAIResponsesModel(MODEL, calls), OpenAIChatCompletionsModel(MODEL, calls)):
        check_text(Runner.run_sync(Agent(name="a", instructions="Be brief.", model=model, model_settings=settings),
                             "What is the capital of Italy?").final_output)
        typed = Agent(name="a", instructions="Be brief.", model=model, output_type=Person, model_settings=settings)
        assert isinstance(Runner.run_sync(typed, SENTENCE).final_output, Person)
        called = Agent(name="a", instructions="Be brief.", model=model, tools=[function_tool(weather)],
                       tool_use_behavior="stop_on_first_tool",
                       model_settings=ModelSettings(temperature=0, max_tokens=200, tool_choice="required",
                                                      parallel_tool_calls=False))
        assert Runner.run_sync(called, "What is the weather in Paris?").final_output == "sunny"


def evaluation(folder):
    """A task with four choices of the same few lines before each, as evaluations with examples have it."""
    words = pathlib.Path(__file__).with_name("text.txt").read_text().split()
    examples = "\n".join(" ".join(words[at:at + 30]) for at in range(0, 300, 30))
    lines = []
    for at in range(300, min(len(words) - 60, 620), 16):
        context = examples + "\n" + " ".join(words[at:at + 20])
        choices = [" " + " ".join(words[start:start + 4]) for start in (at + 20, at + 5, at + 30, at + 42)]
        lines.append(json.dumps({"context": context, "choices": choices, "gold": 0}))
    (folder / "task.jsonl").write_text("\n".join(lines))
    (folder / "task.yaml").write_text(f"""task: choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/task.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{gold}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}]
""")
    return len(lines)


@case("lm-eval: log likelihoods of a local task, equal to ours")
def _():
    folder = pathlib.Path("evaluation").resolve()
    folder.mkdir()
    number = evaluation(folder)
    done = subprocess.run(
        [BIN + "/lm_eval", "--model", "local-completions", "--tasks", "choices", "--include_path", str(folder), "--log_samples",
         "--output_path", str(folder / "out"), "--model_args",
         f"model={MODEL},base_url={V1}/completions,num_concurrent=8,max_retries=1,tokenized_requests=True"],
        capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-600:]
    samples = [json.loads(line) for file in (folder / "out").rglob("samples_*.jsonl") for line in file.read_text().splitlines()]
    assert len(samples) == number, len(samples)

    def ours(context, choice):
        def tokens(text):
            body = json.dumps({"model": MODEL, "text": text, "raw": True}).encode()
            request = urllib.request.Request(ADDRESS + "/tokenize", body, {"Content-Type": "application/json"})
            return len(json.load(urllib.request.urlopen(request))["ids"])
        made = client.completions.create(model=MODEL, prompt=context + choice, max_tokens=1, temperature=0,
                                         extra_body={"prompt_logprobs": True, "raw": True, "cache": "off"})
        logprobs = made.choices[0].model_extra["prompt_logprobs"]
        return sum(logprobs[tokens(context):])

    for sample in samples[:5]:
        for choice, answer in zip(sample["doc"]["choices"], sample["filtered_resps"]):
            assert abs(float(answer[0]) - ours(sample["doc"]["context"], choice)) < 1e-4, sample


assert not wanted, wanted
sys.exit(failed > 0)
