#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/answers/metrics.h"
#include "daemon/http/guard.h"
#include "daemon/http/requests/api_request.h"
#include "daemon/http/requests/token_request.h"
#include "ipc/wire/codec.h"
#include "tests/sse_events.h"
#include "tests/unit/daemon/accepted_call.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;

struct Refused {
  Api api;
  const char* body;
  const char* field;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

TEST_CASE("a model's listing includes its sampling defaults once they are known") {
  ipc::ModelsReply reply;
  reply.models.resize(2);
  reply.models[0].name = "known";
  reply.models[0].sampling = {.temperature = 0.5f, .top_k = 20};
  reply.models[1].name = "found";
  const Json known = Json::parse(model_body(reply, "known"));
  CHECK(known["hearth"]["sampling"]["temperature"] == 0.5);
  CHECK(known["hearth"]["sampling"]["top_k"] == 20);
  CHECK(Json::parse(model_body(reply, "found"))["hearth"]["sampling"].is_null());
  // By the rule for names that applies everywhere.
  CHECK(Json::parse(model_body(reply, "KNOWN.gguf"))["id"] == "known");
  CHECK(model_body(reply, "none").empty());
}

TEST_CASE("preflight allows the headers of the official JavaScript clients") {
  for (const char* header :
       {"x-stainless-lang", "x-stainless-package-version", "x-stainless-os", "x-stainless-arch",
        "x-stainless-runtime", "x-stainless-runtime-version", "x-stainless-retry-count",
        "x-stainless-timeout", "x-stainless-helper-method", "authorization", "x-api-key",
        "anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access"}) {
    CAPTURE(header);
    CHECK((", " + std::string(kAllowedHeaders) + ",").find(", " + std::string(header) + ",") !=
          std::string::npos);
  }
}

TEST_CASE("a completion's parameters are read, with that API's defaults") {
  const Call plain = accepted(Api::kCompletions, R"({"model":"m","prompt":"Once"})");
  CHECK(plain.request.model == "m");
  CHECK(plain.request.prompt == "Once");
  CHECK(plain.request.max_tokens == 16);
  // The same as over any other API: the model's own.
  CHECK_FALSE(plain.request.temperature.has_value());
  CHECK_FALSE(plain.request.top_p.has_value());
  CHECK_FALSE(plain.request.top_k.has_value());
  CHECK_FALSE(plain.request.penalty_window.has_value());
  CHECK(plain.request.logprobs == -1);
  CHECK_FALSE(plain.stream);

  const Call full =
      accepted(Api::kCompletions, R"({"model":"m","prompt":[1,2,3],"max_tokens":7,"n":2,
      "best_of":2,"temperature":0.5,"top_p":0.9,"presence_penalty":1,"frequency_penalty":-1,
      "logit_bias":{"5":-100,"6":1.5},"seed":9,"stop":["a","b"],"logprobs":3,"stream":true,
      "stream_options":{"include_usage":true},"user":"u","echo":false,"suffix":null,
      "min_p":0.1,"top_k":5,"ignore_eos":true})");
  CHECK(full.request.prompt_ids == std::vector<int32_t>{1, 2, 3});
  CHECK(full.request.max_tokens == 7);
  CHECK(full.request.n == 2);
  CHECK(full.request.temperature == 0.5f);
  CHECK(full.request.presence_penalty == 1.0f);
  CHECK(full.request.penalty_window == -1);  // these penalties look at the whole text
  CHECK(full.request.frequency_penalty == -1.0f);
  CHECK(full.request.logit_bias == std::vector<std::pair<int32_t, float>>{{5, -100.0f}, {6, 1.5f}});
  CHECK(full.request.seed == 9u);
  CHECK(full.request.stop == std::vector<std::string>{"a", "b"});
  CHECK(full.request.logprobs == 3);
  CHECK(full.request.min_p == 0.1f);
  CHECK(full.request.top_k == 5);
  CHECK(full.request.ignore_eos);
  CHECK(full.stream);
  CHECK(full.include_usage);
  CHECK(accepted(Api::kCompletions, R"({"prompt":["one"],"stop":"x"})").request.stop.size() == 1);
  CHECK(accepted(Api::kCompletions, R"({"prompt":[[4]]})").request.prompt_ids.front() == 4);
}

