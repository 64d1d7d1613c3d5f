// A model in stages gives the tokens of the model on one device: alone, batched, at any chunk size,
// with its prefix cached, preempted, with drafts. Every family, or a refusal by name.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>

#include "engine/kv/memory_plan.h"
#include "engine/speculation/draft_model.h"
#include "models/staged_model.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/engine/stage_checks.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

/// `count` stages on this table and others of its kind.
StagedSource stages_of(const models::GgufFile& file, const NamedTable& table, int32_t count) {
  return {fmt::format("{} in {} stages", table.name, count), [&file, table, count] {
            auto model = load_in_stages(file, table, count);
            REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
            return StagedRun{std::move(model).value(), table.ops};
          }};
}

void check_stages(const models::GgufFile& file, const NamedTable& table, int32_t count) {
  check_stages(stages_of(file, table, count), [&](const Request& request) {
    return EngineRun(file, table.ops, stages_config()).ask(request).tokens;
  });
}

TEST_CASE("stages: every family gives the tokens of one device, or is refused by name") {
  std::vector<std::string> refused;
  const NamedTable fastest = all_tables().back();
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    const auto model = load_in_stages(owned.file, fastest, 2);
    if (!model.ok()) {
      CHECK(model.error().code == ErrorCode::kUnsupported);
      CHECK(model.error().field == "stages");
      refused.push_back(name);
      continue;
    }
    check_stages(owned.file, fastest, 2);
  }
  CHECK(refused ==
        std::vector<std::string>{"arwkv7", "arwkv7_plain", "gemma3n", "gemma4", "rwkv7"});
}

TEST_CASE("stages: three stages on every table") {
  LlamaShape shape;
  shape.layers = 5;
  shape.vocab = kStagesVocab;
  const RandomLlama model(shape, 3);
  const OwnedFile owned(model.file_bytes(DType::kQ8_0));
  for (const NamedTable& table : all_tables()) {
    if (table.name == "reference" && !tests::full_counts()) continue;
    check_stages(owned.file, table, 3);
  }
}

TEST_CASE("stages: a draft model in the first stage's table") {
  LlamaShape shape;
  shape.vocab = kStagesVocab;
  const OwnedFile owned(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  const NamedTable table = all_tables().back();
  const Request request = stages_request(1, 90, 3);
  const auto want = EngineRun(owned.file, table.ops, stages_config()).ask(request).tokens;
  EngineConfig drafted = stages_config();
  drafted.speculation.enabled = true;
  drafted.speculation.lookup = false;
  drafted.speculation.fixed_width = 4;
  SteadyClock clock;
  auto loaded = models::load_model(owned.file, table.ops, nullptr);
  REQUIRE(loaded.ok());
  const models::ModelInfo info = (*loaded)->info();
  auto draft = DraftModel::create(drafted, info, table.ops, std::move(loaded).value(), clock);
  REQUIRE(draft.ok());
  EngineRun run = stages_of(owned.file, table, 2).run(drafted, std::move(draft).value());
  CHECK(run.ask(request).tokens == want);
  CHECK(run.engine().snapshot().speculation.accepted_tokens > 0);
}

TEST_CASE("stages: rows after the last norm, for embeddings, of a step in several pieces") {
  LlamaShape shape;
  shape.vocab = kStagesVocab;
  const OwnedFile owned(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  const NamedTable table = all_tables().back();
  const auto vector_of = [&](std::unique_ptr<models::Model> model) {
    EngineConfig config = stages_config();
    const SteadyClock clock;
    auto made = Engine::create(config, table.ops, std::move(model), clock);
    REQUIRE(made.ok());
    Request request = stages_request(1, 100, 2);
    request.max_tokens = 0;
    request.pooling = models::Pooling::kMean;
    (*made)->inbox().post(request);
    std::vector<float> out;
    while ((*made)->step()) {
      for (const auto& events : (*made)->outbox().drain()) {
        for (const EngineEvent& event : events) {
          if (const auto* embedded = std::get_if<EmbeddingEvent>(&event)) out = embedded->values;
        }
      }
    }
    return out;
  };
  auto whole = models::load_model(owned.file, table.ops, nullptr);
  auto staged = load_in_stages(owned.file, table, 2);
  REQUIRE((whole.ok() && staged.ok()));
  const std::vector<float> want = vector_of(std::move(whole).value());
  CHECK(want.size() == static_cast<size_t>(shape.width));
  CHECK(vector_of(std::move(staged).value()) == want);
}

TEST_CASE("stages: weights of the stages are those of the model, and layers are placed once") {
  for (const char* name : {"llama", "gemma3", "qwen3next", "deepseek2"}) {
    CAPTURE(name);
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    const NamedTable table = all_tables().back();
    auto whole = models::load_model(owned.file, table.ops, nullptr);
    auto staged = load_in_stages(owned.file, table, 2);
    REQUIRE((whole.ok() && staged.ok()));
    const models::ModelInfo& info = (*staged)->info();
    REQUIRE(info.stages.size() == 2);
    std::vector<int32_t> layers(info.groups.size(), 0);
    uint64_t bytes = 0;
    for (const models::StageInfo& stage : info.stages) {
      bytes += stage.weight_bytes;
      for (size_t i = 0; i < layers.size(); ++i) layers[i] += stage.group_layers[i];
    }
    CHECK(bytes == info.weight_bytes);
    for (size_t i = 0; i < layers.size(); ++i) CHECK(layers[i] == info.groups[i].num_layers);
  }
}

}  // namespace
}  // namespace hearth::golden
