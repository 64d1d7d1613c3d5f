#pragma once
// The op table of one CUDA device. No CUDA header here: where hearth is built without a toolkit,
// kernels/cuda/no_cuda.cpp answers, and callers cannot tell the builds apart but by the reply.

#include <cstdint>
#include <string>

#include "kernels/ops.h"

namespace hearth::kernels {

struct CublasLtApi;

struct CudaOptions {
  int32_t device = 0;  ///< CUDA's ordinal, after CUDA_VISIBLE_DEVICES
  Numerics numerics = Numerics::kExact;
  const CublasLtApi* cublaslt = nullptr;  ///< for tests: computes in place of the installed one
};

/// What the driver says of a device.
struct CudaDevice {
  int32_t ordinal = 0;
  std::string name;           ///< e.g. "NVIDIA H200"
  std::string pci_bus_id;     ///< e.g. "0000:65:00.0", by which other libraries know it
  int32_t compute_major = 0;  ///< compute capability, e.g. 9.0
  int32_t compute_minor = 0;
  int32_t driver_version = 0;   ///< the CUDA version that the driver supports: 13000 is 13.0
  int32_t runtime_version = 0;  ///< the CUDA version this was built with
  uint64_t memory_bytes = 0;
  uint64_t memory_free_bytes = 0;  ///< at the time of the call, all processes considered
};

/// Looks at a device without keeping anything on it but the driver's context.
/// Errors: kUnsupported (built without CUDA; a device whose architecture this build has no code
/// for), kUnavailable (no driver; driver too old, with both versions; no device; busy),
/// kInvalidArgument (no such ordinal).
Result<CudaDevice> cuda_probe(const CudaOptions& options);

/// Weight::bytes of what the CUDA table's pack_weights would return; their bytes are not read.
uint64_t cuda_packed_bytes(std::span<const HostTensor> tensors, WeightRole role);

/// What the table takes beside the weights' own bytes for these tensors: the device gives large
/// allocations in whole pages, and the scratch of ops grows with the widest weight. Of several
/// weights, rounding adds up, and of each scratch the largest is taken.
struct CudaPacking {
  uint64_t rounding_bytes = 0;
  uint64_t activation_scratch_bytes = 0;
  uint64_t expert_scratch_bytes = 0;
};
CudaPacking cuda_packing(std::span<const HostTensor> tensors, WeightRole role);

/// What became of the device's memory.
struct CudaMemoryUse {
  uint64_t free_bytes = 0;     ///< now, all processes considered
  uint64_t graph_bytes = 0;    ///< that went while this table's captured steps were made
  int32_t graphs_refused = 0;  ///< of them, those for which there was none left
};
/// Of a table that cuda_ops made.
CudaMemoryUse cuda_memory_use(const OpTable& ops);

/// The table. Two rules of ops.h are here in a form that keeps a device busy with few rows, batch
/// invariant all the same: a product's inputs are cut into eight parts, by the weight's shape
/// alone, each a chain of its own, which are added in ascending order; and attention's splits have
/// 256 positions. Products of f16 and bf16 weights round x to the weights' type for the tensor
/// cores: to f16, per 64 inputs and scaled by a power of two of their own so that nothing
/// overflows; to the sum of two bf16. A chain has one step per 64 inputs, whose sum is the tensor
/// cores'. Attention over KV of 16 or 8 bits with heads of whole multiples of 16 up to 256 likewise
/// takes its weights as f16, or as the sum of two bf16, and q as the sum of two; of q8_0, V as f16.
/// One device, one stream for the ops and one for copies beside them (side_copies.h); ops are
/// asynchronous, `copy_to_host` and `synchronize` wait. Ops allocate nothing, so a step can be
/// captured. Every CUDA error after this call stops the process with its reason: a failed context
/// cannot be trusted. Errors: cuda_probe's, and kOutOfMemory.
///
/// Fast numerics: products of more than kFastRows rows, but for those of f32 weights, of experts
/// and of captured steps, are cuBLASLt's, of weights and x rounded to f16 or bf16
/// (kernels/cuda/matmul/fast.cuh). Rows of `out` between the step's count and its bound may be
/// written. Without the library the table is the exact one, by numerics_id as well, and
/// device.notice says why.
Result<OpTable> cuda_ops(const CudaOptions& options);

}  // namespace hearth::kernels
