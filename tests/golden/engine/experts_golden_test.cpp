// Experts on a table of their own give the tokens of one device: alone, batched, at any chunk size,
// with prefixes cached, with drafts.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/golden/engine/stage_checks.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"

namespace hearth::golden {
namespace {

using kernels::DType;

/// Two tables of one kind: the second has the experts.
StagedSource with_experts_apart(const models::GgufFile& file, const kernels::OpTable& main) {
  return {"experts apart", [&file, main] {
            const auto experts =
                kernels::cpu_ops({.num_threads = 1, .variant = main.device.variant});
            REQUIRE(experts.ok());
            auto model = models::load_model(file, main, nullptr, {.experts = &*experts});
            REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
            return StagedRun{std::move(model).value(), models::with_experts_on(main, *experts)};
          }};
}

TEST_CASE("experts apart: every family with experts gives the tokens of one device") {
  const kernels::OpTable main = all_tables().back().ops;
  int32_t num_families = 0;
  for (const std::string& name : family_names()) {
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    const auto refused = models::load_model(owned.file, main, nullptr, {.experts = &main});
    if (!refused.ok()) {
      CHECK(refused.error().code == ErrorCode::kUnsupported);
      CHECK(refused.error().field == "experts");
      continue;
    }
    CAPTURE(name);
    if (!(*refused)->info().generates || (*refused)->info().denoises()) continue;
    ++num_families;
    const StagedSource apart = with_experts_apart(owned.file, main);
    const engine::Request request = stages_request(1, 60, 3);
    const auto want = EngineRun(owned.file, main, stages_config()).ask(request).tokens;
    CHECK(apart.run(stages_config()).ask(request).tokens == want);
  }
  CHECK(num_families >= 10);
}

TEST_CASE("experts apart: batched, cached, preempted, cut and drafted") {
  const kernels::OpTable main = all_tables().back().ops;
  const OwnedFile owned(read_family("qwen3moe").file_bytes(DType::kQ8_0));
  check_stages(with_experts_apart(owned.file, main), [&](const engine::Request& request) {
    return EngineRun(owned.file, main, stages_config()).ask(request).tokens;
  });
}

/// Every expert but one in three is on the first table, too; none in the last layer.
models::HotExperts some_hot(const models::ModelInfo& info, int32_t num_experts) {
  models::HotExperts hot(info.num_layers);
  for (int32_t layer = 0; layer + 1 < info.num_layers; ++layer) {
    for (int32_t e = 0; e < num_experts; ++e) {
      if ((e + layer) % 3 != 0) hot[layer].push_back(e);
    }
  }
  return hot;
}

TEST_CASE("experts apart: with hot ones on the first table, every family gives the same tokens") {
  const kernels::OpTable main = all_tables().back().ops;
  int32_t num_families = 0, grown = 0;
  for (const std::string& name : family_names()) {
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    auto apart = models::load_model(owned.file, main, nullptr, {.experts = &main});
    if (!apart.ok() || !(*apart)->info().generates || (*apart)->info().denoises()) continue;
    CAPTURE(name);
    ++num_families;
    const models::ModelInfo info = (*apart)->info();
    const auto prefix = owned.file.get<std::string_view>("general.architecture").value();
    const auto count = owned.file.get<uint32_t>(fmt::format("{}.expert_count", prefix));
    REQUIRE(count.ok());
    const models::HotExperts hot = some_hot(info, static_cast<int32_t>(*count));
    auto model =
        models::load_model(owned.file, main, nullptr, {.experts = &main, .hot_experts = &hot});
    REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
    grown += (*model)->info().weight_bytes > info.weight_bytes ? 1 : 0;
    CHECK((*model)->info().expert_bytes == info.expert_bytes);
    const StagedSource staged = {
        name, [&] {
          auto again = models::load_model(owned.file, main, nullptr,
                                          {.experts = &main, .hot_experts = &hot});
          return StagedRun{std::move(again).value(), models::with_experts_on(main, main, hot)};
        }};
    const engine::Request request = stages_request(1, 60, 3);
    const auto want = EngineRun(owned.file, main, stages_config()).ask(request).tokens;
    CHECK(staged.run(stages_config()).ask(request).tokens == want);
    engine::EngineConfig few = stages_config();
    few.scheduler.max_step_tokens = 5;
    CHECK(staged.run(few).ask(request).tokens == want);
  }
  CHECK(num_families >= 10);
  CHECK(grown >= num_families / 2);  // others have experts in the last layer alone
}

TEST_CASE("experts apart: choices are counted") {
  const kernels::OpTable main = all_tables().back().ops;
  const OwnedFile owned(read_family("qwen3moe").file_bytes(DType::kQ8_0));
  auto model = models::load_model(owned.file, main, nullptr, {.experts = &main});
  REQUIRE(model.ok());
  models::Model* const counting = model->get();
  EngineRun run(std::move(model).value(), models::with_experts_on(main, main), stages_config());
  run.ask(stages_request(1, 30, 3));
  uint64_t first = 0;
  const auto counts = counting->expert_counts();
  for (const uint64_t count : counts.front()) first += count;
  const uint64_t used = owned.file.get<uint32_t>("qwen3moe.expert_used_count").value();
  // Of 16 tokens that were written the last is not read.
  CHECK(first == (30 + 15) * used);
}

TEST_CASE("experts apart: weights and rows are on the tables that have them") {
  const kernels::OpTable main = all_tables().back().ops;
  const OwnedFile owned(read_family("qwen3moe").file_bytes(DType::kQ8_0));
  const auto whole = models::load_model(owned.file, main, nullptr);
  const auto apart = models::load_model(owned.file, main, nullptr, {.experts = &main});
  REQUIRE((whole.ok() && apart.ok()));
  const models::ModelInfo& info = (*apart)->info();
  CHECK(info.expert_bytes > 0);
  CHECK((*whole)->info().expert_bytes == 0);
  CHECK(info.weight_bytes + info.expert_bytes == (*whole)->info().weight_bytes);
  CHECK((*apart)->activation_bytes(64, 8) < (*whole)->activation_bytes(64, 8));
  CHECK((*apart)->expert_row_bytes(64) > 0);
  CHECK((*whole)->expert_row_bytes(64) == 0);
}

TEST_CASE("experts apart: the engine's numerics are those of both tables, if they differ") {
  kernels::OpTable main, experts;
  main.numerics_id = experts.numerics_id = "a";
  CHECK(models::with_experts_on(main, experts).numerics_id == "a");
  experts.numerics_id = "b";
  CHECK(models::with_experts_on(main, experts).numerics_id == "a+experts:b");
  const std::string one = models::with_experts_on(main, experts, {{}, {1}}).numerics_id;
  const std::string other = models::with_experts_on(main, experts, {{}, {2}}).numerics_id;
  CHECK(one.starts_with("a+experts:b:"));
  CHECK(other.starts_with("a+experts:b:"));
  CHECK(one != other);
}

}  // namespace
}  // namespace hearth::golden
