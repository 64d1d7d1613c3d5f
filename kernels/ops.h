#pragma once
// The compute boundary: models/ and engine/ see nothing of compute beyond this header.
//
// It holds plain views, one <Op>Args struct per op, and OpTable: function pointers for the ops, for
// memory and for copies. reference_ops() is the specification (scalar, double accumulation),
// cpu_ops() is the production table for CPUs, checked_ops() runs two tables and compares them.
//
// Rules that every table keeps:
//  * Ops know tensors, never requests. The caller passes shapes that fit; a wrong shape is a bug
//    (HEARTH_CHECK), because untrusted input was checked where it entered.
//  * Batch invariance. The value of an output row depends only on its own inputs: not on the other
//    rows of the step, nor on how rows are split over steps, threads or tiles. Every matmul output
//    element has one f32 accumulator chain over K in ascending order; attention walks fixed tiles
//    of positions at absolute multiples of their length and merges splits of kAttentionSplit
//    positions, also at absolute multiples, in ascending order. So results compare with ==.
//  * Everything that varies from step to step is read from BatchIndex buffers, whose addresses
//    stay fixed for the engine's life; the host scalars in BatchIndex are upper bounds for launch
//    shapes. A step can therefore be captured once and replayed.
//  * All ops of a table are called from one thread (the engine's). They are asynchronous if the
//    device is; `synchronize` waits.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "kernels/ops/host_tensor.h"
#include "kernels/ops/kv_types.h"

