// stories260K: a real trained model, compared with llama.cpp's recorded text with F32 KV.

#include <doctest/doctest.h>

#include <algorithm>

#include "models/tokenizer/tokenizer.h"
#include "tests/golden/greedy_reference.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

struct Stories {
  std::filesystem::path model = tests::test_data("models/stories260K-f32.gguf");
  std::filesystem::path reference = tests::test_data("models/stories260K-reference.json");
  bool present() const { return !model.empty() && !reference.empty(); }
  models::GgufFile file() const {
    auto opened = models::GgufFile::open(model);
    REQUIRE_MESSAGE(opened.ok(), opened.error().message);
    return std::move(opened).value();
  }
};
constexpr const char* kAbsent = "no HEARTH_TEST_DATA/models/stories260K-*";

TEST_CASE("stories260K gives the recorded text on every table with F32 KV") {
  const Stories stories;
  if (!stories.present()) HEARTH_SKIP(kAbsent);
  const models::GgufFile file = stories.file();
  const auto cases = read_greedy_cases(stories.reference);
  REQUIRE(cases.size() == 3);
  for (const GreedyCase& c : cases) REQUIRE(c.ids.size() == 200);
  for (const NamedTable& table : all_tables()) check_equal(file, table, cases, 2e-4);
}

TEST_CASE("stories260K with F16 KV first differs where the choice was nearly a tie") {
  const Stories stories;
  if (!stories.present()) HEARTH_SKIP(kAbsent);
  const models::GgufFile file = stories.file();
  for (const NamedTable& table : all_tables()) {
    check_close_f16(file, table, read_greedy_cases(stories.reference), 0.02);
  }
}

TEST_CASE("stories260K: prompts encode and texts decode as recorded") {
  const Stories stories;
  if (!stories.present()) HEARTH_SKIP(kAbsent);
  const models::GgufFile file = stories.file();
  const auto tokenizer = models::load_tokenizer(file);
  REQUIRE(tokenizer.ok());
  for (const GreedyCase& c : read_greedy_cases(stories.reference)) {
    CHECK(tokenizer.value()->encode(c.prompt, {}) == c.prompt_ids);
    models::StreamingDetokenizer detokenizer(*tokenizer.value(), false);
    std::string text;
    for (const int32_t id : c.ids) text += detokenizer.push(id);
    text += detokenizer.finish();
    CHECK(text == c.text);
  }
}

TEST_CASE("stories260K: the model's metadata") {
  const Stories stories;
  if (!stories.present()) HEARTH_SKIP(kAbsent);
  const models::GgufFile file = stories.file();
  std::vector<uint64_t> done;
  uint64_t total = 0;
  const auto model =
      models::load_model(file, kernels::reference_ops(), [&](const models::LoadProgress& p) {
        done.push_back(p.bytes_done);
        total = p.bytes_total;
      });
  REQUIRE(model.ok());
  const models::ModelInfo& info = model.value()->info();
  CHECK(info.name == "stories260K-f32");
  CHECK(info.architecture == "llama");
  CHECK(info.title == "tinyllamas stories260K");
  CHECK(info.file_type == "F32");
  CHECK(info.fingerprint.size() == 32);
  CHECK(info.context_length == 512);
  CHECK(info.vocab_size == 512);
  CHECK(info.width == 64);
  CHECK(info.num_layers == 5);
  CHECK(info.num_heads == 8);
  CHECK(info.num_parameters == 260032);
  CHECK(info.file_bytes == 1054464);
  REQUIRE(info.groups.size() == 1);
  CHECK(info.groups[0].kind == models::LayerGroup::Kind::kFull);
  CHECK(info.groups[0].kv.num_kv_heads == 4);
  CHECK(info.groups[0].kv.k_dim == 8);
  REQUIRE(done.size() == 7);  // embedding, five layers, output
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK(done.back() == total);
}

}  // namespace
}  // namespace hearth::golden
