// What clients of other servers send: absent in another way, without effect, or under another name.

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/requests/field_lists.h"
#include "daemon/http/requests/token_request.h"
#include "daemon/http/routes.h"
#include "ipc/wire/codec.h"
#include "tests/paths.h"
#include "tests/sse_events.h"
#include "tests/unit/daemon/accepted_call.h"

namespace hearth::http {
namespace {

Error refusal(Api api, std::string_view body) {
  const Result<Call> call = parse_call(api, std::string(body));
  REQUIRE_FALSE_MESSAGE(call.ok(), body);
  return call.error();
}

/// A chat with one message and further members.
std::string chat(const std::string& members) {
  return R"({"messages":[{"role":"user","content":"a"}],)" + members + "}";
}

TEST_CASE("an answer's own messages can be sent back as they are, with their nulls") {
  const Call call = accepted(Api::kChat, R"({"messages":[
      {"role":"user","content":"a","name":null},
      {"content":null,"refusal":null,"role":"assistant","annotations":null,"audio":null,
       "function_call":null,"tool_calls":[{"id":"c1","function":{"arguments":"{}","name":"f"},
       "type":"function","index":null}],"reasoning_content":null,"provider_specific":null},
      {"role":"tool","tool_call_id":"c1","content":"7"},
      {"content":"b","role":"assistant","tool_calls":[],"reasoning":"r"},
      {"role":"assistant","content":null}],
      "temperature":null,"tools":null,"nonesuch":null,"stream_options":null,"stop":null})");
  const Json messages = Json::parse(call.request.messages.text);
  CHECK(messages[1]["content"] == "");
  CHECK(messages[1]["tool_calls"][0]["id"] == "c1");
  CHECK(messages[3]["reasoning_content"] == "r");
  CHECK_FALSE(messages[3].contains("tool_calls"));
  CHECK(messages[4]["content"] == "");
  CHECK(call.ignored.empty());

  accepted(Api::kResponses, R"({"input":[{"role":"user","content":"a"},
      {"id":"rs_1","summary":[],"type":"reasoning","content":[{"text":"t","type":"reasoning_text"}],
       "encrypted_content":null,"status":null},
      {"id":"msg_1","content":[{"annotations":[],"text":"b","type":"output_text","logprobs":null}],
       "role":"assistant","status":"completed","type":"message","phase":null}],
      "reasoning":null,"previous_response_id":null,"conversation":null})");
  accepted(Api::kMessages, R"({"max_tokens":3,"messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":[{"type":"redacted_thinking","data":"x"},
       {"type":"thinking","thinking":"t","signature":"s"},
       {"citations":null,"text":"b","type":"text"},
       {"id":"t1","input":{},"name":"f","type":"tool_use","caller":null}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":null,
       "is_error":null,"cache_control":null}]}],"system":null,"tools":null,"thinking":null})");
  CHECK(parse_tokenize(R"({"text":"a","raw":null,"nonesuch":null})").ok());
  CHECK(parse_embeddings(R"({"input":"a","dimensions":null,"nonesuch":null})").ok());
  CHECK(parse_count_tokens(
            R"({"messages":[{"role":"user","content":"a"}],"max_tokens":null,"stream":null})")
            .ok());
}