namespace hearth::kernels {

/// Block sizes are multiples of this, and so are attention's tiles.
inline constexpr int32_t kAttentionTile = 16;
/// Positions per attention split. Partial softmax results are merged per split, so the split length
/// is part of the numerics and never derived from thread count or batch.
inline constexpr int32_t kAttentionSplit = 512;

/// A view of rows of device memory. Element (r, c) is at data + r * row_stride + c.
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
/// that part is private to the op table.
struct PagedKv {
  std::byte* base = nullptr;
  int64_t block_bytes = 0;
  int64_t layer_offset = 0;
  KvTypes types = {};       ///< not all in every table: OpTable::any_kv_type
  int32_t block_size = 16;  ///< tokens per block
  KvShape shape = {};
};

/// The part of a step's index that depends on the blocks of one layer group.
struct GroupIndex {
  const int32_t* block_table = nullptr;  ///< (num_seqs, max_blocks): logical -> physical block;
                                         ///< entries outside [window start, context) are never read
  int32_t max_blocks = 0;                ///< row stride of block_table
  const int32_t* slot_mapping = nullptr;  ///< (num_tokens): block_id * block_size + offset, the
                                          ///< slot of the token's K and V; -1: not stored
};

/// What a step does to the recurrent state of one of its sequences (kernels/ops/recurrent_ops.h).
/// States are in the blocks of one pool; all layers of a sequence use the same block.
///
/// The step first replays `replay` rows that an earlier step computed as drafts, then computes its
/// own rows. Of these the first `advance` change the state for good, and the state after them goes
/// to block `to`. Rows after them are drafts: they are computed from there on, and what replaying
/// them needs is kept from kept row `keep_first` on.
struct StateStep {
  int32_t from = -1;  ///< block of the state before all rows; -1: the initial state, which is zero
  int32_t to = 0;     ///< may be `from`
  int32_t advance = 0;
  int32_t replay = 0;
  int32_t replay_first = 0;  ///< the first kept row to replay
  int32_t keep_first = 0;
  int32_t saved = -1;       ///< a block that also receives the state, earlier than `to`; -1: none
  int32_t saved_after = 0;  ///< after so many rows, replayed ones included; 1 .. replay + advance
};

/// What one step computes: ragged rows of several sequences. Pointers are device memory.
struct BatchIndex {
  int32_t num_tokens = 0;  ///< rows of the step (upper bound under graph replay)
  int32_t num_seqs = 0;
  int32_t num_outputs = 0;               ///< rows that need logits
  const int32_t* counts = nullptr;       ///< (3): the three numbers above, exact, device memory
  const int32_t* token_ids = nullptr;    ///< (num_tokens)
  const int32_t* positions = nullptr;    ///< (num_tokens): absolute position in its sequence
  const int32_t* seq_idx = nullptr;      ///< (num_tokens): row of block_table
  const int32_t* query_start = nullptr;  ///< (num_seqs + 1): first row of each sequence
  const int32_t* context_len = nullptr;  ///< (num_seqs): tokens attended to, this step's included
  const int32_t* output_rows = nullptr;  ///< (num_outputs): token rows that feed the output head
  std::span<const GroupIndex> groups;
  const StateStep* states = nullptr;  ///< (num_seqs); null without recurrent layers
};

// ---- Weights --------------------------------------------------------------------------------

enum class WeightRole {
  kMatmul,     ///< read by matmul; several tensors are joined into one (rows concatenated in order)
  kEmbedding,  ///< read by embed, and by matmul if the output head is tied to the embedding
  kVector,     ///< norms and biases: f32 in device memory, read through Weight::vector
  kExperts,    ///< read by moe_matmul; tensors of equal num_experts are joined expert by expert
};

/// Weights on a device, opaque to all but the op table that packed them, which may change their
/// layout. One copy. The file's bytes are not needed after pack_weights or, late, pack_more, unless
/// put_off gives the packed ones back.
class Weight {
 public:
  virtual ~Weight() = default;
  int64_t rows = 0;               ///< outputs (of one expert), over all joined tensors
  int64_t cols = 0;               ///< inputs
  size_t bytes = 0;               ///< device bytes owned
  const float* vector = nullptr;  ///< role kVector: `cols` floats; otherwise null
  int32_t num_experts = 1;        ///< above 1 only with role kExperts
};

// ---- Ops ------------------------------------------------------------------------------------
// Activations are f32 rows in every table so far. `batch` gives the row count: num_tokens rows, or
// num_outputs rows if the op says so.

enum class Rows { kTokens, kOutputs };

/// out[t] = row token_ids[t] of the table, as f32, times `scale`.
struct EmbedArgs {
  const BatchIndex* batch;
  const Weight* table;
  float scale = 1.0f;
  TensorView out;  ///< (num_tokens, width)
};

/// out = x / sqrt(mean(x^2) + eps) * weight. Source: Zhang and Sennrich 2019, equation 4.
/// If the weight is narrower than x, each run of weight->cols columns (a head) is normalized on its
/// own.
struct RmsNormArgs {
  const BatchIndex* batch;
  Rows rows = Rows::kTokens;
  TensorView x;
  const Weight* weight;  ///< kVector of x.cols or of a divisor of it
  float eps;
  TensorView out;
  /// The weight of the product that reads `out` next, if known: a device may prepare that product's
  /// input in the same pass. Results do not depend on it.
  const Weight* reader = nullptr;
};

/// A block of activations whose amax is below this counts as zero: 127 / amax must be finite.
inline constexpr float kQuantizeMin = 1e-30f;

/// out[t][o] = sum_k x[t][k] * w[o][k], plus residual[t][o] if given (added last, once).
///
/// f32, f16, bf16 weights: one chain acc = fma(x[k], w[k], acc), k ascending, x in f32 (on CUDA, x
/// is rounded for f16 and bf16 weights: kernels/cuda/op_table.h).
///
/// Quantized weights, the same for all types. x is first quantized per 32 inputs (on CUDA per 256
/// where the type has super-blocks, see kernels/cuda/op_table.h): amax = max |x|,
/// d = amax / 127 (f32), q = round-half-even(x * (127 / amax)); q is all zero if amax is below
/// kQuantizeMin or not finite (d then passes the NaN or infinity on). Weights are scale * w_q + min
/// over sub-blocks of 32 inputs (16 in Q2_K, Q3_K and Q6_K). w_q are integers; `scale` is the
/// stored d times the sub-block's integer scale, exact in f32; `min` is -(dmin * integer), exact,
/// or the stored m (Q4_1, Q5_1). There is one f32 chain per output, ascending (eight on CUDA, see
/// kernels/cuda/op_table.h). Sums of integers are exact; the products d * .. and .. * scale_1
/// round:
///   acc = fma(float(sum q * w_q), d * scale, acc)  or, on CPUs for two sub-blocks of 16 inputs:
///   acc = fma(fma(float(sum_2), scale_2, float(sum_1) * scale_1), d, acc)
///   acc = fma(d * float(sum q), min, acc)          only types with mins; for a pair, the first's
///                                                  before the second's
///
/// Outliers: with HostTensor::outliers_from, x[k] counts as 0 where |x[k]| is at least that, when
/// x is quantized. At the end these add acc = acc + x[k] * w[k], k ascending, each rounded.
/// Source: Dettmers et al. 2022 (LLM.int8()), section 3.2.
///
/// With HostTensor::scales, acc is multiplied by the scale at last, before the residual is added.
struct MatmulArgs {
  const BatchIndex* batch;
  Rows rows = Rows::kTokens;
  TensorView x;  ///< (rows, w->cols)
  const Weight* w;
  const TensorView* residual = nullptr;  ///< may be `out` itself
  TensorView out;                        ///< (rows, w->rows)
};

/// out[t] += bias. With `ids`, the bias of experts: out[t * top_k + j] += bias of expert ids[t][j].
struct AddBiasArgs {
  const BatchIndex* batch;
  const Weight* bias;  ///< kVector of out.cols, or of out.cols for each expert
  TensorView out;
  const TensorView* ids = nullptr;  ///< (num_tokens, top_k) i32
};

/// out[t] += x[t] * scale, in one rounding. Adds to the residual stream when a norm or a scale
/// stands between the product and the sum. With `gate`, `scale` is multiplied (in f32) by
/// sigmoid(gate[t]), computed in double.
struct AddScaledArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, width)
  float scale = 1.0f;
  TensorView out;                    ///< like x
  const TensorView* gate = nullptr;  ///< (num_tokens, 1)
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

