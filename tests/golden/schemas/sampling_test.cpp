// The bundled model under 100 schemas: texts that end by themselves are valid, and almost all do.
// The tokens are the same with drafts and without, alone and in a batch.

#include <doctest/doctest.h>

#include <fstream>
#include <map>

#include "engine/grammar/call_grammar.h"
#include "engine/grammar/constraint.h"
#include "kernels/cpu/op_table.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/schemas/schema_check.h"
#include "tests/paths.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using nlohmann::json;

struct Tales {
  models::GgufFile file;
  std::unique_ptr<models::Tokenizer> tokenizer;
  std::shared_ptr<const TokenTrie> trie;
  std::vector<int32_t> ends;

  static Tales load() {
    auto file = models::GgufFile::open(hearth::tests::source_path("models/demo/tales.gguf"));
    REQUIRE(file.ok());
    auto tokenizer = models::load_tokenizer(*file);
    REQUIRE(tokenizer.ok());
    Tales out{std::move(*file), std::move(*tokenizer), nullptr, {}};
    std::vector<std::string_view> pieces;
    for (int32_t id = 0; id < out.tokenizer->vocab_size(); ++id) {
      pieces.push_back(out.tokenizer->is_control(id) ? "" : out.tokenizer->piece(id));
      if (out.tokenizer->is_end_of_generation(id)) out.ends.push_back(id);
    }
    out.trie = std::make_shared<TokenTrie>(pieces);
    return out;
  }

  Request ask(RequestId id, const std::shared_ptr<Constraint>& constraint, int32_t n) const {
    Request request;
    request.id = id;
    request.owner = request.cache_salt = "uid:1000";
    request.prompt = tokenizer->encode("The fox answer: ", {});
    request.n = n;
    request.max_tokens = 256;
    request.stop_ids = ends;
    request.sampling.temperature = 1.0f;
    request.sampling.top_k = 0;
    request.sampling.top_p = 1.0f;
    request.sampling.seed = id;
    request.constraint = constraint;
    return request;
  }
  std::string text(const std::vector<int32_t>& tokens) const {
    std::string out;
    for (const int32_t id : tokens) out += tokenizer->piece(id);
    return out;
  }
};

kernels::OpTable cpu() {
  auto ops = kernels::cpu_ops({.num_threads = 2, .variant = {}});
  REQUIRE(ops.ok());
  return std::move(ops).value();
}

EngineConfig config() {
  EngineConfig out;
  out.kv_bytes = 32 << 20;
  out.context_length = 512;
  out.scheduler.max_seqs = 16;
  return out;
}

TEST_CASE("100 schemas on the bundled model at temperature 1") {
  const Tales tales = Tales::load();
  std::ifstream in(hearth::tests::source_path("tests/golden/schemas/schemas.json"));
  const json all = json::parse(in)["cases"];
  const bool full = tests::full_counts();
  const int32_t samples = full ? 10 : 1;
  EngineRun run(tales.file, cpu(), config());
  std::map<RequestId, json> asked;
  // Other tests check every schema byte by byte; by default a quarter of them runs here.
  for (size_t i = 0; i < all.size(); i += full ? 1 : 4) {
    const std::string source = all[i]["schema"];
    auto grammar = compile_json_schema(source);
    REQUIRE_MESSAGE(grammar.ok(), source);
    const auto constraint = std::make_shared<Constraint>(std::move(*grammar), tales.trie);
    const RequestId id = i + 1;
    asked[id] = json::parse(source);
    run.submit(tales.ask(id, constraint, samples));
  }
  run.run_until_idle();
  size_t cut = 0, total = 0;
  for (const auto& [id, schema] : asked) {
    const EngineAnswer& answer = run.answer(id);
    CHECK_FALSE(answer.failed);
    for (const std::vector<int32_t>& tokens : answer.tokens) {
      ++total;
      if (tokens.size() == 256) {
        ++cut;
        MESSAGE("by length: " << schema.dump());
        continue;
      }
      const std::string text = tales.text(tokens);
      CHECK_MESSAGE(is_valid_against(schema, text), schema.dump() << "\n" << text);
    }
  }
  MESSAGE(total << " samples, " << cut << " ended by length");
  CHECK(cut * 100 <= total);
}

