#pragma once
// The compute boundary: all that models/ and engine/ know of compute.
//
// Plain views, one <Op>Args struct per op, and OpTable: function pointers for the ops with memory
// and copies beside them. reference_ops() is the specification (scalar, double accumulation),
// cpu_ops() is what runs, checked_ops() runs two tables and compares.
//
// Rules every table keeps:
//  * Ops know tensors, never requests. A caller passes shapes that fit; a wrong shape is a bug
//    (HEARTH_CHECK), because everything untrusted was checked where it entered.
//  * Batch invariance. The value of an output row depends on its own inputs only: not on the other
//    rows of the step, not on how rows are split over steps, threads or tiles. Every matmul output
//    element has one f32 accumulator chain over K in ascending order; attention walks fixed tiles
//    of positions at absolute multiples of their length and merges splits of kAttentionSplit
//    positions, also at absolute multiples, in ascending order. So results compare with ==.
//  * All that varies from step to step is read from BatchIndex buffers at addresses that stay fixed
//    for the engine's life; host scalars in it are upper bounds for launch shapes. A step can
//    therefore be captured once and replayed.
//  * Ops of one table are called from one thread (the engine's); they are asynchronous where the
//    device is, and `synchronize` waits.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"

namespace hearth::kernels {

/// Block sizes are multiples of it, and so are attention's tiles.
inline constexpr int32_t kAttentionTile = 16;
/// Positions per attention split. Partial softmax results are merged per split, so it is part of
/// the numerics and never derived from thread count or batch.
inline constexpr int32_t kAttentionSplit = 512;

/// Rows of device memory that someone else owns. Element (r, c) is at data + r * row_stride + c.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;  ///< upper bound; ops touch rows below the step's count
  int64_t cols = 0;
  int64_t row_stride = 0;  ///< in elements; >= cols

  template <typename T>
  T* row(int64_t r) const {
    return static_cast<T*>(data) + r * row_stride;
  }
  /// Columns [first, first + count) of the same rows.
  TensorView columns(int64_t first, int64_t count) const;
};

/// One layer's K and V inside a pool of blocks.
/// Physical block b of the pool starts at base + b * block_bytes and holds all layers of its group;
/// this layer's part starts layer_offset bytes in and is kv_layer_bytes() long. The layout inside
/// that part belongs to the op table: nobody else looks into a block.
struct PagedKv {
  std::byte* base = nullptr;
  int64_t block_bytes = 0;
  int64_t layer_offset = 0;
  DType dtype = DType::kF16;  ///< f32, f16, bf16; q8_0 not in every table
  int32_t block_size = 16;    ///< tokens per block
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
};

/// Bytes that one layer takes in one block: K and V of block_size tokens. The same in every table,
/// since the block plan is made before a device is chosen.
int64_t kv_layer_bytes(DType dtype, int32_t block_size, int32_t num_kv_heads, int32_t head_dim);

/// Per layer group, the part of the step's index that depends on the group's blocks.
struct GroupIndex {
  const int32_t* block_table = nullptr;   ///< (num_seqs, max_blocks): logical -> physical block;
                                          ///< entries outside [window start, context) never read
  int32_t max_blocks = 0;                 ///< row stride of block_table
  const int32_t* slot_mapping = nullptr;  ///< (num_tokens): block_id * block_size + offset where
                                          ///< the token's K and V go; -1: nowhere
};

/// What one step computes: ragged rows of several sequences. Pointers are device memory.
struct BatchIndex {
  int32_t num_tokens = 0;  ///< rows of the step (upper bound under graph replay)
  int32_t num_seqs = 0;
  int32_t num_outputs = 0;               ///< rows whose logits are wanted
  const int32_t* counts = nullptr;       ///< (3): the three numbers above, exact, device memory
  const int32_t* token_ids = nullptr;    ///< (num_tokens)
  const int32_t* positions = nullptr;    ///< (num_tokens): absolute position in its sequence
  const int32_t* seq_idx = nullptr;      ///< (num_tokens): row of block_table
  const int32_t* query_start = nullptr;  ///< (num_seqs + 1): first row of each sequence
  const int32_t* context_len = nullptr;  ///< (num_seqs): tokens attended to, this step's included
  const int32_t* output_rows = nullptr;  ///< (num_outputs): token rows that reach the head
  std::span<const GroupIndex> groups;
};

// ---- Weights --------------------------------------------------------------------------------