/// x[t] = x[t] * sqrt(mean(like[t]^2) + eps), in place: what an RmsNorm of `like` divides by.
struct TimesRmsArgs {
  const BatchIndex* batch;
  TensorView x;     ///< (num_tokens, width)
  TensorView like;  ///< (num_tokens, any width)
  float eps;
};

/// x[t] = max(0, x[t] - cutoff), in place, cutoff = mean(x[t]) + deviations * deviation(x[t]): of
/// normally distributed values, a fixed share stays above 0. The deviation is that of the values
/// themselves (divided by their number). Computed in double.
/// Source: Google 2025 (Gemma 3n), the published code's gaussian top-k.
struct KeepPeaksArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, width)
  float deviations;
};

/// cos_sin[t] = head_dim/2 pairs (cos, sin) of positions[t] * inv_freq[i], times `magnitude`,
/// computed in double. Computed once per step for all layers with the same frequencies.
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

/// Rotates rope_dim values of each head in place. Source: Su et al. 2021, equation 34.
struct RopeArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, num_heads * head_dim)
  int32_t num_heads;
  int32_t head_dim;
  TensorView cos_sin;
  RopePairs pairs = RopePairs::kNeighbours;
  int32_t first = 0;  ///< of the values that are rotated; those before it stay
};

/// out[t][h * out_dim + out_first + i] = x[t][h * x_dim + x_first + i] for `count` values i of each
/// head h.
struct CopyHeadsArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, num_heads * x_dim)
  int32_t x_dim;
  int32_t x_first;
  TensorView out;  ///< (num_tokens, num_heads * out_dim)
  int32_t out_dim;
  int32_t out_first;
  int32_t num_heads;
  int32_t count;
};

/// Stores k and v of each token into its slot, rounded to the KV type (to even; kv_layout.h).
struct KvStoreArgs {
  const BatchIndex* batch;
  int32_t group = 0;
  TensorView k;  ///< (num_tokens, num_kv_heads * k_dim)
  TensorView v;  ///< (num_tokens, num_kv_heads * v_dim); not read if V lies in K
  PagedKv kv;
};

/// Attention of each query token over its sequence's paged KV, read in place through the block
/// table; one op for prefill, chunk, decode and verify. Query at position p sees positions
/// max(0, p - window + 1) .. p (all of 0 .. p without a window).
///   scores = scale * q.k; then soft_cap * tanh(scores / soft_cap) if soft_cap is set; then
///   softmax, with `sinks[h]`, if given, as one more logit that has no value.
/// The step's own K and V were stored earlier, so they are read back rounded.
///
/// Source: Kwon et al. 2023 (PagedAttention) section 4; Milakov and Gimelshein 2018 (online
/// softmax).
struct AttentionArgs {
  const BatchIndex* batch;
  int32_t group = 0;
  TensorView q;  ///< (num_tokens, num_heads * k_dim)
  PagedKv kv;    ///< num_heads is a multiple of its num_kv_heads
  int32_t num_heads;
  float scale;
  int32_t window = 0;              ///< 0: none
  float soft_cap = 0.0f;           ///< 0: none
  const Weight* sinks = nullptr;   ///< kVector of num_heads
  TensorView out;                  ///< (num_tokens, num_heads * v_dim)
  const Weight* reader = nullptr;  ///< as in RmsNormArgs
};