TEST_CASE("parameters that change nothing are accepted and reported") {
  const Call call = accepted(
      Api::kChat, chat(R"("store":false,"metadata":{"a":"b"},"user":"u","safety_identifier":"s",
      "service_tier":"flex","verbosity":"low","prompt_cache_key":"k","cache_prompt":true)"));
  CHECK(call.ignored == std::vector<std::string_view>{"user", "safety_identifier", "metadata",
                                                      "service_tier", "store", "verbosity",
                                                      "prompt_cache_key", "cache_prompt"});
  CHECK(refusal(Api::kChat, chat(R"("store":true)")).code == ErrorCode::kUnsupported);
  CHECK(refusal(Api::kChat, chat(R"("metadata":7)")).field == "metadata");
  CHECK(refusal(Api::kChat, chat(R"("service_tiers":"flex")")).code == ErrorCode::kUnknownField);
  using Names = std::vector<std::string_view>;
  CHECK(accepted(Api::kResponses, R"({"input":"a","user":"u","text":{"verbosity":"low"},
      "verbosity":"low","reasoning":{"summary":"auto","generate_summary":"auto"},"seed":-1})")
            .ignored == Names{"text.verbosity", "reasoning.summary", "reasoning.generate_summary",
                              "user", "verbosity"});
  CHECK(accepted(Api::kCompletions, R"({"prompt":"a","store":false,"verbosity":"low"})").ignored ==
        Names{"store", "verbosity"});
  CHECK(accepted(Api::kMessages, R"({"max_tokens":3,"user":"u","store":false,"verbosity":"low",
      "seed":-1,"thinking":{"type":"adaptive","display":"summarized"},"messages":[
       {"role":"user","content":"a"},{"role":"assistant","content":[
        {"type":"redacted_thinking","data":"x"},
        {"type":"thinking","thinking":"t","signature":"s"}]},{"role":"user","content":"b"}]})")
            .ignored == Names{"redacted_thinking", "thinking.signature", "user", "store",
                              "verbosity", "thinking.display"});
  CHECK(refusal(Api::kMessages, R"({"max_tokens":3,"seed":7,"messages":[
      {"role":"user","content":"a"}]})")
            .field == "seed");
  CHECK(parse_embeddings(R"({"input":"a","user":"u","safety_identifier":"s","metadata":{},
      "service_tier":"auto"})")
            ->ignored == Names{"user", "safety_identifier", "metadata", "service_tier"});
  CHECK(parse_embeddings(R"({"input":"a","user":7})").error().field == "user");
}

TEST_CASE("what SGLang's router adds to each request changes nothing") {
  CHECK(accepted(Api::kChat, chat(R"("no_stop_trim":false,"ignore_eos":false,"logprobs":false,
      "separate_reasoning":true,"stream_reasoning":true,"return_hidden_states":false)"))
            .ignored.size() == 4);
  CHECK(refusal(Api::kChat, chat(R"("no_stop_trim":true)")).field == "no_stop_trim");
}

TEST_CASE("of what a client wants included, only sealed reasoning is there") {
  const Call call = accepted(
      Api::kResponses, R"({"input":"a","store":false,"include":["reasoning.encrypted_content"]})");
  CHECK(call.ignored.empty());
  CHECK(accepted(Api::kResponses, R"({"input":"a","include":[]})").ignored.empty());
  CHECK(refusal(Api::kResponses, R"({"input":"a","include":["file_search_call.results"]})").field ==
        "include[0]");
  CHECK(refusal(Api::kResponses, R"({"input":"a","include":[7]})").field == "include[0]");
  CHECK(refusal(Api::kResponses, R"({"input":"a","include":7})").field == "include");
  // An item of another server, which alone can read it.
  CHECK(refusal(Api::kResponses, R"({"input":[{"type":"reasoning","id":"rs_1","summary":[],
      "encrypted_content":"gAAA"},{"role":"user","content":"a"}]})")
            .field == "input[0].encrypted_content");
}

TEST_CASE("the page about HTTP lists exactly these parameters") {
  std::ifstream in(hearth::tests::source_path("docs/http.md"));
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  std::string ignored = "\n| parameter | value | why it changes nothing |\n|---|---|---|\n";
  for (const IgnoredField& field : ignored_fields()) {
    ignored +=
        fmt::format("| `{}` | {} | {} |\n", field.name, accepted_values(field.accepts), field.why);
  }
  CHECK_MESSAGE(page.find(ignored + "\n") != std::string::npos, ignored);
  std::string nested = "\n| member | why it changes nothing |\n|---|---|\n";
  for (const NestedField& field : nested_fields()) {
    nested += fmt::format("| `{}` | {} |\n", field.name, field.why);
  }
  CHECK_MESSAGE(page.find(nested + "\n") != std::string::npos, nested);
  std::string renamed = "\n| parameter | read as |\n|---|---|\n";
  for (const ForeignField& field : foreign_fields()) {
    if (field.renamed) renamed += fmt::format("| `{}` | `{}` |\n", field.theirs, field.ours);
  }
  CHECK_MESSAGE(page.find(renamed + "\n") != std::string::npos, renamed);
  std::string efforts_table = "\n| effort | tokens of reasoning |\n|---|---|\n";
  for (const Effort& effort : efforts()) {
    efforts_table += fmt::format("| `{}` | {} |\n", effort.name,
                                 effort.budget > 0 ? fmt::format("{}", effort.budget) : "no bound");
  }
  CHECK_MESSAGE(page.find(efforts_table + "\n") != std::string::npos, efforts_table);
}

