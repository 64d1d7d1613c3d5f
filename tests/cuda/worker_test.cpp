// The worker's engine thread on the shim: the device memory that it takes equals its plan, to the
// byte; what cannot be planned is measured, reported, and refused if it does not fit.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/worker/load/device.h"
#include "daemon/worker/serve/engine_thread.h"
#include "kernels/cuda/op_table.h"
#include "models/random_model.h"
#include "tests/cuda/shim/shim.h"
#include "tests/e2e/tiny_model.h"
#include "tests/temp_dir.h"

using namespace hearth;          // NOLINT
using namespace hearth::worker;  // NOLINT

namespace {

constexpr size_t kGraphBytes = 300'000;

struct Loaded {
  std::optional<LoadPlan> plan;
  std::optional<ipc::DeviceMemory> memory;
  std::optional<Error> error;
  size_t bytes_in_use = 0;
};

/// Loads a small model on the shim, with this much memory, until it serves or reports an error.
/// `change`: of the usual options.
Loaded load(size_t memory_bytes, size_t graph_bytes, uint64_t kv_bytes, uint64_t ram_bytes = 0,
            const std::function<void(ServeOptions*)>& change = nullptr) {
  const tests::TempDir folder;
  ServeOptions options;
  options.model = folder.path() / "tiny.gguf";
  e2e::write_tiny_model(options.model, 1);
  options.device.device = "cuda:0";
  options.engine.context_length = 64;
  options.engine.kv_bytes = kv_bytes;
  options.engine.scheduler.max_seqs = 3;
  options.engine.scheduler.max_step_tokens = 16;
  options.prefix_ram_bytes = ram_bytes;
  if (change) change(&options);
  shim::reset();
  shim::set_machine({.device_count = 2, .memory_bytes = memory_bytes, .graph_bytes = graph_bytes});
  const SteadyClock clock;
  Loaded out;
  {
    EngineThread thread(options, clock);
    bool ended = false;
    while (!ended) {
      for (LoadMessage& message : thread.messages().wait_and_drain(std::chrono::seconds(1))) {
        if (const auto* plan = std::get_if<LoadPlan>(&message)) out.plan = *plan;
        if (auto* error = std::get_if<Error>(&message)) {
          out.error = std::move(*error);
          ended = true;
        }
        if (const auto* loaded = std::get_if<EngineLoaded>(&message)) {
          out.memory = loaded->device_memory;
          out.bytes_in_use = shim::bytes_in_use();
          ended = true;
        }
      }
    }
  }
  CHECK(shim::bytes_in_use() == 0);
  shim::set_machine({});
  return out;
}

constexpr size_t kPlenty = size_t{1} << 30;
constexpr uint64_t kKvBytes = 1 << 20;

/// What a table takes of its device when it is made.
size_t table_bytes() {
  shim::reset();
  shim::set_machine({});
  const auto ops = kernels::cuda_ops({});
  return shim::bytes_in_use();
}

}  // namespace

TEST_CASE("cuda worker: kernels are loaded before free memory is read") {
  ::unsetenv("CUDA_MODULE_LOADING");
  REQUIRE(load(kPlenty, 0, kKvBytes).memory.has_value());
  CHECK(std::string(std::getenv("CUDA_MODULE_LOADING")) == "EAGER");
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 1);  // an administrator's own
  REQUIRE(load(kPlenty, 0, kKvBytes).memory.has_value());
  CHECK(std::string(std::getenv("CUDA_MODULE_LOADING")) == "LAZY");
  ::unsetenv("CUDA_MODULE_LOADING");
  // Fast mode opens cuBLASLt, whose kernels are many.
  DeviceOptions fast;
  fast.device = "cuda:0";
  fast.numerics = "fast";
  CHECK_FALSE(describe_device(fast).empty());
  CHECK(std::getenv("CUDA_MODULE_LOADING") == nullptr);
}

