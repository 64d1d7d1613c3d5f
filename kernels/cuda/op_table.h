#pragma once
// The op table of one CUDA device. This header includes no CUDA header: builds without a toolkit
// link kernels/cuda/no_cuda.cpp instead, and callers see a difference only in the results.

#include <cstdint>
#include <string>

#include "kernels/ops.h"

namespace hearth::kernels {

struct CublasLtApi;

struct CudaOptions {
  int32_t device = 0;  ///< CUDA's ordinal, after CUDA_VISIBLE_DEVICES
  Numerics numerics = Numerics::kExact;
  const CublasLtApi* cublaslt = nullptr;  ///< for tests: replaces the installed library
  bool wgmma = true;  ///< false: use the kernels of devices without it, to test and measure those
  /// Use kernels that no device has run yet, where they give the bits of older ones (docs/gpu.md).
  bool unconfirmed = false;
};

/// Properties of a device, as the driver reports them.
struct CudaDevice {
  int32_t ordinal = 0;
  std::string name;           ///< e.g. "NVIDIA H200"
  std::string pci_bus_id;     ///< e.g. "0000:65:00.0", the name other libraries use for it
  int32_t compute_major = 0;  ///< compute capability, e.g. 9.0
  int32_t compute_minor = 0;
  int32_t driver_version = 0;   ///< newest CUDA version the driver supports: 13000 is 13.0
  int32_t runtime_version = 0;  ///< the CUDA version this was built with
  uint64_t memory_bytes = 0;
  uint64_t memory_free_bytes = 0;  ///< at the time of the call, over all processes
};

/// Queries a device; only the driver's context stays on it. Errors: kUnsupported (built without
/// CUDA; no code in this build for the device's architecture), kUnavailable (no driver; driver too
/// old, with both versions; no device; busy), kInvalidArgument (no such ordinal).
Result<CudaDevice> cuda_probe(const CudaOptions& options);

/// Weight::bytes that the CUDA table's pack_weights would give the result; the tensors' bytes are
/// not read.
uint64_t cuda_packed_bytes(std::span<const HostTensor> tensors, WeightRole role);

/// Device memory that the table needs for these tensors in addition to the weights' own bytes:
/// large allocations are rounded up to whole pages, and the scratch of ops grows with the widest
/// weight. Over several weights, the rounding adds up; of each scratch the largest counts.
struct CudaPacking {
  uint64_t rounding_bytes = 0;
  uint64_t activation_scratch_bytes = 0;
  uint64_t expert_scratch_bytes = 0;
};
CudaPacking cuda_packing(std::span<const HostTensor> tensors, WeightRole role);

/// Use of the device's memory.
struct CudaMemoryUse {
  uint64_t free_bytes = 0;     ///< now, over all processes
  uint64_t graph_bytes = 0;    ///< used up while this table captured steps
  int32_t graphs_refused = 0;  ///< captures that failed for lack of memory
};
/// For a table made by cuda_ops.
CudaMemoryUse cuda_memory_use(const OpTable& ops);

/// Makes the table. Two rules of ops.h take a form that keeps a device busy with few rows, still
/// batch invariant. First, a product's inputs are divided into eight parts, by the weight's shape
/// alone; each part is its own chain, and the parts are added in ascending order. Second,
/// attention's splits have 256 positions. For types with super-blocks (of 256 weights, as Q4_K) x
/// is quantized per 256 inputs, so that the sums over a super-block, integer scales included, are
/// integers; a chain has one step per super-block (kernels/cuda/matmul/super_terms.cuh). Products
/// of f16 and bf16 weights round x to the weights' type for the tensor cores: to f16, per 64
/// inputs, scaled by a power of two of their own so that nothing overflows; to bf16, as the sum of
/// two. A chain has one step per 64 inputs, whose sum is computed by the tensor cores. Attention
/// over KV of 16 or 8 bits, with head dimensions that are multiples of 16 up to 256, likewise takes
/// its weights as f16 or as the sum of two bf16, and q as the sum of two; for q8_0, V becomes f16.
/// The table uses one device, with one stream for the ops and one for copies alongside them
/// (side_copies.h). Ops are asynchronous; `copy_to_host` and `synchronize` wait. Ops allocate
/// nothing, so a step can be captured. Every CUDA error after this call stops the process with its
/// reason, because a failed context cannot be trusted. Errors: those of cuda_probe, and
/// kOutOfMemory.
///
/// Fast numerics: cuBLASLt computes products of more than kFastRows rows, with weights and x
/// rounded to f16 or bf16 (kernels/cuda/matmul/fast.cuh). Products of f32 weights, of experts and
/// in captured steps stay with the other kernels. Rows of `out` between the step's count and its
/// bound may be written. If the library is missing, the table is the exact one, with its
/// numerics_id, and device.notice explains why.
Result<OpTable> cuda_ops(const CudaOptions& options);

}  // namespace hearth::kernels
