#include "engine/steps/model_runner.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "fake_model.h"

namespace hearth::tests {
namespace {

using namespace engine;

TEST_CASE("copies of one plan happen in order, even where one reads what another wrote") {
  FakeClock clock;
  auto device = std::make_shared<FakeDevice>();
  auto model = std::make_unique<FakeModel>(FakeModelConfig{}, device, clock);
  FakeModel& fake = *model;
  EngineConfig config;
  config.kv_type = kernels::DType::kF32;
  const MemoryPlan memory = plan_memory(config, *model, 1 << 24).value();
  auto runner =
      ModelRunner::create(memory, config.kv_type, fake_ops(device), std::move(model)).value();
  REQUIRE(runner->back(0, 0, 8));

  Sequence seq;
  seq.tokens = {5};
  seq.blocks.tables = {{0}};
  StepPlan plan;
  plan.rows.push_back({&seq, 0, 1, 0, true});
  plan.num_tokens = plan.num_outputs = 1;
  models::KvPool pool;
  fake.after_step = [&](const models::StepArgs& args) { pool = args.pools.front(); };
  runner->run(plan);
  const auto bytes = static_cast<size_t>(pool.block_bytes);
  const auto block = [&](int i) { return pool.base + i * pool.block_bytes; };
  const auto filled_with = [&](int i, int value) {
    std::vector<std::byte> want(bytes, static_cast<std::byte>(value));
    return std::memcmp(block(i), want.data(), bytes) == 0;
  };
  for (int i = 1; i < 8; ++i) std::memset(block(i), i, bytes);

  // The fake's copy_blocks reads all sources of a call before it writes: in one call, 3 would
  // become what 2 was.
  plan.copies = {{0, 1, 2}, {0, 2, 3}, {0, 4, 5}, {0, 6, 4}, {0, 7, 6}};
  runner->run(plan);
  CHECK(filled_with(2, 1));
  CHECK(filled_with(3, 1));
  CHECK(filled_with(5, 4));
  CHECK(filled_with(4, 6));
  CHECK(filled_with(6, 7));
}

TEST_CASE("a step's logits are returned by output row") {
  FakeClock clock;
  auto device = std::make_shared<FakeDevice>();
  const FakeModelConfig model_config;
  EngineConfig config;
  config.kv_type = kernels::DType::kF32;
  auto model = std::make_unique<FakeModel>(model_config, device, clock);
  const MemoryPlan memory = plan_memory(config, *model, 1 << 24).value();
  auto runner =
      ModelRunner::create(memory, config.kv_type, fake_ops(device), std::move(model)).value();
  REQUIRE(runner->back(0, 0, 8));
  Sequence a, b;
  a.tokens = {5, 6, 7};
  a.blocks.tables = {{3}};
  b.tokens = std::vector<int32_t>(20, 9);
  b.blocks.tables = {{1, 7}};
  StepPlan plan;
  plan.rows.push_back({&a, 0, 3, 1, true});    // logits after tokens 1 and 2
  plan.rows.push_back({&b, 0, 20, 19, true});  // after the last
  plan.num_tokens = 23;
  plan.num_outputs = 3;
  runner->run(plan);
  const std::vector<std::vector<int32_t>> histories = {{5, 6}, {5, 6, 7}, b.tokens};
  for (int32_t i = 0; i < 3; ++i) {
    const std::span<float> logits = runner->logits(i);
    CHECK(std::vector<float>(logits.begin(), logits.end()) ==
          expected_logits(model_config, histories[static_cast<size_t>(i)]));
  }
}

}  // namespace
}  // namespace hearth::tests