/// A 2-D tensor as stored in a file: `rows` outputs of `cols` inputs each, row after row.
/// Vectors have rows == 1; several join into one longer vector. A 3-D tensor of experts is the
/// 2-D one of all their rows, expert after expert: `num_experts` divides `rows`.
struct HostTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> bytes;
  int32_t num_experts = 1;
  /// Keeps `bytes` where they are for as long as it is held. Null: they are there until
  /// pack_weights returns.
  std::shared_ptr<const void> owner = nullptr;
};

enum class WeightRole {
  kMatmul,     ///< read by matmul; several tensors join into one (rows concatenated in order)
  kEmbedding,  ///< read by embed, and by matmul where the output head is tied to it
  kVector,     ///< norms and biases: f32 in device memory, read through Weight::vector
  kExperts,    ///< read by moe_matmul; tensors of equal num_experts join expert by expert
};

/// Weights inside a device: opaque to all but the op table that packed them, which may re-lay them
/// out. Resident once; the file's bytes are not needed afterwards, or once pack_more has taken
/// them.
class Weight {
 public:
  virtual ~Weight() = default;
  int64_t rows = 0;               ///< outputs (of one expert), of all joined tensors
  int64_t cols = 0;               ///< inputs
  size_t bytes = 0;               ///< device bytes owned
  const float* vector = nullptr;  ///< role kVector: `cols` floats; otherwise null
  int32_t num_experts = 1;        ///< above 1 only with role kExperts
};

// ---- Ops ------------------------------------------------------------------------------------
// Activations are f32 rows in every table so far. `batch` gives the row count: num_tokens rows,
// or num_outputs rows where an op says so.

enum class Rows { kTokens, kOutputs };

/// out[t] = row token_ids[t] of the table, as f32, times `scale`.
struct EmbedArgs {
  const BatchIndex* batch;
  const Weight* table;
  float scale = 1.0f;
  TensorView out;  ///< (num_tokens, width)
};

/// out = x / sqrt(mean(x^2) + eps) * weight. Source: Zhang and Sennrich 2019, equation 4.
/// A weight narrower than x norms each run of weight->cols columns (a head) alone.
struct RmsNormArgs {
  const BatchIndex* batch;
  Rows rows = Rows::kTokens;
  TensorView x;
  const Weight* weight;  ///< kVector of x.cols, or of a divisor of it
  float eps;
  TensorView out;
  /// The product that reads `out` next, where that is known: a device may prepare its input in the
  /// same go. Results are the same with it and without.
  const Weight* reader = nullptr;
};

/// Least amax of a block of activations that is not taken for zero: 127 / amax must be finite.
inline constexpr float kQuantizeMin = 1e-30f;

/// out[t][o] = sum_k x[t][k] * w[o][k], plus residual[t][o] where given (added last, once).
///
/// f32, f16, bf16 weights: one chain acc = fma(x[k], w[k], acc), k ascending, x in f32 (on CUDA,
/// of f16 and bf16 weights, rounded: kernels/cuda/op_table.h).
///
/// Quantized weights, all types alike: x is first quantized per 32 inputs, amax = max |x|,
/// d = amax / 127 (f32), q = round-half-even(x * (127 / amax)), all zero where amax is below
/// kQuantizeMin or not finite (then d carries the NaN or infinity on). Weights are
/// scale * w_q + min over sub-blocks of 32 inputs (16 in Q2_K, Q3_K and Q6_K), w_q being integers
/// and `scale` the stored d times the sub-block's integer scale, exact in f32; `min` is
/// -(dmin * integer), exact, or the stored m (Q4_1, Q5_1). One f32 chain per output, ascending (on
/// CUDA eight, see kernels/cuda/op_table.h); sums of integers are exact, products d * .. and .. *
/// scale_1 round:
///   acc = fma(float(sum q * w_q), d * scale, acc)  on CPUs, of two sub-blocks of 16 inputs:
///   acc = fma(fma(float(sum_2), scale_2, float(sum_1) * scale_1), d, acc)
///   acc = fma(d * float(sum q), min, acc)          types with mins only; a pair's first before it
struct MatmulArgs {
  const BatchIndex* batch;
  Rows rows = Rows::kTokens;
  TensorView x;  ///< (rows, w->cols)
  const Weight* w;
  const TensorView* residual = nullptr;  ///< may be `out` itself
  TensorView out;                        ///< (rows, w->rows)
};

/// out[t] += bias
struct AddBiasArgs {
  const BatchIndex* batch;
  const Weight* bias;
  TensorView out;
};

/// out[t] += x[t] * scale, in one rounding. The residual stream's sum where something stands
/// between the product and the sum, such as a norm or a scale.
struct AddScaledArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, width)
  float scale = 1.0f;
  TensorView out;  ///< like x
};

