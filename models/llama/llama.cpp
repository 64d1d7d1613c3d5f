#include "models/llama/llama.h"

#include <cmath>
#include <utility>

#include "kernels/base/check.h"
#include "models/file_info.h"
#include "models/llama/llama_config.h"
#include "models/llama/llama_weights.h"

// A decoder of pre-norm layers: attention with rotary positions, then a gated feed-forward, each
// added to the residual stream x.
//
//   x = embed(token)
//   for each layer:   q, k, v = norm(x) W_qkv;  rotate q, k;  store k, v
//                     x += attention(q) W_out
//                     gate, up = norm(x) W_gate_up
//                     x += (silu(gate) * up) W_down
//   logits = norm(x) W_head, of the rows that are asked for
//
// Source: Touvron et al. 2023 (Llama); Su et al. 2021 (RoPE); Ainslie et al. 2023 (GQA);
// Shazeer 2020 (SwiGLU); Jiang et al. 2023 (Mistral: the sliding window).

namespace hearth::models {
namespace {

using kernels::BatchIndex;
using kernels::OpTable;
using kernels::PagedKv;
using kernels::Rows;
using kernels::TensorView;
using kernels::Weight;

/// Rows of one step, all f32, in one piece of device memory.
struct Activations {
  TensorView x;         ///< (tokens, width): the residual stream
  TensorView normed;    ///< (tokens, width)
  TensorView qkv;       ///< (tokens, q_width + 2 kv_width)
  TensorView attn;      ///< (tokens, q_width)
  TensorView gate_up;   ///< (tokens, 2 ffn_width)
  TensorView gated;     ///< (tokens, ffn_width)
  TensorView cos_sin;   ///< (tokens, rope.dim)
  TensorView out_x;     ///< (outputs, width)
  TensorView out_norm;  ///< (outputs, width)

  /// Places the views from `base` on (null: only measures). Returns the bytes taken.
  uint64_t lay_out(const LlamaConfig& c, int32_t tokens, int32_t outputs, std::byte* base) {
    uint64_t used = 0;
    const auto place = [&used, base](int64_t rows, int64_t cols) {
      TensorView view;
      view.data = base == nullptr ? nullptr : base + used;
      view.rows = rows;
      view.cols = view.row_stride = cols;
      constexpr uint64_t kAlignment = 64;
      const uint64_t bytes = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * 4;
      used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      return view;
    };
    x = place(tokens, c.width);
    normed = place(tokens, c.width);
    qkv = place(tokens, c.q_width() + 2 * c.kv_width());
    attn = place(tokens, c.q_width());
    gate_up = place(tokens, 2 * int64_t{c.ffn_width});
    gated = place(tokens, c.ffn_width);
    cos_sin = place(tokens, c.rope.dim);
    out_x = place(outputs, c.width);
    out_norm = place(outputs, c.width);
    return used;
  }
};

class Llama final : public Model {
 public:
  Llama(const LlamaConfig& config, LlamaWeights weights, ModelInfo info, OpTable ops)
      : config_(config),
        info_(std::move(info)),
        ops_(std::move(ops)),
        weights_(std::move(weights)) {}

  const ModelInfo& info() const override { return info_; }

  uint64_t activation_bytes(int32_t max_tokens, int32_t max_outputs) const override {
    return Activations().lay_out(config_, max_tokens, max_outputs, nullptr);
  }

  Result<void> reserve(int32_t max_tokens, int32_t max_outputs) override {
    HEARTH_ASSIGN_OR_RETURN(
        memory_, kernels::DeviceBuffer::allocate(ops_, activation_bytes(max_tokens, max_outputs),
                                                 "activations"));
    act_.lay_out(config_, max_tokens, max_outputs, memory_.data());
    return {};
  }

  void forward(const StepArgs& args) override {
    const BatchIndex& batch = *args.batch;
    HEARTH_CHECK(batch.num_tokens <= act_.x.rows && batch.num_outputs <= act_.out_x.rows,
                 "{} tokens, {} outputs, reserved {} and {}", batch.num_tokens, batch.num_outputs,
                 act_.x.rows, act_.out_x.rows);
    HEARTH_CHECK(args.pools.size() == 1, "{} pools", args.pools.size());

    embed(batch);
    for (int32_t i = 0; i < config_.num_layers; ++i) {
      const LlamaWeights::Layer& layer = weights_.layers[static_cast<size_t>(i)];
      attention(batch, layer, layer_kv(args.pools[0], i));
      feed_forward(batch, layer);
    }
    if (batch.num_outputs > 0) head(batch, args.logits);
  }

 private:
  void embed(const BatchIndex& batch) {
    ops_.embed(state(), {.batch = &batch, .table = weights_.embedding.get(), .out = act_.x});
    ops_.rope_table(state(), {.batch = &batch,
                              .inv_freq = weights_.rope_frequencies.get(),
                              .magnitude = rope_magnitude_,
                              .cos_sin = act_.cos_sin});
  }

