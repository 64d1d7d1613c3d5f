// The worker's engine thread on the shim: the device memory that it takes equals its plan, to the
// byte; what cannot be planned is measured, reported, and refused if it does not fit.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "daemon/worker/load/device.h"
#include "daemon/worker/serve/engine_thread.h"
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
Loaded load(size_t memory_bytes, size_t graph_bytes, uint64_t kv_bytes, uint64_t ram_bytes = 0) {
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
  shim::reset();
  shim::set_machine({.memory_bytes = memory_bytes, .graph_bytes = graph_bytes});
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
