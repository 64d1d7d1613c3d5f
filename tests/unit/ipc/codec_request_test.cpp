#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "ipc/schema/field_table.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"
#include "tests/skip.h"

namespace hearth::ipc {
namespace {

/// `fields` inside a generate request that is otherwise valid.
Result<ClientRequest> decode_generate(std::string_view fields) {
  return decode_request(
      fmt::format(R"({{"verb":"generate","prompt":"x"{}{}}})", fields.empty() ? "" : ",", fields));
}

GenerateRequest every_field_set() {
  GenerateRequest r;
  r.model = "stories";
  r.prompt = "Once upon a t\xC3\xADme\n\t\"quoted\"";
  r.raw = true;
  r.parse_special = true;
  r.n = 3;
  r.max_tokens = 77;
  r.clip_max_tokens = true;
  r.min_tokens = 5;
  r.steps = 64;
  r.block_length = 32;
  r.remasking = "entropy";
  r.temperature = 0.7f;
  r.top_k = 0;
  r.top_p = 0.9f;
  r.min_p = 0.05f;
  r.typical_p = 0.8f;
  r.repetition_penalty = 1.1f;
  r.presence_penalty = -0.5f;
  r.frequency_penalty = 0.25f;
  r.penalty_window = -1;
  r.logit_bias = {{3, -100.0f}, {7, 1.5f}};
  r.seed = UINT64_MAX;
  r.stop = {"\n\n", "END"};
  r.stop_ids = {2, 3};
  r.ignore_eos = true;
  r.logprobs = 5;
  r.prompt_logprobs = true;
  r.priority = "batch";
  r.deadline_ms = 60'000;
  r.speculate = false;
  r.prediction = "once";
  r.suffix = "end";
  r.draft = "small";
  r.adapter = "style=0.5,math";
  r.cache = "memory";
  r.cache_keep_s = 60;
  r.cache_keep_tokens = 48;
  r.cache_keep_bytes = 300;
  r.cache_share = "the manual";
  r.json_schema = R"({"type":"string"})";
  r.relax_schema = true;
  r.detach = true;
  r.remote = false;
  return r;
}

GenerateRequest chat() {
  GenerateRequest r;
  r.messages.text = R"([{"role":"user","content":[{"type":"text","text":"Hi \"you\""}]}])";
  r.tools.text = R"([{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2.5}}}])";
  r.tool_choice = "f";
  r.reasoning = "off";
  r.template_kwargs.text = R"({"enable_thinking":false})";
  return r;
}

