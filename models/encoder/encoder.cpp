#include "models/encoder/encoder.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "models/weights/file_info.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::PagedKv;
using kernels::TensorView;

Result<std::unique_ptr<Model>> Encoder::load(const GgufFile& file, const EncoderConfig& c,
                                             const kernels::OpTable& ops,
                                             const LoadProgressFn& progress) {
  kernels::EncoderOps more;
  if (ops.embed != nullptr) {  // a table without ops only measures
    HEARTH_ASSIGN_OR_RETURN(more, kernels::encoder_ops(ops));
  }
  HEARTH_ASSIGN_OR_RETURN(ModelInfo info, describe_file(file));
  HEARTH_ASSIGN_OR_RETURN(EncoderWeights weights, EncoderWeights::load(file, c, ops, progress));
  info.context_length = c.context_length;
  info.vocab_size = narrow<int32_t>(weights.embedding->rows);
  info.width = c.width;
  info.num_layers = c.num_layers;
  info.num_heads = c.num_heads;
  info.weight_bytes = weights.bytes;
  info.generates = false;
  info.pooling = c.pooling;
  LayerGroup group;
  group.num_layers = 1;
  group.kv = kernels::KvShape::even(c.num_heads, c.head_dim);
  info.groups = {group};
  return std::unique_ptr<Model>(new Encoder(c, std::move(weights), std::move(info), ops, more));
}

Encoder::Encoder(const EncoderConfig& config, EncoderWeights weights, ModelInfo info,
                 kernels::OpTable ops, const kernels::EncoderOps& more)
    : config_(config),
      info_(std::move(info)),
      ops_(std::move(ops)),
      more_(more),
      weights_(std::move(weights)) {}

Encoder::Activations Encoder::lay_out(int32_t tokens, std::byte* base, uint64_t* bytes) const {
  Activations act;
  *bytes = 0;
  const auto place = [&](int64_t cols) {
    TensorView view;
    view.data = base == nullptr ? nullptr : base + *bytes;
    view.rows = tokens;
    view.cols = view.row_stride = cols;
    constexpr uint64_t kAlignment = 64;
    const uint64_t size = tokens * cols * 4;
    *bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
    return view;
  };
  const int64_t width = config_.width;
  act.x = place(width);
  act.qkv = place(3 * width);
  act.attn = place(width);
  act.up = place(int64_t{config_.gated ? 2 : 1} * config_.ffn_width);
  if (config_.gated) act.gated = place(config_.ffn_width);
  if (config_.rope) act.cos_sin = place(config_.rope->dim);
  return act;
}

uint64_t Encoder::activation_bytes(int32_t max_tokens, int32_t) const {
  uint64_t bytes = 0;
  lay_out(max_tokens, nullptr, &bytes);
  return bytes;
}

Result<void> Encoder::reserve(int32_t max_tokens, int32_t max_outputs) {
  uint64_t bytes = activation_bytes(max_tokens, max_outputs);
  HEARTH_ASSIGN_OR_RETURN(memory_, kernels::DeviceBuffer::allocate(ops_, bytes, "activations"));
  act_ = lay_out(max_tokens, memory_.data(), &bytes);
  return {};
}

void Encoder::forward(const StepArgs& args) {
  const BatchIndex& batch = *args.batch;
  HEARTH_CHECK(batch.num_tokens <= act_.x.rows && args.pools.size() == 1,
               "{} tokens, reserved {}; {} pools", batch.num_tokens, act_.x.rows,
               args.pools.size());
  embed(batch);
  for (const EncoderWeights::Layer& layer : weights_.layers) {
    attention(batch, args.pools.front(), layer);
    feed_forward(batch, layer);
  }
}