/// x[t] = soft_cap * tanh(scale * x[t] / soft_cap), in place; x[t] * scale without a soft cap.
/// Source: Gemma Team 2024 (Gemma 2) section 2.
struct SoftCapArgs {
  const BatchIndex* batch;
  Rows rows = Rows::kOutputs;
  float scale = 1.0f;
  float soft_cap = 0.0f;  ///< 0: none
  TensorView x;
};

/// cos_sin[t] = head_dim/2 pairs (cos, sin) of positions[t] * inv_freq[i], times `magnitude`,
/// computed in double. Once per step, shared by all layers with the same frequencies.
struct RopeTableArgs {
  const BatchIndex* batch;
  const Weight* inv_freq;  ///< kVector of rope_dim / 2
  float magnitude = 1.0f;  ///< YaRN's attention factor
  TensorView cos_sin;      ///< (num_tokens, rope_dim)
};

enum class RopePairs {
  kNeighbours,  ///< (x[2i], x[2i+1]): GGUF arch llama
  kHalves,      ///< (x[i], x[i + rope_dim/2]): NeoX
};

/// Rotates the first rope_dim values of each head in place. Source: Su et al. 2021, equation 34.
struct RopeArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, num_heads * head_dim)
  int32_t num_heads;
  int32_t head_dim;
  TensorView cos_sin;
  RopePairs pairs = RopePairs::kNeighbours;
};

/// Stores k and v of each token into its slot, rounded to the KV type (to even; kv_layout.h).
struct KvStoreArgs {
  const BatchIndex* batch;
  int32_t group = 0;
  TensorView k;  ///< (num_tokens, num_kv_heads * head_dim)
  TensorView v;
  PagedKv kv;
};

/// Attention of each query token over its sequence's paged KV, read in place through the block
/// table; one op for prefill, chunk, decode and verify. Query at position p sees positions
/// max(0, p - window + 1) .. p (all of 0 .. p without a window).
///   scores = scale * q.k; soft_cap * tanh(scores / soft_cap) where given; softmax, with `sinks[h]`
///   as one more logit without a value where given.
/// The step's own K and V were stored before, so they are read back after rounding.
///
/// Source: Kwon et al. 2023 (PagedAttention) section 4; Milakov and Gimelshein 2018 (online
/// softmax).
struct AttentionArgs {
  const BatchIndex* batch;
  int32_t group = 0;
  TensorView q;  ///< (num_tokens, num_heads * head_dim)
  PagedKv kv;    ///< num_heads is a multiple of kv.num_kv_heads
  int32_t num_heads;
  float scale;
  int32_t window = 0;             ///< 0: none
  float soft_cap = 0.0f;          ///< 0: none
  const Weight* sinks = nullptr;  ///< kVector of num_heads
  TensorView out;                 ///< like q
};

enum class Activation { kSilu, kGeluTanh };

/// out[r][i] = act(gate_up[r][i]) * gate_up[r][width + i], of `rows_per_token` rows for each token:
/// one, or one for each of its experts.
struct GatedActivationArgs {
  const BatchIndex* batch;
  TensorView gate_up;  ///< (num_tokens * rows_per_token, 2 * width)
  Activation activation = Activation::kSilu;
  TensorView out;  ///< (num_tokens * rows_per_token, width)
  int32_t rows_per_token = 1;
  const Weight* reader = nullptr;  ///< as RmsNormArgs'
};

/// out[i] = x[output_rows[i]]
struct GatherRowsArgs {
  const BatchIndex* batch;
  TensorView x;    ///< (num_tokens, width)
  TensorView out;  ///< (num_outputs, width)
};

// Mixture of experts. A token's choices j = 0 .. top_k - 1 are in order of falling logits.

/// ids[t][j] = the expert of the j-th largest of logits[t] (ties: the lower id), weights[t][j] =
/// its share of softmax(logits[t]) over all experts; divided by the sum of the chosen where
/// `normalize` (which is the softmax over the chosen alone); times `scale`. Computed in double.
/// Source: Shazeer et al. 2017, section 2.1; Jiang et al. 2024 (Mixtral), section 2.1.
struct MoeRouteArgs {
  const BatchIndex* batch;
  TensorView logits;  ///< (num_tokens, num_experts)
  int32_t top_k;      ///< 1 .. num_experts
  bool normalize = false;
  float scale = 1.0f;
  TensorView ids;      ///< (num_tokens, top_k) i32
  TensorView weights;  ///< (num_tokens, top_k)
};

