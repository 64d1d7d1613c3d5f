// Models with a layer for drafting, or heads: the same text, log probabilities and
// seeds with it and without, and the same drafts wherever a prefix comes from.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "engine/kv/memory_plan.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/replay_pattern.h"
#include "models/gguf/gguf_writer.h"
#include "tests/golden/engine/draft_runs.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_heads.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

constexpr auto kLayer = static_cast<size_t>(DraftedBy::kDraftLayer);

TEST_CASE("draft layers: the same text and log probabilities, alone, together and preempted") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  uint64_t preemptions = 0;
  for (const std::string& name : drafting_family_names()) {
    CAPTURE(name);
    const FamilyModel model = read_family(name);
    for (const bool predictable : {true, false}) {
      CAPTURE(predictable);
      const OwnedFile owned(predictable ? model.drafting_file_bytes()
                                        : model.file_bytes(DType::kQ8_0));
      EngineRun plain(owned.file, table.ops, config_of(-1));
      const auto want = ask_together(&plain, asked, 1);
      const KvLayout layout =
          EngineRun(owned.file, table.ops, config_of(1), nullptr, {.draft_layer = true})
              .engine()
              .kv_layout();
      for (const int32_t width : {1, 3, 4}) {
        for (const size_t together : {size_t{1}, size_t{7}}) {
          if (width == 1 && together == 1) continue;
          CAPTURE(width);
          CAPTURE(together);
          EngineConfig config = config_of(width);
          if (width == 4) config.kv_bytes = few_bytes(layout);
          EngineRun run(owned.file, table.ops, config, nullptr, {.draft_layer = true});
          check_equal(ask_together(&run, asked, together), want);
          const SpeculationCounts counts = run.engine().snapshot().speculation;
          CHECK(counts.drafted_by[kLayer] == counts.drafted_tokens);
          CHECK(counts.drafted_tokens > 100);
          if (predictable) CHECK(counts.accepted_tokens * 10 > counts.drafted_tokens);
          if (!predictable) CHECK(counts.accepted_tokens < counts.drafted_tokens);
          preemptions += run.engine().snapshot().preemptions_total;
        }
      }
    }
  }
  CHECK(preemptions > 0);
}

TEST_CASE("draft layers: replayed drafts of any acceptance, chosen by what pays") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  const FamilyModel model = read_family("qwen35_nextn");
  const OwnedFile owned(model.file_bytes(DType::kQ8_0));
  EngineRun plain(owned.file, table.ops, config_of(-1));
  const auto want = ask_together(&plain, asked, 1);
  for (const double chance : {0.0, 0.5, 0.8, 1.0}) {
    CAPTURE(chance);
    ReplayScript script(ReplayPattern({chance}, 5), kVocab);
    for (size_t i = 0; i < asked.size(); ++i) {
      for (size_t sample = 0; sample < want[i].tokens.size(); ++sample) {
        script.know(asked[i].id, static_cast<int32_t>(sample), want[i].tokens[sample]);
      }
    }
    for (const int32_t width : {0, 4}) {
      EngineConfig config = config_of(width);
      config.speculation.lookup = width == 0;
      EngineRun run(owned.file, table.ops, config, nullptr, {.draft_layer = true});
      run.engine().replay_drafts(script);
      run.engine().warm_up();
      check_equal(ask_together(&run, asked, 7), want);
      const SpeculationCounts counts = run.engine().snapshot().speculation;
      if (width > 0) {
        CHECK(counts.drafted_tokens > 100);
        CHECK((counts.accepted_tokens > 0) == (chance > 0));
      }
    }
  }
}

TEST_CASE("draft layers: a cached prefix, a fork and a chunked prompt get the same drafts") {
  const NamedTable table = all_tables().back();
  int partly_right = 0;
  for (const std::string& name : drafting_family_names()) {
    CAPTURE(name);
    const OwnedFile owned(read_family(name).drafting_file_bytes());
    Request request;
    request.id = 1;
    request.owner = request.cache_salt = "uid:1000";
    request.prompt = random_tokens(50, kVocab, 5);
    request.max_tokens = 40;
    request.sampling.temperature = 0;
    const auto run_of = [&] {
      return std::make_unique<EngineRun>(owned.file, table.ops, config_of(2), nullptr,
                                         models::LoadOptions{.draft_layer = true});
    };
    const auto cold = run_of();
    const EngineAnswer want = cold->ask(request);
    const SpeculationCounts first = cold->engine().snapshot().speculation;
    REQUIRE(first.accepted_tokens > 2);
    partly_right += first.accepted_tokens < first.drafted_tokens ? 1 : 0;
    request.id = 2;
    const EngineAnswer again = cold->ask(request);
    CHECK(again.cached_tokens == 48);
    CHECK(again.tokens == want.tokens);
    const SpeculationCounts both = cold->engine().snapshot().speculation;
    CHECK(both.accepted_tokens == 2 * first.accepted_tokens);
    CHECK(both.drafted_tokens == 2 * first.drafted_tokens);
    // Two greedy samples are the same text twice.
    request.id = 3;
    request.n = 2;
    const auto forked = run_of();
    const EngineAnswer two = forked->ask(request);
    CHECK(two.tokens[0] == want.tokens[0]);
    CHECK(two.tokens[1] == want.tokens[0]);
    CHECK(forked->engine().snapshot().speculation.accepted_tokens == 2 * first.accepted_tokens);
    // In chunks of any size.
    request.n = 1;
    for (const int32_t chunk : {1, 7, 16}) {
      CAPTURE(chunk);
      EngineConfig config = config_of(2);
      config.scheduler.max_step_tokens = std::max(chunk, 3);
      EngineRun run(owned.file, table.ops, config, nullptr, {.draft_layer = true});
      CHECK(run.ask(request).tokens == want.tokens);
      CHECK(run.engine().snapshot().speculation.accepted_tokens == first.accepted_tokens);
    }
  }
  CHECK(partly_right > 0);
}