TEST_CASE("a conversation is converted into the form that templates expect") {
  const Call call = accepted(Api::kChat, R"({"model":"m","messages":[
      {"role":"developer","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"He"},{"type":"text","text":"llo"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"f","arguments":"{\"a\":1}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"2"}],
      "max_completion_tokens":9,"logprobs":true,"top_logprobs":2,"tools":[],"tool_choice":"none",
      "response_format":{"type":"text"},"chat_template_kwargs":{"enable_thinking":false}})");
  const Json messages = Json::parse(call.request.messages.text);
  CHECK(messages[0] == Json({{"role", "system"}, {"content", "Be brief."}}));
  CHECK(messages[1]["content"] == "Hello");
  CHECK(messages[2]["content"] == "");
  CHECK(messages[2]["tool_calls"][0]["function"]["arguments"] == Json({{"a", 1}}));
  CHECK(messages[3]["tool_call_id"] == "c1");
  CHECK(call.request.max_tokens == 9);
  CHECK(call.request.logprobs == 2);
  CHECK(call.request.template_kwargs.text == R"({"enable_thinking":false})");
  CHECK(
      accepted(Api::kChat, R"({"messages":[{"role":"user","content":"x"}]})").request.max_tokens ==
      0);
  const Call schema = accepted(Api::kChat, R"({"messages":[{"role":"user","content":"x"}],
      "response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
      "schema":{"type":"string"}}}})");
  CHECK(schema.request.json_schema == R"({"type":"string"})");
}

TEST_CASE("the other two APIs accept conversations, too") {
  const Call response = accepted(Api::kResponses, R"({"model":"m","instructions":"Be brief.",
      "input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]}],
      "max_output_tokens":5,"stream":true,"text":{"format":{"type":"json_object"}}})");
  CHECK(Json::parse(response.request.messages.text) ==
        Json::parse(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])"));
  CHECK(response.request.max_tokens == 5);
  CHECK(response.request.json_schema == R"({"type":"object"})");
  CHECK(Json::parse(
            accepted(Api::kResponses, R"({"input":"Hi"})").request.messages.text)[0]["role"] ==
        "user");

  const Call message = accepted(Api::kMessages, R"({"model":"m","max_tokens":4,
      "system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}],
      "messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},
      {"role":"user","content":[{"type":"text","text":"c"}]}],"stop_sequences":["END"],"top_k":3,
      "metadata":{"user_id":"u"}})");
  CHECK(Json::parse(message.request.messages.text).size() == 4);
  CHECK(message.request.stop == std::vector<std::string>{"END"});
  CHECK(message.request.top_k == 3);
}

TEST_CASE("cache markers are converted into the socket's form") {
  const auto messages = [](const Call& call) { return Json::parse(call.request.messages.text); };
  const Call message = accepted(Api::kMessages, R"({"model":"m","max_tokens":4,
      "cache_control":{"type":"ephemeral","ttl":"2d"},
      "system":[{"type":"text","text":"abc","cache_control":{"type":"ephemeral","ttl":"1h"}},
                {"type":"text","text":"def","cache_control":{"type":"ephemeral"}},
                {"type":"text","text":"ghi"}],
      "messages":[{"role":"user","content":"a","cache_control":{"type":"ephemeral"}},
      {"role":"assistant","content":"b"},
      {"role":"user","content":[{"type":"text","text":"c","cache_control":{"type":"ephemeral"}}]}]})");
  CHECK(message.request.cache_keep_s == 172'800);
  CHECK(messages(message) == Json::parse(R"([
      {"role":"system","content":"abcdefghi","cache_keep_s":3600,"cache_keep_bytes":6},
      {"role":"user","content":"a","cache_keep_s":300},
      {"role":"assistant","content":"b"},
      {"role":"user","content":"c","cache_keep_s":300}])"));

  const Call chat = accepted(Api::kChat, R"({"prompt_cache_key":"k","prompt_cache_retention":"24h",
      "messages":[{"role":"user","content":[{"type":"text","text":"a"},
      {"type":"text","text":"b","cache_control":{"type":"ephemeral","ttl":"10m"}}]}]})");
  CHECK(chat.request.cache_keep_s == 86'400);
  CHECK(messages(chat) == Json::parse(R"([{"role":"user","content":"ab","cache_keep_s":600}])"));
  const Call response = accepted(Api::kResponses, R"({"prompt_cache_retention":"in_memory","input":[
      {"role":"user","content":[{"type":"input_text","text":"a",
       "cache_control":{"type":"ephemeral"}}]}]})");
  CHECK(response.request.cache_keep_s == 0);
  CHECK(messages(response)[0]["cache_keep_s"] == 300);

  for (const char* wrong :
       {R"({"type":"eternal"})", R"({"type":"ephemeral","ttl":"5"})",
        R"({"type":"ephemeral","ttl":"31d"})", R"({"type":"ephemeral","x":1})",
        R"({"type":"ephemeral","ttl":"0m"})", R"({"type":"ephemeral","ttl":""})",
        R"({"type":"ephemeral","ttl":"99999999999999999999s"})", R"(7)"}) {
    CAPTURE(wrong);
    const std::string body = std::string(R"({"messages":[{"role":"user","content":"a",)") +
                             R"("cache_control":)" + wrong + "}]}";
    const Result<Call> call = parse_call(Api::kChat, body);
    REQUIRE_FALSE(call.ok());
    CHECK(call.error().field.starts_with("messages[0].cache_control"));
  }
}