/// kClampedSwish: x * sigmoid(1.702 x) of x = min(gate, 7), times clamp(up, -7, 7) + 1 in place of
/// up (OpenAI 2025 (gpt-oss), section 2.1 and its published code).
enum class Activation { kSilu, kGeluTanh, kClampedSwish };

/// out[r][i] = act(gate_up[r][i]) * gate_up[r][width + i]. Each token has `rows_per_token` rows:
/// one, or one for each of its experts.
struct GatedActivationArgs {
  const BatchIndex* batch;
  TensorView gate_up;  ///< (num_tokens * rows_per_token, 2 * width)
  Activation activation = Activation::kSilu;
  TensorView out;  ///< (num_tokens * rows_per_token, width)
  int32_t rows_per_token = 1;
  const Weight* reader = nullptr;  ///< as in RmsNormArgs
};

/// out[i] = x[output_rows[i]]
struct GatherRowsArgs {
  const BatchIndex* batch;
  TensorView x;    ///< (num_tokens, width)
  TensorView out;  ///< (num_outputs, width)
};

// Mixture of experts. The choices j = 0 .. top_k - 1 of a token are in descending order of logits.

/// Softmax: ids[t][j] = the expert of the j-th largest of logits[t] (ties: the lower id);
/// weights[t][j] = its share of softmax(logits[t]) over all experts, divided by the sum over the
/// chosen experts if `normalize` (which equals a softmax over the chosen alone), times `scale`.
/// Sigmoid: the same with sigmoid(logits[t]) in place of the softmax.
/// With `selection_bias`, experts are chosen by share plus bias; the bias is in no weight.
/// With `expert_scale`, a chosen expert's weight is multiplied by its scale at the end.
/// With more than one group of consecutive experts, only experts of the `groups_used` groups are
/// chosen whose two best (share plus bias) have the largest sums (one group's best alone without a
/// bias). Computed in double.
/// Source: Shazeer et al. 2017, section 2.1; Jiang et al. 2024 (Mixtral), section 2.1; DeepSeek-AI
/// 2024 (DeepSeek-V3), section 2.1.2.
struct MoeRouteArgs {
  const BatchIndex* batch;
  TensorView logits;  ///< (num_tokens, num_experts)
  int32_t top_k;      ///< 1 .. num_experts
  bool normalize = false;
  float scale = 1.0f;
  TensorView ids;      ///< (num_tokens, top_k) i32
  TensorView weights;  ///< (num_tokens, top_k)
  bool sigmoid = false;
  const Weight* selection_bias = nullptr;  ///< kVector of num_experts
  int32_t num_groups = 1;                  ///< divides num_experts
  int32_t groups_used = 1;                 ///< 1 .. num_groups; of at least top_k experts together
  const Weight* expert_scale = nullptr;    ///< kVector of num_experts
};

/// out[t * top_k + j] = matmul of one input row with the matrix of expert ids[t][j], with the
/// chains of MatmulArgs. The input row is t * top_k + j if `x_per_choice`, else t. An expert's
/// matrix is read once for all rows that chose it.
struct MoeMatmulArgs {
  const BatchIndex* batch;
  TensorView x;  ///< (num_tokens, w->cols), or (num_tokens * top_k, w->cols)
  bool x_per_choice = false;
  const Weight* w;  ///< kExperts
  TensorView ids;   ///< (num_tokens, top_k) i32, below w->num_experts
  TensorView out;   ///< (num_tokens * top_k, w->rows)
};

/// out[t] = out[t] + sum_j weights[t][j] * x[t * top_k + j]; the sum is one f32 chain, j ascending
/// from zero, acc = fma(weight, x, acc). Without `add`, out[t] = the sum.
struct MoeCombineArgs {
  const BatchIndex* batch;
  TensorView x;        ///< (num_tokens * top_k, width)
  TensorView weights;  ///< (num_tokens, top_k)
  TensorView out;      ///< (num_tokens, width): the residual
  bool add = true;
};

/// Copies whole blocks inside one pool: dst[i] = src[i]. Used for copy-on-write of a partial block.
struct CopyBlocksArgs {
  std::byte* base;
  int64_t block_bytes;
  std::span<const int32_t> src;
  std::span<const int32_t> dst;
};

// ---- The table ------------------------------------------------------------------------------