  void attention(const BatchIndex& batch, const LlamaWeights::Layer& layer, const PagedKv& kv) {
    const LlamaConfig& c = config_;
    const TensorView q = act_.qkv.columns(0, c.q_width());
    const TensorView k = act_.qkv.columns(c.q_width(), c.kv_width());
    const TensorView v = act_.qkv.columns(c.q_width() + c.kv_width(), c.kv_width());

    norm(batch, Rows::kTokens, act_.x, layer.attn_norm.get(), act_.normed);
    matmul(batch, act_.normed, layer.qkv.get(), layer.qkv_bias.get(), act_.qkv);
    rope(batch, q, c.num_heads);
    rope(batch, k, c.num_kv_heads);
    ops_.kv_store(state(), {.batch = &batch, .k = k, .v = v, .kv = kv});
    ops_.attention(state(), {.batch = &batch,
                             .q = q,
                             .kv = kv,
                             .num_heads = c.num_heads,
                             .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                             .window = c.window,
                             .out = act_.attn});
    matmul_add(batch, act_.attn, layer.attn_out.get(), layer.attn_bias.get());
  }

  void feed_forward(const BatchIndex& batch, const LlamaWeights::Layer& layer) {
    norm(batch, Rows::kTokens, act_.x, layer.ffn_norm.get(), act_.normed);
    matmul(batch, act_.normed, layer.gate_up.get(), layer.gate_up_bias.get(), act_.gate_up);
    ops_.gated_activation(state(), {.batch = &batch, .gate_up = act_.gate_up, .out = act_.gated});
    matmul_add(batch, act_.gated, layer.down.get(), layer.down_bias.get());
  }

  /// Only the rows asked for: a prefill wants one of hundreds, and the head is the largest matrix.
  void head(const BatchIndex& batch, const TensorView& logits) {
    ops_.gather_rows(state(), {.batch = &batch, .x = act_.x, .out = act_.out_x});
    norm(batch, Rows::kOutputs, act_.out_x, weights_.output_norm.get(), act_.out_norm);
    ops_.matmul(state(), {.batch = &batch,
                          .rows = Rows::kOutputs,
                          .x = act_.out_norm,
                          .w = weights_.head(),
                          .out = logits});
  }

  // ---- Single ops ---------------------------------------------------------------------------

  void norm(const BatchIndex& batch, Rows rows, const TensorView& x, const Weight* weight,
            const TensorView& out) {
    ops_.rms_norm(state(), {.batch = &batch,
                            .rows = rows,
                            .x = x,
                            .weight = weight,
                            .eps = config_.rms_eps,
                            .out = out});
  }

  void matmul(const BatchIndex& batch, const TensorView& x, const Weight* w, const Weight* bias,
              const TensorView& out) {
    ops_.matmul(state(), {.batch = &batch, .x = x, .w = w, .out = out});
    if (bias != nullptr) ops_.add_bias(state(), {.batch = &batch, .bias = bias, .out = out});
  }

  /// The residual stream += y w.
  void matmul_add(const BatchIndex& batch, const TensorView& y, const Weight* w,
                  const Weight* bias) {
    ops_.matmul(state(), {.batch = &batch, .x = y, .w = w, .residual = &act_.x, .out = act_.x});
    if (bias != nullptr) ops_.add_bias(state(), {.batch = &batch, .bias = bias, .out = act_.x});
  }

  void rope(const BatchIndex& batch, const TensorView& x, int32_t num_heads) {
    ops_.rope(state(), {.batch = &batch,
                        .x = x,
                        .num_heads = num_heads,
                        .head_dim = config_.head_dim,
                        .cos_sin = act_.cos_sin});
  }

  PagedKv layer_kv(const KvPool& pool, int32_t layer) const {
    PagedKv kv;
    kv.base = pool.base;
    kv.block_bytes = pool.block_bytes;
    kv.layer_offset = layer * kernels::kv_layer_bytes(pool.dtype, pool.block_size,
                                                      config_.num_kv_heads, config_.head_dim);
    kv.dtype = pool.dtype;
    kv.block_size = pool.block_size;
    kv.num_kv_heads = config_.num_kv_heads;
    kv.head_dim = config_.head_dim;
    return kv;
  }

  void* state() const { return ops_.state.get(); }

  LlamaConfig config_;
  ModelInfo info_;
  float rope_magnitude_ = rope_magnitude(config_.rope);
  OpTable ops_;
  LlamaWeights weights_;
  kernels::DeviceBuffer memory_;
  Activations act_;
};

}  // namespace

Result<std::unique_ptr<Model>> load_llama(const GgufFile& file, const OpTable& ops,
                                          const LoadProgressFn& progress) {
  HEARTH_ASSIGN_OR_RETURN(const LlamaConfig config, LlamaConfig::load(file));
  HEARTH_ASSIGN_OR_RETURN(ModelInfo info, describe_file(file));
  HEARTH_ASSIGN_OR_RETURN(LlamaWeights weights, LlamaWeights::load(file, config, ops, progress));
  info.context_length = config.context_length;
  info.vocab_size = static_cast<int32_t>(weights.embedding->rows);
  info.width = config.width;
  info.num_layers = config.num_layers;
  info.num_heads = config.num_heads;
  info.weight_bytes = weights.bytes;
  LayerGroup group;
  group.kind = config.window > 0 ? LayerGroup::Kind::kSliding : LayerGroup::Kind::kFull;
  group.window = config.window;
  group.num_layers = config.num_layers;
  group.num_kv_heads = config.num_kv_heads;
  group.head_dim = config.head_dim;
  info.groups = {group};
  return std::unique_ptr<Model>(
      std::make_unique<Llama>(config, std::move(weights), std::move(info), ops));
}

}  // namespace hearth::models