TEST_CASE("parameters of other servers are read as ours, or refused with our name") {
  const Call call = accepted(
      Api::kChat, chat(R"("repeat_penalty":1.5,"repeat_last_n":32,"num_predict":9,"typ_p":0.5,
      "stop_token_ids":[5],"guided_json":{"type":"boolean"})"));
  CHECK(call.request.repetition_penalty == 1.5f);
  CHECK(call.request.penalty_window == 32);
  CHECK(call.request.max_tokens == 9);
  CHECK(call.request.typical_p == 0.5f);
  CHECK(call.request.stop_ids == std::vector<int32_t>{5});
  CHECK(call.request.json_schema == R"({"type":"boolean"})");
  for (const char* members :
       {R"("json_schema":{"type":"boolean"})", R"("json_schema":"{\"type\":\"boolean\"}")",
        R"("structured_outputs":{"json":{"type":"boolean"}})",
        R"("response_format":{"type":"json_object","schema":{"type":"boolean"}})",
        R"("response_format":{"type":"json_schema","schema":{"type":"boolean"}})"}) {
    CAPTURE(members);
    CHECK(accepted(Api::kChat, chat(members)).request.json_schema == R"({"type":"boolean"})");
  }
  CHECK(accepted(Api::kCompletions, R"({"prompt":"a","guided_grammar":"root ::= [a]"})")
            .request.grammar == "root ::= [a]");
  CHECK(refusal(Api::kChat, chat(R"("guided_json":{},"json_schema":{})")).field == "guided_json");
  CHECK(refusal(Api::kChat, chat(R"("json_schema":{},"response_format":{"type":"json_object"})"))
            .field == "response_format.type");
  for (const char* members :
       {R"("guided_regex":"a+")", R"("regex":"a+")", R"("structured_outputs":{"regex":"a+"})"}) {
    CHECK(accepted(Api::kChat, chat(members)).request.regex == "a+");
  }
  for (const char* members : {R"("guided_choice":["yes","a\"b\\\n"])",
                              R"("structured_outputs":{"choice":["yes","a\"b\\\n"]})"}) {
    CHECK(accepted(Api::kChat, chat(members)).request.grammar == R"(root ::= "yes" | "a\"b\\\n")");
  }
  for (const char* wrong :
       {R"("guided_choice":[])", R"("guided_choice":[1])", R"("guided_choice":[""])",
        R"("guided_choice":"a")", R"("guided_choice":["a"],"json_schema":{})"}) {
    CAPTURE(wrong);
    CHECK(refusal(Api::kChat, chat(wrong)).field == "guided_choice");
  }
  CHECK(refusal(Api::kChat, chat(R"("structured_outputs":{"regex":"a","json":{}})")).field ==
        "structured_outputs.regex");
  const std::pair<const char*, const char*> named[] = {{"mirostat", "temperature"},
                                                       {"functions", "tools"},
                                                       {"keep_alive", "residency.keep_alive_ms"}};
  for (const auto& [theirs, ours] : named) {
    const Error error = refusal(Api::kChat, chat("\"" + std::string(theirs) + "\":1"));
    CHECK(error.field == theirs);
    CHECK(error.message.find(ours) != std::string::npos);
  }
}

