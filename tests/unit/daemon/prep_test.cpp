#include "daemon/worker/serve/prep.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "tests/unit/daemon/prep_fixture.h"
#include "tests/unit/models/ranking_file.h"

namespace hearth::worker {
namespace {

TEST_CASE("a schema or a grammar is compiled once, and refused by name") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("the abc");
  in.generate().json_schema = R"({"type":"boolean"})";
  const engine::Request out = f.good(in);
  CHECK(out.constraint != nullptr);
  CHECK(f.good(in).constraint == out.constraint);
  in.generate().ignore_eos = true;
  CHECK(f.bad(in).field == "ignore_eos");
  in.generate().ignore_eos = false;
  in.generate().json_schema = R"({"type":"array","uniqueItems":true})";
  CHECK(f.bad(in).field == "json_schema");
  CHECK(f.bad(in).code == ErrorCode::kUnsupported);
  in.generate().json_schema.clear();
  CHECK(f.good(in).constraint == nullptr);
  in.generate().grammar = "root ::= [a-c]+";
  CHECK(f.good(in).constraint != nullptr);
  in.generate().grammar = "root :=";
  CHECK(f.bad(in).field == "grammar");
  in.generate().grammar.clear();
  in.generate().regex = "[a-c]+";
  CHECK(f.good(in).constraint != nullptr);
  in.generate().regex = "(?=a)";
  CHECK(f.bad(in).field == "regex");
}

TEST_CASE("fields that a request omits take the model's defaults") {
  Fixture f;
  f.model.sampling = {.temperature = 0.25f,
                      .top_k = 7,
                      .top_p = 0.5f,
                      .min_p = 0.125f,
                      .repetition_penalty = 1.5f,
                      .penalty_window = 9};
  ipc::WorkerRequest in = Fixture::request("the abc");
  engine::SamplingParams out = f.good(in).sampling;
  CHECK(out.temperature == 0.25f);
  CHECK(out.top_k == 7);
  CHECK(out.top_p == 0.5f);
  CHECK(out.min_p == 0.125f);
  CHECK(out.repetition_penalty == 1.5f);
  CHECK(out.penalty_window == 9);
  in.generate().temperature = 1.0f;
  in.generate().top_k = 0;
  in.generate().penalty_window = -1;
  out = f.good(in).sampling;
  CHECK(out.temperature == 1.0f);
  CHECK(out.top_k == 0);
  CHECK(out.top_p == 0.5f);
  CHECK(out.penalty_window == -1);
}

TEST_CASE("a prompt is a user's message if there is a template, and text otherwise") {
  models::GgufWriter w = models::vocab_file(models::small_vocab());
  w.set_string("tokenizer.chat_template",
               "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}a");
  const std::vector<std::byte> bytes = w.bytes();
  const models::GgufFile file = models::GgufFile::parse(bytes, "test").value();
  const auto tokenizer = models::load_tokenizer(file).value();
  const models::ChatTemplates templates = models::ChatTemplates::load(file);
  const PrepModel model = make_prep_model("m", 64, *tokenizer, "", &templates);
  const auto ids = [&model](const ipc::WorkerRequest& request) {
    const PrepResult result = prepare(model, request);
    REQUIRE(std::holds_alternative<PreparedRequest>(result.outcome));
    return std::get<PreparedRequest>(result.outcome).request.prompt;
  };
  ipc::WorkerRequest conversation = Fixture::request("");
  conversation.generate().messages.text = R"([{"role":"user","content":"the \"abc\""}])";
  ipc::WorkerRequest message = Fixture::request("the \"abc\"");
  const std::vector<int32_t> text = ids(message);
  message.generate().prompt_as = "message";
  CHECK(ids(message) == ids(conversation));
  CHECK(ids(message) != text);
  // A model without a template continues it.
  const Fixture f;
  CHECK(f.good(message).prompt == f.good(Fixture::request("the \"abc\"")).prompt);
}

