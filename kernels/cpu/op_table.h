#pragma once
// The CPU ops, one file each, built on the kernels of one instruction set. Private to kernels/ and
// its tests. The `state` of each op is a CpuState.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/attention/kernels.h"
#include "kernels/cpu/matmul/kernels.h"
#include "kernels/cpu/rows/kernels.h"
#include "kernels/cpu/state/kernels.h"
#include "kernels/host/host_arena.h"
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

  /// Replaces the memory by `bytes` zeroed bytes; false (and empty) if there are not enough.
  bool reset(size_t bytes);
  /// Grows the memory to at least this size; growing loses its content. Too little memory stops the
  /// process.
  std::byte* at_least(size_t bytes);
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

class FileWeights;
class PackedWeight;

/// The memory of the weight whose product came after another one's, the last time: models read
/// their weights in the same order in every step. It may be gone.
struct Follower {
  std::span<const std::byte> memory;
};

/// Weights that can be packed late, in the order of pack_weights. A weight is removed when it is
/// destroyed.
struct LateWeights {
  std::vector<PackedWeight*> weights;
  size_t first = 0;    ///< those before it are whole
  uint64_t bytes = 0;  ///< still to be packed
  HostArena memory;
};

/// Scratch memory grows to the size that the largest step needs and is kept.
struct CpuState {
  CpuState(int32_t num_threads, const MatmulKernels& m, const AttentionKernels& a,
           const RowKernels& r, const StateKernels& st, Packing packing,
           std::shared_ptr<FileWeights> stays)
      : matmul(m),
        attention(a),
        rows(r),
        states(st),
        late(packing == Packing::kLate ? std::make_shared<LateWeights>() : nullptr),
        in_file(std::move(stays)),
        thread_scratch(num_threads),
        pool(num_threads) {}

  /// Calls body(item, thread) for each item: on all threads if `work` (in units of about one cycle)
  /// is worth waking them, else on the caller.
  template <typename Body>
  void for_each(int64_t num_items, int64_t work, const Body& body) {
    if (work >= parallel_from()) return pool.run(num_items, body);
    for (int64_t item = 0; item < num_items; ++item) body(item, 0);
  }

  /// The least work, in cycles, that all threads share: the more they are, the longer it takes
  /// until each has begun and ended. Within a step they spin, so none has to be woken.
  int64_t parallel_from() const {
    return pool.active() < 8 ? int64_t{2048} * pool.active() : 16384;
  }

  const MatmulKernels& matmul;
  const AttentionKernels& attention;
  const RowKernels& rows;
  const StateKernels& states;
  const std::shared_ptr<LateWeights> late;  ///< null: nothing is put off
  /// Null: no weight stays in its file.
  const std::shared_ptr<FileWeights> in_file;
  /// Of the last product of few rows; null: none yet.
  std::shared_ptr<Follower> last_follower;
  HostArena weights;
  HostBuffer plain_activations;  ///< packed for matmul
  HostBuffer quantized_activations;
  HostBuffer partials;                     ///< attention's, one per split
  HostBuffer query_codes;                  ///< attention's, for K whose products are of integers
  std::vector<HostBuffer> thread_scratch;  ///< of the current op, per thread
  ThreadPool pool;  ///< last member: its threads end before the rest is freed
};

/// The `state` pointer of a CPU op table points to its CpuState.
inline CpuState& state_of(void* state) { return *static_cast<CpuState*>(state); }

/// A weight packed for matmul (kernels/cpu/matmul/kernels.h). Joined tensors stay separate, and so
/// do experts: each starts a new group.
class PackedWeight final : public Weight {
 public:
  struct Segment {
    DType dtype;
    int64_t first_row;   ///< among the weight's outputs
    int64_t rows;        ///< of one expert
    int64_t num_groups;  ///< of one expert
    int64_t group_bytes;
    int64_t all_groups;  ///< of all experts, concatenated
    std::byte* data;     ///< memory of all groups
    int64_t packed;      ///< number of groups packed so far
    HostTensor source;  ///< the tensor that the groups are read from; its bytes: if it has an owner

    bool whole() const { return packed == all_groups; }
    /// Groups [first, first + count) over all experts: in place, or packed into `scratch`, which
    /// has room for `count` groups.
    const std::byte* groups(int64_t first, int64_t count, std::byte* scratch) const;
  };
  PackedWeight() = default;
  ~PackedWeight() override;
  /// Takes the memory of its `bytes`; false if there is not enough.
  bool allocate(HostArena& arena);
  uint64_t bytes_left() const;  ///< of the groups that are not packed
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  std::vector<Segment> segments;
  const std::shared_ptr<Follower> follower = std::make_shared<Follower>();
  float outliers_from = 0;               ///< of its quantized segments
  std::shared_ptr<std::byte> memory;     ///< of `bytes`; null if it stays in its file
  std::shared_ptr<LateWeights> late;     ///< contains this weight; null: it is not packed late
  std::shared_ptr<FileWeights> in_file;  ///< contains this weight; null: it is packed, or will be
};

/// Row `row` of the weight, as f32 times `scale`. `scratch` belongs to the calling thread.
void unpack_row(const PackedWeight& weight, int64_t row, float scale, HostBuffer& scratch,
                float* out);

Result<std::unique_ptr<Weight>> pack_weights(void*, std::span<const HostTensor>, WeightRole);
uint64_t pack_more(void*, uint64_t bytes);
uint64_t put_off(void*);

void embed(void*, const EmbedArgs&);
void rms_norm(void*, const RmsNormArgs&);
void matmul(void*, const MatmulArgs&);
void matmuls(void*, std::span<const MatmulArgs>);
void add_bias(void*, const AddBiasArgs&);
void add_scaled(void*, const AddScaledArgs&);
void soft_cap(void*, const SoftCapArgs&);
void rope_table(void*, const RopeTableArgs&);
void rope(void*, const RopeArgs&);
void times_rms(void*, const TimesRmsArgs&);
void keep_peaks(void*, const KeepPeaksArgs&);
void kv_store(void*, const KvStoreArgs&);
void attention(void*, const AttentionArgs&);
void gated_activation(void*, const GatedActivationArgs&);
void moe_route(void*, const MoeRouteArgs&);
void moe_matmul(void*, const MoeMatmulArgs&);
void moe_combine(void*, const MoeCombineArgs&);

}  // namespace hearth::kernels::cpu