TEST_CASE("each API refuses the names of other servers with its own") {
  const std::string one = R"("messages":[{"role":"user","content":"a"}],)";
  struct Refused {
    Api api;
    std::string theirs, ours;
  };
  const Refused refused[] = {
      {Api::kResponses, "max_tokens", "max_output_tokens"},
      {Api::kResponses, "max_completion_tokens", "max_output_tokens"},
      {Api::kResponses, "num_predict", "max_output_tokens"},
      {Api::kResponses, "stop", "/v1/chat/completions has stop"},
      {Api::kResponses, "repeat_penalty", "repetition_penalty"},
      {Api::kResponses, "guided_json", "text.format"},
      {Api::kResponses, "structured_outputs", "text.format"},
      {Api::kResponses, "json_schema", "text.format"},
      {Api::kResponses, "think", "use reasoning"},
      {Api::kMessages, "repeat_penalty", "repetition_penalty"},
      {Api::kMessages, "guided_json", "output_config.format"},
      {Api::kMessages, "structured_outputs", "output_config.format"},
      {Api::kMessages, "json_schema", "output_config.format"},
      {Api::kMessages, "response_format", "output_config.format"},
      {Api::kMessages, "think", "use thinking"},
      {Api::kChat, "think", "reasoning_effort"},
      {Api::kOllamaChat, "num_predict", "options.num_predict"},
      {Api::kOllamaChat, "seed", "options.seed"},
      {Api::kOllamaChat, "stop", "options.stop"},
  };
  for (const Refused& each : refused) {
    const std::string begin = each.api == Api::kResponses    ? R"({"input":"a",)"
                              : each.api == Api::kMessages   ? R"({"max_tokens":9,)" + one
                              : each.api == Api::kOllamaChat ? R"({"model":"m",)" + one
                                                             : "{" + one;
    const Error error = refusal(each.api, begin + "\"" + each.theirs + "\":1}");
    CAPTURE(error.message);
    CHECK(error.field == each.theirs);
    CHECK(error.message.find(each.ours) != std::string::npos);
  }
  CHECK(accepted(Api::kMessages, "{" + one + R"("num_predict":9})").request.max_tokens == 9);
  CHECK(accepted(Api::kChat, chat(R"("structured_outputs":{"regex":"a+","disable_fallback":false,
      "disable_any_whitespace":false})"))
            .request.regex == "a+");
  CHECK(refusal(Api::kChat, chat(R"("structured_outputs":{"disable_fallback":true})")).field ==
        "structured_outputs.disable_fallback");
  const std::pair<const char*, const char*> options[] = {{"max_tokens", "options.num_predict"},
                                                         {"repetition_penalty", "repeat_penalty"},
                                                         {"mirostat", "use top_p or min_p"}};
  for (const auto& [theirs, ours] : options) {
    const Error error = refusal(Api::kOllamaChat,
                                R"({"model":"m",)" + one + R"("options":{")" + theirs + R"(":1}})");
    CHECK(error.field == "options." + std::string(theirs));
    CHECK(error.message.find(ours) != std::string::npos);
  }
}