void Encoder::embed(const BatchIndex& batch) {
  ops_.embed(state(), {.batch = &batch, .table = weights_.embedding.get(), .out = act_.x});
  if (weights_.token_type) {
    ops_.add_bias(state(), {.batch = &batch, .bias = weights_.token_type.get(), .out = act_.x});
  }
  if (weights_.positions) {
    // Position rows are embedded like tokens, with the positions as ids.
    BatchIndex by_position = batch;
    by_position.token_ids = batch.positions;
    ops_.embed(state(),
               {.batch = &by_position, .table = weights_.positions.get(), .out = act_.attn});
    ops_.add_scaled(state(), {.batch = &batch, .x = act_.attn, .out = act_.x});
  } else {
    ops_.rope_table(state(), {.batch = &batch,
                              .inv_freq = weights_.rope_frequencies.get(),
                              .magnitude = rope_magnitude(*config_.rope),
                              .cos_sin = act_.cos_sin});
  }
  norm(batch, weights_.embedding_norm);
}

void Encoder::attention(const BatchIndex& batch, const KvPool& pool,
                        const EncoderWeights::Layer& layer) {
  const int64_t width = config_.width;
  const TensorView q = act_.qkv.columns(0, width);
  const TensorView k = act_.qkv.columns(width, width);
  const TensorView v = act_.qkv.columns(2 * width, width);
  product(batch, act_.x, layer.qkv, layer.qkv_bias, act_.qkv);
  if (config_.rope) {
    for (const TensorView& heads : {q, k}) {
      ops_.rope(state(), {.batch = &batch,
                          .x = heads,
                          .num_heads = config_.num_heads,
                          .head_dim = config_.head_dim,
                          .cos_sin = act_.cos_sin,
                          .pairs = kernels::RopePairs::kHalves});
    }
  }
  const PagedKv kv{.base = pool.base,
                   .block_bytes = pool.block_bytes,
                   .layer_offset = 0,
                   .types = pool.types,
                   .block_size = pool.block_size,
                   .shape = info_.groups.front().kv};
  ops_.kv_store(state(), {.batch = &batch, .group = 0, .k = k, .v = v, .kv = kv});
  more_.attention_to_all(state(), {.batch = &batch,
                                   .group = 0,
                                   .q = q,
                                   .kv = kv,
                                   .num_heads = config_.num_heads,
                                   .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                                   .out = act_.attn});
  add_and_norm(batch, act_.attn, layer.attn_out, layer.attn_out_bias, layer.attn_norm);
}

void Encoder::feed_forward(const BatchIndex& batch, const EncoderWeights::Layer& layer) {
  product(batch, act_.x, layer.up, layer.up_bias, act_.up);
  if (config_.gated) {
    ops_.gated_activation(
        state(),
        {.batch = &batch, .gate_up = act_.up, .out = act_.gated, .reader = layer.down.get()});
  } else {
    more_.gelu(state(), {.batch = &batch, .x = act_.up});
  }
  add_and_norm(batch, config_.gated ? act_.gated : act_.up, layer.down, layer.down_bias,
               layer.ffn_norm);
}

void Encoder::product(const BatchIndex& batch, const TensorView& x, const WeightHandle& w,
                      const WeightHandle& bias, const TensorView& out) {
  ops_.matmul(state(), {.batch = &batch, .x = x, .w = w.get(), .out = out});
  if (bias) ops_.add_bias(state(), {.batch = &batch, .bias = bias.get(), .out = out});
}

void Encoder::add_and_norm(const BatchIndex& batch, const TensorView& y, const WeightHandle& w,
                           const WeightHandle& bias, const NormWeights& weights) {
  ops_.matmul(state(), {.batch = &batch, .x = y, .w = w.get(), .residual = &act_.x, .out = act_.x});
  if (bias) ops_.add_bias(state(), {.batch = &batch, .bias = bias.get(), .out = act_.x});
  norm(batch, weights);
}

void Encoder::norm(const BatchIndex& batch, const NormWeights& weights) {
  more_.layer_norm(state(), {.batch = &batch,
                             .x = act_.x,
                             .weight = weights.weight.get(),
                             .bias = weights.bias.get(),
                             .eps = config_.eps,
                             .out = act_.x});
}

}  // namespace hearth::models
