// Models split between GPUs, and between a GPU and a CPU: the tokens of one device, where it
// computes the same.

#include <fmt/core.h>

#include "models/split_model.h"
#include "tests/cuda/rig.h"
#include "tests/golden/engine/stage_checks.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"

namespace hearth::tests {

using namespace golden;  // NOLINT

namespace {

using MakeShares = std::function<std::vector<kernels::OpTable>()>;

/// A share on each table; all but the first have a thread.
StagedSource split_on(const models::GgufFile& file, const std::string& name,
                      const MakeShares& make) {
  return {name,
          [&file, make] {
            std::vector<models::StageTable> tables;
            for (const kernels::OpTable& ops : make()) {
              tables.push_back({fmt::format("device {}", tables.size()), ops, nullptr});
              if (tables.size() == 1) continue;
              tables.back().thread = std::make_shared<kernels::OpThread>();
            }
            kernels::OpTable table = models::split_engine_table(tables);
            auto model = models::load_split_model(file, std::move(tables), nullptr);
            REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
            return StagedRun{std::move(model).value(), std::move(table)};
          },
          40};  // the shim takes long
}

kernels::OpTable a_cpu() { return kernels::cpu_ops({.num_threads = 1, .variant = ""}).value(); }

OwnedFile split_file(DType type) {
  LlamaShape shape;
  shape.vocab = kStagesVocab;
  return OwnedFile(RandomLlama(shape, 3).file_bytes(type));
}

AskOne by_single_rows(const StagedSource& split) {
  return [&split](const engine::Request& request) {
    engine::EngineConfig config = stages_config();
    config.scheduler.max_step_tokens = 1;
    return split.run(config).ask(request).tokens;
  };
}

}  // namespace

TEST_CASE("split: two GPU tables give the tokens of one") {
  HEARTH_CUDA_TABLE(ops);
  const auto both = [&] { return std::vector{ops, kernels::cuda_ops({}).value()}; };
  for (const DType type : {DType::kQ8_0, DType::kF16}) {
    const OwnedFile owned = split_file(type);
    check_stages(split_on(owned.file, "two GPUs", both), [&](const engine::Request& request) {
      return EngineRun(owned.file, ops, stages_config()).ask(request).tokens;
    });
  }
  for (const char* name : {"gemma3", "qwen3", "starcoder2"}) {
    CAPTURE(name);
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    const engine::Request request = stages_request(1, 40, 3);
    CHECK(split_on(owned.file, name, both).run(stages_config()).ask(request).tokens ==
          EngineRun(owned.file, ops, stages_config()).ask(request).tokens);
  }
}

TEST_CASE("split: a GPU and a CPU give the same tokens however rows are cut") {
  HEARTH_CUDA_TABLE(ops);
  const OwnedFile owned = split_file(DType::kF32);
  const StagedSource first = split_on(owned.file, "a GPU, a CPU", [&] {
    return std::vector{ops, a_cpu()};
  });
  check_stages(first, by_single_rows(first));
  const StagedSource last = split_on(owned.file, "a CPU, a GPU", [&] {
    return std::vector{a_cpu(), ops};
  });
  const engine::Request greedy = stages_request(1, 60, 4);
  CHECK(last.run(stages_config()).ask(greedy).tokens == by_single_rows(last)(greedy));
  // The numerics differ, by less than what decides between tokens of this model.
  const auto want = EngineRun(owned.file, a_cpu(), stages_config()).ask(greedy).tokens;
  if (runtime_counts()) CHECK(first.run(stages_config()).ask(greedy).tokens == want);
  if (runtime_counts()) CHECK(last.run(stages_config()).ask(greedy).tokens == want);
}

}  // namespace hearth::tests