TEST_CASE("requests read back from the wire are unchanged") {
  GenerateRequest with_ids;
  with_ids.prompt_ids = {1, 2, 16'777'215};
  with_ids.grammar = "root ::= \"a\"";
  GenerateRequest with_regex;
  with_regex.regex = "[a-c]+";
  TokenizeRequest with_token_ids;
  with_token_ids.ids = {1, 0};
  GenerateRequest empty_prompt;
  const ClientRequest requests[] = {
      PingRequest{},
      GenerateRequest{every_field_set()},
      chat(),
      with_ids,
      with_regex,
      empty_prompt,
      TokenizeRequest{"m", "text", true, true},
      TokenizeRequest{
          "m", "", false, false, {"[{\"role\":\"user\"}]"}, {"[{}]"}, "hermes", {"{\"a\":1}"}},
      with_token_ids,
      AttachRequest{"r1", 64},
      ForkRequest{"r1", 2, 64, 3, 100, 7, true},
      ForkRequest{"r1", 0, -1, 1, 0, {}, false},
      EmbedRequest{"m", {"a", ""}, {}, "mean", false},
      EmbedRequest{"m", {}, {{1, 2}, {3}}},
      EmbedRequest{"m", {"a", "b"}, {}, "auto", true, "which?"},
      TokenizeRequest{},
      CancelRequest{"r17"},
      ModelsRequest{},
      PsRequest{},
      StatsRequest{},
      HealthRequest{},
      LoadRequest{"m", 60'000, "small"},
      UnloadRequest{"m"},
      UnloadRequest{"m", "style"},
      UnloadRequest{"m", "", true},
      SwapRequest{"fast", "m"},
  };
  for (const ClientRequest& request : requests) {
    const std::string json = encode_request(request);
    const auto back = decode_request(json);
    REQUIRE_MESSAGE(back.ok(), json << ": " << (back.ok() ? "" : back.error().message));
    CHECK_MESSAGE(*back == request, json);
  }
}

TEST_CASE("absent fields have the default of the table, which is the struct's") {
  const auto decoded = decode_generate("");
  REQUIRE(decoded.ok());
  GenerateRequest plain;
  plain.prompt = "x";
  CHECK(*decoded == ClientRequest(plain));
  // The table's defaults, given explicitly, change nothing.
  for (const Field& field : fields(Verb::kGenerate)) {
    if (field.default_value.empty()) continue;
    const auto explicit_default =
        decode_generate(fmt::format(R"("{}":{})", field.name, field.default_value));
    REQUIRE_MESSAGE(explicit_default.ok(), field.name);
    CHECK_MESSAGE(*explicit_default == ClientRequest(plain), field.name);
  }
}

TEST_CASE("every field of the table reaches its struct and the wire") {
  GenerateRequest request = every_field_set();
  request.grammar = "root ::= \"a\"";  // with json_schema, which only a reader refuses
  request.regex = "a";
  const std::string json = encode_request(request) + encode_request(chat());
  for (const Field& field : fields(Verb::kGenerate)) {
    if (field.name == "prompt_ids") continue;
    CHECK_MESSAGE(json.find(fmt::format("\"{}\":", field.name)) != std::string::npos, field.name);
  }
}

TEST_CASE("a conversation is a list of objects, instead of a prompt") {
  const auto refused = [](std::string_view fields, std::string_view field) {
    const auto decoded = decode_request(fmt::format(R"({{"verb":"generate",{}}})", fields));
    REQUIRE_FALSE(decoded.ok());
    CHECK(decoded.error().field == field);
  };
  refused(R"("messages":[])", "messages");
  refused(R"("messages":{})", "messages");
  refused(R"("messages":"hi")", "messages");
  refused(R"("messages":[{},"hi"])", "messages");
  refused(R"("messages":[{}],"prompt":"x")", "messages");
  refused(R"("messages":[{}],"prompt_ids":[1])", "messages");
  refused(R"("prompt":"x","tools":[{}])", "tools");
  refused(R"("prompt":"x","tool_choice":"none")", "tool_choice");
  refused(R"("messages":[{}],"template_kwargs":[])", "template_kwargs");
  // Text that is not JSON is not sent as something else.
  GenerateRequest broken;
  broken.messages.text = "[{";
  CHECK_FALSE(decode_request(encode_request(broken)).ok());
}

TEST_CASE("the fields of attach, fork, embed and of a conversation's tokens") {
  const auto refused = [](std::string_view json, std::string_view field) {
    const auto decoded = decode_request(json);
    REQUIRE_FALSE_MESSAGE(decoded.ok(), json);
    CHECK_MESSAGE(decoded.error().field == field, json);
  };
  refused(R"({"verb":"attach"})", "id");
  refused(R"({"verb":"attach","id":""})", "id");
  refused(R"({"verb":"attach","id":"r","from":-1})", "from");
  refused(R"({"verb":"attach","id":"r","sample":0})", "sample");
  refused(R"({"verb":"fork"})", "id");
  refused(R"({"verb":"fork","id":"r","from":-2})", "from");
  refused(R"({"verb":"fork","id":"r","n":17})", "n");
  refused(R"({"verb":"fork","id":"r","temperature":1})", "temperature");
  refused(R"({"verb":"embed"})", "texts");
  refused(R"({"verb":"embed","texts":[]})", "texts");
  refused(R"({"verb":"embed","texts":"a"})", "texts");
  refused(R"({"verb":"embed","ids":[[]]})", "ids");
  refused(R"({"verb":"embed","ids":[1]})", "ids");
  refused(R"({"verb":"embed","ids":[[-1]]})", "ids");
  refused(R"({"verb":"embed","ids":[[1]],"texts":["a"]})", "ids");
  refused(R"({"verb":"embed","texts":["a"],"pooling":"rank"})", "pooling");
  refused(R"({"verb":"tokenize","text":"a","messages":[{}]})", "messages");
  refused(R"({"verb":"tokenize","text":"a","tools":[{}]})", "tools");
  CHECK(decode_request(R"({"verb":"tokenize","messages":[{}],"tools":[{}]})").ok());
  CHECK(decode_request(R"({"verb":"fork","id":"r","seed":18446744073709551615})").ok());
}

TEST_CASE("numeric fields at the extremes are in range, or an error that names the field") {
  struct Extreme {
    const char* text;
    double value;
    bool integer;
  };
  const Extreme extremes[] = {
      {"-1", -1, true},
      {"0", 0, true},
      {"0.5", 0.5, false},
      {"1e308", 1e308, false},
      {"-1e308", -1e308, false},
      {"9223372036854775807", 9223372036854775807.0, true},
      {"9223372036854775808", 9223372036854775808.0, true},
      {"-9223372036854775808", -9223372036854775808.0, true},
      {"-9223372036854775809", -9223372036854775809.0, false},
      {"18446744073709551616", 18446744073709551616.0, false},
      {"2147483648", 2147483648.0, true},
      {"4294967296", 4294967296.0, true},
  };
  int checked = 0;
  for (const Field& field : fields(Verb::kGenerate)) {
    if (field.type != FieldType::kInteger && field.type != FieldType::kNumber) continue;
    for (const Extreme& extreme : extremes) {
      const bool want_ok = extreme.value >= field.min && extreme.value <= field.max &&
                           (extreme.integer || field.type == FieldType::kNumber);
      const auto decoded = decode_generate(fmt::format(R"("{}":{})", field.name, extreme.text));
      CHECK_MESSAGE(decoded.ok() == want_ok, field.name << " at " << extreme.text);
      ++checked;
      if (decoded.ok()) continue;
      CHECK(decoded.error().code == ErrorCode::kInvalidArgument);
      CHECK(decoded.error().field == field.name);
      CHECK(decoded.error().message.starts_with(std::string(field.name) + ": met "));
      CHECK(decoded.error().message.find(", want ") != std::string::npos);
    }
    // The ends of the range are inside.
    for (const double end : {field.min, field.max}) {
      if (field.name == "min_tokens" && end > 256) continue;      // over max_tokens: another rule
      if (field.name == "reasoning_budget" && end > 0) continue;  // of a conversation alone
      CHECK_MESSAGE(decode_generate(fmt::format(R"("{}":{})", field.name, end)).ok(),
                    field.name << " at " << end);
    }
    for (const char* wrong : {"\"1\"", "true", "null", "[]", "{}", "[1]"}) {
      const auto decoded = decode_generate(fmt::format(R"("{}":{})", field.name, wrong));
      REQUIRE_MESSAGE(!decoded.ok(), field.name << " " << wrong);
      CHECK(decoded.error().field == field.name);
    }
    for (const char* not_json : {"NaN", "-NaN", "Infinity", "-Infinity", "1e400", "01", "+1", ".5",
                                 "0x10", "1.", "--1", ""}) {
      const auto decoded = decode_generate(fmt::format(R"("{}":{})", field.name, not_json));
      REQUIRE_MESSAGE(!decoded.ok(), field.name << " " << not_json);
      CHECK_MESSAGE(decoded.error().field == field.name, not_json);
    }
  }
  CHECK(checked > 150);
}

TEST_CASE("a seed is any 64 bits and nothing else") {
  for (const char* good : {"0", "1", "9223372036854775808", "18446744073709551615"}) {
    CHECK(decode_generate(fmt::format(R"("seed":{})", good)).ok());
  }
  for (const char* bad : {"-1", "18446744073709551616", "1e308", "0.5", "NaN", "\"7\"", "null"}) {
    const auto decoded = decode_generate(fmt::format(R"("seed":{})", bad));
    REQUIRE_FALSE(decoded.ok());
    CHECK(decoded.error().field == "seed");
  }
}

TEST_CASE("lists are checked item by item") {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"stop", R"(["ok",""])"},
      {"stop", R"("END")"},
      {"stop", R"([7])"},
      {"stop", R"(["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"},
      {"stop_ids", "[-1]"},
      {"stop_ids", "[16777216]"},
      {"stop_ids", "[1.5]"},
      {"stop_ids", "[9223372036854775808]"},
      {"stop_ids", "[[1]]"},
      {"logit_bias", R"({"3":1})"},
      {"logit_bias", "[3]"},
      {"logit_bias", "[[3]]"},
      {"logit_bias", "[[3,1,1]]"},
      {"logit_bias", "[[-1,1]]"},
      {"logit_bias", "[[1e308,1]]"},
      {"logit_bias", "[[3,1e308]]"},
      {"logit_bias", "[[3,-10001]]"},
      {"logit_bias", R"([[3,"1"]])"},
      {"priority", "\"urgent\""},
      {"priority", "1"},
      {"model", "\"\""},
      {"model", R"("a\nb")"},
      {"model", R"("a\u0000b")"},
      {"model", "7"},
      {"raw", "1"},
      {"cache", "\"yes\""},
      {"speculate", "1"},
      {"draft", "true"},
      {"draft", "\"\""},
  };
  for (const auto& [field, value] : bad) {
    const auto decoded = decode_generate(fmt::format(R"("{}":{})", field, value));
    REQUIRE_MESSAGE(!decoded.ok(), field << " " << value);
    CHECK(decoded.error().field == field);
  }
  CHECK(decode_generate(R"("stop":[])").ok());
  CHECK(decode_generate(R"("logit_bias":[[0,-10000],[16777215,1e4]])").ok());
  const auto where = decode_generate(R"("stop_ids":[1,2,-3])");
  CHECK(where.error().message == "stop_ids: met at [2] -3, want an integer 0 to 16777215");
}

