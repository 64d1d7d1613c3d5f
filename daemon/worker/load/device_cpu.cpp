#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/worker/load/device.h"
#include "kernels/base/numbers.h"
#include "kernels/host/thread_pool.h"
#include "kernels/ops/packed_bytes.h"

namespace hearth::worker {
namespace {

std::string gib(uint64_t bytes) { return fmt::format("{:.1f} GiB", as_double(bytes) / (1u << 30)); }

kernels::CpuOptions to_kernels(const DeviceOptions& options) {
  return {.num_threads = options.threads,
          .variant = options.cpu_variant,
          .most_packed_bytes = options.most_weight_bytes()};
}

}  // namespace

std::string_view device_kind() { return "cpu"; }

Result<kernels::OpTable> open_device(const DeviceOptions& options, kernels::Packing packing) {
  if (options.device != "auto" && options.device != "cpu") {
    return Error::invalid(
        fmt::format("--device {}: hearth-worker-cpu computes on the CPU, want auto or cpu",
                    options.device),
        "device");
  }
  HEARTH_TRY(parse_numerics(options.numerics));  // a CPU's exact products are already its fastest
  HEARTH_TRY(parse_mapping(options.mapping));
  // A file that does not fit into memory is read once, front to back.
  if (options.mapping == "file") packing = kernels::Packing::kAtOnce;
  return kernels::cpu_ops(to_kernels(options), packing);
}

Result<kernels::Ceilings> measure_device(const kernels::OpTable& ops, size_t read_bytes) {
  // A separate pool; that of the ops is idle meanwhile.
  kernels::ThreadPool pool(ops.device.num_threads);
  return kernels::measure_ceilings(pool, ops.device.variant, read_bytes);
}

uint64_t packed_bytes(std::span<const kernels::HostTensor> tensors, kernels::WeightRole role) {
  return kernels::cpu_packed_bytes(tensors, role);
}

uint64_t PackingMeter::add(std::span<const kernels::HostTensor> tensors, kernels::WeightRole role) {
  return packed_bytes(tensors, role);
}

std::optional<uint64_t> reserved_bytes() { return std::nullopt; }

std::optional<DeviceUse> device_use(const kernels::OpTable&) { return std::nullopt; }

ReadGpu gpu_reader(const DeviceOptions&) { return nullptr; }

std::vector<DeviceCheck> describe_device(const DeviceOptions& options) {
  const std::string variants = fmt::format("{}", fmt::join(kernels::cpu_variants(), ", "));
  const Result<kernels::OpTable> ops = open_device(options);
  if (!ops) return {{"fail", "device", ops.error().message}};
  const kernels::DeviceInfo& device = ops->device;
  return {
      {"ok", "device", fmt::format("{}: {}", device.kind, device.name)},
      {device.variant == "plain" ? "warn" : "ok", "code path",
       fmt::format("{}, {}; this CPU can run {}", device.variant,
                   options.cpu_variant.empty() ? "the best there is" : "as asked", variants)},
      {"ok", "threads",
       fmt::format("{}, {}", device.num_threads,
                   options.threads == 0 ? "one per physical core that may be used" : "as asked")},
      {"ok", "device memory",
       fmt::format("{} free of {}", gib(device.memory_free_bytes), gib(device.memory_bytes))},
      {"ok", "numerics",
       fmt::format("{}: devices of equal name compute equal bits", ops->numerics_id)},
  };
}

}  // namespace hearth::worker