/// out[t * top_k + j] = matmul of one input row with the matrix of expert ids[t][j]; chains are
/// those of MatmulArgs. The input row is t * top_k + j where `x_per_choice`, else t. The matrix of
/// an expert is read once for all rows that chose it.
struct MoeMatmulArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, w->cols), or (num_tokens * top_k, w->cols)
  bool x_per_choice = false;
  const Weight* w;  ///< kExperts
  TensorView ids;   ///< (num_tokens, top_k) i32, below w->num_experts
  TensorView out;   ///< (num_tokens * top_k, w->rows)
};

/// out[t] = out[t] + sum_j weights[t][j] * x[t * top_k + j]; the sum is one f32 chain, j ascending
/// from zero, acc = fma(weight, x, acc).
struct MoeCombineArgs {
  const BatchIndex* batch;
  TensorView x;        ///< (num_tokens * top_k, width)
  TensorView weights;  ///< (num_tokens, top_k)
  TensorView out;      ///< (num_tokens, width): the residual
};

/// Copies whole blocks inside one pool: dst[i] = src[i]. For copy-on-write of a partial block.
struct CopyBlocksArgs {
  std::byte* base;
  int64_t block_bytes;
  std::span<const int32_t> src;
  std::span<const int32_t> dst;
};

// ---- The table ------------------------------------------------------------------------------

/// A step's ops, recorded once. Whoever asked for it owns it and lets go of it before the table.
class CapturedStep {
 public:
  virtual ~CapturedStep() = default;
};

struct DeviceInfo {
  std::string kind;     ///< "cpu", "cuda", "reference"
  std::string name;     ///< e.g. the CPU's brand string
  std::string variant;  ///< code path: "plain", "avx2", "avx512vnni", ...
  int32_t num_threads = 1;
  uint64_t memory_bytes = 0;       ///< total that this process may use
  uint64_t memory_free_bytes = 0;  ///< when the table was made
  std::string notice = {};  ///< what was asked for and is not there, in a sentence; mostly empty
};

struct EncoderOps;
struct SideCopies;
struct DrawOps;
struct DeviceClock;

/// Function pointers of one device. Copyable; copies share `state`, which the last one frees.
struct OpTable {
  DeviceInfo device;
  /// Bumped whenever a kernel change can alter a bit; part of every stored prefix's key.
  std::string numerics_id;
  std::shared_ptr<void> state;

  /// Device memory, zeroed, aligned to 64 bytes (huge pages where the device has them); null when
  /// there is not enough.
  void* (*allocate)(void* state, size_t bytes) = nullptr;
  void (*release)(void* state, void* memory, size_t bytes) = nullptr;
  /// The source may change at once, but one in memory of allocate_host not before it was waited
  /// for.
  void (*copy_to_device)(void* state, void* dst, const void* src, size_t bytes) = nullptr;
  void (*copy_to_host)(void* state, void* dst, const void* src, size_t bytes) = nullptr;
  void (*synchronize)(void* state) = nullptr;

  // These may be null in a table whose device computes in host memory.
  /// Stands for all that was called so far; marks ascend from 1.
  uint64_t (*mark)(void* state) = nullptr;
  /// Waits for what was called in front of that mark, while what was called behind it goes on.
  void (*wait)(void* state, uint64_t mark) = nullptr;
  /// Host memory, zeroed, that copies to and from the device reach at the link's rate, and the
  /// device itself at the same address; null when the system gives none.
  void* (*allocate_host)(void* state, size_t bytes) = nullptr;
  void (*release_host)(void* state, void* memory) = nullptr;
  /// Copies that run beside the ops (kernels/ops/side_copies.h).
  const SideCopies* side_copies = nullptr;
  /// What picks tokens where the logits are (kernels/ops/draw.h). The host can do without.
  const DrawOps* draw = nullptr;
  /// When the device does what (kernels/ops/device_clock.h). For measuring.
  const DeviceClock* clock = nullptr;

  // Null in a table whose steps cannot be captured.
  /// The ops called from here to end_capture are recorded and do not run. None of them may pack,
  /// allocate, copy from or to the host, or wait.
  void (*begin_capture)(void* state) = nullptr;
  /// Null when the device has no memory for it.
  std::unique_ptr<CapturedStep> (*end_capture)(void* state) = nullptr;
  /// Runs what was recorded, with what the BatchIndex buffers hold now. False, and nothing runs,
  /// where a weight packed since then moved the ops' scratch: the step has to be captured again.
  bool (*replay)(void* state, const CapturedStep& step) = nullptr;