TEST_CASE("a completion of too many token ids is refused") {
  std::string ids = "1";
  for (int i = 1; i <= 1'048'576; ++i) ids += ",1";
  const Result<Call> call = parse_call(Api::kCompletions, R"({"prompt":[)" + ids + "]}");
  REQUIRE_FALSE(call.ok());
  CHECK(call.error().code == ErrorCode::kTooLarge);
  CHECK(call.error().field == "prompt");
}

TEST_CASE("unsupported fields are refused by name") {
  constexpr auto kInvalid = ErrorCode::kInvalidArgument;
  constexpr auto kNot = ErrorCode::kUnsupported;
  constexpr auto kUnknown = ErrorCode::kUnknownField;
  const Refused cases[] = {
      {Api::kCompletions, R"({})", "prompt", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","echo":true,"stream":true})", "echo", kNot},
      {Api::kCompletions, R"({"prompt":"a","prompt_logprobs":true,"stream":true})",
       "prompt_logprobs", kNot},
      {Api::kCompletions, R"({"prompt":"a","best_of":3})", "best_of", kNot},
      {Api::kCompletions, R"({"prompt":["a",[-1]]})", "prompt", kInvalid},
      {Api::kCompletions, R"({"prompt":7})", "prompt", kInvalid},
      {Api::kCompletions, R"({"prompt":[-1]})", "prompt", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","temperature":-1})", "temperature", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","max_tokens":0})", "max_tokens", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","max_tokens":1.5})", "max_tokens", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","n":17})", "n", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","seed":-2})", "seed", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","logit_bias":{"x":1}})", "logit_bias", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","logit_bias":[1]})", "logit_bias", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","stream":"yes"})", "stream", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","stream_options":{}})", "stream_options", kInvalid},
      {Api::kCompletions, R"({"prompt":"a","stream":true,"stream_options":{"x":1}})",
       "stream_options.x", kUnknown},
      {Api::kCompletions, R"({"prompt":"a","nonesuch":1})", "nonesuch", kUnknown},
      {Api::kCompletions, R"({"prompt":"a","verb":"ping"})", "verb", kUnknown},
      {Api::kCompletions, R"({"prompt":"a","messages":[]})", "messages", kUnknown},
      {Api::kChat, R"({})", "messages", kInvalid},
      {Api::kChat, R"({"messages":[]})", "messages", kInvalid},
      {Api::kChat, R"({"messages":["a"]})", "messages[0]", kInvalid},
      {Api::kChat, R"({"messages":[{"role":"robot","content":"a"}]})", "messages[0].role",
       kInvalid},
      {Api::kChat, R"({"messages":[{"role":"user"}]})", "messages[0].content", kInvalid},
      {Api::kChat, R"({"messages":[{"role":"user","content":"a","x":1}]})", "messages[0].x",
       kUnknown},
      {Api::kChat,
       R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
       "messages[0].content[0].type", kNot},
      {Api::kChat, R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})", "tools[0].type",
       kNot},
      {Api::kChat, R"({"messages":[{"role":"user","content":"a"}],"tool_choice":"required"})",
       "tool_choice", kInvalid},
      {Api::kChat, R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":1})",
       "top_logprobs", kInvalid},
      {Api::kChat,
       R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":21})",
       "top_logprobs", kInvalid},
      {Api::kChat,
       R"({"messages":[{"role":"user","content":"a"}],"response_format":{"type":"xml"}})",
       "response_format.type", kInvalid},
      {Api::kChat, R"({"messages":[{"role":"user","content":"a"}],"audio":{}})", "audio", kUnknown},
      {Api::kChat, R"({"messages":[{"role":"user","content":"a"}],"store":true})", "store", kNot},
      {Api::kResponses, R"({})", "input", kInvalid},
      {Api::kResponses, R"({"input":"a","previous_response_id":"r"})", "previous_response_id",
       kNot},
      {Api::kResponses, R"({"input":[{"type":"file_search_call"}]})", "input[0].type", kNot},
      {Api::kResponses, R"({"input":"a","max_output_tokens":"x"})", "max_output_tokens", kInvalid},
      {Api::kMessages, R"({"messages":[{"role":"user","content":"a"}]})", "max_tokens", kInvalid},
      {Api::kMessages,
       R"({"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
       "messages", kNot},
      {Api::kMessages, R"({"max_tokens":1,"messages":[{"role":"tool","content":"a"}]})",
       "messages[0].role", kInvalid},
      {Api::kMessages,
       R"({"max_tokens":1,"messages":[{"role":"user","content":"a"}],"thinking":{"type":"on"}})",
       "thinking.type", kInvalid},
      {Api::kMessages,
       R"({"max_tokens":1,"messages":[{"role":"user","content":"a"}],"stop_sequences":[""]})",
       "stop_sequences", kInvalid},
  };
  for (const Refused& each : cases) {
    const Result<Call> call = parse_call(each.api, each.body);
    REQUIRE_FALSE_MESSAGE(call.ok(), each.body);
    CHECK_MESSAGE(call.error().field == each.field, each.body << ": " << call.error().message);
    CHECK_MESSAGE(call.error().code == each.code, each.body);
    CHECK(call.error().message.starts_with(each.field));
  }
  for (const char* body : {"", "[]", "{", "{\"prompt\":\"a\"} x", "\xFF"}) {
    CHECK_FALSE(parse_call(Api::kCompletions, body).ok());
  }
  CHECK(parse_tokenize(R"({"text":"a","raw":true})").value().request.raw);
  CHECK(parse_tokenize(R"({"txt":"a"})").error().field == "txt");
  CHECK(parse_tokenize(R"({"text":"a","verb":"generate"})").error().field == "verb");
}