TEST_CASE(
    "a draft model with a state: a copy of the model is always right, another one sometimes") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  for (const std::string name : {"qwen35", "mamba", "lfm2", "granitehybrid", "plamo2"}) {
    CAPTURE(name);
    const FamilyModel model = read_family(name);
    FamilyModel other = model;
    other.seed += 100;
    const OwnedFile owned(model.file_bytes(DType::kQ8_0));
    const OwnedFile near(model.file_bytes(DType::kF32));
    const OwnedFile foreign(other.file_bytes(DType::kQ8_0));
    EngineRun plain(owned.file, table.ops, config_of(-1));
    const auto want = ask_together(&plain, asked, 1);
    for (const OwnedFile* file : {&owned, &near, &foreign}) {
      for (const size_t together : {size_t{1}, size_t{7}}) {
        EngineConfig config = config_of(3);
        config.speculation.draft_kv_bytes = 4 << 20;
        SteadyClock clock;
        auto loaded = models::load_model(file->file, table.ops, nullptr);
        REQUIRE(loaded.ok());
        const models::ModelInfo info = (*loaded)->info();
        auto draft = DraftModel::create(config, info, table.ops, std::move(loaded).value(), clock);
        REQUIRE_MESSAGE(draft.ok(), (draft.ok() ? "" : draft.error().message));
        EngineRun run(owned.file, table.ops, config, std::move(draft).value());
        check_equal(ask_together(&run, asked, together), want);
        const SpeculationCounts counts = run.engine().snapshot().speculation;
        CHECK(counts.drafted_tokens > 60);
        CHECK(counts.drafted_by[static_cast<size_t>(DraftedBy::kDraftModel)] ==
              counts.drafted_tokens);
        const uint64_t wrong = counts.drafted_tokens - counts.accepted_tokens;
        if (file == &owned) CHECK(wrong == 0);
        if (file == &near) CHECK(wrong < counts.drafted_tokens / 2);
        if (file == &foreign) CHECK(wrong > counts.drafted_tokens / 2);
      }
    }
  }
}

TEST_CASE("draft layers: weights that are not numbers draft nothing, and change no text") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  const FamilyModel model = read_family("qwen35_nextn");
  const OwnedFile owned(model.file_bytes(DType::kF32));
  EngineRun plain(owned.file, table.ops, config_of(-1));
  const auto want = ask_together(&plain, asked, 1);
  for (const char* part :
       {"nextn.eh_proj", "nextn.hnorm", "nextn.shared_head_norm", "blk.4.attn_k."}) {
    CAPTURE(part);
    models::GgufWriter w;
    model.describe(&w);
    for (const FamilyTensor& tensor : model.tensors) {
      std::vector<float> values = family_values(tensor, model.seed);
      if (tensor.name.find(part) != std::string::npos) {
        std::ranges::fill(values, std::numeric_limits<float>::quiet_NaN());
      }
      w.add_floats(tensor.name, tensor.dims, DType::kF32, values);
    }
    const OwnedFile broken(w.bytes());
    EngineRun run(broken.file, table.ops, config_of(3), nullptr, {.draft_layer = true});
    check_equal(ask_together(&run, asked, 7), want);
    CHECK(run.engine().snapshot().speculation.accepted_tokens == 0);
  }
}

// ---- Heads ------------------------------------------------------------------------------------

constexpr auto kMedusa = static_cast<size_t>(DraftedBy::kDraftHeads);

/// Each token depends mostly on the one before it.
std::vector<int32_t> every_second_token() {
  std::vector<int32_t> out;
  for (int32_t token = 0; token < kVocab; token += 2) out.push_back(token);
  return out;
}