TEST_CASE("a prompt becomes tokens with BOS, and every parameter arrives") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("the abc");
  ipc::GenerateRequest& g = in.generate();
  g.n = 2;
  g.min_tokens = 1;
  g.temperature = 0.5f;
  g.top_k = 3;
  g.top_p = 0.75f;
  g.min_p = 0.125f;
  g.typical_p = 0.25f;
  g.repetition_penalty = 1.5f;
  g.presence_penalty = 0.5f;
  g.frequency_penalty = 0.25f;
  g.penalty_window = 17;
  g.logit_bias = {{5, 1.0f}};
  g.stop_ids = {9};
  g.logprobs = 4;
  g.prompt_logprobs = true;
  g.priority = "interactive";
  g.speculate = false;
  g.draft = "none";
  g.cache = "off";
  g.cache_keep_s = 60;
  g.cache_keep_tokens = 16;
  in.resume = {{10, 11}, {12}};
  const engine::Request out = f.good(in);
  CHECK(out.id == 7);
  CHECK(out.owner == "uid:1000");
  CHECK(out.cache_salt == "uid:1000");
  CHECK(out.prompt == f.tokenizer->encode("the abc", {}));
  CHECK(out.prompt.front() == 1);
  CHECK(out.n == 2);
  CHECK(out.max_tokens == 8);
  CHECK(out.min_tokens == 1);
  // And the model's own end tokens.
  const std::vector<int32_t>& stops = out.stop_ids;
  CHECK(stops.front() == 9);
  CHECK(std::find(stops.begin(), stops.end(), 2) != stops.end());
  CHECK(out.priority == engine::Priority::kInteractive);
  CHECK_FALSE(out.use_prefix_cache);
  REQUIRE(out.kept.size() == 1);
  CHECK(out.kept[0].seconds == 60);
  CHECK(out.kept[0].num_tokens == static_cast<int32_t>(std::min<size_t>(16, out.prompt.size())));
  CHECK_FALSE(out.speculate);
  CHECK_FALSE(out.use_draft);
  CHECK(out.resume == in.resume);
  CHECK(out.sampling.temperature == 0.5f);
  CHECK(out.sampling.top_k == 3);
  CHECK(out.sampling.top_p == 0.75f);
  CHECK(out.sampling.min_p == 0.125f);
  CHECK(out.sampling.typical_p == 0.25f);
  CHECK(out.sampling.repetition_penalty == 1.5f);
  CHECK(out.sampling.presence_penalty == 0.5f);
  CHECK(out.sampling.frequency_penalty == 0.25f);
  CHECK(out.sampling.penalty_window == 17);
  CHECK(out.sampling.logit_bias == g.logit_bias);
  CHECK(out.sampling.seed == 3);
  CHECK(out.sampling.top_logprobs == 4);
  CHECK(out.sampling.prompt_logprobs);
}

TEST_CASE("cache markers count in tokens or in bytes of text") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("the abc the abc");
  ipc::GenerateRequest& g = in.generate();
  CHECK(f.good(in).kept.empty());
  g.cache_keep_s = 60;
  const auto kept = [&] {
    const engine::Request out = f.good(in);
    REQUIRE(out.kept.size() == 1);
    CHECK(out.kept[0].seconds == 60);
    return out.kept[0].num_tokens;
  };
  const auto all = static_cast<int32_t>(f.good(in).prompt.size());
  CHECK(kept() == all);
  g.cache_keep_bytes = 7;
  const std::vector<int32_t> front = f.tokenizer->encode("the abc", {});
  CHECK(kept() == static_cast<int32_t>(front.size()));
  CHECK(std::equal(front.begin(), front.end(), f.good(in).prompt.begin()));
  g.cache_keep_bytes = 15;
  CHECK(kept() == all);
  g.cache_keep_tokens = 2;
  CHECK(kept() == 2);
  g.prompt.clear();
  g.prompt_ids = {4, 5, 6};
  CHECK(f.bad(in).field == "cache_keep_bytes");
}

