// Models with a layer for drafting, an EAGLE-3 head, or heads: the same text, log probabilities and
// seeds with it and without, and the same drafts wherever a prefix comes from.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "engine/kv/memory_plan.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/replay_pattern.h"
#include "models/gguf/gguf_writer.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_eagle3.h"
#include "tests/golden/random_heads.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

constexpr int32_t kVocab = 128;

EngineConfig config_of(int32_t width) {
  EngineConfig config;
  config.kv_bytes = 8 << 20;
  config.context_length = 256;
  config.scheduler.max_seqs = 8;
  config.speculation.lookup = false;
  config.speculation.enabled = width >= 0;
  config.speculation.fixed_width = std::max(width, 0);
  return config;
}

std::vector<Request> mixed_requests() {
  std::vector<Request> out;
  for (int i = 0; i < 14; ++i) {
    Request request;
    request.id = static_cast<RequestId>(i + 1);
    request.owner = request.cache_salt = "uid:1000";
    // Half of them share most of their prompt.
    request.prompt = random_tokens(i % 2 == 0 ? 45 : 20 + 3 * i, kVocab,
                                   static_cast<uint32_t>(i % 2 == 0 ? 1 : i));
    if (i % 2 == 0) request.prompt.push_back(3 + i);
    request.max_tokens = 30;
    request.stop_ids = {kVocab - 1};
    request.sampling.temperature = i % 3 == 0 ? 0.0f : 0.7f;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.repetition_penalty = i % 5 == 4 ? 1.1f : 1.0f;
    request.sampling.top_logprobs = i % 4 == 1 ? 2 : -1;
    request.n = i % 7 == 6 ? 2 : 1;
    request.min_tokens = i % 6 == 5 ? 12 : 0;
    request.use_prefix_cache = i % 5 != 3;
    out.push_back(std::move(request));
  }
  return out;
}

std::vector<EngineAnswer> ask_together(EngineRun* run, const std::vector<Request>& asked,
                                       size_t together) {
  for (size_t i = 0; i < asked.size(); ++i) {
    run->submit(asked[i]);
    if ((i + 1) % together == 0) {
      run->run_until_idle();
    } else {
      run->step();
    }
  }
  run->run_until_idle();
  std::vector<EngineAnswer> out;
  for (const Request& request : asked) {
    REQUIRE(run->answer(request.id).ended);
    REQUIRE_FALSE(run->answer(request.id).failed);
    out.push_back(run->answer(request.id));
  }
  return out;
}

void check_equal(const std::vector<EngineAnswer>& met, const std::vector<EngineAnswer>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(met[i].tokens == want[i].tokens);
    CHECK(met[i].logprobs == want[i].logprobs);
  }
}

constexpr auto kLayer = static_cast<size_t>(DraftedBy::kDraftLayer);

/// Fewer blocks than seven sequences need, and states of a few of them.
uint64_t few_bytes(const KvLayout& layout) {
  constexpr int64_t kBlocks = 12, kStates = 16, kMostStates = 88;  // as plan_memory counts them
  int64_t kv = 0, state = 0;
  for (int32_t group = 0; group < layout.num_groups(); ++group) {
    const int64_t bytes = layout.block_bytes[static_cast<size_t>(group)];
    (group == layout.state_group ? state : kv) += bytes;
  }
  kv *= kBlocks;
  return static_cast<uint64_t>(kMostStates * state <= kv ? kv + kMostStates * state
                                                         : 2 * std::max(kv, kStates * state));
}

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
LlamaShape predictable_llama() {
  return {.name = "predictable", .vocab = kVocab, .branch_gain = 0.2f};
}

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