TEST_CASE("a cache_control of chat completions may stand in tools and in the request") {
  const Call call = accepted(Api::kChat, chat(R"("cache_control":{"type":"ephemeral"},"tools":[
      {"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral","ttl":"1h"}},
      {"type":"function","function":{"name":"g","cache_control":{"type":"ephemeral"}}},
      {"type":"function","function":{"name":"h"}}])"));
  const Json tools = Json::parse(call.request.tools.text);
  CHECK(tools[0]["cache_keep_s"] == 3600);
  CHECK(tools[1]["cache_keep_s"] == 300);
  CHECK_FALSE(tools[1]["function"].contains("cache_control"));
  CHECK_FALSE(tools[2].contains("cache_keep_s"));
  CHECK(call.request.cache_keep_s == 300);
  CHECK(accepted(Api::kChat, chat(R"("cache_control":{"type":"ephemeral"},
      "prompt_cache_retention":"24h")"))
            .request.cache_keep_s == 86'400);
  CHECK(refusal(Api::kChat, chat(R"("cache_control":{"type":"lasting"})")).field ==
        "cache_control.type");
}

TEST_CASE("-1 is absent where other servers have it so") {
  const Call call = accepted(Api::kChat, chat(R"("seed":-1,"max_tokens":-1)"));
  CHECK_FALSE(call.request.seed.has_value());
  CHECK(call.request.max_tokens == 0);
  CHECK(refusal(Api::kChat, chat(R"("seed":-2)")).field == "seed");
  CHECK(refusal(Api::kChat, chat(R"("max_tokens":-2)")).field == "max_tokens");
}

TEST_CASE("a bound on the answer may be any integer where it is clipped") {
  for (const char* most : {"1000000", "2147483647", "18446744073709551615"}) {
    const std::string value = most;
    const std::string messages = R"("messages":[{"role":"user","content":"a"}])";
    const std::pair<Api, std::string> requests[] = {
        {Api::kChat, chat("\"max_tokens\":" + value)},
        {Api::kChat, chat("\"max_completion_tokens\":" + value)},
        {Api::kMessages, "{" + messages + ",\"max_tokens\":" + value + "}"},
        {Api::kResponses, R"({"input":"a","max_output_tokens":)" + value + "}"},
        {Api::kOllamaChat,
         "{\"model\":\"m\"," + messages + R"(,"options":{"num_predict":)" + value + "}}"},
    };
    for (const auto& [api, body] : requests) {
      const Call call = accepted(api, body);
      CHECK_MESSAGE(call.request.max_tokens >= 1'000'000, body);
      CHECK_MESSAGE(call.request.clip_max_tokens, body);
    }
  }
  CHECK(refusal(Api::kCompletions, R"({"prompt":"a","max_tokens":2147483647})").field ==
        "max_tokens");
  CHECK(refusal(Api::kChat, chat(R"("max_tokens":1e9)")).field == "max_tokens");
}

TEST_CASE("reasoning is asked for, or for none, in the words of each API") {
  const std::pair<const char*, const char*> cases[] = {
      {R"("reasoning_effort":"none")", "off"},
      {R"("reasoning_effort":"high")", "on"},
      {R"("thinking":{"type":"disabled"})", "off"},
      {R"("thinking":{"type":"adaptive"})", "auto"},
      {R"("enable_thinking":false)", "off"},
      {R"("reasoning":{"effort":"low","summary":"auto"})", "on"},
      {R"("reasoning":null)", "auto"},
  };
  for (const auto& [members, wanted] : cases) {
    CHECK_MESSAGE(accepted(Api::kChat, chat(members)).request.reasoning == wanted, members);
  }
  CHECK(accepted(Api::kChat, chat(R"("reasoning_effort":"low")")).request.template_kwargs.text ==
        R"({"reasoning_effort":"low"})");
  CHECK(accepted(Api::kResponses, R"({"input":"a","reasoning":{"effort":"none"}})")
            .request.reasoning == "off");
  const Call thinks = accepted(Api::kMessages, R"({"max_tokens":9,"thinking":{"type":"enabled",
      "budget_tokens":1024},"messages":[{"role":"user","content":"a"}]})");
  CHECK(thinks.request.reasoning == "on");
  CHECK(thinks.ignored.empty());
  CHECK(thinks.request.reasoning_budget == 1024);
  const std::pair<const char*, int32_t> budgets[] = {
      {R"("reasoning_effort":"low")", 1024},
      {R"("reasoning_effort":"max")", 0},
      {R"("reasoning":{"effort":"medium"})", 8192},
      {R"("reasoning":{"max_tokens":7})", 7},
      {R"("reasoning_budget":5,"reasoning_effort":"high")", 5},
      {R"("thinking_budget":6)", 6},
      {R"("chat_template_kwargs":{"reasoning_effort":"low"})", 1024},
      {R"("chat_template_kwargs":{"reasoning_effort":["low"]})", 0},
      {R"("thinking":{"type":"disabled"})", 0},
  };
  for (const auto& [members, wanted] : budgets) {
    CHECK_MESSAGE(accepted(Api::kChat, chat(members)).request.reasoning_budget == wanted, members);
  }
  CHECK(accepted(Api::kMessages, R"({"max_tokens":9,"output_config":{"effort":"low"},
      "messages":[{"role":"user","content":"a"}]})")
            .request.reasoning_budget == 1024);
  for (const char* wrong : {"0", "-1", "-2", "1.5", "\"5\"", "2000000"}) {
    const Error error = refusal(Api::kChat, chat("\"reasoning_budget\":" + std::string(wrong)));
    CHECK_MESSAGE(error.field == "reasoning_budget", wrong);
  }
  CHECK(refusal(Api::kChat, chat(R"("reasoning_budget":5,"reasoning":{"max_tokens":6})")).field ==
        "reasoning.max_tokens");
  CHECK(refusal(Api::kChat, chat(R"("reasoning_effort":"huge")")).field == "reasoning_effort");
  CHECK(refusal(Api::kChat, chat(R"("reasoning_effort":"none","enable_thinking":true)")).field ==
        "enable_thinking");
  for (const char* below : {"0", "-1"}) {
    CAPTURE(below);
    const std::string value = std::string(below) + "}";
    CHECK(refusal(Api::kChat, chat(R"("thinking":{"type":"enabled","budget_tokens":)" + value))
              .field == "thinking.budget_tokens");
    CHECK(refusal(Api::kChat, chat(R"("reasoning":{"max_tokens":)" + value)).field ==
          "reasoning.max_tokens");
    CHECK(refusal(Api::kChat, chat(R"("thinking_budget":)" + std::string(below))).field ==
          "reasoning_budget");
  }
}