TEST_CASE("tokens are asked for in the words of other servers, and answered in theirs") {
  // What other words make is as if it was asked for in ours.
  const auto read = [](const char* body) {
    Result<TokenCall> call = parse_tokenize(body);
    REQUIRE_MESSAGE(call.ok(), body);
    CHECK(call->answer == TokenAnswer::kIds);
    CHECK(call->request.model == "m");
    CHECK(call->request.text == "a");
    return !call->request.raw;
  };
  CHECK(read(R"({"model":"m","prompt":"a"})"));
  CHECK(read(R"({"model":"m","prompt":"a","return_token_strs":false})"));
  CHECK_FALSE(read(R"({"model":"m","prompt":"a","add_special_tokens":false})"));
  CHECK_FALSE(read(R"({"model":"m","content":"a"})"));
  CHECK(read(R"({"model":"m","content":"a","add_special":true,"parse_special":true})"));
  CHECK(parse_tokenize(R"({"content":"a","with_pieces":true})").error().field == "with_pieces");
  CHECK(parse_tokenize(R"({"prompt":["a"]})").error().field == "text");
  CHECK(parse_tokenize(R"({"prompt":"a","text":"b"})").error().field == "text");
  CHECK(parse_tokenize(R"({"prompt":null,"text":"b"})")->answer == TokenAnswer::kOurs);

  const Result<TokenCall> text = parse_detokenize(R"({"model":"m","tokens":[3,4]})");
  REQUIRE(text.ok());
  CHECK(text->answer == TokenAnswer::kText);
  CHECK(text->request.ids == std::vector<int32_t>{3, 4});
  CHECK(parse_detokenize(R"({"tokens":[]})")->request.ids.empty());
  CHECK(parse_detokenize(R"({"tokens":["a"]})").error().field == "ids");
  CHECK(parse_detokenize(R"({"tokens":[-1]})").error().field == "ids");
  CHECK(parse_detokenize(R"({"model":"m"})").error().field == "tokens");

  const ipc::TokenizeReply reply{"m", {1, 2}, {"<s>", "b"}, "<s>b", "<s>", ""};
  CHECK(tokens_body(reply, TokenAnswer::kOurs) ==
        R"({"model":"m","count":2,"ids":[1,2],"entries":["<s>","b"]})");
  CHECK(tokens_body(reply, TokenAnswer::kIds) == R"({"count":2,"tokens":[1,2]})");
  CHECK(tokens_body(reply, TokenAnswer::kText) == R"({"prompt":"<s>b","content":"<s>b"})");
  CHECK(tokens_body(reply, tokenizer_info().answer) ==
        R"({"model":"m","bos_token":"<s>","eos_token":null})");
}

