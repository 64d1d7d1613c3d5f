// The layer for drafting of each family that has one, compared with PyTorch in float64 and with
// itself: alone, chunked and batched.

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/golden/draft_checks.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using Rows = std::vector<std::vector<float>>;

std::vector<NamedTable> tables_of_one_thread() {
  std::vector<NamedTable> tables = all_tables();
  for (const NamedTable& table : tables) table.ops.set_num_threads(table.ops.state.get(), 1);
  return tables;
}

StepRunner drafting_runner(const FamilyModel& model, const OwnedFile& owned,
                           const NamedTable& table, DType kv_type) {
  return StepRunner(owned.file, table.ops, kv_type,
                    {.seqs = 2,
                     .step_tokens = 96,
                     .context = 96,
                     .model_context = model.context,
                     .draft_layer = true});
}

TEST_CASE("draft layers: logits equal PyTorch's, each draft continued from the layer's own row") {
  for (const std::string& name : drafting_family_names()) {
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    REQUIRE(model.drafts.size() >= 3);
    for (const NamedTable& table : tables_of_one_thread()) {
      for (const auto& [size, want] : model.drafts) {
        INFO(name << " on " << table.name << " after " << size);
        StepRunner runner = drafting_runner(model, owned, table, DType::kF32);
        REQUIRE(runner.info().drafts);
        const std::vector<int32_t> tokens = model.all_tokens();
        const Rows met = runner.drafts_after(first_of(tokens, size), 96, want.tokens);
        REQUIRE(met.front().size() == want.logits.front().size());
        check_logits(met, want);
      }
    }
  }
}

TEST_CASE("draft layers: the first choices are llama.cpp's, after every token of a text") {
  const std::vector<NamedTable> tables = tables_of_one_thread();
  for (const std::string& name : drafting_family_names()) {
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    REQUIRE(model.llama_cpp_drafts.size() == model.prompt.size() + model.greedy.size() - 1);
    const std::vector<int32_t> tokens = model.all_tokens();
    for (const NamedTable& table : tables) {
      for (const auto& [size, want] : model.llama_cpp_drafts) {
        if (&table != &tables.front() && size % 13 != 0) continue;
        INFO(name << " on " << table.name << " after " << size);
        StepRunner runner = drafting_runner(model, owned, table, DType::kF32);
        const Rows met = runner.drafts_after(first_of(tokens, size), 96, want);
        for (size_t i = 0; i < want.size(); ++i) {
          CHECK(std::ranges::max_element(met[i]) - met[i].begin() == want[i]);
        }
      }
    }
  }
}

TEST_CASE("draft layers: chunks and other sequences change no bit, and no logit of the model") {
  for (const std::string& name : drafting_family_names()) {
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kQ8_0));
    const std::vector<int32_t> tokens = model.all_but_last();
    const std::vector<int32_t> drafts(3, 7);
    for (const NamedTable& table : tables_of_one_thread()) {
      if (table.name == "reference" && !tests::full_counts()) continue;
      INFO(name << " on " << table.name);
      StepRunner plain(owned.file, table.ops, DType::kF16,
                       {.step_tokens = 96, .context = 96, .model_context = model.context});
      CHECK_FALSE(plain.info().drafts);
      constexpr int32_t kChunks[] = {1, 7, 33};
      check_drafts_alone(
          plain, [&] { return drafting_runner(model, owned, table, DType::kF16); }, tokens, drafts,
          kChunks);
    }
  }
}

}  // namespace
}  // namespace hearth::golden