/// A step's ops, recorded once. The caller of end_capture owns it and destroys it before the table.
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
  std::string notice = {};  ///< a sentence on what was requested but is missing; usually empty
};

struct EncoderOps;
struct RecurrentOps;
struct SideCopies;
struct DrawOps;
struct DeviceClock;
struct ElasticMemory;

/// Function pointers of one device. Copyable; copies share `state`, which the last copy frees.
struct OpTable {
  DeviceInfo device;
  /// Changed whenever a kernel change can alter a bit of a result; part of every stored prefix's
  /// key.
  std::string numerics_id;
  /// False: K and V have equal widths and are both stored.
  bool any_kv_shape = false;
  /// False: K and V have one type, f32, f16, bf16 or q8_0.
  bool any_kv_type = false;
  std::shared_ptr<void> state;

  /// Device memory, zeroed, aligned to 64 bytes (in huge pages if the device has them); null if
  /// there is not enough.
  void* (*allocate)(void* state, size_t bytes) = nullptr;
  void (*release)(void* state, void* memory, size_t bytes) = nullptr;
  /// Memory that is backed in parts (kernels/ops/elastic_memory.h); null: all of it at once.
  const ElasticMemory* elastic = nullptr;
  /// The source may be reused when the call returns, unless it is memory of allocate_host: that may
  /// be reused only after a wait.
  void (*copy_to_device)(void* state, void* dst, const void* src, size_t bytes) = nullptr;
  void (*copy_to_host)(void* state, void* dst, const void* src, size_t bytes) = nullptr;
  void (*synchronize)(void* state) = nullptr;

  // The next ones may be null in a table whose device computes in host memory.
  /// A mark after everything called so far; marks ascend from 1.
  uint64_t (*mark)(void* state) = nullptr;
  /// Waits for everything called before that mark; work called after it continues.
  void (*wait)(void* state, uint64_t mark) = nullptr;
  /// Host memory, zeroed, that copies to and from the device access at the link's full rate and
  /// that the device can address at the same address; null if the system provides none.
  void* (*allocate_host)(void* state, size_t bytes) = nullptr;
  void (*release_host)(void* state, void* memory) = nullptr;
  /// Copies that run alongside the ops (kernels/ops/side_copies.h).
  const SideCopies* side_copies = nullptr;
  /// Picks tokens on the device that holds the logits (kernels/ops/draw.h). Optional: the host can
  /// pick them.
  const DrawOps* draw = nullptr;
  /// Device timestamps (kernels/ops/device_clock.h). For measuring.
  const DeviceClock* clock = nullptr;

  // The next three are null in a table whose steps cannot be captured.
  /// The ops called from here to end_capture are recorded and not run. Until then no call may pack,
  /// allocate, copy from or to the host, or wait.
  void (*begin_capture)(void* state) = nullptr;
  /// Null if the device has no memory for the recording.
  std::unique_ptr<CapturedStep> (*end_capture)(void* state) = nullptr;
  /// Runs a recorded step with the current contents of the BatchIndex buffers. Returns false and
  /// runs nothing if packing a weight has moved the ops' scratch since: capture the step again.
  bool (*replay)(void* state, const CapturedStep& step) = nullptr;

  /// Copies tensors to the device. Joined matrices have the same cols and may differ in type.
  /// Errors: kUnsupported (type, shape, size), kOutOfMemory, both naming the tensor.
  Result<std::unique_ptr<Weight>> (*pack_weights)(void* state, std::span<const HostTensor> tensors,
                                                  WeightRole role) = nullptr;
  /// Null in a table that packs all weights in pack_weights. Otherwise packs about `bytes` more of
  /// the tensors put off (those with an owner) and returns the bytes left. Ops compute the same
  /// bits before and after; before, each op packs what it needs on every call.
  uint64_t (*pack_more)(void* state, uint64_t bytes) = nullptr;
  /// Null where pack_more is. Gives back scratch and the memory of all weights that can be packed
  /// again, and returns the bytes that pack_more then has left.
  uint64_t (*put_off)(void* state) = nullptr;
  uint64_t most_packed_bytes = UINT64_MAX;  ///< see CpuOptions

