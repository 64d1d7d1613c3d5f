// Stages on GPUs, and on a GPU and a CPU: the tokens of one device, where it computes the same.

#include <fmt/core.h>

#include "models/staged_model.h"
#include "tests/cuda/rig.h"
#include "tests/golden/engine/stage_checks.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"

namespace hearth::tests {

using namespace golden;  // NOLINT

namespace {

kernels::OpTable cpu_table() { return kernels::cpu_ops({.num_threads = 1, .variant = ""}).value(); }

/// Another table of the same device.
kernels::OpTable second_table() { return kernels::cuda_ops({}).value(); }

constexpr int32_t kRows = 40;  // the shim takes long

using MakeTables = std::function<std::vector<kernels::OpTable>()>;

/// About equally many layers on each table; all but the first have a thread.
StagedSource on_tables(const models::GgufFile& file, const std::string& name,
                       const MakeTables& make) {
  return {name,
          [&file, make] {
            std::vector<models::Stage> stages;
            const std::vector<kernels::OpTable> tables = make();
            const auto count = static_cast<int32_t>(tables.size());
            const int32_t layers =
                models::load_model(file, tables[0], nullptr).value()->info().num_layers;
            for (int32_t i = 0; i < count; ++i) {
              models::Stage& stage = stages.emplace_back();
              stage.table = {fmt::format("stage {}", i), tables[i], nullptr};
              if (i > 0) stage.table.thread = std::make_shared<kernels::OpThread>();
              stage.layers = {layers * i / count, layers * (i + 1) / count};
            }
            kernels::OpTable table = models::engine_table(stages);
            auto model = models::load_staged_model(file, std::move(stages), nullptr);
            REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
            return StagedRun{std::move(model).value(), std::move(table)};
          },
          kRows};
}

OwnedFile file_of(int32_t layers, DType type) {
  LlamaShape shape;
  shape.layers = layers;
  shape.vocab = kStagesVocab;
  return OwnedFile(RandomLlama(shape, 3).file_bytes(type));
}

/// The tokens of stages that take one row at a time.
AskOne row_by_row(const StagedSource& staged) {
  return [&staged](const engine::Request& request) {
    engine::EngineConfig config = stages_config();
    config.scheduler.max_step_tokens = 1;
    return staged.run(config).ask(request).tokens;
  };
}

}  // namespace

TEST_CASE("stages: two GPU tables give the tokens of one") {
  HEARTH_CUDA_TABLE(ops);
  const OwnedFile owned = file_of(3, DType::kQ8_0);
  const auto both = [&] { return std::vector{ops, second_table()}; };
  check_stages(on_tables(owned.file, "two GPUs", both), [&](const engine::Request& request) {
    return EngineRun(owned.file, ops, stages_config()).ask(request).tokens;
  });
}

TEST_CASE("stages: a GPU and a CPU, in both orders, give the same tokens however rows are cut") {
  HEARTH_CUDA_TABLE(ops);
  const OwnedFile owned = file_of(3, DType::kF32);
  const StagedSource first = on_tables(owned.file, "a GPU, a CPU", [&] {
    return std::vector{ops, cpu_table()};
  });
  check_stages(first, row_by_row(first));
  const StagedSource last = on_tables(owned.file, "a CPU, a GPU", [&] {
    return std::vector{cpu_table(), ops};
  });
  check_stages(last, row_by_row(last));
  // The numerics differ, by less than what decides between tokens of this model.
  const engine::Request greedy = stages_request(1, 60, 4);
  const auto want = EngineRun(owned.file, cpu_table(), stages_config()).ask(greedy).tokens;
  if (runtime_counts()) CHECK(first.run(stages_config()).ask(greedy).tokens == want);
  if (runtime_counts()) CHECK(last.run(stages_config()).ask(greedy).tokens == want);
}

TEST_CASE("stages: layers with windows, states and experts on a GPU and a CPU") {
  HEARTH_CUDA_TABLE(ops);
  for (const char* name : {"gemma3", "qwen3moe", "qwen3next", "deepseek2"}) {
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    const StagedSource staged = on_tables(owned.file, name, [&] {
      return std::vector{ops, cpu_table()};
    });
    const engine::Request request = stages_request(1, 40, 3);
    engine::EngineConfig few = stages_config();
    few.scheduler.max_step_tokens = 7;
    CHECK(staged.run(few).ask(request).tokens == row_by_row(staged)(request));
  }
}

TEST_CASE("experts on a CPU, the rest on a GPU: the same tokens however rows are cut") {
  HEARTH_CUDA_TABLE(ops);
  for (const char* name : {"qwen3moe", "qwen2moe", "gpt_oss"}) {
    const OwnedFile owned(read_family(name).file_bytes(DType::kF32));
    const kernels::OpTable cpu = cpu_table();
    const StagedSource apart = {
        name, [&] {
          const models::LoadOptions options{.experts = &cpu};
          auto model = models::load_model(owned.file, ops, nullptr, options);
          REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
          return StagedRun{std::move(model).value(), models::with_experts_on(ops, cpu)};
        }};
    const engine::Request request = stages_request(1, 40, 4);
    const auto want = row_by_row(apart)(request);
    const models::HotExperts hot = {{0, 2}, {1}};
    const StagedSource some = {
        name, [&] {
          const models::LoadOptions options{.experts = &cpu, .hot_experts = &hot};
          auto model = models::load_model(owned.file, ops, nullptr, options);
          REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
          return StagedRun{std::move(model).value(), models::with_experts_on(ops, cpu, hot)};
        }};
    CHECK(some.run(stages_config()).ask(request).tokens == row_by_row(some)(request));
    engine::EngineConfig few = stages_config();
    few.scheduler.max_step_tokens = 7;
    CHECK(apart.run(few).ask(request).tokens == want);
    CHECK(apart.run(stages_config()).ask(request).tokens == want);
    if (runtime_counts()) {
      CHECK(EngineRun(owned.file, cpu, stages_config()).ask(request).tokens == want);
    }
  }
}

TEST_CASE("stages: the engine's numerics are those of the stages, in order, with their layers") {
  HEARTH_CUDA_TABLE(ops);
  const std::string cuda = ops.numerics_id, cpu = cpu_table().numerics_id;
  const auto id_of = [](const std::vector<kernels::OpTable>& tables) {
    std::vector<models::Stage> stages;
    for (const kernels::OpTable& table : tables) {
      const auto layer = static_cast<int32_t>(stages.size());
      stages.push_back({{"", table, nullptr}, {layer, layer + 1}});
    }
    return models::engine_table(stages).numerics_id;
  };
  CHECK(id_of({ops, second_table()}) == cuda);
  CHECK(id_of({cpu_table(), cpu_table()}) == cpu);
  CHECK(id_of({ops, second_table(), cpu_table()}) == cuda + ":0-1+" + cpu + ":2-2");
  CHECK(id_of({cpu_table(), ops}) == cpu + ":0-0+" + cuda + ":1-1");
}

}  // namespace hearth::tests
