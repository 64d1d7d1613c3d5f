// EAGLE-3 heads and DFlash drafters: the same text, log probabilities and seeds with them and
// without, and the same drafts wherever a prefix comes from.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "engine/kv/memory_plan.h"
#include "tests/golden/engine/draft_runs.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_dflash.h"
#include "tests/golden/random_eagle3.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

struct DraftPair {
  std::string name;
  OwnedFile model;
  OwnedFile head;
  DraftedBy kind;
  bool often_right = false;
};

std::vector<std::byte> predictable_model() {
  return RandomLlama(predictable_llama(), 3).file_bytes(DType::kQ8_0);
}

/// Heads that are often right for their model, one of some tokens, and those of the recordings, of
/// which one of each kind drafts for a model with states.
std::vector<DraftPair> draft_pairs() {
  std::vector<DraftPair> out;
  const auto add_eagle3 = [&](const Eagle3Shape& head) {
    out.push_back({head.name, OwnedFile(predictable_model()),
                   OwnedFile(RandomEagle3(head, predictable_llama(), 6).file_bytes()),
                   DraftedBy::kEagle3, head.often_right});
  };
  add_eagle3({.name = "eagle3, often right", .own_output = false, .often_right = true});
  add_eagle3(
      {.name = "eagle3, some tokens", .draft_tokens = {0, 1, 40, 41, 90, 127}, .norms = true});
  const RandomDFlash right({.often_right = true}, RandomLlama(predictable_llama(), 3), 6);
  out.push_back({"dflash, often right", OwnedFile(predictable_model()),
                 OwnedFile(right.file_bytes()), DraftedBy::kDFlash, true});
  for (const auto& [folder, kind] :
       {std::pair("eagle3", DraftedBy::kEagle3), std::pair("dflash", DraftedBy::kDFlash)}) {
    for (const DrafterModel& head : read_drafters(folder)) {
      out.push_back({folder + (", " + head.model.name),
                     OwnedFile(read_family(head.target).file_bytes(DType::kQ8_0)),
                     OwnedFile(head.file_bytes(DType::kQ8_0)), kind});
    }
  }
  return out;
}

TEST_CASE("feature heads: the same text and log probabilities, alone, together and preempted") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  uint64_t preemptions = 0;
  for (const DraftPair& pair : draft_pairs()) {
    CAPTURE(pair.name);
    const models::LoadOptions options{.heads = &pair.head.file};
    EngineRun plain(pair.model.file, table.ops, config_of(-1));
    const auto want = ask_together(&plain, asked, 1);
    const KvLayout layout =
        EngineRun(pair.model.file, table.ops, config_of(1), nullptr, options).engine().kv_layout();
    CHECK(layout.identity != plain.engine().kv_layout().identity);
    for (const int32_t width : {1, 3, 8}) {
      for (const size_t together : {size_t{1}, size_t{7}}) {
        if (width == 1 && together == 1) continue;
        CAPTURE(width);
        CAPTURE(together);
        EngineConfig config = config_of(width);
        if (width == 8) config.kv_bytes = few_bytes(layout);
        EngineRun run(pair.model.file, table.ops, config, nullptr, options);
        check_equal(ask_together(&run, asked, together), want);
        const SpeculationCounts counts = run.engine().snapshot().speculation;
        CHECK(counts.drafted_by[static_cast<size_t>(pair.kind)] == counts.drafted_tokens);
        CHECK(counts.drafted_tokens > 100);
        CHECK(counts.accepted_tokens < counts.drafted_tokens);
        if (pair.often_right) CHECK(counts.accepted_tokens > 50);
        preemptions += run.engine().snapshot().preemptions_total;
      }
    }
  }
  CHECK(preemptions > 0);
}

TEST_CASE("feature heads: a cached prefix, a fork and a chunked prompt get the same drafts") {
  for (const DraftPair& pair : draft_pairs()) {
    CAPTURE(pair.name);
    // A step has rows of the last token, two draft tokens and, without a state, their rivals.
    if (pair.kind == DraftedBy::kDFlash) {
      check_same_drafts(pair.model, pair.head, {9, 16});
    } else {
      check_same_drafts(pair.model, pair.head, {3, 7, 16});
    }
  }
}

TEST_CASE("feature heads: kv_bytes_for() holds the blocks that it is asked for") {
  for (const DraftPair& pair : draft_pairs()) {
    CAPTURE(pair.name);
    const auto model = models::load_model(pair.model.file, all_tables().back().ops, nullptr,
                                          {.heads = &pair.head.file})
                           .value();
    for (const int32_t blocks : {1, 17, 400}) {
      EngineConfig config = config_of(3);
      config.kv_bytes = kv_bytes_for(model->info(), config, blocks);
      const MemoryPlan plan = plan_memory(config, *model, 0).value();
      for (size_t i = 0; i < plan.groups.size(); ++i) {
        if (!model->info().groups[i].recurrent()) CHECK(plan.groups[i].num_blocks >= blocks);
      }
    }
  }
}

/// No drafts with `head`, and the text of a run without.
void check_drafts_nothing(const OwnedFile& model, const OwnedFile& head) {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  EngineRun plain(model.file, table.ops, config_of(-1));
  EngineRun run(model.file, table.ops, config_of(3), nullptr, {.heads = &head.file});
  check_equal(ask_together(&run, asked, 7), ask_together(&plain, asked, 1));
  CHECK(run.engine().snapshot().speculation.drafted_tokens == 0);
}

TEST_CASE("feature heads: weights that are not numbers draft nothing, and change no text") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const OwnedFile model(predictable_model());
  const RandomEagle3 eagle3({.own_output = false, .often_right = true}, predictable_llama(), 6);
  RandomEagle3 of_eagle3 = eagle3;
  for (const auto& [name, tensor] : of_eagle3.tensors()) {
    CAPTURE(name);
    RandomEagle3 broken = eagle3;
    std::ranges::fill(broken.tensors()[name].values, kNaN);
    check_drafts_nothing(model, OwnedFile(broken.file_bytes()));
  }
  const RandomDFlash dflash({}, RandomLlama(predictable_llama(), 3), 6);
  RandomDFlash of_dflash = dflash;
  for (const auto& [name, tensor] : of_dflash.tensors()) {
    CAPTURE(name);
    RandomDFlash broken = dflash;
    std::ranges::fill(broken.tensors()[name].values, kNaN);
    check_drafts_nothing(model, OwnedFile(broken.file_bytes()));
  }
}

TEST_CASE("feature heads: one of another model of the same sizes changes no text") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  const OwnedFile model(predictable_model());
  EngineRun plain(model.file, table.ops, config_of(-1));
  const auto want = ask_together(&plain, asked, 1);
  const Eagle3Shape some{.draft_tokens = {127, 3, 5, 5, 0}, .norms = true};
  const std::vector<std::byte> foreign[] = {
      RandomEagle3(some, predictable_llama(), 60).file_bytes(),
      RandomDFlash({.mask = 127}, RandomLlama(predictable_llama(), 30), 60).file_bytes()};
  for (const std::vector<std::byte>& bytes : foreign) {
    const OwnedFile head(bytes);
    EngineRun run(model.file, table.ops, config_of(3), nullptr, {.heads = &head.file});
    check_equal(ask_together(&run, asked, 7), want);
    CHECK(run.engine().snapshot().speculation.drafted_tokens > 100);
  }
}

}  // namespace
}  // namespace hearth::golden