TEST_CASE("conversations may be clipped, and schemas relaxed if the request declares them so") {
  CHECK(accepted(Api::kChat, chat(R"("max_tokens":5)")).request.clip_max_tokens);
  CHECK_FALSE(accepted(Api::kCompletions, R"({"prompt":"a"})").request.clip_max_tokens);
  const auto relaxes = [](const std::string& strict) {
    return accepted(Api::kChat, chat(R"("response_format":{"type":"json_schema","json_schema":{
        "name":"n","schema":{})" + strict +
                                     "}}"))
        .request.relax_schema;
  };
  CHECK(relaxes(R"(,"strict":false)"));
  CHECK_FALSE(relaxes(R"(,"strict":true)"));
  CHECK_FALSE(relaxes(R"(,"strict":null)"));
  CHECK_FALSE(relaxes(""));
  CHECK(accepted(Api::kChat, chat(R"("tools":[{"type":"function","function":{"name":"f",
      "strict":false}}])"))
            .request.relax_schema);
}

TEST_CASE("an echo of no tokens returns the prompt's log probabilities alone") {
  const Call call =
      accepted(Api::kCompletions, R"({"prompt":"ab","echo":true,"logprobs":0,"max_tokens":0})");
  CHECK(call.request.max_tokens == 1);
  const auto writer = make_answer_writer(call, "1", 5);
  std::string out;
  writer->started({"m", 2, 0, 0}, &out);
  writer->prompt_logprobs({{-0.5f}, {1, 2}, {"a", "b"}, {}}, &out);
  const std::vector<ipc::TokenLogprobs> tokens = {{-0.25f, {}, "c"}};
  writer->delta(0, "c", ipc::encode_logprobs(tokens), &out);
  writer->sample_done({0, "stop", 1, ""}, &out);
  ipc::DoneEvent done;
  done.finish_reasons = {"stop"};
  done.usage = {2, 0, 1, 0, 0};
  writer->done(done, &out);
  const Json answer = Json::parse(out);
  CHECK(answer["choices"][0]["text"] == "ab");
  CHECK(answer["choices"][0]["logprobs"]["tokens"] == Json({"a", "b"}));
  CHECK(answer["choices"][0]["finish_reason"] == "length");
  CHECK(answer["usage"]["completion_tokens"] == 0);
  CHECK(refusal(Api::kCompletions, R"({"prompt":"ab","max_tokens":0})").field == "max_tokens");
}

TEST_CASE("several prompts are answered one after another, as choices of one answer") {
  const auto run = [](const std::string& members) {
    const Call call =
        accepted(Api::kCompletions,
                 R"({"prompt":["a",[7,8]],"n":2,"echo":true,"logprobs":0)" + members + "}");
    REQUIRE(call.further.size() == 1);
    CHECK(call.further[0].ids == std::vector<int32_t>{7, 8});
    CHECK(call.request.prompt_logprobs);
    const auto writer = make_answer_writer(call, "1", 5);
    std::string out;
    ipc::DoneEvent done;
    done.finish_reasons = {"stop", "length"};
    done.usage = {2, 1, 4, 0, 0};
    const char* const texts[] = {"b", "c", "d", "e"};
    for (int prompt = 0; prompt < 2; ++prompt) {
      writer->started({"m", 2, 1, 0}, &out);
      writer->prompt_logprobs({{-0.5f}, {7, 8}, {"x", "y"}, {}}, &out);
      for (uint32_t sample = 0; sample < 2; ++sample) {
        writer->delta(sample, texts[2 * prompt + static_cast<int>(sample)], {}, &out);
        writer->sample_done({static_cast<int32_t>(sample), sample == 0 ? "stop" : "length", 2, ""},
                            &out);
      }
      if (prompt == 0) writer->next_prompt(done);
    }
    writer->done(done, &out);
    return Json::parse(out);
  };
  const Json answer = run("");
  REQUIRE(answer["choices"].size() == 4);
  CHECK(answer["choices"][0]["text"] == "ab");
  CHECK(answer["choices"][1]["text"] == "ac");
  CHECK(answer["choices"][2]["text"] == "xyd");
  CHECK(answer["choices"][3]["text"] == "xye");
  CHECK(answer["choices"][3]["index"] == 3);
  CHECK(answer["choices"][2]["finish_reason"] == "stop");
  CHECK(answer["choices"][3]["logprobs"]["tokens"] == Json({"x", "y"}));
  CHECK(answer["usage"]["prompt_tokens"] == 4);
  CHECK(answer["usage"]["completion_tokens"] == 8);
}

