// The layer for drafting of each family that has one, compared with PyTorch in float64 and with
// itself: alone, chunked and batched.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

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

std::vector<int32_t> front(const std::vector<int32_t>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count)};
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
        std::vector<int32_t> tokens = model.prompt;
        tokens.insert(tokens.end(), model.greedy.begin(), model.greedy.end());
        const Rows met = runner.drafts_after(front(tokens, size), 96, want.tokens);
        double most = 0;
        double worst = 0;
        for (size_t i = 0; i < met.size(); ++i) {
          REQUIRE(met[i].size() == want.logits[i].size());
          for (size_t j = 0; j < met[i].size(); ++j) {
            most = std::max(most, std::fabs(want.logits[i][j]));
            worst = std::max(worst, std::fabs(double{met[i][j]} - want.logits[i][j]));
          }
        }
        CHECK(worst < 5e-5 * most);
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
      StepRunner alone = drafting_runner(model, owned, table, DType::kF16);
      const Rows want = alone.drafts_after(tokens, 96, drafts);
      for (const int32_t chunk : {1, 7, 33}) {
        StepRunner chunked = drafting_runner(model, owned, table, DType::kF16);
        CHECK(chunked.drafts_after(tokens, chunk, drafts) == want);
      }
      // What was drafted is overwritten by what follows.
      const std::vector<int32_t> last = {tokens.back()};
      const auto computed = front(tokens, tokens.size() - 1);
      plain.feed(0, computed, 96);
      CHECK(alone.feed(0, last, 1) == plain.feed(0, last, 1));
      // Two sequences drafted together, the second of the reversed tokens.
      StepRunner batched = drafting_runner(model, owned, table, DType::kF16);
      const std::vector<int32_t> other(computed.rbegin(), computed.rend());
      const std::span<const int32_t> a(computed), b(other);
      const Chunk fronts[] = {{1, b.first(40)}, {0, a.first(40)}};
      batched.step(fronts);
      const Chunk backs[] = {{1, b.subspan(40)}, {0, a.subspan(40)}};
      batched.step(backs);
      const auto rest = static_cast<int32_t>(computed.size()) - 40;
      std::vector<int32_t> rows = {rest - 1, 2 * rest - 1};
      for (size_t i = 0; i < drafts.size(); ++i) {
        const int32_t token = i == 0 ? tokens.back() : drafts[i - 1];
        const Chunk next[] = {{1, {&token, 1}}, {0, {&token, 1}}};
        CHECK(batched.draft(next, rows, static_cast<int32_t>(i)).back() == want[i]);
        rows = {0, 1};
      }
    }
  }
}

}  // namespace
}  // namespace hearth::golden
