#include "daemon/worker/device_plan.h"

#include <doctest/doctest.h>

#include "daemon/worker/device.h"
#include "daemon/worker/options.h"

using namespace hearth;          // NOLINT
using namespace hearth::worker;  // NOLINT

namespace {

/// Two layers of 2 KV heads of 64: a block of 16 tokens in f16 takes 16 KiB.
class Shape final : public models::Model {
 public:
  Shape() {
    info_.context_length = 1024;
    info_.vocab_size = 1000;
    info_.groups = {{.num_layers = 2, .num_kv_heads = 2, .head_dim = 64}};
  }
  const models::ModelInfo& info() const override { return info_; }
  uint64_t activation_bytes(int32_t, int32_t) const override { return 1 << 20; }
  Result<void> reserve(int32_t, int32_t) override { return {}; }
  void forward(const models::StepArgs&) override {}

 private:
  models::ModelInfo info_;
};

constexpr uint64_t kBlockBytes = 16 << 10;
constexpr uint64_t kMiB = 1 << 20;

engine::EngineConfig config_of(int32_t max_seqs) {
  engine::EngineConfig config;
  config.scheduler.max_seqs = max_seqs;
  return config;
}

uint64_t total(const engine::EngineConfig& config, const DeviceRoom& room) {
  return engine::plan_memory(config, Shape(), 0)->total_bytes() + room.weight_bytes +
         room.reserved_bytes;
}

}  // namespace

TEST_CASE("device plan: pools take what is useful where there is plenty") {
  const DeviceRoom room{.free_bytes = uint64_t{1} << 40, .reserved_bytes = 7, .weight_bytes = 9};
  const auto fitted = fit_to_device(config_of(8), Shape(), room);
  REQUIRE(fitted.ok());
  CHECK(fitted->kv_bytes == 4 * 64 * kBlockBytes);  // half of eight full contexts
}

TEST_CASE("device plan: what is scarce is used to the block, and never exceeded") {
  DeviceRoom room{.free_bytes = 0, .reserved_bytes = 3 * kMiB, .weight_bytes = 50 * kMiB};
  engine::EngineConfig one = config_of(64);
  one.kv_bytes = kBlockBytes;
  const uint64_t least = total(one, room);
  room.free_bytes = least + 10 * kBlockBytes + kBlockBytes - 1;
  const auto fitted = fit_to_device(config_of(64), Shape(), room);
  REQUIRE(fitted.ok());
  const engine::MemoryPlan plan = *engine::plan_memory(*fitted, Shape(), 0);
  CHECK(plan.groups[0].num_blocks == 11);
  CHECK(total(*fitted, room) <= room.free_bytes);
  CHECK(total(*fitted, room) + kBlockBytes > room.free_bytes);

  room.free_bytes = least;
  REQUIRE(fit_to_device(config_of(64), Shape(), room).ok());
  room.free_bytes = least - 1;
  auto refused = fit_to_device(config_of(64), Shape(), room);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kOutOfMemory);
}

TEST_CASE("device plan: a refusal names the parts") {
  engine::EngineConfig config = config_of(64);
  config.kv_bytes = 100 * kBlockBytes;
  DeviceRoom room{.free_bytes = 60 * kMiB, .reserved_bytes = 3 * kMiB, .weight_bytes = 70 * kMiB};
  auto refused = fit_to_device(config, Shape(), room);
  REQUIRE_FALSE(refused.ok());
  const std::string message = refused.error().message;
  CHECK(message.find("has 62914560 bytes free") != std::string::npos);
  CHECK(message.find("weights 73400320") != std::string::npos);
  CHECK(message.find("KV blocks 1638400") != std::string::npos);
  CHECK(message.find("driver and scratch 3145728") != std::string::npos);
  // As many bytes as were asked for, or none.
  room.free_bytes = total(config, room);
  CHECK(fit_to_device(config, Shape(), room)->kv_bytes == config.kv_bytes);
}

TEST_CASE("numerics are exact or fast, on a CPU as well") {
  CHECK(*parse_numerics("exact") == kernels::Numerics::kExact);
  CHECK(*parse_numerics("fast") == kernels::Numerics::kFast);
  for (const char* bad : {"", "Fast", "faster"}) {
    const auto refused = parse_numerics(bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().field == "numerics");
    DeviceOptions options;
    options.numerics = bad;
    CHECK_FALSE(open_device(options).ok());
  }
  DeviceOptions options;
  const auto exact = open_device(options);
  options.numerics = "fast";
  const auto fast = open_device(options);
  REQUIRE((exact.ok() && fast.ok()));
  CHECK(fast->numerics_id == exact->numerics_id);
}

TEST_CASE("a device is named cuda:N") {
  CHECK(*parse_cuda_device("auto") == 0);
  CHECK(*parse_cuda_device("cuda:12") == 12);
  for (const char* bad :
       {"cpu", "cuda", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "gpu:0"}) {
    CAPTURE(bad);
    const auto refused = parse_cuda_device(bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::kInvalidArgument);
    CHECK(refused.error().field == "device");
  }
}