TEST_CASE("several prompts in a stream: each choice has its index and its end") {
  const Call call = accepted(Api::kCompletions,
                             R"({"prompt":[[1,2],[3]],"n":2,"stream":true,
                                 "stream_options":{"include_usage":true}})");
  CHECK(call.request.prompt_ids == std::vector<int32_t>{1, 2});
  const auto writer = make_answer_writer(call, "1", 5);
  std::string out;
  ipc::DoneEvent done;
  done.finish_reasons = {"stop", "length"};
  done.usage = {2, 1, 4, 0, 0};
  for (int prompt = 0; prompt < 2; ++prompt) {
    writer->started({"m", 2, 1, 0}, &out);
    for (int32_t sample = 0; sample < 2; ++sample) {
      writer->delta(sample, fmt::format("{}{}", prompt, sample), {}, &out);
      writer->sample_done({sample, sample == 0 ? "stop" : "length", 2, ""}, &out);
    }
    if (prompt == 0) writer->next_prompt(done);
  }
  writer->done(done, &out);
  std::map<int, std::string> texts, ends;
  for (const auto& event : tests::sse_objects(out)) {
    for (const auto& choice : event["choices"]) {
      const int index = choice["index"].get<int>();
      texts[index] += choice["text"].get<std::string>();
      if (choice["finish_reason"].is_string()) ends[index] = choice["finish_reason"];
    }
  }
  CHECK(texts == std::map<int, std::string>{{0, "00"}, {1, "01"}, {2, "10"}, {3, "11"}});
  CHECK(ends == std::map<int, std::string>{{0, "stop"}, {1, "length"}, {2, "stop"}, {3, "length"}});
  CHECK(tests::sse_objects(out).back()["usage"]["completion_tokens"] == 8);
}

TEST_CASE("a stream that was cancelled or came too late has no finish reason") {
  for (const char* reason : {"cancelled", "deadline"}) {
    for (const char* body : {R"({"prompt":"x","stream":true})"}) {
      const auto writer = make_answer_writer(accepted(Api::kCompletions, body), "1", 5);
      std::string out;
      writer->started({"m", 2, 0, 0}, &out);
      writer->delta(0, "a", {}, &out);
      writer->sample_done({0, reason, 1, ""}, &out);
      writer->failed(Error::deadline("late"), &out);
      const auto events = tests::sse_events(out);
      REQUIRE(events.size() == 2);
      CHECK(events[0]["choices"][0]["finish_reason"].is_null());
      CHECK(events[1]["error"]["message"] == "late");
    }
  }
}

TEST_CASE("usage so far in each chunk") {
  const auto writer = make_answer_writer(
      accepted(Api::kCompletions, R"({"prompt":"x","stream":true,"n":2,"stream_options":
               {"include_usage":true,"continuous_usage_stats":true,"include_obfuscation":true}})"),
      "1", 5);
  std::string out;
  writer->started({"m", 2, 0, 0}, &out);
  writer->tokens(0, 1);
  writer->delta(0, "a", {}, &out);
  writer->tokens(1, 3);
  writer->delta(1, "bcd", {}, &out);
  const auto events = tests::sse_events(out);
  REQUIRE(events.size() == 2);
  CHECK(events[0]["usage"]["completion_tokens"] == 1);
  CHECK(events[1]["usage"] ==
        Json({{"prompt_tokens", 2}, {"completion_tokens", 4}, {"total_tokens", 6}}));
}

