// A model split between devices gives the tokens of the model on one device: alone, batched, at any
// chunk size, with its prefix cached, preempted, with drafts. Every family, or a refusal by name.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "models/random_model.h"
#include "models/split_model.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/engine/stage_checks.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/skip.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

/// This table and others of its kind.
std::vector<models::StageTable> tables_like(const NamedTable& table, int32_t count) {
  std::vector<models::StageTable> tables;
  for (int32_t i = 0; i < count; ++i) {
    models::StageTable& next = tables.emplace_back();
    next.device = fmt::format("device {}", i);
    next.ops = table.ops;
    if (i == 0) continue;
    next.thread = std::make_shared<kernels::OpThread>();
    next.ops = table.name == "reference"
                   ? kernels::reference_ops()
                   : kernels::cpu_ops({.num_threads = 1, .variant = table.name}).value();
  }
  return tables;
}

Result<std::unique_ptr<models::Model>> load_split(const models::GgufFile& file,
                                                  const NamedTable& table, int32_t count) {
  return models::load_split_model(file, tables_like(table, count), nullptr);
}

StagedSource split_of(const models::GgufFile& file, const NamedTable& table, int32_t count) {
  return {fmt::format("{} split by {}", table.name, count), [&file, table, count] {
            auto model = load_split(file, table, count);
            REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
            return StagedRun{std::move(model).value(),
                             models::split_engine_table(tables_like(table, count))};
          }};
}

AskOne alone(const models::GgufFile& file, const NamedTable& table) {
  return [&file, table](const Request& request) {
    return EngineRun(file, table.ops, stages_config()).ask(request).tokens;
  };
}

TEST_CASE("split: every family gives the tokens of one device, or is refused by name") {
  const NamedTable fastest = all_tables().back();
  std::vector<std::string> split;
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    const auto model = load_split(owned.file, fastest, 2);
    if (!model.ok()) {
      const ErrorCode code = model.error().code;
      CHECK((code == ErrorCode::kUnsupported || code == ErrorCode::kInvalidArgument));
      CHECK(model.error().field == "split");
      continue;
    }
    split.push_back(name);
    const Request request = stages_request(1, 60, 3);
    CHECK(split_of(owned.file, fastest, 2).run(stages_config()).ask(request).tokens ==
          alone(owned.file, fastest)(request));
  }
  CHECK(fmt::format("{}", fmt::join(split, " ")) ==
        "cohere2 ernie4_5 exaone4 exaone4_window gemma2 gemma3 glm4 granite hunyuan internlm2 "
        "llama mistral3 muse_glimmer phi3_long phi3_short qwen2 qwen3 seed_oss starcoder2");
}

TEST_CASE("split: batched, in chunks, cached, preempted, with drafts") {
  const NamedTable fastest = all_tables().back();
  for (const char* name : {"llama", "gemma3"}) {
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    StagedSource split = split_of(owned.file, fastest, 2);
    split.rows = 60;
    check_stages(split, alone(owned.file, fastest));
  }
}

TEST_CASE("split: types of weights and of KV, by two and three, on every table") {
  constexpr models::ModelShape kShape = {.name = "split",
                                         .layers = 2,
                                         .width = 256,
                                         .ffn = 512,
                                         .heads = 8,
                                         .kv_heads = 4,
                                         .head_dim = 32,
                                         .vocab = 512,
                                         .context = 512};
  const tests::TempDir folder;
  const Request request = stages_request(1, 60, 3);
  for (const DType type : {DType::kQ4_0, DType::kQ4_K, DType::kQ8_0, DType::kF16}) {
    models::ModelShape shape = kShape;
    shape.tied = type == DType::kQ4_K;
    const auto path = folder.path() / fmt::format("{}.gguf", static_cast<int>(type));
    const auto random = models::RandomModel::create(shape, type, 1);
    REQUIRE(random.ok());
    REQUIRE(models::write_random_model(*random, path, 1, {}).ok());
    models::GgufFile file = models::GgufFile::open(path).value();
    file.set_fingerprint("random");
    for (const NamedTable& table : all_tables()) {
      CAPTURE(table.name);
      if (table.name == "reference" && !tests::full_counts()) continue;
      const auto want = alone(file, table)(request);
      for (const int32_t count : {2, 3}) {
        CHECK(split_of(file, table, count).run(stages_config()).ask(request).tokens == want);
      }
    }
    for (const auto kv : {kernels::KvType::kQ8_0, kernels::KvType::kQ4_0}) {
      const NamedTable table = all_tables().back();
      EngineConfig config = stages_config();
      config.kv_type = kv;
      CHECK(split_of(file, table, 2).run(config).ask(request).tokens ==
            EngineRun(file, table.ops, config).ask(request).tokens);
    }
  }
}

}  // namespace
}  // namespace hearth::golden