/// Chained heads that are often right for that model, and others.
std::vector<HeadsShape> drafting_heads() {
  return {
      {.name = "often right", .blocks = 1, .chained = true, .own_output = false, .gain = 0.05f},
      {.name = "plain", .heads = 3, .blocks = 1},
      {.name = "plain, the model's output", .heads = 4, .blocks = 0, .own_output = false},
      {.name = "chained, some tokens", .chained = true, .draft_tokens = every_second_token()},
  };
}

TEST_CASE("draft heads: the same text and log probabilities, alone, together and preempted") {
  const NamedTable table = all_tables().back();
  auto asked = mixed_requests();
  for (Request& request : asked) {  // seven of them need many blocks
    request.max_tokens = 70;
    request.stop_ids.clear();
  }
  const LlamaShape shape = predictable_llama();
  const OwnedFile owned(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  EngineRun plain(owned.file, table.ops, config_of(-1));
  const auto want = ask_together(&plain, asked, 1);
  const KvLayout layout = plain.engine().kv_layout();
  uint64_t preemptions = 0;
  for (const HeadsShape& heads_shape : drafting_heads()) {
    CAPTURE(heads_shape.name);
    const OwnedFile heads(RandomHeads(heads_shape, shape, 6).file_bytes(DType::kF32));
    const models::LoadOptions options{.heads = &heads.file};
    for (const int32_t width : {1, 3, 4}) {
      for (const size_t together : {size_t{1}, size_t{7}}) {
        CAPTURE(width);
        CAPTURE(together);
        EngineConfig config = config_of(width);
        if (width == 4) config.kv_bytes = 15 * static_cast<uint64_t>(layout.block_bytes.front());
        EngineRun run(owned.file, table.ops, config, nullptr, options);
        CHECK(run.engine().kv_layout().identity == layout.identity);  // nothing in the blocks
        check_equal(ask_together(&run, asked, together), want);
        const SpeculationCounts counts = run.engine().snapshot().speculation;
        CHECK(counts.drafted_by[kMedusa] == counts.drafted_tokens);
        CHECK(counts.drafted_tokens > 100);
        CHECK(counts.accepted_tokens < counts.drafted_tokens);
        if (heads_shape.name == "often right") {
          CHECK(counts.accepted_tokens * 10 > counts.drafted_tokens);
        }
        preemptions += run.engine().snapshot().preemptions_total;
      }
    }
  }
  CHECK(preemptions > 0);
}

TEST_CASE("draft heads: a cached prefix, a fork and a chunked prompt get the same drafts") {
  const LlamaShape shape = predictable_llama();
  const OwnedFile owned(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  for (const HeadsShape& heads_shape : drafting_heads()) {
    CAPTURE(heads_shape.name);
    const OwnedFile heads(RandomHeads(heads_shape, shape, 6).file_bytes(DType::kF32));
    // At least those of the last token, two draft tokens and their rivals.
    check_same_drafts(owned, heads, {7, 9, 16});
  }
}

TEST_CASE("draft heads: weights that are not numbers draft nothing, and change no text") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  const LlamaShape shape = predictable_llama();
  const OwnedFile owned(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  EngineRun plain(owned.file, table.ops, config_of(-1));
  const auto want = ask_together(&plain, asked, 1);
  for (const bool chained : {false, true}) {
    for (const char* part : {"block.0.weight", "block.0.bias", "output.weight", "pair.weight"}) {
      CAPTURE(part);
      RandomHeads heads({.name = "broken", .chained = chained}, shape, 6);
      for (auto& [name, tensor] : heads.tensors()) {
        if (!name.ends_with(part)) continue;
        std::ranges::fill(tensor.values, std::numeric_limits<float>::quiet_NaN());
      }
      if (!chained && std::string(part) == "pair.weight") continue;
      const OwnedFile broken(heads.file_bytes(DType::kF32));
      EngineRun run(owned.file, table.ops, config_of(3), nullptr, {.heads = &broken.file});
      check_equal(ask_together(&run, asked, 7), want);
      CHECK(run.engine().snapshot().speculation.drafted_tokens == 0);
    }
  }
}

TEST_CASE("with the states of a single sequence, requests are served one after the other") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  const OwnedFile owned(read_family("qwen35").file_bytes(DType::kQ8_0));
  EngineRun plain(owned.file, table.ops, config_of(-1));
  const auto want = ask_together(&plain, asked, 1);
  EngineConfig config = config_of(-1);
  config.kv_bytes = 350'000;  // states take at most half
  EngineRun run(owned.file, table.ops, config);
  REQUIRE(run.engine().snapshot().kv_blocks_total.back() == kStateBlocks);
  check_equal(ask_together(&run, asked, 7), want);
}

}  // namespace
}  // namespace hearth::golden
