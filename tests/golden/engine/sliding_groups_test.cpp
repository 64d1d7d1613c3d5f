// Models with sliding and full layer groups, in the engine: sliding layers hold no more than their
// window, and a cached prefix gives the tokens of a cold run.

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

constexpr int32_t kBlock = 16;

EngineConfig config_of() {
  EngineConfig config;
  config.kv_type = DType::kF16;
  config.kv_bytes = 4 << 20;
  config.context_length = 256;
  config.block_size = kBlock;
  config.scheduler.max_seqs = 4;
  config.scheduler.max_step_tokens = 32;
  return config;
}

Request request_of(RequestId id, std::vector<int32_t> prompt, int32_t max_tokens) {
  Request request;
  request.id = id;
  request.owner = request.cache_salt = "uid:1000";
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

kernels::OpTable best_ops() {
  auto ops = kernels::cpu_ops({.num_threads = 1, .variant = ""});
  REQUIRE(ops.ok());
  return *ops;
}

/// The group of that kind; each of these models has one.
size_t group_of(const models::ModelInfo& info, models::LayerGroup::Kind kind) {
  for (size_t i = 0; i < info.groups.size(); ++i) {
    if (info.groups[i].kind == kind) return i;
  }
  FAIL("no such group");
  return 0;
}

const std::vector<std::string> kSliding = {"gemma2", "gemma3", "olmo3", "gemma3n", "gemma4"};

TEST_CASE("sliding layers keep the window and one block; full layers keep all") {
  for (const std::string& name : kSliding) {
    CAPTURE(name);
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kQ8_0));
    EngineRun run(owned.file, best_ops(), config_of());
    const models::ModelInfo info = run.engine().model_info();
    const size_t full = group_of(info, models::LayerGroup::Kind::kFull);
    const size_t sliding = group_of(info, models::LayerGroup::Kind::kSliding);
    REQUIRE(info.groups[sliding].window == 20);

    // What positions p - 19 .. p read, and one more that a step is about to fill.
    const int32_t window_blocks = (20 + kBlock - 1) / kBlock + 1;
    Request request = request_of(1, random_tokens(100, 128, 1), 120);
    request.speculate = false;  // a step, a token
    run.submit(request);
    int32_t decode_steps = 0;
    int32_t most_full = 0;
    while (run.step()) {
      const EngineSnapshot now = run.engine().snapshot();
      if (run.answer(1).ended) break;
      const bool decoding = run.answer(1).tokens.front().size() > 1;
      const int32_t chunk = decoding ? 0 : 32 / kBlock;
      CHECK(now.kv_blocks_used[sliding] <= window_blocks + chunk);
      if (!decoding) continue;
      ++decode_steps;
      const auto tokens = static_cast<int32_t>(100 + run.answer(1).tokens.front().size());
      CHECK(now.kv_blocks_used[full] >= (tokens - 1) / kBlock);
      most_full = std::max(most_full, now.kv_blocks_used[full]);
    }
    CHECK(decode_steps > 100);
    CHECK(most_full >= 13);
    CHECK(run.answer(1).tokens.front().size() == 120);
  }
}

TEST_CASE("a prefix found cached in both groups gives the tokens of a cold run") {
  for (const std::string& name : kSliding) {
    CAPTURE(name);
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kQ8_0));
    const auto shared = random_tokens(90, 128, 1);
    auto longer = shared;
    const auto tail = random_tokens(40, 128, 2);
    longer.insert(longer.end(), tail.begin(), tail.end());
    auto branch = std::vector<int32_t>(shared.begin(), shared.begin() + 50);
    branch.insert(branch.end(), tail.begin(), tail.end());

    const auto cold = [&](const std::vector<int32_t>& prompt) {
      return EngineRun(owned.file, best_ops(), config_of()).ask(request_of(1, prompt, 40)).tokens;
    };
    EngineRun run(owned.file, best_ops(), config_of());
    CHECK(run.ask(request_of(1, shared, 40)).tokens == cold(shared));
    const EngineAnswer again = run.ask(request_of(2, shared, 40));
    CHECK(again.cached_tokens == 80);
    CHECK(again.tokens == cold(shared));
    const EngineAnswer on = run.ask(request_of(3, longer, 40));
    CHECK(on.cached_tokens == 80);
    CHECK(on.tokens == cold(longer));
    // A hit in the middle needs the window before it, which was freed but stays cached.
    const EngineAnswer off = run.ask(request_of(4, branch, 40));
    CHECK(off.cached_tokens == 48);
    CHECK(off.tokens == cold(branch));
  }
}

}  // namespace
}  // namespace hearth::golden
