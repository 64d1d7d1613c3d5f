// A tiny model of every family compared with PyTorch in float64 and with llama.cpp (families/), and
// with itself, with the same tokens chunked and batched.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using Rows = std::vector<std::vector<float>>;

/// One thread: steps this small are mostly barriers. Other tests show that threads change no bit.
std::vector<NamedTable> quiet_tables() {
  std::vector<NamedTable> tables = all_tables();
  for (const NamedTable& table : tables) table.ops.set_num_threads(table.ops.state.get(), 1);
  return tables;
}

StepRunner runner_of(const FamilyModel& model, const OwnedFile& owned, const NamedTable& table,
                     DType kv_type, int32_t seqs = 1) {
  return StepRunner(
      owned.file, table.ops, kv_type,
      {.seqs = seqs, .step_tokens = 96, .context = 96, .model_context = model.context});
}

/// Steps where `ids` differ from argmax although the margin shows that the choice is not a tie.
int others(const Rows& logits, const FamilyModel& model, const std::vector<int32_t>& ids,
           double tie) {
  int count = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto& row = logits[model.prompt.size() - 1 + i];
    count += model.margins[i] >= tie && argmax(row) != ids[i];
  }
  return count;
}

TEST_CASE("families: logits equal PyTorch's, ids equal PyTorch's and llama.cpp's") {
  const std::vector<NamedTable> tables = quiet_tables();
  const std::vector<std::string> names = family_names();
  REQUIRE(names.size() >= 16);
  for (const std::string& name : names) {
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    const auto tokens = model.all_but_last();
    for (const NamedTable& table : tables) {
      INFO(name << " on " << table.name);
      StepRunner runner = runner_of(model, owned, table, DType::kF32);
      const Rows met = runner.feed(0, tokens, 96, true);
      double most = 0;
      double worst = 0;
      for (const auto& [row, want] : model.logits) {
        REQUIRE(want.size() == met[row].size());
        for (size_t i = 0; i < want.size(); ++i) {
          most = std::max(most, std::fabs(want[i]));
          worst = std::max(worst, std::fabs(static_cast<double>(met[row][i]) - want[i]));
        }
      }
      // Sums in f32 over tens of products, through two to seven layers of sharp attention.
      CHECK(worst < 5e-5 * most);
      CHECK(others(met, model, model.greedy, 1e-3) == 0);
      CHECK(others(met, model, model.llama_cpp_steps, 1e-3) == 0);
    }
  }
}

TEST_CASE("families: f16 KV changes a token only where the choice is nearly a tie") {
  for (const std::string& name : family_names()) {
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    for (const NamedTable& table : quiet_tables()) {
      INFO(name << " on " << table.name);
      StepRunner runner = runner_of(model, owned, table, DType::kF16);
      CHECK(others(runner.feed(0, model.all_but_last(), 96, true), model, model.greedy, 0.1) == 0);
    }
  }
}

TEST_CASE("families: alone, chunked and batched give the same bits") {
  for (const std::string& name : family_names()) {
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kQ8_0));
    const auto tokens = model.all_but_last();
    const std::vector<int32_t> other(tokens.rbegin(), tokens.rend());
    for (const NamedTable& table : quiet_tables()) {
      if (table.name == "reference" && !tests::full_counts()) continue;
      INFO(name << " on " << table.name);
      StepRunner alone = runner_of(model, owned, table, DType::kF16, 2);
      const Rows want = alone.feed(0, tokens, 96, true);
      const Rows want_other = alone.feed(1, other, 96, true);
      for (const int32_t chunk : {1, 7, 33}) {
        CHECK(runner_of(model, owned, table, DType::kF16).feed(0, tokens, chunk, true) == want);
      }
      // Two at once, each with its own chunks.
      StepRunner batched = runner_of(model, owned, table, DType::kF16, 2);
      Rows met, met_other;
      while (met.size() < tokens.size() || met_other.size() < other.size()) {
        std::vector<Chunk> chunks;
        const auto add = [&chunks](int32_t seq, const std::vector<int32_t>& all, size_t done,
                                   size_t pace) {
          const size_t count = std::min(pace, all.size() - done);
          if (count > 0) chunks.push_back({seq, std::span(all).subspan(done, count), true});
          return count;
        };
        const size_t first = add(0, tokens, met.size(), 3);
        add(1, other, met_other.size(), 11);
        const Rows rows = batched.step(chunks);
        met.insert(met.end(), rows.begin(), rows.begin() + static_cast<ptrdiff_t>(first));
        met_other.insert(met_other.end(), rows.begin() + static_cast<ptrdiff_t>(first), rows.end());
      }
      CHECK(met == want);
      CHECK(met_other == want_other);
    }
  }
}

TEST_CASE("families with a state: pieces of 1 to 600 tokens give the same bits") {
  constexpr int32_t kLength = 2048, kMost = 600;
  const NamedTable table = quiet_tables().back();
  const std::vector<int32_t> tokens = random_tokens(1300, 128, 5);
  std::mt19937 random(3);
  int families = 0;
  for (const std::string& name : family_names()) {
    INFO(name);
    FamilyModel model = read_family(name);
    model.metadata[model.architecture + ".context_length"] = kLength;
    const OwnedFile owned(model.file_bytes(DType::kQ8_0));
    const StepRunner::Bounds bounds{.step_tokens = kMost, .context = kLength};
    StepRunner whole(owned.file, table.ops, DType::kF16, bounds);
    const auto& groups = whole.info().groups;
    if (groups.back().kind != models::LayerGroup::Kind::kRecurrent) continue;
    ++families;
    const Rows want = whole.feed(0, tokens, kMost, true);
    StepRunner parts(owned.file, table.ops, DType::kF16, bounds);
    Rows met;
    while (met.size() < tokens.size()) {
      const size_t count = std::min<size_t>(1 + random() % kMost, tokens.size() - met.size());
      const Chunk piece{0, std::span(tokens).subspan(met.size(), count), true};
      const Rows rows = parts.step({&piece, 1});
      met.insert(met.end(), rows.begin(), rows.end());
    }
    CHECK(met == want);
  }
  CHECK(families >= 17);
}

}  // namespace
}  // namespace hearth::golden