TEST_CASE("cuda worker: allocations equal the plan to the byte; graphs are measured") {
  const Loaded plain = load(kPlenty, 0, kKvBytes);
  REQUIRE(plain.plan.has_value());
  REQUIRE(plain.memory.has_value());
  CHECK(plain.memory->planned_bytes > kKvBytes);
  CHECK(plain.memory->taken_bytes == 0);
  CHECK(plain.memory->graph_bytes == 0);
  CHECK(plain.memory->reserved_bytes == *reserved_bytes());
  CHECK(plain.plan->device_free_bytes - (kPlenty - plain.bytes_in_use) ==
        plain.memory->planned_bytes);
  const Loaded captured = load(kPlenty, kGraphBytes, kKvBytes);
  REQUIRE(captured.memory.has_value());
  CHECK(captured.memory->planned_bytes == plain.memory->planned_bytes);
  CHECK(captured.memory->graph_bytes >= kGraphBytes);
  CHECK(captured.memory->graph_bytes % kGraphBytes == 0);
  CHECK(captured.memory->taken_bytes == captured.memory->graph_bytes);
}

TEST_CASE(
    "cuda worker: a plan that does not fit is refused with one that would; so is a full device") {
  const Loaded plain = load(kPlenty, 0, kKvBytes);
  REQUIRE(plain.plan.has_value());
  // The ops' own scratch is taken before the plan is made.
  const size_t whole = plain.bytes_in_use + *reserved_bytes();
  REQUIRE(load(whole, 0, kKvBytes).memory.has_value());
  const Loaded refused = load(whole - 1, 0, kKvBytes);
  REQUIRE(refused.error.has_value());
  CHECK(refused.error->code == ErrorCode::kOutOfMemory);
  const std::string would =
      "; kv_bytes = " + std::to_string(plain.plan->kv_bytes - 1) + " would, for a context of ";
  CHECK_MESSAGE(refused.error->message.find(would) != std::string::npos, refused.error->message);
  const Loaded hopeless = load(whole - 2 * kKvBytes, 0, kKvBytes);
  REQUIRE(hopeless.error.has_value());
  CHECK(hopeless.error->message.find("; nothing would, however small") != std::string::npos);
  // Captured steps take more than was reserved, and the device has no other memory.
  const Loaded full = load(whole, *reserved_bytes() / 2, kKvBytes);
  REQUIRE(full.error.has_value());
  CHECK(full.error->code == ErrorCode::kOutOfMemory);
  CHECK_MESSAGE(full.error->message.find("the device is full") == 0, full.error->message);
  // With enough memory it serves, and reports what was taken.
  const Loaded roomy = load(16 * kPlenty, *reserved_bytes() / 2, kKvBytes);
  REQUIRE(roomy.memory.has_value());
  CHECK(roomy.memory->taken_bytes > roomy.memory->reserved_bytes);
}

TEST_CASE("cuda worker: its use of host memory is planned") {
  CHECK(load(kPlenty, 0, kKvBytes).plan->host_bytes == 0);
  CHECK(load(kPlenty, 0, kKvBytes, 12345).plan->host_bytes == 12345);
}

namespace {

/// Loads it in stages on these kinds of devices, which are their names.
Loaded load_in_stages(size_t memory_bytes, const std::vector<std::string>& kinds,
                      uint64_t first_bytes = 0, bool spare = false) {
  return load(memory_bytes, 0, spare ? 0 : kKvBytes, 0, [&](ServeOptions* options) {
    for (const std::string& kind : kinds) {
      options->stages.push_back({.device = kind, .kind = kind, .threads = kind == "cpu" ? 1 : 0});
    }
    options->stages.front().memory_bytes = first_bytes;
    options->spare_stages = spare;
  });
}

uint64_t bytes_of(const ipc::StageUse& use) {
  return use.weight_bytes + use.kv_bytes + use.other_bytes;
}

}  // namespace

TEST_CASE("cuda worker: a stage takes the bytes of its plan on its own device") {
  for (const std::vector<std::string>& kinds : std::vector<std::vector<std::string>>{
           {"cuda:0", "cpu"}, {"cpu", "cuda:1"}, {"cuda:0", "cuda:1"}}) {
    const Loaded loaded = load_in_stages(kPlenty, kinds);
    REQUIRE_MESSAGE(!loaded.error, loaded.error->message);
    REQUIRE(loaded.plan->stages.size() == 2);
    uint64_t planned = 0, gpus = 0;
    for (size_t i = 0; i < kinds.size(); ++i) {
      const ipc::StageUse& use = loaded.plan->stages[i];
      CHECK(use.device == kinds[i]);
      CHECK(use.end_layer > use.first_layer);
      CHECK(use.kv_bytes > 0);
      if (kinds[i] == "cpu") continue;
      ++gpus;
      planned += bytes_of(use) - *reserved_bytes();
    }
    // A table's own scratch is taken before the plan is made.
    CHECK(loaded.bytes_in_use == planned + gpus * table_bytes());
    CHECK((loaded.plan->host_bytes > 0) == (gpus == 2));
  }
}