TEST_CASE("prompt or prompt_ids, not both, not neither") {
  CHECK(decode_request(R"({"verb":"generate"})").error().field == "prompt");
  CHECK(decode_request(R"({"verb":"generate","prompt":"x","prompt_ids":[1]})").error().field ==
        "prompt_ids");
  CHECK(decode_request(R"({"verb":"generate","prompt_ids":[]})").error().field == "prompt_ids");
  CHECK(decode_request(R"({"verb":"generate","prompt_ids":[1]})").ok());
  CHECK(decode_request(R"({"verb":"generate","prompt":""})").ok());
  CHECK(decode_generate(R"("max_tokens":4,"min_tokens":5)").error().field == "min_tokens");
  CHECK(decode_generate(R"("grammar":"root ::= \"a\"","json_schema":"{}")").error().field ==
        "grammar");
  CHECK(decode_request(R"({"verb":"tokenize"})").error().field == "text");
  CHECK(decode_request(R"({"verb":"cancel"})").error().field == "id");
}

TEST_CASE("unknown fields and verbs are named") {
  const auto field = decode_generate(R"("temprature":1)");
  CHECK(field.error().code == ErrorCode::kUnknownField);
  CHECK(field.error().field == "temprature");
  CHECK(field.error().message == "temprature: no field of generate");
  // A field of another verb is unknown to this one.
  CHECK(decode_request(R"({"verb":"ping","prompt":"x"})").error().code == ErrorCode::kUnknownField);
  const auto verb = decode_request(R"({"verb":"sing"})");
  CHECK(verb.error().code == ErrorCode::kProtocol);
  CHECK(verb.error().message.find("'sing'") != std::string::npos);
  CHECK(decode_request(R"({"verb":7})").error().field == "verb");
  CHECK(decode_request("{}").error().field == "verb");
  // Text from outside is shown only as far as it is harmless.
  CHECK(decode_generate(R"("\u001b[31mred":1)").error().message ==
        "?[31mred: no field of generate");
}

TEST_CASE("text that is not one JSON object is refused, with the position") {
  using namespace std::string_literals;
  const std::string bad[] = {
      "",
      " ",
      "{",
      "}",
      "[]",
      "7",
      "null",
      "\"verb\"",
      "{\"verb\":\"ping\"",
      "{\"verb\":\"ping\"} x",
      "{\"verb\":\"ping\"}{\"verb\":\"ping\"}",
      "{'verb':'ping'}",
      "{\"verb\":\"ping\",}",
      "{\"verb\":\"ping\" // comment\n}",
      "\0"s,
      "{\"verb\":\"ping\"}\0"s,
      "{\"verb\":\"pi\0ng\"}"s,
      "{\"verb\":\"generate\",\"prompt\":\"line\nbreak\"}",
      "{\"verb\":\"generate\",\"prompt\":\"\xFF\"}",
      "{\"verb\":\"generate\",\"prompt\":\"\xC0\x80\"}",
      "{\"verb\":\"generate\",\"prompt\":\"\xED\xA0\x80\"}",
      "{\"verb\":\"generate\",\"prompt\":\"\\ud800\"}",
      "{\"verb\":\"generate\",\"prompt\":\"\\u12\"}",
      "\xEF\xBB\xBF\xFF",
  };
  for (const std::string& text : bad) {
    const auto decoded = decode_request(text);
    REQUIRE_MESSAGE(!decoded.ok(), text);
    CHECK_MESSAGE(decoded.error().code == ErrorCode::kProtocol, text);
  }
  CHECK(decode_generate("\"seed\":NaN").error().message == "seed: met what is not JSON at byte 40");
}

TEST_CASE("an escaped NUL is text like any other character") {
  const auto decoded = decode_request(R"({"verb":"generate","prompt":"a\u0000b"})");
  REQUIRE(decoded.ok());
  CHECK(std::get<GenerateRequest>(*decoded).prompt == std::string("a\0b", 3));
}

TEST_CASE("a key given twice is an error") {
  const auto twice = decode_generate(R"("seed":1,"seed":2)");
  CHECK(twice.error().code == ErrorCode::kInvalidArgument);
  CHECK(twice.error().field == "seed");
  CHECK_FALSE(decode_request(R"({"verb":"ping","verb":"ping"})").ok());
}

TEST_CASE("depth, keys, values and bytes have bounds") {
  const std::string deep(100'000, '[');
  CHECK(decode_generate("\"stop\":" + deep).error().code == ErrorCode::kTooLarge);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  CHECK(decode_request(objects).error().code == ErrorCode::kTooLarge);

  std::string keys = R"("k0":1)";
  for (int i = 1; i < 1000; ++i) keys += fmt::format(R"(,"k{}":1)", i);
  CHECK(decode_generate(keys).error().code == ErrorCode::kTooLarge);

  std::string many = "\"prompt_ids\":[0";
  for (int i = 0; i < 3'000'000; ++i) many += ",0";
  CHECK(decode_generate(many + "]").error().code == ErrorCode::kTooLarge);

  const std::string long_text((16u << 20) + 1, 'x');
  const auto prompt =
      decode_request(fmt::format(R"({{"verb":"generate","prompt":"{}"}})", long_text));
  CHECK(prompt.error().code == ErrorCode::kTooLarge);
  CHECK(prompt.error().field == "prompt");
  CHECK(decode_request(std::string(kMaxRequestBytes + 1, ' ')).error().code ==
        ErrorCode::kTooLarge);
  CHECK(decode_generate(fmt::format(R"("{}":1)", std::string(5000, 'k'))).error().message.size() <
        100);
}

TEST_CASE("a worker's request carries the owner, the wait and the tokens already sent") {
  WorkerEnvelope envelope;
  envelope.owner = "uid:1000";
  envelope.received_ms_ago = 12;
  envelope.resume = {{1, 2, 3}, {}, {4}};
  const auto back = decode_worker_request(77, encode_worker_request(envelope, every_field_set()));
  REQUIRE(back.ok());
  CHECK(back->id == 77);
  CHECK(back->owner == "uid:1000");
  CHECK(owner_of_worker_request(encode_worker_request(envelope, every_field_set())) == "uid:1000");
  CHECK(owner_of_worker_request(encode_worker_request({}, every_field_set())).empty());
  CHECK(owner_of_worker_request(R"({"owner":"uid)").empty());
  GenerateRequest quotes = every_field_set();
  quotes.prompt = R"("request":{"verb":"tokenize")";
  CHECK_FALSE(asks_for_tokens(encode_worker_request(envelope, quotes)));
  CHECK(asks_for_tokens(encode_worker_request(envelope, TokenizeRequest{"m", "", false, true})));
  CHECK(back->received_ms_ago == 12);
  CHECK(back->generate() == every_field_set());
  CHECK(back->resume == envelope.resume);

  const TokenizeRequest tokenize = {"m", "", false, true};
  const auto tokens = decode_worker_request(1, encode_worker_request({}, tokenize));
  REQUIRE(tokens.ok());
  CHECK(std::get<TokenizeRequest>(tokens->task) == tokenize);

  WorkerEnvelope fork;
  fork.prefix = {5, 6, 7};
  fork.fork_of = 9;
  fork.fork_sample = 1;
  const auto forked = decode_worker_request(1, encode_worker_request(fork, every_field_set()));
  REQUIRE(forked.ok());
  CHECK(forked->prefix == fork.prefix);
  CHECK(forked->fork_of == 9);
  CHECK(forked->fork_sample == 1);

  const EmbedRequest embed = {"m", {}, {{1, 2}, {3}}, "last", false};
  const auto vectors = decode_worker_request(1, encode_worker_request({}, embed));
  REQUIRE(vectors.ok());
  CHECK(std::get<EmbedRequest>(vectors->task) == embed);

  CHECK_FALSE(decode_worker_request(1, "{}").ok());
  CHECK_FALSE(decode_worker_request(1, R"({"request":7})").ok());
  CHECK_FALSE(decode_worker_request(1, R"({"request":{"verb":"ping"}})").ok());
  CHECK_FALSE(
      decode_worker_request(1, R"({"owner":7,"request":{"verb":"generate","prompt":""}})").ok());
  CHECK_FALSE(
      decode_worker_request(1, R"({"resume":[[-1e9]],"request":{"verb":"generate","prompt":""}})")
          .ok());
}

TEST_CASE("a long list of ids is held once while a request is decoded") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  HEARTH_SKIP("a sanitizer takes address space of its own");
#endif
  std::string json = R"({"verb":"generate","prompt_ids":[)";
  for (int i = 0; i < 1'900'000; ++i) json += "1,";
  json += "1]}";
  // 16 bytes for each value, and half of that again while the list grows.
  constexpr rlim_t kEnough = 56 << 20;
  const pid_t child = ::fork();
  if (child == 0) {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kEnough;
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(2);
    const Result<ClientRequest> request = decode_request(json);
    ::_exit(!request.ok() && request.error().code == ErrorCode::kTooLarge ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace hearth::ipc