TEST_CASE("a prefix is private unless the request names those it is shared with") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("abc");
  in.generate().cache_share = "uid:1000";
  const std::string shared = f.good(in).cache_salt;
  CHECK(shared != "uid:1000");  // no name reaches another owner's
  in.owner = "uid:7";
  CHECK(f.good(in).cache_salt == shared);
  CHECK(f.good(in).owner == "uid:7");
  in.generate().cache_share = "";
  CHECK(f.good(in).cache_salt == "uid:7");
}

TEST_CASE("a draft requested by name is the loaded one, or refused with both names") {
  Fixture f;
  ipc::WorkerRequest in = Fixture::request("the abc");
  in.generate().draft = "small";
  CHECK(f.bad(in).message == "draft small: model m was loaded with no draft model");
  CHECK(f.bad(in).field == "draft");
  CHECK(f.bad(in).code == ErrorCode::kInvalidArgument);
  f.model.draft = "other";
  CHECK(f.bad(in).message == "draft small: model m was loaded with draft model other");
  f.model.draft = "small";
  CHECK(f.good(in).use_draft);
  in.generate().draft = "auto";
  CHECK(f.good(in).use_draft);
}

TEST_CASE("a prediction becomes tokens without BOS, unless nothing is drafted") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("the abc");
  in.generate().prediction = "abc<|end|>";
  const engine::Request out = f.good(in);
  CHECK(out.prediction == f.tokenizer->encode("abc<|end|>", {.add_bos = false}));
  CHECK(out.prompt == f.good(Fixture::request("the abc")).prompt);
  in.generate().speculate = false;
  CHECK(f.good(in).prediction.empty());
}

TEST_CASE("a text after the answer: the prompt has the model's marks, which end the answer") {
  Fixture f;
  ipc::WorkerRequest in = Fixture::request("ab");
  in.generate().suffix = "the";
  CHECK(f.bad(in).code == ErrorCode::kUnsupported);
  CHECK(f.bad(in).field == "suffix");
  f.model.fill_marks = {.prefix = 5, .suffix = 6, .middle = 7, .ends = {5, 6, 7, 8}};
  const auto tokens = [&](const char* text) {
    return f.tokenizer->encode(text, {.add_bos = false});
  };
  std::vector<int32_t> want = {1, 5};
  const auto add = [&](const std::vector<int32_t>& ids) {
    want.insert(want.end(), ids.begin(), ids.end());
  };
  add(tokens("ab"));
  add({6});
  add(tokens("the"));
  add({7});
  CHECK(f.good(in).prompt == want);
  for (const int32_t id : {5, 6, 7, 8, 2}) {
    CHECK(std::ranges::count(f.good(in).stop_ids, id) == 1);
  }
  // The marks in a text stay text.
  in.generate().suffix = "the<|end|>";
  CHECK(std::ranges::count(f.good(in).prompt, 5) == 1);
  in.generate().raw = true;
  CHECK(f.good(in).prompt.front() == 5);
  in.generate().prompt_ids = {5};
  CHECK(f.bad(in).field == "suffix");
}

TEST_CASE("a query with texts: pairs for a model that ranks, refused by name otherwise") {
  Fixture f;
  ipc::WorkerRequest in;
  in.task = ipc::EmbedRequest{"m", {"ab", "the"}, {}, "auto", false, "bc"};
  auto& embed = std::get<ipc::EmbedRequest>(in.task);
  CHECK(f.bad(in).code == ErrorCode::kUnsupported);
  CHECK(f.bad(in).field == "query");

  const std::vector<std::byte> bytes = models::ranking_file().bytes();
  const auto file = models::GgufFile::parse(bytes, "ranker").value();
  f.model.ranker = models::Ranker::load(file, *f.tokenizer).value();
  const PrepResult result = prepare(f.model, in);
  REQUIRE(std::holds_alternative<PreparedEmbed>(result.outcome));
  const auto& prepared = std::get<PreparedEmbed>(result.outcome);
  CHECK(prepared.ranker == f.model.ranker);
  CHECK_FALSE(prepared.as_chances);
  REQUIRE(prepared.texts.size() == 2);
  CHECK(prepared.texts[1].prompt == f.model.ranker->tokens(*f.tokenizer, "bc", "the", nullptr));
  CHECK(prepared.texts[1].pooling == models::Pooling::kCls);
  CHECK_FALSE(prepared.texts[1].normalize);

  embed.pooling = "mean";
  CHECK(f.bad(in).field == "pooling");
  embed.pooling = "auto";
  embed.query.assign(9000, 'a');  // fits neither the context nor, with as many texts, the bound
  CHECK(f.bad(in).code == ErrorCode::kContextOverflow);
  embed.texts.assign(2048, "a");
  CHECK(f.bad(in).code == ErrorCode::kTooLarge);
  embed.query.clear();
  CHECK(f.bad(in).field == "query");  // it makes no vectors of its own accord
  embed.texts.clear();
  embed.ids = {{5}};
  embed.query = "ab";
  CHECK(f.bad(in).field == "query");
}