TEST_CASE("cuda worker: stages that may be spared are, if the first device has all layers") {
  const Loaded roomy = load_in_stages(kPlenty, {"cuda:0", "cpu"}, 0, true);
  REQUIRE_MESSAGE(!roomy.error, roomy.error->message);
  REQUIRE(roomy.plan->stages.size() == 1);
  CHECK(roomy.plan->stages[0].device == "cuda:0");
  CHECK(roomy.plan->stages[0].end_layer == 2);
  CHECK(roomy.memory.has_value());  // as on one device
  // With a byte less the layers are divided: by their weights, as the least KV is larger than this
  // model's.
  const uint64_t bytes = roomy.plan->weight_bytes + roomy.plan->other_bytes - 1;
  const Loaded tight = load_in_stages(kPlenty, {"cuda:0", "cpu"}, bytes, true);
  REQUIRE_MESSAGE(!tight.error, tight.error->message);
  REQUIRE(tight.plan->stages.size() == 2);
  CHECK(tight.plan->stages[0].end_layer == 1);
  CHECK(tight.plan->stages[1].end_layer == 2);
  CHECK(bytes_of(tight.plan->stages[0]) <= bytes);
}

TEST_CASE("cuda worker: experts on the CPU take none of the GPU's memory") {
  const tests::TempDir folder;
  const auto shape = models::find_shape("gpt-oss-tiny");
  REQUIRE(shape.ok());
  const auto model = models::RandomModel::create(*shape, "MXFP4", 1);
  REQUIRE(model.ok());
  const std::filesystem::path path = folder.path() / "moe.gguf";
  REQUIRE(models::write_random_model(*model, path, 1, {}).ok());
  const auto load_moe = [&](bool apart, uint64_t gpu_bytes, uint64_t cpu_bytes) {
    return load(kPlenty, 0, kKvBytes, 0, [&](ServeOptions* options) {
      options->model = path;
      if (!apart) return;
      options->stages = {{.device = "cuda:0", .kind = "cuda:0", .memory_bytes = gpu_bytes},
                         {.device = "cpu", .kind = "cpu", .threads = 1, .memory_bytes = cpu_bytes}};
      options->experts_apart = true;
    });
  };
  const Loaded whole = load_moe(false, 0, 0);
  const Loaded apart = load_moe(true, 0, 0);
  REQUIRE_MESSAGE(!apart.error, apart.error->message);
  REQUIRE(apart.plan->stages.size() == 2);
  const ipc::StageUse& gpu = apart.plan->stages[0];
  const ipc::StageUse& cpu = apart.plan->stages[1];
  CHECK(cpu.experts);
  CHECK(gpu.weight_bytes + cpu.weight_bytes == apart.plan->weight_bytes);
  CHECK(cpu.weight_bytes > whole.plan->weight_bytes / 4);
  CHECK(gpu.weight_bytes < whole.plan->weight_bytes);
  CHECK(apart.memory->taken_bytes == 0);
  CHECK(apart.bytes_in_use == bytes_of(gpu) - *reserved_bytes() + table_bytes());
  for (const bool first : {true, false}) {
    const Loaded refused = load_moe(true, first ? 1000 : 0, first ? 0 : 1000);
    REQUIRE(refused.error.has_value());
    CHECK(refused.error->message.find(first ? "experts: cuda:0: weights "
                                            : "experts: cpu: weights ") == 0);
    CHECK(refused.error->message.find("memory_bytes is 1000") != std::string::npos);
  }
}

TEST_CASE("cuda worker: a stage on a device that is not there, or too small, is refused") {
  const Loaded absent = load_in_stages(kPlenty, {"cpu", "cuda:5"});
  REQUIRE(absent.error.has_value());
  CHECK(absent.error->message.find("stage cuda:5: CUDA device 5: this machine has 2") == 0);
  const Loaded small = load_in_stages(kPlenty, {"cuda:0", "cpu"}, 1000);
  REQUIRE(small.error.has_value());
  CHECK(small.error->code == ErrorCode::kOutOfMemory);
  CHECK(small.error->message.find("stages: the layers do not fit; cuda:0: layers 0 to 0 take ") ==
        0);
  CHECK(small.error->message.find("memory_bytes is 1000") != std::string::npos);
}