  void (*embed)(void* state, const EmbedArgs&) = nullptr;
  void (*rms_norm)(void* state, const RmsNormArgs&) = nullptr;
  void (*matmul)(void* state, const MatmulArgs&) = nullptr;
  /// The same for several products; none reads what another writes. Null: see multiply_all.
  void (*matmuls)(void* state, std::span<const MatmulArgs>) = nullptr;
  void (*add_bias)(void* state, const AddBiasArgs&) = nullptr;
  void (*add_scaled)(void* state, const AddScaledArgs&) = nullptr;
  void (*soft_cap)(void* state, const SoftCapArgs&) = nullptr;
  void (*rope_table)(void* state, const RopeTableArgs&) = nullptr;
  void (*rope)(void* state, const RopeArgs&) = nullptr;
  // The next three are null in a table without the families that need them.
  void (*copy_heads)(void* state, const CopyHeadsArgs&) = nullptr;
  void (*times_rms)(void* state, const TimesRmsArgs&) = nullptr;
  void (*keep_peaks)(void* state, const KeepPeaksArgs&) = nullptr;
  void (*kv_store)(void* state, const KvStoreArgs&) = nullptr;
  void (*attention)(void* state, const AttentionArgs&) = nullptr;
  void (*gated_activation)(void* state, const GatedActivationArgs&) = nullptr;
  void (*gather_rows)(void* state, const GatherRowsArgs&) = nullptr;
  void (*copy_blocks)(void* state, const CopyBlocksArgs&) = nullptr;

  /// Ops only encoders need (kernels/ops/encoder_ops.h); null in a table without them.
  const EncoderOps* encoder = nullptr;
  /// Ops with a state per sequence (kernels/ops/recurrent_ops.h); null in a table without them.
  const RecurrentOps* recurrent = nullptr;

  // The next three are null in a table without mixture of experts.
  void (*moe_route)(void* state, const MoeRouteArgs&) = nullptr;
  void (*moe_matmul)(void* state, const MoeMatmulArgs&) = nullptr;
  void (*moe_combine)(void* state, const MoeCombineArgs&) = nullptr;

  /// Sets how many threads the table's ops may use (1 .. device.num_threads); results do not
  /// change. For machines that run several workers.
  void (*set_num_threads)(void* state, int32_t num_threads) = nullptr;
};

/// OpTable::matmuls, or each product in turn.
void multiply_all(const OpTable& ops, std::span<const MatmulArgs> products);

/// kUnsupported, with the field kv_type, if the table cannot store K and V in these types.
Result<void> check_kv_types(const OpTable& ops, KvTypes types);

/// Owns device memory of one table.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// kOutOfMemory, with the number of bytes and `what`, if the device has too little memory.
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

/// Owns host memory, zeroed, for copies from and to a table's device; page-locked if possible.
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
  /// True if this is the table's allocate_host memory, which its device can address.
  bool page_locked() const { return release_ != nullptr; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  std::vector<uint64_t> ordinary_;
  std::shared_ptr<void> state_;
  void (*release_)(void*, void*) = nullptr;
};

/// The specification: scalar loops, double accumulation, one thread. `super_inputs`: x of types
/// with super-blocks is quantized per 256 inputs, as on CUDA.
OpTable reference_ops(bool super_inputs = false);

/// What may be given up for speed. Exact: every table keeps batch invariance, as described above.
/// Fast: for many rows a table may use a faster method in which values depend on the other rows.
enum class Numerics { kExact, kFast };

struct CpuOptions {
  int32_t num_threads = 0;  ///< 0: one per physical core this process may use
  std::string variant;      ///< "": best this CPU has; else "plain", "avx2", "avx2vnni", ...
  /// Less: a loader gives matrices beyond that an owner; every use reads these from their source.
  uint64_t most_packed_bytes = UINT64_MAX;
};
/// When tensors with an owner are packed. Tensors without one, or with `at_once`, are always packed
/// at once.
enum class Packing { kAtOnce, kLate };

/// The CPU's table. kUnsupported if `variant` names instructions that this CPU lacks.
Result<OpTable> cpu_ops(const CpuOptions& options, Packing packing = Packing::kAtOnce);

/// Variants that this CPU can run, slowest first.
std::vector<std::string> cpu_variants();

struct CheckedOptions {
  double relative_tolerance = 1e-3;  ///< relative to the output's largest magnitude
};

/// Runs every op on `a` (whose results are used) and on `b`; if they differ by more than the
/// tolerance, stops the process with the op, the element and both values. For tests and diagnosis.
/// Both tables compute in the host memory of `a`; each packs the weights for itself.
OpTable checked_ops(OpTable a, OpTable b, const CheckedOptions& options);

}  // namespace hearth::kernels