TEST_CASE("raw adds nothing in front; ids are taken unchanged; ignore_eos lets EOS pass") {
  const Fixture f;
  ipc::WorkerRequest raw = Fixture::request("abc");
  raw.generate().raw = true;
  CHECK(f.good(raw).prompt.front() != 1);
  ipc::WorkerRequest ids = Fixture::request("");
  ids.generate().prompt_ids = {4, 5, 6};
  ids.generate().ignore_eos = true;
  CHECK(f.good(ids).prompt == std::vector<int32_t>{4, 5, 6});
  CHECK(f.good(ids).stop_ids.empty());
}

TEST_CASE("a context that is too small is an error with both sizes") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().prompt_ids.assign(60, 5);
  in.generate().max_tokens = 4;
  CHECK(f.good(in).prompt.size() == 60);
  in.generate().max_tokens = 5;
  const Error error = f.bad(in);
  CHECK(error.code == ErrorCode::kContextOverflow);
  CHECK(error.message ==
        "the prompt's 60 tokens and max_tokens 5 make 65, the context of model m holds 64");
  in.generate().max_tokens = 2147483647;
  CHECK(f.bad(in).code == ErrorCode::kContextOverflow);
}

TEST_CASE("a conversation is rendered by the model's template") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().messages.text = R"([{"role":"user","content":"the abc"}])";
  const Error none = f.bad(in);
  CHECK(none.code == ErrorCode::kUnsupported);
  CHECK(none.field == "messages");
  const Conversing conversing(
      f,
      "{% for m in messages %}{{ m.role }}: {{ m.content }}"
      "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>"
      "{% endfor %}{% endfor %}"
      "{% if tools %} tools{% endif %}{% if not messages[0].content %}"
      "{{ raise_exception('empty') }}{% endif %}{{ tail }}");
  const PrepModel& model = conversing.model;
  const auto prompt = [&] {
    PrepResult result = prepare(model, in);
    if (auto* error = std::get_if<Error>(&result.outcome)) return error->message;
    const std::vector<int32_t> ids = std::get<PreparedRequest>(result.outcome).request.prompt;
    const auto text = [&](const char* words) { return f.tokenizer->encode(words, {}); };
    if (ids == text("user: the abc")) return std::string("plain");
    if (ids == text("user: the abc tools")) return std::string("tools");
    return ids == text("user: the abctail") ? std::string("tail") : std::string("other");
  };
  CHECK(prompt() == "plain");
  in.generate().tools.text = R"([{"type":"function","function":{"name":"f"}}])";
  CHECK(prompt() == "tools");
  in.generate().tool_choice = "none";
  in.generate().template_kwargs.text = R"({"tail":"tail","messages":[]})";
  CHECK(prompt() == "tail");
  ipc::WorkerRequest count;
  auto& tokenize = count.task.emplace<ipc::TokenizeRequest>();
  tokenize.messages = in.generate().messages;
  tokenize.template_kwargs = in.generate().template_kwargs;
  const PrepResult counted = prepare(model, count);
  REQUIRE(std::holds_alternative<ipc::TokenizeReply>(counted.outcome));
  CHECK(std::get<ipc::TokenizeReply>(counted.outcome).ids ==
        f.tokenizer->encode("user: the abctail", {}));
  in.generate().messages.text = R"([{"role":"user","content":""}])";
  CHECK(prompt().find("empty") != std::string::npos);
}

