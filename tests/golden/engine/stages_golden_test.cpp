// A model in stages gives the tokens of the model on one device: alone, batched, at any chunk size,
// with its prefix cached, preempted, with drafts. Every family, or a refusal by name.

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/kv/memory_plan.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/replay_proposer.h"
#include "models/staged_model.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

constexpr int32_t kVocab = 128;

EngineConfig usual_config() {
  EngineConfig config;
  config.kv_bytes = 8 << 20;
  config.speculation.enabled = false;
  config.context_length = 256;
  config.scheduler.max_seqs = 8;
  return config;
}

Request request_of(RequestId id, int32_t prompt_size, uint32_t seed) {
  Request request;
  request.id = id;
  request.owner = request.cache_salt = "uid:1000";
  request.prompt = random_tokens(prompt_size, kVocab, seed);
  request.max_tokens = 16;
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 0.9f;
  request.sampling.seed = seed;
  return request;
}

using Tokens = std::vector<std::vector<int32_t>>;

/// Engines with one file in stages, and what the model on one device answers.
struct Staged {
  const models::GgufFile& file;
  const NamedTable& table;
  int32_t stages;

  EngineRun run(const EngineConfig& config, std::unique_ptr<Proposer> proposer = nullptr) const {
    auto model = load_in_stages(file, table, stages);
    REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
    return EngineRun(std::move(model).value(), table.ops, config, std::move(proposer));
  }
};

void check_chunks(const Staged& staged, const Request& request, const Tokens& want) {
  for (const int32_t chunk : {1, 7, 33, 512}) {
    CAPTURE(chunk);
    EngineConfig config = usual_config();
    config.scheduler.max_step_tokens = chunk;
    CHECK(staged.run(config).ask(request).tokens == want);
  }
  EngineConfig whole = usual_config();
  whole.scheduler.chunked_prefill = false;
  CHECK(staged.run(whole).ask(request).tokens == want);
}

void check_batched_and_cached(const Staged& staged, const Request& request, const Tokens& want) {
  EngineRun run = staged.run(usual_config());
  for (RequestId id = 2; id <= 6; ++id) {
    run.submit(request_of(id, static_cast<int32_t>(17 * id), static_cast<uint32_t>(id + 10)));
    if (id == 4) run.submit(request);
    run.step();
  }
  run.run_until_idle();
  CHECK(run.answer(1).tokens == want);
  Request again = request;
  again.id = 7;
  const EngineAnswer cached = run.ask(again);
  CHECK(cached.cached_tokens > 0);
  CHECK(cached.tokens == want);
}

void check_preempted(const Staged& staged, const Request& request, const Tokens& want) {
  EngineConfig single = usual_config();
  single.scheduler.max_seqs = 1;
  EngineRun run = staged.run(single);
  Request batch = request;
  batch.priority = Priority::kBatch;
  run.submit(batch);
  while (run.answer(1).tokens.back().size() < 5) run.step();
  Request urgent = request_of(2, 20, 77);
  urgent.priority = Priority::kInteractive;
  run.submit(urgent);
  run.run_until_idle();
  CHECK(run.answer(1).preemptions > 0);
  CHECK(run.answer(1).tokens == want);
}

// A cancelled prompt's rows may still be on their way when its blocks are taken again.
void check_after_cancel(const Staged& staged, const Request& request, const Tokens& want) {
  EngineConfig small = usual_config();
  small.scheduler.max_step_tokens = 64;
  small.prefix_cache = false;
  EngineRun run = staged.run(small);
  run.submit(request_of(2, 200, 5));
  run.step();
  run.post(CancelRequest{2});
  run.step();
  CHECK(run.ask(request).tokens == want);
}

void check_drafts(const Staged& staged, const Request& request, const Tokens& want) {
  auto proposer = std::make_unique<ReplayProposer>(
      std::vector<bool>{true, true, false, true, true, true, false, true}, kVocab);
  proposer->know(1, 0, want.front());
  EngineConfig wide = usual_config();
  wide.speculation.enabled = true;
  wide.speculation.fixed_width = 4;
  EngineRun run = staged.run(wide, std::move(proposer));
  Request other = request_of(2, 70, 8);
  other.sampling.logit_bias = {{5, 50.0f}, {6, 50.0f}};  // lookup drafts what repeats
  run.submit(other);
  run.submit(request);
  run.run_until_idle();
  CHECK(run.answer(1).tokens == want);
  CHECK(run.engine().snapshot().speculation.accepted_tokens > 0);
}

void check_stages(const Staged& staged) {
  INFO(staged.table.name << " in " << staged.stages << " stages");
  const Request request = request_of(1, 150, 3);
  const Tokens want = EngineRun(staged.file, staged.table.ops, usual_config()).ask(request).tokens;
  check_chunks(staged, request, want);
  check_batched_and_cached(staged, request, want);
  check_preempted(staged, request, want);
  check_after_cancel(staged, request, want);
  check_drafts(staged, request, want);
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
    check_stages({owned.file, fastest, 2});
  }
  CHECK(refused ==
        std::vector<std::string>{"arwkv7", "arwkv7_plain", "gemma3n", "gemma4", "rwkv7"});
}

TEST_CASE("stages: three stages on every table") {
  LlamaShape shape;
  shape.layers = 5;
  shape.vocab = kVocab;
  const RandomLlama model(shape, 3);
  const OwnedFile owned(model.file_bytes(DType::kQ8_0));
  for (const NamedTable& table : all_tables()) {
    if (table.name == "reference" && !tests::full_counts()) continue;
    check_stages({owned.file, table, 3});
  }
}

TEST_CASE("stages: a draft model in the first stage's table") {
  LlamaShape shape;
  shape.vocab = kVocab;
  const OwnedFile owned(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  const NamedTable table = all_tables().back();
  const Request request = request_of(1, 90, 3);
  const Tokens want = EngineRun(owned.file, table.ops, usual_config()).ask(request).tokens;
  EngineConfig drafted = usual_config();
  drafted.speculation.enabled = true;
  drafted.speculation.lookup = false;
  drafted.speculation.fixed_width = 4;
  SteadyClock clock;
  auto loaded = models::load_model(owned.file, table.ops, nullptr);
  REQUIRE(loaded.ok());
  const models::ModelInfo info = (*loaded)->info();
  auto draft = DraftModel::create(drafted, info, table.ops, std::move(loaded).value(), clock);
  REQUIRE(draft.ok());
  EngineRun run = Staged{owned.file, table, 2}.run(drafted, std::move(draft).value());
  CHECK(run.ask(request).tokens == want);
  CHECK(run.engine().snapshot().speculation.accepted_tokens > 0);
}

TEST_CASE("stages: rows after the last norm, for embeddings, of a step in several pieces") {
  LlamaShape shape;
  shape.vocab = kVocab;
  const OwnedFile owned(RandomLlama(shape, 3).file_bytes(DType::kQ8_0));
  const NamedTable table = all_tables().back();
  const auto vector_of = [&](std::unique_ptr<models::Model> model) {
    EngineConfig config = usual_config();
    const SteadyClock clock;
    auto made = Engine::create(config, table.ops, std::move(model), clock);
    REQUIRE(made.ok());
    Request request = request_of(1, 100, 2);
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
