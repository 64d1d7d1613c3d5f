#pragma once
// The CPU ops, one file each, over the kernels of one instruction set. Private to kernels/ and its
// tests. `state` of each op is a CpuState.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/attention/kernels.h"
#include "kernels/cpu/matmul/kernels.h"
#include "kernels/cpu/rows/kernels.h"
#include "kernels/host/host_memory.h"
#include "kernels/host/thread_pool.h"
#include "kernels/ops.h"

namespace hearth::kernels::cpu {

/// Host memory with one owner.
class HostBuffer {
 public:
  HostBuffer() = default;
  ~HostBuffer() { reset(0); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  /// Exchanges the memory for `bytes` zeroed ones; false (and empty) when there are not enough.
  bool reset(size_t bytes);
  /// At least that much, content lost when it grows. No memory left stops the process.
  std::byte* at_least(size_t bytes);
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

class PackedWeight;

/// What was put off, in the order of pack_weights. Weights leave it when they end.
struct LateWeights {
  std::vector<PackedWeight*> weights;
  uint64_t bytes = 0;
};

/// Scratch memory grows to what the largest step needs and stays.
struct CpuState {
  CpuState(int32_t num_threads, const MatmulKernels& m, const AttentionKernels& a,
           const RowKernels& r, Packing packing)
      : matmul(m),
        attention(a),
        rows(r),
        late(packing == Packing::kLate ? std::make_shared<LateWeights>() : nullptr),
        thread_scratch(static_cast<size_t>(num_threads)),
        pool(num_threads) {}

  /// body(item, thread) for each item: on all threads where `work` (about one cycle each) is worth
  /// waking them, else on the caller.
  template <typename Body>
  void for_each(int64_t num_items, int64_t work, const Body& body) {
    if (work >= kParallelFrom) return pool.run(num_items, body);
    for (int64_t item = 0; item < num_items; ++item) body(item, 0);
  }

  static constexpr int64_t kParallelFrom = 16384;

  const MatmulKernels& matmul;
  const AttentionKernels& attention;
  const RowKernels& rows;
  const std::shared_ptr<LateWeights> late;  ///< null: nothing is put off
  HostBuffer plain_activations;             ///< packed for matmul
  HostBuffer quantized_activations;
  HostBuffer partials;                     ///< attention's, one per split
  std::vector<HostBuffer> thread_scratch;  ///< of the op that runs, by thread
  ThreadPool pool;                         ///< last: its threads end before the rest is freed
};

/// An op table's own pointer is to its CpuState.
inline CpuState& state_of(void* state) { return *static_cast<CpuState*>(state); }

/// A weight re-laid for matmul (kernels/cpu/matmul/kernels.h). Joined tensors stay apart, and so do
/// experts: each begins a group.
class PackedWeight final : public Weight {
 public:
  struct Segment {
    DType dtype;
    int64_t first_row;   ///< among the weight's outputs
    int64_t rows;        ///< of one expert
    int64_t num_groups;  ///< of one expert
    int64_t group_bytes;
    int64_t all_groups;  ///< of all experts, one after the other
    std::byte* data;     ///< theirs
    int64_t packed;      ///< so many of them are there
    HostTensor source;   ///< of the others

    bool whole() const { return packed == all_groups; }
    /// Groups [first, first + count) of all: where they are, or packed into `scratch` of so many.
    const std::byte* groups(int64_t first, int64_t count, std::byte* scratch) const;
  };
  PackedWeight() = default;
  ~PackedWeight() override;
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  std::vector<Segment> segments;
  HostBuffer memory;
  std::shared_ptr<LateWeights> late;  ///< has this one; null: it is whole
};

/// Row `row` of the weight, as f32 times `scale`. `scratch`: of the calling thread.
void unpack_row(const PackedWeight& weight, int64_t row, float scale, HostBuffer& scratch,
                float* out);

Result<std::unique_ptr<Weight>> pack_weights(void*, std::span<const HostTensor>, WeightRole);
uint64_t pack_more(void*, uint64_t bytes);

void embed(void*, const EmbedArgs&);
void rms_norm(void*, const RmsNormArgs&);
void matmul(void*, const MatmulArgs&);
void add_bias(void*, const AddBiasArgs&);
void add_scaled(void*, const AddScaledArgs&);
void soft_cap(void*, const SoftCapArgs&);
void rope_table(void*, const RopeTableArgs&);
void rope(void*, const RopeArgs&);
void kv_store(void*, const KvStoreArgs&);
void attention(void*, const AttentionArgs&);
void gated_activation(void*, const GatedActivationArgs&);
void moe_route(void*, const MoeRouteArgs&);
void moe_matmul(void*, const MoeMatmulArgs&);
void moe_combine(void*, const MoeCombineArgs&);

}  // namespace hearth::kernels::cpu