TEST_CASE("a marker on a message keeps it and everything before it, with any template") {
  const Fixture f;
  struct Case {
    const char* name;
    const char* source;
    const char* up_to;  ///< the stored part of the prompt's text; null: nothing is stored
  };
  const Case cases[] = {
      {"one after the other",
       "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[{% "
       "endif %}",
       "[the abc]["},
      {"the system message goes into the first user's",
       "{% if messages|length < 2 %}{{ raise_exception('want two') }}{% endif %}"
       "the {{ messages[0].content }} abc {{ messages[1].content }}[{{ messages[2].content }}]",
       "the the abc abc "},
      {"the last comes first", "{% for m in messages|reverse %}[{{ m.content }}]{% endfor %}", "["},
      {"a refusal of what it does not know",
       "{% if messages[1].content != 'abc the' %}{{ raise_exception('no') }}{% endif %}abc",
       nullptr},
  };
  for (const Case& each : cases) {
    CAPTURE(each.name);
    const Conversing conversing(f, each.source);
    const PrepModel& model = conversing.model;
    ipc::WorkerRequest in = Fixture::request("");
    const auto prepared = [&](const char* mark) {
      in.generate().messages.text = std::string(R"([{"role":"system","content":"the abc")") + mark +
                                    R"(},{"role":"user","content":"abc the"},)"
                                    R"({"role":"user","content":"the"}])";
      PrepResult result = prepare(model, in);
      REQUIRE(std::holds_alternative<PreparedRequest>(result.outcome));
      return std::get<PreparedRequest>(result.outcome).request;
    };
    const engine::Request plain = prepared("");
    const engine::Request marked = prepared(R"(,"cache_keep_s":300)");
    CHECK(plain.kept.empty());
    CHECK(marked.prompt == plain.prompt);
    if (each.up_to == nullptr) {
      CHECK(marked.kept.empty());
      continue;
    }
    const std::vector<int32_t> front = f.tokenizer->encode(each.up_to, {});
    REQUIRE(marked.kept.size() == 1);
    CHECK(marked.kept[0].seconds == 300);
    // The token at the border may extend beyond it.
    const auto num_tokens = static_cast<size_t>(marked.kept[0].num_tokens);
    CHECK(num_tokens <= front.size());
    CHECK(num_tokens + 1 >= front.size());
    CHECK(std::equal(front.begin(), front.begin() + marked.kept[0].num_tokens,
                     marked.prompt.begin()));
  }
}

