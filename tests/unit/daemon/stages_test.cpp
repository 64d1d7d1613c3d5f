// Layers divided among devices, and a plan compared with what the stages allocate.

#include "daemon/worker/load/stages.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/ops/elastic_memory.h"
#include "tests/golden/family_model.h"

namespace hearth::worker {
namespace {

using models::LayerRange;

/// A parsed file and the bytes it views.
struct FamilyFile {
  explicit FamilyFile(const std::string& name)
      : bytes(golden::read_family(name).file_bytes(kernels::DType::kQ8_0)),
        file(models::GgufFile::parse(bytes, name).value()) {
    file.set_fingerprint(name);
  }
  std::vector<std::byte> bytes;
  models::GgufFile file;
};

std::vector<int32_t> ends_of(const std::vector<uint64_t>& layers,
                             const std::vector<StageRoom>& rooms) {
  const auto divided = divide_layers(layers, rooms);
  REQUIRE_MESSAGE(divided.ok(), (divided.ok() ? "" : divided.error().message));
  std::vector<int32_t> ends;
  int32_t begin = 0;
  for (const LayerRange& range : *divided) {
    CHECK(range.first == begin);
    CHECK(range.end > range.first);
    ends.push_back(begin = range.end);
  }
  return ends;
}

TEST_CASE("layers are divided by threads, as far as budgets permit") {
  const std::vector<uint64_t> layers(12, 10);
  using Ends = std::vector<int32_t>;
  CHECK(ends_of(layers, {{"a"}, {"b"}}) == Ends{6, 12});
  CHECK(ends_of(layers, {{"a", 1}, {"b", 3}}) == Ends{3, 12});
  CHECK(ends_of(layers, {{"a", 1}, {"b", 100}}) == Ends{1, 12});
  CHECK(ends_of(layers, {{"a", 100}, {"b", 1}, {"c", 1}}) == Ends{10, 11, 12});
  CHECK(ends_of(layers, {{"a", 1, 45}, {"b"}}) == Ends{4, 12});
  CHECK(ends_of(layers, {{"a", 1, 45, 20}, {"b"}}) == Ends{2, 12});
  CHECK(ends_of(layers, {{"a"}, {"b", 1, 30}}) == Ends{9, 12});
  CHECK(ends_of(layers, {{"a", 1, 50}, {"b", 1, 40}, {"c", 1, 30}}) == Ends{5, 9, 12});
}

StageRoom gpu(uint64_t memory_bytes, uint64_t fixed_bytes = 0) {
  return {.device = "gpu",
          .memory_bytes = memory_bytes,
          .fixed_bytes = fixed_bytes,
          .own_memory = true,
          .bound_is_free = true};
}

TEST_CASE("GPUs before and after CPUs get as many layers as fit") {
  const std::vector<uint64_t> layers(12, 10);
  using Ends = std::vector<int32_t>;
  CHECK(ends_of(layers, {gpu(75), {"b"}}) == Ends{7, 12});
  CHECK(ends_of(layers, {gpu(75, 20), {"b", 100}}) == Ends{5, 12});
  CHECK(ends_of(layers, {gpu(1000), {"b"}}) == Ends{11, 12});
  CHECK(ends_of(layers, {{"a"}, gpu(75)}) == Ends{5, 12});
  CHECK(ends_of(layers, {gpu(35), gpu(25), {"c"}, {"d", 2}}) == Ends{3, 5, 7, 12});
  CHECK(ends_of(layers, {gpu(35), {"b"}, gpu(25)}) == Ends{3, 10, 12});
  CHECK(ends_of(layers, {gpu(500), gpu(500)}) == Ends{6, 12});
  CHECK(ends_of(layers, {gpu(500), gpu(40)}) == Ends{8, 12});
  const auto small = divide_layers(layers, std::vector<StageRoom>{gpu(5), {"b", 1, 105}});
  REQUIRE_FALSE(small.ok());
  CHECK(small.error().message ==
        "stages: the layers do not fit; gpu: layers 0 to 1 take 20 bytes, free are 5; b: layers 2 "
        "to 11 take 100 bytes, memory_bytes is 105; 15 bytes more would do");
}

TEST_CASE("layers that do not fit are refused with what fits") {
  const std::vector<uint64_t> layers(4, 10);
  const auto small = divide_layers(layers, std::vector<StageRoom>{{"a", 1, 15}, {"b", 1, 20}});
  REQUIRE_FALSE(small.ok());
  CHECK(small.error().code == ErrorCode::kOutOfMemory);
  CHECK(small.error().field == "stages");
  CHECK(small.error().message ==
        "stages: the layers do not fit; a: layers 0 to 1 take 20 bytes, memory_bytes is 15; b: "
        "layers 2 to 3 take 20 bytes, memory_bytes is 20; 5 bytes more would do");
  const auto many = divide_layers(layers, std::vector<StageRoom>(5));
  REQUIRE_FALSE(many.ok());
  CHECK(many.error().message == "stages: 5 devices, the model has 4 layers");
}

// An op table's functions have no state for a count.
uint64_t g_allocated = 0;
decltype(kernels::OpTable::allocate) g_allocate = nullptr;

kernels::OpTable counting_ops() {
  kernels::OpTable ops = kernels::cpu_ops({.num_threads = 1, .variant = ""}).value();
  g_allocate = ops.allocate;
  ops.allocate = [](void* state, size_t bytes) {
    g_allocated += bytes;
    return g_allocate(state, bytes);
  };
  return ops;
}

/// `kv_bytes` 0: not given.
engine::EngineConfig small_config(uint64_t kv_bytes = 0) {
  engine::EngineConfig config;
  config.kv_bytes = kv_bytes;
  config.context_length = 256;
  config.scheduler.max_seqs = 8;
  return config;
}

/// A model of counting_ops() takes the plan's bytes.
void check_activations(models::Model& model, const engine::MemoryPlan& plan) {
  g_allocated = 0;
  REQUIRE(model.reserve(plan.max_step_tokens, plan.max_outputs).ok());
  CHECK(g_allocated == plan.activation_bytes);
}

TEST_CASE("a plan in stages has the bytes that each stage takes") {
  for (const char* name : {"llama", "gemma3", "qwen3moe", "deepseek2", "qwen3next", "mamba"}) {
    CAPTURE(name);
    const FamilyFile owned(name);
    const engine::EngineConfig config = small_config(8 << 20);
    const std::vector<StageRoom> rooms = {{"left"}, {"right"}};
    const auto plan = plan_stages(owned.file, rooms, config, 0, uint64_t{1} << 30);
    REQUIRE_MESSAGE(plan.ok(), (plan.ok() ? "" : plan.error().message));
    std::vector<models::Stage> stages;
    for (size_t i = 0; i < rooms.size(); ++i) {
      stages.push_back({{rooms[i].device, counting_ops(), nullptr}, plan->layers[i]});
    }
    auto model = models::load_staged_model(owned.file, std::move(stages), nullptr);
    REQUIRE(model.ok());
    uint64_t weights = 0, kv = 0, other = 0;
    for (size_t i = 0; i < rooms.size(); ++i) {
      const ipc::StageUse& use = plan->uses[i];
      CHECK(use.weight_bytes == (*model)->info().stages[i].weight_bytes);
      CHECK(use.device == rooms[i].device);
      weights += use.weight_bytes;
      kv += use.kv_bytes;
      other += use.other_bytes;
    }
    CHECK(weights == (*model)->info().weight_bytes);
    CHECK(kv == plan->memory.kv_bytes);
    CHECK(weights + kv + other == weights + plan->memory.total_bytes());
    check_activations(**model, plan->memory);
  }
}

TEST_CASE("a budget bounds the KV of a plan in stages, and one that is too small is refused") {
  const FamilyFile owned("llama");
  engine::EngineConfig config = small_config();
  config.kv_floor_bytes = 0;
  std::vector<StageRoom> rooms = {{"left"}, {"right"}};
  const uint64_t free_bytes = uint64_t{1} << 30;
  const auto open = plan_stages(owned.file, rooms, config, 0, free_bytes);
  REQUIRE(open.ok());
  const ipc::StageUse& right = open->uses[1];
  rooms[1].memory_bytes = right.weight_bytes + right.other_bytes + right.kv_bytes / 2;
  const auto bounded = plan_stages(owned.file, rooms, config, 0, free_bytes);
  REQUIRE_MESSAGE(bounded.ok(), (bounded.ok() ? "" : bounded.error().message));
  CHECK(bounded->layers[1].first == open->layers[1].first);
  const ipc::StageUse& use = bounded->uses[1];
  CHECK(use.weight_bytes + use.other_bytes + use.kv_bytes <= rooms[1].memory_bytes);
  CHECK(bounded->engine.kv_bytes > open->memory.kv_bytes / 3);
  config.kv_bytes = open->memory.kv_bytes;
  const auto refused = plan_stages(owned.file, rooms, config, 0, free_bytes);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.starts_with("stages: the KV does not fit; left: layers 0 to "));
  CHECK(refused.error().message.find("; kv_bytes = ") != std::string::npos);
  rooms[0].memory_bytes = rooms[1].memory_bytes = 1000;
  CHECK_FALSE(plan_stages(owned.file, rooms, config, 0, free_bytes).ok());
}

TEST_CASE("a small model is divided in budgets below the least KV of larger ones") {
  const FamilyFile owned("llama");
  engine::EngineConfig config = small_config();
  std::vector<StageRoom> rooms = {{"left"}, {"right"}};
  for (StageRoom& room : rooms) room.memory_bytes = 4 << 20;
  const auto plan = plan_stages(owned.file, rooms, config, 0, uint64_t{1} << 30);
  REQUIRE_MESSAGE(plan.ok(), (plan.ok() ? "" : plan.error().message));
  CHECK(plan->memory.kv_bytes > 0);
  for (const ipc::StageUse& use : plan->uses) {
    CHECK(use.weight_bytes + use.kv_bytes + use.other_bytes <= use.budget_bytes);
  }
}

TEST_CASE("a plan in shares has the bytes that each share takes") {
  for (const char* name : {"llama", "gemma3", "starcoder2", "cohere2"}) {
    CAPTURE(name);
    const FamilyFile owned(name);
    const engine::EngineConfig config = small_config(8 << 20);
    const std::vector<StageRoom> rooms = {{"left"}, {"right"}};
    const auto plan = plan_split(owned.file, rooms, config, 0, uint64_t{1} << 30);
    REQUIRE_MESSAGE(plan.ok(), (plan.ok() ? "" : plan.error().message));
    auto model = models::load_split_model(
        owned.file, {{"left", counting_ops(), nullptr}, {"right", counting_ops(), nullptr}},
        nullptr);
    REQUIRE(model.ok());
    uint64_t kv = 0, other = 0;
    for (size_t i = 0; i < rooms.size(); ++i) {
      const ipc::StageUse& use = plan->uses[i];
      CHECK(use.weight_bytes == (*model)->info().stages[i].weight_bytes);
      CHECK(use.kv_bytes == plan->memory.kv_bytes / 2);
      CHECK(use.end_layer == (*model)->info().num_layers);
      kv += use.kv_bytes;
      other += use.other_bytes;
    }
    CHECK(kv + other == plan->memory.total_bytes());
    check_activations(**model, plan->memory);
  }
}

TEST_CASE("a model in shares that does not fit, or that cannot be split, is refused with numbers") {
  engine::EngineConfig config = small_config();
  config.kv_floor_bytes = 0;
  const FamilyFile owned("llama");
  std::vector<StageRoom> rooms = {{"left"}, {"right"}};
  const uint64_t free_bytes = uint64_t{1} << 30;
  const auto open = plan_split(owned.file, rooms, config, 0, free_bytes);
  REQUIRE(open.ok());
  const ipc::StageUse& right = open->uses[1];
  rooms[1].memory_bytes = right.weight_bytes + right.other_bytes + right.kv_bytes / 2;
  const auto bounded = plan_split(owned.file, rooms, config, 0, free_bytes);
  REQUIRE_MESSAGE(bounded.ok(), (bounded.ok() ? "" : bounded.error().message));
  CHECK(bounded->uses[1].kv_bytes <= right.kv_bytes / 2);
  rooms[1].memory_bytes = 1000;
  const auto small = plan_split(owned.file, rooms, config, 0, free_bytes);
  REQUIRE_FALSE(small.ok());
  CHECK(small.error().code == ErrorCode::kOutOfMemory);
  CHECK(small.error().message.starts_with(
      "split: the model does not fit; left: a share of layers 0 to "));
  CHECK(small.error().message.ends_with(", memory_bytes is 1000"));
  const auto many = plan_split(owned.file, std::vector<StageRoom>(9), config, 0, free_bytes);
  REQUIRE_FALSE(many.ok());
  CHECK(many.error().message.find("split: 9 devices, the model's layers have ") == 0);
  for (const auto& [name, why] :
       std::vector<std::pair<std::string, std::string>>{{"gemma3n", "several residual streams"},
                                                        {"qwen3moe", "mixture of experts"},
                                                        {"deepseek2", "latent attention"},
                                                        {"mamba", "layers with a state"}}) {
    const FamilyFile other(name);
    const auto plan = plan_split(other.file, std::vector<StageRoom>{{"a"}, {"b"}}, {}, 0, 1 << 30);
    REQUIRE_FALSE(plan.ok());
    CHECK(plan.error().code == ErrorCode::kUnsupported);
    CHECK(plan.error().field == "split");
    const bool found = plan.error().message.find(why) != std::string::npos ||
                       plan.error().message.find("mixture of experts") != std::string::npos;
    CHECK_MESSAGE(found, plan.error().message);
  }
}

TEST_CASE("what cannot be computed in stages is refused by name") {
  for (const auto& [name, why] : std::vector<std::pair<std::string, std::string>>{
           {"gemma3n", "several residual streams"}, {"gemma4", "per-layer embeddings"}}) {
    const FamilyFile owned(name);
    const auto plan = plan_stages(owned.file, std::vector<StageRoom>{{"a"}, {"b"}}, {}, 0, 1 << 30);
    REQUIRE_FALSE(plan.ok());
    CHECK(plan.error().code == ErrorCode::kUnsupported);
    CHECK(plan.error().message.find(why) != std::string::npos);
  }
}

}  // namespace
}  // namespace hearth::worker