/// A cached prefix, a fork and a prompt computed in steps of so many rows get the same drafts.
void check_same_drafts(const OwnedFile& model, const OwnedFile& heads,
                       std::initializer_list<int32_t> step_rows) {
  const NamedTable table = all_tables().back();
  const models::LoadOptions options{.heads = &heads.file};
  Request request;
  request.id = 1;
  request.owner = request.cache_salt = "uid:1000";
  request.prompt = random_tokens(50, kVocab, 5);
  request.max_tokens = 40;
  request.sampling.temperature = 0.7f;
  request.sampling.seed = 11;
  const auto drafted = [](EngineRun& run) {
    const SpeculationCounts counts = run.engine().snapshot().speculation;
    return std::pair(counts.drafted_tokens, counts.accepted_tokens);
  };
  EngineRun cold(model.file, table.ops, config_of(2), nullptr, options);
  const EngineAnswer want = cold.ask(request);
  const auto first = drafted(cold);
  REQUIRE(first.first > 20);
  request.id = 2;
  const EngineAnswer again = cold.ask(request);
  CHECK(again.cached_tokens == 48);
  CHECK(again.tokens == want.tokens);
  CHECK(drafted(cold) == std::pair(2 * first.first, 2 * first.second));
  request.n = 2;
  EngineRun forked(model.file, table.ops, config_of(2), nullptr, options);
  CHECK(forked.ask(request).tokens[0] == want.tokens[0]);
  request.n = 1;
  for (const int32_t rows : step_rows) {
    CAPTURE(rows);
    EngineConfig config = config_of(2);
    config.scheduler.max_step_tokens = rows;
    EngineRun run(model.file, table.ops, config, nullptr, options);
    CHECK(run.ask(request).tokens == want.tokens);
    CHECK(drafted(run) == first);
  }
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

// ---- EAGLE-3 ----------------------------------------------------------------------------------

constexpr auto kEagle = static_cast<size_t>(DraftedBy::kEagle3);

struct EaglePair {
  std::string name;
  OwnedFile model;
  OwnedFile head;
  bool often_right = false;
};

/// A head that is often right for its model, one of some tokens, and those of the recordings, of
/// which one drafts for a model with states.
std::vector<EaglePair> eagle_pairs() {
  std::vector<EaglePair> out;
  const LlamaShape shape = predictable_llama();
  const auto add = [&](const Eagle3Shape& head) {
    out.push_back({head.name, OwnedFile(RandomLlama(shape, 3).file_bytes(DType::kQ8_0)),
                   OwnedFile(RandomEagle3(head, shape, 6).file_bytes()), head.often_right});
  };
  add({.name = "often right", .own_output = false, .often_right = true});
  add({.name = "some tokens", .draft_tokens = {0, 1, 40, 41, 90, 127}, .norms = true});
  for (const Eagle3Model& head : read_eagle3_heads()) {
    out.push_back({head.model.name, OwnedFile(read_family(head.target).file_bytes(DType::kQ8_0)),
                   OwnedFile(head.file_bytes(DType::kQ8_0))});
  }
  return out;
}

TEST_CASE("eagle3: the same text and log probabilities, alone, together and preempted") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  uint64_t preemptions = 0;
  for (const EaglePair& pair : eagle_pairs()) {
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
        CHECK(counts.drafted_by[kEagle] == counts.drafted_tokens);
        CHECK(counts.drafted_tokens > 100);
        CHECK(counts.accepted_tokens < counts.drafted_tokens);
        if (pair.often_right) CHECK(counts.accepted_tokens > 50);
        preemptions += run.engine().snapshot().preemptions_total;
      }
    }
  }
  CHECK(preemptions > 0);
}

TEST_CASE("eagle3: a cached prefix, a fork and a chunked prompt get the same drafts") {
  for (const EaglePair& pair : eagle_pairs()) {
    CAPTURE(pair.name);
    check_same_drafts(pair.model, pair.head,
                      {3, 7, 16});  // models with a state verify chains alone
  }
}

TEST_CASE("eagle3: kv_bytes_for() holds the blocks that it is asked for, next to small states") {
  for (const EaglePair& pair : eagle_pairs()) {
    CAPTURE(pair.name);
    const auto model = models::load_model(pair.model.file, all_tables().back().ops, nullptr,
                                          {.heads = &pair.head.file})
                           .value();
    for (const int32_t blocks : {1, 17, 400}) {
      EngineConfig config = config_of(3);
      config.kv_bytes = kv_bytes_for(model->info(), config, blocks);
      const MemoryPlan plan = plan_memory(config, *model, 0).value();
      for (size_t i = 0; i + 1 < plan.groups.size(); ++i) {
        CHECK(plan.groups[i].num_blocks >= blocks);
      }
    }
  }
}

TEST_CASE("eagle3: weights that are not numbers, and another model's head, change no text") {
  const NamedTable table = all_tables().back();
  const auto asked = mixed_requests();
  const LlamaShape shape = predictable_llama();
  const OwnedFile owned(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  EngineRun plain(owned.file, table.ops, config_of(-1));
  const auto want = ask_together(&plain, asked, 1);
  const RandomEagle3 good({.own_output = false, .often_right = true}, shape, 6);
  RandomEagle3 names = good;
  for (const auto& [name, tensor] : names.tensors()) {
    CAPTURE(name);
    RandomEagle3 broken = good;
    std::ranges::fill(broken.tensors()[name].values, std::numeric_limits<float>::quiet_NaN());
    const OwnedFile head(broken.file_bytes());
    EngineRun run(owned.file, table.ops, config_of(3), nullptr, {.heads = &head.file});
    check_equal(ask_together(&run, asked, 7), want);
    CHECK(run.engine().snapshot().speculation.drafted_tokens == 0);
  }
  // Of a model of the same sizes.
  const OwnedFile foreign(
      RandomEagle3({.draft_tokens = {127, 3, 5, 5, 0}, .norms = true}, shape, 60).file_bytes());
  EngineRun run(owned.file, table.ops, config_of(3), nullptr, {.heads = &foreign.file});
  check_equal(ask_together(&run, asked, 7), want);
  CHECK(run.engine().snapshot().speculation.drafted_tokens > 100);
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