TEST_CASE("a conversation with tools: how its answer is parsed and constrained") {
  const Fixture f;
  const Conversing conversing(
      f,
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
      "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}"
      "{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}",
      400);
  const PrepModel& model = conversing.model;
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().messages.text = R"([{"role":"user","content":"the"}])";
  const auto prepared = [&] {
    PrepResult result = prepare(model, in);
    REQUIRE_MESSAGE(std::holds_alternative<PreparedRequest>(result.outcome),
                    std::get<Error>(result.outcome).message);
    return std::get<PreparedRequest>(std::move(result.outcome));
  };
  const auto refused = [&] {
    const PrepResult result = prepare(model, in);
    REQUIRE(std::holds_alternative<Error>(result.outcome));
    return std::get<Error>(result.outcome);
  };
  PreparedRequest out = prepared();
  REQUIRE(out.reading != nullptr);
  CHECK(out.reading->shape.tools == nullptr);
  CHECK(out.reading->shape.reasoning_open);
  in.generate().tools.text =
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
      R"("properties":{"a":{"type":"integer"}}}}},{"type":"function","function":{"name":"g"}}])";
  out = prepared();
  REQUIRE(out.reading->shape.tools != nullptr);
  CHECK(out.reading->shape.tools->id == "hermes");
  CHECK(out.reading->shape.functions == std::vector<models::OfferedFunction>{{"f"}, {"g"}});
  CHECK(out.request.constraint == nullptr);
  const uint64_t key = out.reading->call_key;
  CHECK(prepared().reading->call_key == key);
  CHECK(call_id(key, 0, 0).size() == 9);
  CHECK(call_id(key, 0, 0) != call_id(key, 0, 1));
  CHECK(call_id(key, 0, 0) != call_id(key, 1, 0));
  in.generate().seed = 4;
  CHECK(prepared().reading->call_key != key);

  in.generate().tool_choice = "required";
  in.generate().parallel_tool_calls = false;
  out = prepared();
  CHECK(out.request.constraint != nullptr);
  CHECK(out.reading->shape.one_call);
  CHECK(prepared().request.constraint == out.request.constraint);
  // A fork's answer began where its parent's did: reasoning and calls are parsed from there.
  in.prefix = f.tokenizer->encode("the abc", {.add_bos = false});
  const PreparedRequest fork = prepared();
  CHECK(fork.request.constraint == out.request.constraint);
  CHECK(fork.request.constraint_prefix == static_cast<int32_t>(in.prefix.size()));
  CHECK(fork.answered == in.prefix);
  std::vector<int32_t> whole = out.request.prompt;
  whole.insert(whole.end(), in.prefix.begin(), in.prefix.end());
  CHECK(fork.request.prompt == whole);
  CHECK(fork.reading->call_key == out.reading->call_key);
  in.prefix.clear();
  in.generate().tool_choice = "g";
  CHECK(prepared().request.constraint != out.request.constraint);
  in.generate().tool_choice = "h";
  CHECK(refused().field == "tool_choice");
  in.generate().tool_choice = "required";
  in.generate().ignore_eos = true;
  CHECK(refused().field == "ignore_eos");
  in.generate().ignore_eos = false;
  in.generate().grammar = "root ::= [a]";
  CHECK(refused().field == "tools");
  // A constrained text has no reasoning: none is parsed.
  in.generate().tools.text.clear();
  in.generate().tool_choice = "auto";
  in.generate().parallel_tool_calls = true;
  CHECK(prepared().reading == nullptr);
}

TEST_CASE("a conversation that cannot fit is refused before it is tokenized") {
  const Fixture f;
  const Conversing conversing(f, "{{ messages[0].content }}");
  const PrepModel& model = conversing.model;
  ipc::WorkerRequest in = Fixture::request("");
  const size_t most = 64 * f.tokenizer->max_piece_bytes();
  in.generate().messages.text =
      R"([{"role":"user","content":")" + std::string(most + 1, 'a') + R"("}])";
  const PrepResult result = prepare(model, in);
  REQUIRE(std::holds_alternative<Error>(result.outcome));
  CHECK(std::get<Error>(result.outcome).code == ErrorCode::kContextOverflow);
  CHECK(std::get<Error>(result.outcome).field == "messages");
  CHECK(std::get<Error>(result.outcome).message.find("bytes") != std::string::npos);
}

TEST_CASE("a marker on the last message keeps the whole prompt; several keep their own parts") {
  const Fixture f;
  const Conversing conversing(
      f, "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ messages|tojson }}", 1000);
  const PrepModel& model = conversing.model;
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().messages.text = R"([{"role":"user","content":"the abc","cache_keep_s":300},
      {"role":"user","content":"abc the","cache_keep_s":60}])";
  in.generate().cache_keep_s = 5;
  in.generate().cache_keep_tokens = 3;
  PrepResult result = prepare(model, in);
  REQUIRE(std::holds_alternative<PreparedRequest>(result.outcome));
  const engine::Request out = std::get<PreparedRequest>(result.outcome).request;
  REQUIRE(out.kept.size() == 3);
  CHECK(out.kept[0].seconds == 300);
  CHECK(out.kept[0].num_tokens < static_cast<int32_t>(out.prompt.size()));
  CHECK(out.kept[1] == engine::KeptPrefix{static_cast<int32_t>(out.prompt.size()), 60});
  CHECK(out.kept[2] == engine::KeptPrefix{3, 5});
  in.generate().messages.text = R"([{"role":"user","content":"the","cache_keep_s":"long"}])";
  result = prepare(model, in);
  REQUIRE(std::holds_alternative<Error>(result.outcome));
  CHECK(std::get<Error>(result.outcome).field == "messages");
}