// The events of one answer with two deltas; sample 0 of n.
std::string answer_of(const Call& call, const std::string& reason, const std::string& stop = "",
                      const std::vector<ipc::TokenLogprobs>& logprobs = {}) {
  const auto writer = make_answer_writer(call, "1-2", 1700000000);
  const std::string frame = logprobs.empty() ? "" : ipc::encode_logprobs(logprobs);
  std::string out;
  writer->started({"tales", 12, 8, 0.5}, &out);
  writer->delta(0, "a\"b\n", frame, &out);
  writer->delta(0, "", {}, &out);
  writer->delta(0, "\xC3\xA9\x01", frame, &out);
  ipc::SampleDoneEvent sample{0, reason, 3, stop};
  writer->sample_done(sample, &out);
  ipc::DoneEvent done;
  done.finish_reasons = {reason};
  done.model = "tales";
  done.usage = {12, 8, 3, 0, 0};
  writer->done(done, &out);
  return out;
}

constexpr const char* kText = "a\"b\n\xC3\xA9\x01";

TEST_CASE("a whole answer is one body, in each API's shape") {
  const Json completion =
      Json::parse(answer_of(accepted(Api::kCompletions, R"({"prompt":"x"})"), "stop"));
  CHECK(completion["object"] == "text_completion");
  CHECK(completion["id"] == "cmpl-1-2");
  CHECK(completion["model"] == "tales");
  CHECK(completion["created"] == 1700000000);
  CHECK(completion["choices"][0]["text"] == kText);
  CHECK(completion["choices"][0]["finish_reason"] == "stop");
  CHECK(completion["usage"]["prompt_tokens"] == 12);
  CHECK(completion["usage"]["total_tokens"] == 15);
  CHECK(completion["usage"]["prompt_tokens_details"]["cached_tokens"] == 8);

  const std::string hi = R"("messages":[{"role":"user","content":"Hi"}])";
  const Json chat = Json::parse(answer_of(accepted(Api::kChat, "{" + hi + "}"), "length"));
  CHECK(chat["object"] == "chat.completion");
  CHECK(chat["choices"][0]["message"]["content"] == kText);
  CHECK(chat["choices"][0]["finish_reason"] == "length");

  const Json response =
      Json::parse(answer_of(accepted(Api::kResponses, R"({"input":"Hi"})"), "length"));
  CHECK(response["status"] == "incomplete");
  CHECK(response["output"][0]["content"][0]["text"] == kText);
  CHECK(response["usage"]["input_tokens_details"]["cached_tokens"] == 8);

  const Json message = Json::parse(
      answer_of(accepted(Api::kMessages, "{\"max_tokens\":5," + hi + "}"), "stop", "END"));
  CHECK(message["stop_reason"] == "stop_sequence");
  CHECK(message["stop_sequence"] == "END");
  CHECK(message["content"][0] == Json({{"type", "text"}, {"text", kText}}));
  CHECK(message["usage"]["input_tokens"] == 4);
  CHECK(message["usage"]["cache_read_input_tokens"] == 8);
}