  /// Takes tensors into the device. Matrices joined have the same cols and may differ in type.
  /// Errors: kUnsupported (type, shape, size), kOutOfMemory, both naming the tensor.
  Result<std::unique_ptr<Weight>> (*pack_weights)(void* state, std::span<const HostTensor> tensors,
                                                  WeightRole role) = nullptr;
  /// Null in a table whose weights are packed when pack_weights returns. Otherwise packs some
  /// `bytes` more of what it put off, which is tensors that have an owner, and says how many are
  /// left. Ops compute the same bits before and after; before, each packs what it needs once more.
  uint64_t (*pack_more)(void* state, uint64_t bytes) = nullptr;

  void (*embed)(void* state, const EmbedArgs&) = nullptr;
  void (*rms_norm)(void* state, const RmsNormArgs&) = nullptr;
  void (*matmul)(void* state, const MatmulArgs&) = nullptr;
  void (*add_bias)(void* state, const AddBiasArgs&) = nullptr;
  void (*add_scaled)(void* state, const AddScaledArgs&) = nullptr;
  void (*soft_cap)(void* state, const SoftCapArgs&) = nullptr;
  void (*rope_table)(void* state, const RopeTableArgs&) = nullptr;
  void (*rope)(void* state, const RopeArgs&) = nullptr;
  void (*kv_store)(void* state, const KvStoreArgs&) = nullptr;
  void (*attention)(void* state, const AttentionArgs&) = nullptr;
  void (*gated_activation)(void* state, const GatedActivationArgs&) = nullptr;
  void (*gather_rows)(void* state, const GatherRowsArgs&) = nullptr;
  void (*copy_blocks)(void* state, const CopyBlocksArgs&) = nullptr;

  /// What encoders need beside the others (kernels/ops/encoder_ops.h); null in a table without
  /// them.
  const EncoderOps* encoder = nullptr;

  // Null in a table that has no mixture of experts.
  void (*moe_route)(void* state, const MoeRouteArgs&) = nullptr;
  void (*moe_matmul)(void* state, const MoeMatmulArgs&) = nullptr;
  void (*moe_combine)(void* state, const MoeCombineArgs&) = nullptr;

  /// Threads that the table's ops may use from now on (1 .. device.num_threads); results do not
  /// change. For several workers on one machine.
  void (*set_num_threads)(void* state, int32_t num_threads) = nullptr;
};

/// Owns device memory of one table.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// kOutOfMemory with the number of bytes and `what` when the device has not enough.
  static Result<DeviceBuffer> allocate(const OpTable& ops, size_t bytes, std::string_view what);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<void> state_;
  void (*release_)(void*, void*, size_t) = nullptr;
};

/// Owns host memory, zeroed, for copies from and to a table's device: page-locked where the table
/// and the system have such memory, else ordinary.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(const OpTable& ops, size_t bytes);
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size() const { return size_; }
  /// Then it is the table's own kind of host memory (allocate_host), which its device reaches too.
  bool page_locked() const { return release_ != nullptr; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  std::vector<uint64_t> ordinary_;
  std::shared_ptr<void> state_;
  void (*release_)(void*, void*) = nullptr;
};

/// The specification: scalar loops, double accumulation, one thread.
OpTable reference_ops();

/// What may be given up for speed. Exact: batch invariance, as above, in every table. Fast: where a
/// table knows something faster for many rows, their values may depend on the rows beside them.
enum class Numerics { kExact, kFast };

struct CpuOptions {
  int32_t num_threads = 0;  ///< 0: one per physical core this process may use
  std::string variant;      ///< "": best this CPU has; else "plain", "avx2", "avx512", "avx512vnni"
};
/// When tensors that have an owner are packed; those without always at once.
enum class Packing { kAtOnce, kLate };

/// The CPU's table. kUnsupported where `variant` names what this CPU does not have.
Result<OpTable> cpu_ops(const CpuOptions& options, Packing packing = Packing::kAtOnce);

/// Variants that this CPU can run, slowest first.
std::vector<std::string> cpu_variants();

struct CheckedOptions {
  double relative_tolerance = 1e-3;  ///< of the output's largest magnitude
};

/// Runs every op on `a` (whose results count) and on `b`, and stops the process with the op, the
/// element and both values where they differ by more than the tolerance. For tests and diagnosis.
/// Both tables compute in host memory, which is `a`'s; weights are packed by each.
OpTable checked_ops(OpTable a, OpTable b, const CheckedOptions& options);

}  // namespace hearth::kernels