TEST_CASE("max_tokens 0 is the room that the context has") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().prompt_ids.assign(60, 5);
  in.generate().max_tokens = 0;
  CHECK(f.good(in).max_tokens == 4);
  in.generate().min_tokens = 5;
  CHECK(f.bad(in).field == "min_tokens");
  in.generate().min_tokens = 0;
  in.generate().prompt_ids.assign(64, 5);
  CHECK(f.bad(in).code == ErrorCode::kContextOverflow);
}

TEST_CASE("a text that cannot fit is refused before it is tokenized") {
  const Fixture f;
  const size_t most = 64 * f.tokenizer->max_piece_bytes();
  const Error error = f.bad(Fixture::request(std::string(most + 1, 'a')));
  CHECK(error.code == ErrorCode::kContextOverflow);
  CHECK(error.message.find(std::to_string(most + 1)) != std::string::npos);
  CHECK(error.message.find("64 tokens") != std::string::npos);
}

TEST_CASE("ids outside the vocabulary are errors that name the field and the position") {
  const Fixture f;
  const int32_t vocab = f.tokenizer->vocab_size();
  for (const int32_t wrong : {-1, vocab, 2147483647}) {
    ipc::WorkerRequest prompt = Fixture::request("");
    prompt.generate().prompt_ids = {4, wrong};
    CHECK(f.bad(prompt).field == "prompt_ids");
    CHECK(f.bad(prompt).message.find("prompt_ids[1] is " + std::to_string(wrong)) == 0);
    ipc::WorkerRequest stop = Fixture::request("a");
    stop.generate().stop_ids = {wrong};
    CHECK(f.bad(stop).field == "stop_ids");
    ipc::WorkerRequest bias = Fixture::request("a");
    bias.generate().logit_bias = {{wrong, 1.0f}};
    CHECK(f.bad(bias).field == "logit_bias");
    ipc::WorkerRequest resume = Fixture::request("a");
    resume.resume = {{wrong}};
    CHECK(f.bad(resume).field == "resume");
  }
}

TEST_CASE("a prompt without tokens is an error") {
  const Fixture f;
  ipc::WorkerRequest in = Fixture::request("");
  in.generate().raw = true;
  CHECK(f.bad(in).field == "prompt");
}

TEST_CASE("tokenize returns ids and entries") {
  const Fixture f;
  ipc::WorkerRequest in;
  in.task.emplace<ipc::TokenizeRequest>().text = "the abc";
  const PrepResult result = prepare(f.model, in);
  const auto& reply = std::get<ipc::TokenizeReply>(result.outcome);
  CHECK(reply.model == "m");
  CHECK(reply.ids == f.tokenizer->encode("the abc", {}));
  REQUIRE(reply.entries.size() == reply.ids.size());
  CHECK(reply.entries.front() == "<s>");
  CHECK(reply.bos == "<s>");
  CHECK(reply.eos == "</s>");
  CHECK(reply.text == "");

  ipc::WorkerRequest back;
  back.task.emplace<ipc::TokenizeRequest>().ids = reply.ids;
  const PrepResult text = prepare(f.model, back);
  CHECK(std::get<ipc::TokenizeReply>(text.outcome).text == "<s>the abc");
  std::get<ipc::TokenizeRequest>(back.task).ids = {f.tokenizer->vocab_size()};
  CHECK(f.bad(back).field == "ids");
}

}  // namespace
}  // namespace hearth::worker