TEST_CASE("a stream of chunks") {
  const auto events = tests::sse_events(
      answer_of(accepted(Api::kCompletions,
                         R"({"prompt":"x","stream":true,"stream_options":{"include_usage":true}})"),
                "stop"));
  REQUIRE(events.size() == 5);  // two texts, the end, usage, [DONE]
  CHECK(events[0]["choices"][0]["text"] == "a\"b\n");
  CHECK(events[0]["usage"].is_null());
  CHECK(events[0]["choices"][0]["finish_reason"].is_null());
  CHECK(events[1]["choices"][0]["text"] == "\xC3\xA9\x01");
  CHECK(events[2]["choices"][0]["finish_reason"] == "stop");
  CHECK(events[3]["choices"].empty());
  CHECK(events[3]["usage"]["completion_tokens"] == 3);
  CHECK(events[4] == "[DONE]");

  const auto chat = tests::sse_events(answer_of(
      accepted(Api::kChat, R"({"messages":[{"role":"user","content":"Hi"}],"stream":true})"),
      "length"));
  REQUIRE(chat.size() == 5);
  CHECK(chat[0]["choices"][0]["delta"]["role"] == "assistant");
  CHECK(chat[1]["choices"][0]["delta"]["content"] == "a\"b\n");
  CHECK(chat[1]["object"] == "chat.completion.chunk");
  CHECK_FALSE(chat[1].contains("usage"));
  CHECK(chat[3]["choices"][0]["finish_reason"] == "length");
}

TEST_CASE("streams of typed events") {
  const auto responses = tests::sse_events(
      answer_of(accepted(Api::kResponses, R"({"input":"Hi","stream":true})"), "stop"));
  std::vector<std::string> types;
  for (size_t i = 0; i < responses.size(); ++i) {
    types.push_back(responses[i]["type"]);
    CHECK(responses[i]["sequence_number"] == i);
  }
  CHECK(types ==
        std::vector<std::string>{"response.created", "response.in_progress",
                                 "response.output_item.added", "response.content_part.added",
                                 "response.output_text.delta", "response.output_text.delta",
                                 "response.output_text.done", "response.content_part.done",
                                 "response.output_item.done", "response.completed"});
  CHECK(responses[4]["item_id"] == responses[2]["item"]["id"]);
  CHECK(responses.back()["response"]["output"][0]["content"][0]["text"] == kText);

  const auto messages = tests::sse_events(answer_of(
      accepted(Api::kMessages,
               R"({"max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"stream":true})"),
      "length"));
  types.clear();
  for (const Json& event : messages) types.push_back(event["type"]);
  CHECK(types == std::vector<std::string>{"message_start", "ping", "content_block_start",
                                          "content_block_delta", "content_block_delta",
                                          "content_block_stop", "message_delta", "message_stop"});
  CHECK(messages[3]["delta"]["text"] == "a\"b\n");
  CHECK(messages[6]["delta"]["stop_reason"] == "max_tokens");
}

TEST_CASE("log probabilities with texts and bytes of their tokens") {
  const std::vector<ipc::TokenLogprobs> tokens = {
      {-0.5f, {{7, -0.5f, " a"}, {8, -1.0f, "bytes:\\xc3\\xa9"}}, " a"}};
  const Json completion = Json::parse(
      answer_of(accepted(Api::kCompletions, R"({"prompt":"x","logprobs":2})"), "stop", "", tokens));
  const Json& lists = completion["choices"][0]["logprobs"];
  CHECK(lists["tokens"] == Json({" a", " a"}));
  CHECK(lists["text_offset"] == Json({0, 2}));
  CHECK(lists["top_logprobs"][0][" a"] == -0.5);
  const Json chat = Json::parse(
      answer_of(accepted(Api::kChat, R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,
                                     "top_logprobs":2})"),
                "stop", "", tokens));
  const Json& content = chat["choices"][0]["logprobs"]["content"];
  REQUIRE(content.size() == 2);
  CHECK(content[0]["token"] == " a");
  CHECK(content[0]["bytes"] == Json({32, 97}));
  CHECK(content[0]["top_logprobs"][1]["bytes"] == Json({0xC3, 0xA9}));
}