TEST_CASE("a response repeats its instructions") {
  const Call call = accepted(Api::kResponses, R"({"input":"a","instructions":"Be brief."})");
  const auto writer = make_answer_writer(call, "1", 5);
  std::string out;
  writer->done({}, &out);
  CHECK(Json::parse(out)["instructions"] == "Be brief.");
}

TEST_CASE("vectors are returned if they have the dimensions that the client wants") {
  const ipc::EmbedReply reply{"m", 2, {3}, {""}};
  CHECK(parse_embeddings(R"({"input":"a","dimensions":2})").value().answer.dimensions == 2);
  CHECK(vectors_body(reply, {}).ok());
  CHECK(vectors_body(reply, {.dimensions = 2}).ok());
  CHECK(vectors_body(reply, {.dimensions = 1}).error().field == "dimensions");
  CHECK(parse_embeddings(R"({"input":"a","dimensions":0})").error().field == "dimensions");
}

TEST_CASE("a model's entry names its context length as other servers do") {
  ipc::ModelsReply reply;
  reply.models.resize(1);
  reply.models[0].name = "m";
  reply.models[0].context_length = 4096;
  CHECK(Json::parse(model_body(reply, "m"))["max_model_len"] == 4096);
  const Json page = Json::parse(models_body(reply));
  CHECK(page["has_more"] == false);
  CHECK(page["last_id"] == "m");
}

TEST_CASE("paths as clients write them") {
  const Rules rules{.hosts = HostRules::of_unix_socket({}), .origins = {}};
  const auto found = [&rules](std::string method, std::string target) -> std::string {
    HttpRequest head;
    head.method = std::move(method);
    head.target = std::move(target);
    head.hosts = {"localhost"};
    head.content_types = {"application/json"};
    Route out;
    const auto refused = route(rules, head, &out);
    if (refused) return fmt::format("{} {}", refused->status, refused->message);
    if (out.action == Action::kModel) return "model " + out.name;
    if (out.action == Action::kEndReasoning) return "end " + out.name;
    if (out.action == Action::kModels) return "models";
    return out.action == Action::kGenerate ? fmt::format("{}", to_underlying(out.api)) : "other";
  };
  for (const char* path : {"/v1/chat/completions", "/chat/completions", "/v1/chat/completions/",
                           "/v1/v1/chat/completions", "/chat/completions/"}) {
    CHECK(found("POST", path) == fmt::format("{}", to_underlying(Api::kChat)));
  }
  CHECK(found("POST", "/messages?beta=true") == fmt::format("{}", to_underlying(Api::kMessages)));
  CHECK(found("GET", "/v1/models/?limit=20") == "models");
  CHECK(found("HEAD", "/models") == "models");
  CHECK(found("GET", "/models/a%2Fb/") == "model a/b");
  CHECK(found("POST", "/v1/requests/msg_a-1/end_reasoning") == "end msg_a-1");
  CHECK(found("POST", "/requests/a%2Fb/end_reasoning/") == "end a/b");
  CHECK(found("GET", "/v1/requests/a/end_reasoning").starts_with("405"));
  CHECK(found("POST", "/v1/requests//end_reasoning").starts_with("404"));
  CHECK(found("POST", "/v1/requests/a").starts_with("404"));
  CHECK(found("GET", "/v1/health") == "other");
  CHECK(found("GET", "/v1/models?after_id=x&before_id=y&limit=1") == "models");
  CHECK(found("GET", "/v1/models?beta=true&x=1").starts_with("400 the parameter 'x'"));
  CHECK(found("GET", "/v1").find("/v1/chat/completions") != std::string::npos);
  CHECK(found("POST", "/api/pull").starts_with("501 /api/pull"));
  CHECK(api_of("/messages") == Api::kMessages);
  const auto api_with = [&rules](std::string target, bool anthropic) {
    HttpRequest head;
    head.method = "GET";
    head.target = std::move(target);
    head.hosts = {"localhost"};
    head.anthropic = anthropic;
    Route out;
    route(rules, head, &out);
    return out.api;
  };
  for (const char* target : {"/v1/models", "/models/nope", "/v1/models?x=1"}) {
    CAPTURE(target);
    CHECK(api_with(target, true) == Api::kMessages);
    CHECK(api_with(target, false) == Api::kCompletions);
  }
  CHECK(api_with("/v1/files", true) == Api::kCompletions);
}

}  // namespace
}  // namespace hearth::http
