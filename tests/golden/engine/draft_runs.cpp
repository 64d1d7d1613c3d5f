#include "tests/golden/engine/draft_runs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "tests/golden/step_runner.h"

namespace hearth::golden {

using namespace engine;

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
    if (i % 5 == 2) {
      request.sampling.presence_penalty = 0.3f;
      request.sampling.frequency_penalty = 0.2f;
    }
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

LlamaShape predictable_llama() {
  return {.name = "predictable", .vocab = kVocab, .branch_gain = 0.2f};
}

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

}  // namespace hearth::golden
