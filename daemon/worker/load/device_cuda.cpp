#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "daemon/worker/load/device.h"
#include "daemon/worker/observe/nvml.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"
#include "kernels/cuda/host/ceilings.h"
#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/op_table.h"

namespace hearth::worker {
namespace {

/// For captured steps and the driver's own allocations. Never measured on a device: loading a model
/// logs how much of it was used.
constexpr uint64_t kReservedBytes = uint64_t{192} << 20;

std::string gib(uint64_t bytes) { return fmt::format("{:.1f} GiB", as_double(bytes) / (1u << 30)); }

std::string version_text(int32_t version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<kernels::CudaOptions> to_kernels(const DeviceOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const int32_t ordinal, parse_cuda_device(options.device));
  HEARTH_ASSIGN_OR_RETURN(const kernels::Numerics numerics, parse_numerics(options.numerics));
  // Load all kernels when the device is opened: a kernel loaded on first use would take memory that
  // the plan has assigned by then. Not in fast mode, where that would load all of cuBLASLt's, too.
  // An administrator's own setting is kept.
  if (numerics == kernels::Numerics::kExact) ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  return kernels::CudaOptions{.device = ordinal,
                              .numerics = numerics,
                              .unconfirmed = ::getenv("HEARTH_CUDA_UNCONFIRMED") != nullptr};
}

/// Whether `fast` is available and in use.
DeviceCheck describe_fast(const kernels::CudaOptions& cuda, const kernels::OpTable& ops) {
  if (!ops.device.notice.empty()) return {"warn", "fast numerics", ops.device.notice};
  const Result<kernels::CublasLt> library = kernels::open_cublaslt();
  const bool fast = cuda.numerics == kernels::Numerics::kFast;
  if (!library.ok()) {
    return {"ok", "fast numerics", fmt::format("unavailable: {}", library.error().message)};
  }
  return {"ok", "fast numerics",
          fmt::format("{}, {}", library->name,
                      fast ? "in use: rows depend on their batch" : "not asked for")};
}

Result<std::vector<DeviceCheck>> describe(const DeviceOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const kernels::CudaOptions cuda, to_kernels(options));
  HEARTH_ASSIGN_OR_RETURN(const kernels::CudaDevice device, kernels::cuda_probe(cuda));
  HEARTH_ASSIGN_OR_RETURN(const kernels::OpTable ops, kernels::cuda_ops(cuda));
  return std::vector<DeviceCheck>{
      {"ok", "device", fmt::format("cuda:{}: {}", cuda.device, device.name)},
      {"ok", "code path",
       fmt::format("compute capability {}.{}; the driver supports CUDA {}, this build has {}",
                   device.compute_major, device.compute_minor, version_text(device.driver_version),
                   version_text(device.runtime_version))},
      {"ok", "device memory",
       fmt::format("{} free of {}", gib(device.memory_free_bytes), gib(device.memory_bytes))},
      {"ok", "condition", gpu_condition(device.pci_bus_id)},
      {"ok", "numerics",
       fmt::format("{}: devices of equal name compute equal bits", ops.numerics_id)},
      {"ok", "kernels",
       cuda.unconfirmed ? "also those that no device has run yet (HEARTH_CUDA_UNCONFIRMED is set)"
                        : "those that ran on a device; HEARTH_CUDA_UNCONFIRMED=1 adds others"},
      describe_fast(cuda, ops),
  };
}

}  // namespace

std::string_view device_kind() { return "cuda"; }

Result<kernels::OpTable> open_device(const DeviceOptions& options, kernels::Packing) {
  HEARTH_TRY(parse_mapping(options.mapping));
  if (options.mapping == "file") {
    return Error::invalid(
        "--mapping file: only a CPU reads weights from the file, a GPU holds them", "mapping");
  }
  HEARTH_ASSIGN_OR_RETURN(const kernels::CudaOptions cuda, to_kernels(options));
  HEARTH_ASSIGN_OR_RETURN(kernels::OpTable ops, kernels::cuda_ops(cuda));
  if (!ops.device.notice.empty()) log_warn("device_notice", "\"{}\"", ops.device.notice);
  return ops;
}

Result<kernels::Ceilings> measure_device(const kernels::OpTable& ops, size_t read_bytes) {
  return kernels::measure_cuda_ceilings(ops, read_bytes);
}

uint64_t packed_bytes(std::span<const kernels::HostTensor> tensors, kernels::WeightRole role) {
  return kernels::cuda_packed_bytes(tensors, role);
}

uint64_t PackingMeter::add(std::span<const kernels::HostTensor> tensors, kernels::WeightRole role) {
  const kernels::CudaPacking packing = kernels::cuda_packing(tensors, role);
  rounding_bytes_ += packing.rounding_bytes;
  activation_bytes_ = std::max(activation_bytes_, packing.activation_scratch_bytes);
  expert_bytes_ = std::max(expert_bytes_, packing.expert_scratch_bytes);
  return packed_bytes(tensors, role);
}

std::optional<uint64_t> reserved_bytes() { return kReservedBytes; }

std::optional<DeviceUse> device_use(const kernels::OpTable& ops) {
  const kernels::CudaMemoryUse use = kernels::cuda_memory_use(ops);
  return DeviceUse{use.free_bytes, use.graph_bytes, use.graphs_refused};
}

ReadGpu gpu_reader(const DeviceOptions& options) {
  const Result<kernels::CudaOptions> cuda = to_kernels(options);
  if (!cuda.ok()) return nullptr;
  const Result<kernels::CudaDevice> device = kernels::cuda_probe(*cuda);
  if (!device.ok()) return nullptr;
  // Opened by the first read, because opening may also hang.
  auto nvml = std::make_shared<std::optional<Result<Nvml>>>();
  return [nvml, bus_id = device->pci_bus_id]() -> std::optional<ipc::GpuSnapshot> {
    if (!*nvml) {
      nvml->emplace(Nvml::open(bus_id));
      if (!(*nvml)->ok()) log_info("gpu_watch", "why_not=\"{}\"", (*nvml)->error().message);
    }
    if (!(*nvml)->ok()) return std::nullopt;
    return (**nvml)->read();
  };
}

std::vector<DeviceCheck> describe_device(const DeviceOptions& options) {
  Result<std::vector<DeviceCheck>> checks = describe(options);
  if (!checks.ok()) return {{"fail", "device", checks.error().message}};
  return std::move(checks).value();
}

}  // namespace hearth::worker
