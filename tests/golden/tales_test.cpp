// The bundled models, compared with recordings computed in double by the script that made them
// (models/demo/goldens.py), which shares no code with this program.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/tokenizer/tokenizer.h"
#include "tests/golden/greedy_reference.h"
#include "tests/paths.h"
#include "tests/skip.h"
#include "tests/split_model.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

const std::filesystem::path kRoot = hearth::tests::source_dir();

struct Bundled {
  std::filesystem::path model;
  std::filesystem::path recording;
  /// In log probability. Q8_0 weights are multiplied by activations rounded to 8 bits; the
  /// recording rounds none.
  double rounding;
};

/// tales and its draft, if they are in the tree.
std::vector<Bundled> bundled() {
  std::vector<Bundled> found;
  for (const auto& [name, rounding] :
       {std::pair<std::string, double>{"tales", 1e-3}, {"tales-draft", 0.1}}) {
    Bundled b{kRoot / "models/demo" / (name + ".gguf"), kRoot / "tests/golden" / (name + ".json"),
              rounding};
    if (std::filesystem::exists(b.model) && std::filesystem::exists(b.recording)) {
      found.push_back(std::move(b));
    }
  }
  return found;
}
constexpr const char* kAbsent = "no models/demo/tales.gguf with tests/golden/tales.json";

models::GgufFile open(const Bundled& b) {
  auto opened = models::GgufFile::open(b.model);
  REQUIRE_MESSAGE(opened.ok(), opened.error().message);
  return std::move(opened).value();
}

TEST_CASE("the bundled models give the recorded text on every table, with F32 and F16 KV") {
  const auto models = bundled();
  if (models.empty()) HEARTH_SKIP(kAbsent);
  for (const Bundled& b : models) {
    INFO(b.model.filename().string());
    const models::GgufFile file = open(b);
    const auto recorded = read_greedy_cases(b.recording);
    REQUIRE_FALSE(recorded.empty());
    for (const NamedTable& table : all_tables()) {
      // The reference takes a hundred times as long: the beginning of one tale is enough.
      const bool slow = table.name == "reference" && !tests::full_counts();
      auto cases = recorded;
      if (slow) {
        cases.resize(1);
        cases[0].ids.resize(24);
      }
      check_agrees(file, table, kernels::DType::kF32, cases, b.rounding, b.rounding);
      const double halves = std::max(b.rounding, 2e-2);
      if (!slow) check_agrees(file, table, kernels::DType::kF16, cases, halves, halves);
    }
  }
}

TEST_CASE("a bundled model in several files computes the bits of the whole one") {
  const auto models = bundled();
  if (models.empty()) HEARTH_SKIP(kAbsent);
  for (const Bundled& b : models) {
    const tests::TempDir temp;
    const auto parts = tests::write_split_model(b.model, temp.path(), "m", 4);
    REQUIRE(parts.size() == 4);
    const models::GgufFile whole = open(b);
    const auto split = models::GgufFile::open(parts[2]);
    REQUIRE_MESSAGE(split.ok(), (split.ok() ? "" : split.error().message));
    const std::vector<int32_t> ids = read_greedy_cases(b.recording).front().prompt_ids;
    for (const NamedTable& table : all_tables()) {
      INFO(table.name);
      StepRunner first(whole, table.ops, kernels::DType::kF16, {});
      StepRunner second(*split, table.ops, kernels::DType::kF16, {});
      CHECK(first.feed(0, ids, 64, true) == second.feed(0, ids, 64, true));
    }
  }
}

TEST_CASE("the bundled models: prompts encode and texts decode as recorded") {
  const auto models = bundled();
  if (models.empty()) HEARTH_SKIP(kAbsent);
  for (const Bundled& b : models) {
    const models::GgufFile file = open(b);
    const auto tokenizer = models::load_tokenizer(file);
    REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().message);
    for (const GreedyCase& c : read_greedy_cases(b.recording)) {
      CHECK(tokenizer.value()->encode(c.prompt, {}) == c.prompt_ids);
      models::StreamingDetokenizer detokenizer(*tokenizer.value(), false);
      std::string text;
      for (const int32_t id : c.ids) text += detokenizer.push(id);
      text += detokenizer.finish();
      CHECK(text == c.text);
    }
  }
}

}  // namespace
}  // namespace hearth::golden