TEST_CASE("errors in each API's own shape") {
  const Error error{ErrorCode::kContextOverflow, "too long", "max_tokens"};
  CHECK(status_of(Api::kChat, error.code) == 400);
  const Json openai = Json::parse(error_body(Api::kChat, 400, error));
  CHECK(openai["error"]["code"] == "context_length_exceeded");
  CHECK(openai["error"]["type"] == "invalid_request_error");
  CHECK(openai["error"]["param"] == "max_tokens");
  CHECK(Json::parse(error_body(Api::kCompletions, 404,
                               Error::not_found("none", "id")))["error"]["code"] == "not_found");
  const Json anthropic = Json::parse(error_body(Api::kMessages, 529, error));
  CHECK(anthropic["type"] == "error");
  CHECK(anthropic["error"]["type"] == "overloaded_error");
  CHECK(status_of(Api::kMessages, ErrorCode::kUnavailable) == 529);
  CHECK(status_of(Api::kChat, ErrorCode::kUnavailable) == 503);
  CHECK(status_of(Api::kChat, ErrorCode::kBusy) == 429);
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    CHECK(status_of(Api::kChat, static_cast<ErrorCode>(code)) >= 400);
  }
  ipc::DoneEvent done;
  done.finish_reasons = {"stop", "length"};
  CHECK(abnormal_end(done) == nullptr);
  done.finish_reasons[1] = "deadline";
  CHECK(abnormal_end(done) != nullptr);
}

TEST_CASE("models, health and metrics") {
  ipc::ModelsReply reply;
  reply.models.resize(1);
  reply.models[0].name = "tales";
  reply.models[0].roles = {"default"};
  const Json models = Json::parse(models_body(reply));
  REQUIRE(models["data"].size() == 2);
  CHECK(models["data"][1]["id"] == "default");
  CHECK(Json::parse(model_body(reply, "tales"))["object"] == "model");
  CHECK(model_body(reply, "other").empty());
  reply.models[0].adapters = {{"formal", 100, 0}};
  CHECK(Json::parse(models_body(reply))["data"][2]["id"] == "tales:formal");
  CHECK(Json::parse(model_body(reply, "tales:formal"))["hearth"]["file"] == "tales");
  CHECK(Json::parse(health_body({"ok", {}}))["status"] == "ok");
  ipc::StatsReply stats;
  stats.version = "1\"2";
  stats.output_tokens_total = 42;
  stats.workers.resize(1);
  stats.workers[0].model = "tales";
  stats.workers[0].snapshot.kv_blocks_used = {3, 4};
  stats.workers[0].snapshot.speculation.by = {{"mtp", 30, 20}, {"lookup", 9, 1}};
  const std::string text = metrics_text(stats);
  CHECK(
      text.find("hearth_proposer_drafted_tokens_total{model=\"tales\",proposer=\"mtp\"} 30\n"
                "hearth_proposer_drafted_tokens_total{model=\"tales\",proposer=\"lookup\"} 9\n") !=
      std::string::npos);
  CHECK(text.find("hearth_proposer_accepted_tokens_total{model=\"tales\",proposer=\"mtp\"} 20\n") !=
        std::string::npos);
  CHECK(text.find("hearth_output_tokens_total 42\n") != std::string::npos);
  CHECK(text.find("hearth_info{version=\"1\\\"2\"} 1\n") != std::string::npos);
  CHECK(text.find("hearth_kv_blocks_used{model=\"tales\"} 7\n") != std::string::npos);
  CHECK(text.find("hearth_gpu_") == std::string::npos);
  CHECK(text.find("hearth_prefix_ram_bytes{model=\"tales\"} 0\n") != std::string::npos);
  ipc::GpuSnapshot& gpu = stats.workers[0].snapshot.gpu.emplace();
  gpu.name = "NVIDIA H200";
  gpu.power_mw = 412'500;
  gpu.utilization_percent = 0;
  gpu.throttled = "power limit";
  stats.workers.emplace_back().model = "small";  // on a CPU
  const std::string with_gpu = metrics_text(stats);
  CHECK(with_gpu.find("# TYPE hearth_gpu_power_watts gauge\n"
                      "hearth_gpu_power_watts{model=\"tales\",gpu=\"NVIDIA H200\"} 412.5\n#") !=
        std::string::npos);
  CHECK(with_gpu.find("hearth_gpu_utilization_ratio{model=\"tales\",gpu=\"NVIDIA H200\"} 0\n") !=
        std::string::npos);
  CHECK(with_gpu.find("hearth_gpu_throttled{model=\"tales\",gpu=\"NVIDIA H200\"} 1\n") !=
        std::string::npos);
  CHECK(with_gpu.find("hearth_gpu_temperature") == std::string::npos);  // not reported
}