TEST_CASE("a constraint gives the same tokens with drafts, in a batch, and after a resume") {
  const Tales tales = Tales::load();
  const auto make = [&tales](std::string_view source) {
    auto grammar = compile_gbnf(source);
    REQUIRE(grammar.ok());
    return std::make_shared<Constraint>(std::move(*grammar), tales.trie);
  };
  // Repetitive, so that lookup has something to draft.
  constexpr std::string_view kGrammar = "root ::= (\"the fox \" [a-c]+ \" and \"){4} \"end\"";
  EngineConfig plain = config();
  plain.speculation.enabled = false;
  EngineConfig with_drafts = config();
  with_drafts.speculation.fixed_width = 4;
  const Request request = tales.ask(1, make(kGrammar), 3);
  const auto want = EngineRun(tales.file, cpu(), plain).ask(request).tokens;
  for (const auto& tokens : want) CHECK(tales.text(tokens).ends_with("end"));
  Request again = tales.ask(1, make(kGrammar), 3);
  CHECK(EngineRun(tales.file, cpu(), with_drafts).ask(again).tokens == want);

  EngineRun mixed(tales.file, cpu(), with_drafts);
  mixed.submit(tales.ask(2, make("root ::= [a-z ]{40}"), 2));
  mixed.submit(tales.ask(3, nullptr, 1));
  mixed.submit(tales.ask(1, again.constraint, 3));  // with all that was found before
  mixed.run_until_idle();
  CHECK(mixed.answer(1).tokens == want);

  Request resumed = tales.ask(1, make(kGrammar), 3);
  resumed.resume = want;
  for (size_t i = 0; i < want.size(); ++i) resumed.resume[i].resize(want[i].size() / (i + 2));
  CHECK(EngineRun(tales.file, cpu(), with_drafts).ask(resumed).tokens == want);
}

TEST_CASE("strict calls are the same tokens with drafts and without, and valid") {
  const Tales tales = Tales::load();
  CallGrammar wanted;
  wanted.format = models::find_tool_format("hermes");
  const std::string schema =
      R"({"type":"object","properties":{"place":{"enum":["the forest","the river"]},)"
      R"("days":{"type":"integer"},"why":{"type":"string","maxLength":30}},)"
      R"("required":["place","days","why"],"additionalProperties":false})";
  wanted.functions = {{"weather_of_the_forest", schema, true}};
  const auto make = [&] {
    auto grammar = compile_call_grammar(wanted);
    REQUIRE_MESSAGE(grammar.ok(), grammar.error().message);
    return std::make_shared<Constraint>(std::move(*grammar), tales.trie);
  };
  EngineConfig plain = config();
  plain.speculation.enabled = false;
  EngineConfig with_drafts = config();
  with_drafts.speculation.fixed_width = 4;
  for (const bool among_text : {false, true}) {
    CAPTURE(among_text);
    wanted.among_text = among_text;
    Request request = tales.ask(1, make(), 3);
    // What the prompt has as the model's answer, so that lookup drafts calls.
    request.prompt = tales.tokenizer->encode(
        "<tool_call>\n{\"name\": \"weather_of_the_forest\", \"arguments\": {\"place\": \"the "
        "forest\", \"days\": 3, \"why\": \"a\"}}\n</tool_call>\n",
        {});
    EngineRun drafted(tales.file, cpu(), with_drafts);
    const auto got = drafted.ask(request).tokens;
    request.constraint = make();
    CHECK(got == EngineRun(tales.file, cpu(), plain).ask(request).tokens);
    CHECK(drafted.engine().snapshot().speculation.drafted_tokens > 0);
    if (among_text) continue;
    for (const std::vector<int32_t>& tokens : got) {
      if (tokens.size() == 256) continue;  // by length
      const std::string text = tales.text(tokens);
      const size_t begin = text.find("\"arguments\": ") + 13;
      const size_t end = text.find("}\n</tool_call>");
      REQUIRE_MESSAGE(end != std::string::npos, text);
      CHECK_MESSAGE(is_valid_against(json::parse(schema), text.substr(begin, end - begin)), text);
    }
  }
}

TEST_CASE("a constraint ends a text where nothing may follow, and not before") {
  const Tales tales = Tales::load();
  auto grammar = compile_gbnf("root ::= \"ab\" | \"abcd\"");
  REQUIRE(grammar.ok());
  Request request = tales.ask(1, std::make_shared<Constraint>(std::move(*grammar), tales.trie), 4);
  request.min_tokens = 100;  // nothing can follow "abcd"
  request.sampling.temperature = 0;
  const EngineAnswer answer = EngineRun(tales.file, cpu(), config()).ask(request);
  for (const auto& tokens : answer.tokens) CHECK(tales.text(tokens) == "abcd");
}

}  // namespace
}  // namespace hearth::golden
