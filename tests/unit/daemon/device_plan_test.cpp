#include "daemon/worker/load/device_plan.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <string>

#include "daemon/worker/load/device.h"
#include "daemon/worker/load/options.h"

using namespace hearth;          // NOLINT
using namespace hearth::worker;  // NOLINT

namespace {

/// Two layers of 2 KV heads of 64: a block of 16 tokens in f16 takes 16 KiB.
class Shape final : public models::Model {
 public:
  explicit Shape(int32_t context = 1024) {
    info_.context_length = context;
    info_.vocab_size = 1000;
    info_.groups = {{.num_layers = 2, .kv = kernels::KvShape::even(2, 64)}};
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
         room.reserved_bytes + room.scratch_bytes + room.draft_bytes;
}

}  // namespace

TEST_CASE("device plan: with much memory, pools take what is useful") {
  const DeviceRoom room{.free_bytes = uint64_t{1} << 40, .reserved_bytes = 7, .weight_bytes = 9};
  const auto fitted = fit_to_device(config_of(8), Shape(), room);
  REQUIRE(fitted.ok());
  CHECK(fitted->kv_bytes == 4 * 64 * kBlockBytes);  // half of eight full contexts
}

TEST_CASE("KV follows the model: a few full contexts, and a minimum of tokens") {
  const auto kv_blocks = [](int32_t context, int32_t max_seqs, uint64_t free_bytes) {
    Shape shape(context);
    return engine::plan_memory(config_of(max_seqs), shape, free_bytes)->kv_bytes / kBlockBytes;
  };
  constexpr uint64_t kPlenty = uint64_t{1} << 40;
  CHECK(kv_blocks(8192, 64, kPlenty) == 4 * 8192 / 16);
  CHECK(kv_blocks(131'072, 64, kPlenty) == 4 * 131'072 / 16);
  CHECK(kv_blocks(1024, 64, kPlenty) == 32 * 1024 / 16);
  CHECK(kv_blocks(1024, 8, kPlenty) == 4 * 1024 / 16);  // half of what eight can use
  // And no more than a quarter of free memory, except for one full context.
  CHECK(kv_blocks(8192, 64, 4000 * kBlockBytes) == 1000);
  CHECK(kv_blocks(8192, 64, 1200 * kBlockBytes) == 512);
}

TEST_CASE("device plan: scarce memory is used to the block and never exceeded") {
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
  CHECK(message.find("reserved for driver and graphs 3145728") != std::string::npos);
  CHECK(message.find("nothing would, however small") != std::string::npos);
  CHECK(message.find("draft") == std::string::npos);
  // Room for a part of it: the error names what would fit.
  config.context_length = 1024;
  room = {.free_bytes = 0,
          .reserved_bytes = 3 * kMiB,
          .weight_bytes = 50 * kMiB,
          .scratch_bytes = kMiB,
          .draft_bytes = 2 * kMiB};
  room.free_bytes = total(config, room) - 60 * kBlockBytes;
  refused = fit_to_device(config, Shape(), room);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("scratch 1048576, the draft model 2097152") !=
        std::string::npos);
  const size_t would = refused.error().message.find("; kv_bytes = ");
  REQUIRE(would != std::string::npos);
  const uint64_t fits = std::stoull(refused.error().message.substr(would + 13));
  CHECK(refused.error().message.substr(would) ==
        fmt::format("; kv_bytes = {} would, for a context of {} tokens", fits, 40 * 16));
  engine::EngineConfig less = config;
  less.kv_bytes = fits;
  CHECK(fit_to_device(less, Shape(), room).ok());
  ++less.kv_bytes;
  less.kv_bytes += kBlockBytes;
  CHECK_FALSE(fit_to_device(less, Shape(), room).ok());
  config = config_of(64);
  config.kv_bytes = 100 * kBlockBytes;
  room = {.free_bytes = 0, .reserved_bytes = 3 * kMiB, .weight_bytes = 70 * kMiB};
  // Exactly the requested bytes, or an error.
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

TEST_CASE("device plan: memory that other programs took, and when it is too much") {
  DeviceBill bill{.free_before_bytes = 1000 * kMiB,
                  .planned_bytes = 800 * kMiB,
                  .reserved_bytes = 150 * kMiB,
                  .free_after_bytes = 90 * kMiB,
                  .graph_bytes = 70 * kMiB};
  CHECK(bill.taken_bytes() == 110 * kMiB);
  CHECK(check_reserve(bill).ok());
  bill.free_after_bytes = 20 * kMiB;  // 30 more than was reserved, and some is left
  CHECK(bill.taken_bytes() == 180 * kMiB);
  CHECK(check_reserve(bill).ok());
  bill.free_after_bytes = 5 * kMiB;
  const Result<void> full = check_reserve(bill);
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().code == ErrorCode::kOutOfMemory);
  CHECK(full.error().message.find(
            fmt::format("{} bytes were taken in addition to the plan, {} of them by "
                        "captured steps",
                        195 * kMiB, 70 * kMiB)) != std::string::npos);
  CHECK(full.error().message.find(fmt::format("where {} were reserved, and {} are left", 150 * kMiB,
                                              5 * kMiB)) != std::string::npos);
  CHECK(full.error().message.find(fmt::format("at least {} less", 61 * kMiB)) != std::string::npos);
  // Captured steps without memory, though the driver has some.
  bill.free_after_bytes = 90 * kMiB;
  bill.graphs_refused = 2;
  CHECK_FALSE(check_reserve(bill).ok());
  // Another program has freed memory meanwhile.
  bill.graphs_refused = 0;
  bill.free_after_bytes = 500 * kMiB;
  CHECK(bill.taken_bytes() == 0);
  CHECK(check_reserve(bill).ok());
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