TEST_CASE("counting tokens takes the fields of a message; those for the answer change nothing") {
  const auto counted = parse_count_tokens(
      R"({"model":"m","system":"s","messages":[{"role":"user","content":"a"}]})");
  REQUIRE(counted.ok());
  const Call call =
      parse_call(
          Api::kMessages,
          R"({"model":"m","max_tokens":9,"system":"s","messages":[{"role":"user","content":"a"}]})")
          .value();
  CHECK(counted->request.model == "m");
  CHECK(counted->request.messages == call.request.messages);
  CHECK(tokens_body({"m", {1, 2, 3}, {"a", "b", "c"}}, TokenAnswer::kCount) ==
        R"({"input_tokens":3})");
  const auto whole = parse_count_tokens(
      R"({"messages":[{"role":"user","content":"a"}],"max_tokens":5,"stream":true,"temperature":1,
          "stop_sequences":["x"],"metadata":{"user_id":"u"},"thinking":{"type":"disabled"},
          "tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto"}})");
  REQUIRE(whole.ok());
  CHECK(whole->ignored == std::vector<std::string_view>{"max_tokens", "stream", "temperature",
                                                        "stop_sequences", "metadata"});
  CHECK(whole->request.reasoning == "off");
  CHECK(whole->request.tools.text.find("\"f\"") != std::string::npos);
  CHECK_FALSE(parse_count_tokens(R"({"model":"m"})").ok());
}

TEST_CASE("echo puts the prompt in front, with its tokens' log probabilities") {
  const Call call =
      parse_call(Api::kCompletions, R"({"prompt":"ab","echo":true,"logprobs":1,"max_tokens":1})")
          .value();
  CHECK(call.request.prompt_logprobs);
  const auto writer = make_answer_writer(call, "1", 5);
  std::string out;
  writer->started({"m", 2, 0, 0}, &out);
  writer->prompt_logprobs({{-0.5f}, {1, 2}, {"a", "b"}, {{{2, -0.5f, "b"}}}}, &out);
  const std::vector<ipc::TokenLogprobs> tokens = {{-0.25f, {{3, -0.25f, "c"}}, "c"}};
  writer->delta(0, "c", ipc::encode_logprobs(tokens), &out);
  writer->sample_done({0, "length", 1, ""}, &out);
  ipc::DoneEvent done;
  done.model = "m";
  done.finish_reasons = {"length"};
  writer->done(done, &out);
  const auto choice = nlohmann::json::parse(out)["choices"][0];
  CHECK(choice["text"] == "abc");
  CHECK(choice["logprobs"]["tokens"] == nlohmann::json({"a", "b", "c"}));
  CHECK(choice["logprobs"]["token_logprobs"] == nlohmann::json({nullptr, -0.5, -0.25}));
  CHECK(choice["logprobs"]["text_offset"] == nlohmann::json({0, 1, 2}));
  CHECK(choice["logprobs"]["top_logprobs"][0].is_null());
  CHECK(choice["logprobs"]["top_logprobs"][1]["b"] == -0.5);
  // Without logprobs a text is its own echo; tokens have to be returned.
  CHECK_FALSE(parse_call(Api::kCompletions, R"({"prompt":"ab","echo":true})")
                  .value()
                  .request.prompt_logprobs);
  CHECK(parse_call(Api::kCompletions, R"({"prompt":[1,2],"echo":true})")
            .value()
            .request.prompt_logprobs);
}

}  // namespace
}  // namespace hearth::http
