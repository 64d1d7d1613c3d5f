#include "models/decoder/decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/ops/encoder_ops.h"
#include "models/decoder/feature_head.h"
#include "models/weights/file_info.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::OpTable;
using kernels::PagedKv;
using kernels::Rows;
using kernels::TensorView;
using kernels::Weight;

namespace {

/// An op that only some families need may be missing from a device's table.
Result<void> check_ops(const DecoderConfig& c, const OpTable& ops) {
  const auto want = [&](bool needed, bool there, std::string_view op) -> Result<void> {
    if (!needed || there) return {};
    return Error::unsupported(
        fmt::format("architecture {}: needs {}, which this build does not do on {}", c.architecture,
                    op, ops.device.kind));
  };
  HEARTH_TRY(want(c.has_branch(), ops.add_scaled != nullptr, "scaled sums"));
  const bool experts =
      ops.moe_route != nullptr && ops.moe_matmul != nullptr && ops.moe_combine != nullptr;
  HEARTH_TRY(want(c.experts.count > 0, experts, "mixture of experts"));
  const bool even = std::ranges::all_of(c.groups, [](const LayerGroup& group) {
    return group.kv.k_dim == group.kv.v_dim && !group.kv.v_in_k;
  });
  HEARTH_TRY(want(!even, ops.any_kv_shape, "keys and values of different sizes"));
  const bool copies = ops.copy_heads != nullptr;
  const auto any_layer = [&c](bool (*has)(const LayerSpec&)) {
    return std::ranges::any_of(c.layers, has);
  };
  HEARTH_TRY(want(c.latent.kv_rank > 0, copies && experts, "latent attention"));
  HEARTH_TRY(want(c.altup.streams > 0, copies && experts && ops.times_rms != nullptr,
                  "several residual streams"));
  HEARTH_TRY(want(any_layer([](const LayerSpec& l) { return l.gate_cutoff != kNoCutoff; }),
                  ops.keep_peaks != nullptr, "sparse activations"));
  HEARTH_TRY(want(c.per_layer_width > 0, copies, "per-layer embeddings"));
  HEARTH_TRY(want(any_layer([](const LayerSpec& l) { return l.v_may_be_k; }), copies,
                  "values made from keys"));
  HEARTH_TRY(want(c.recurrent.kind != RecurrentConfig::Kind::kNone,
                  ops.recurrent != nullptr || ops.embed == nullptr, "layers with a state"));
  HEARTH_TRY(
      want(c.relu_squared,
           ops.embed == nullptr || (ops.encoder != nullptr && ops.encoder->relu_squared != nullptr),
           "squares of relu"));
  using Kind = RecurrentConfig::Kind;
  const Kind kind = c.recurrent.kind;
  const bool interleaved =
      c.gate_in_q || c.recurrent.joined_gates || kind == Kind::kPlamo || kind == Kind::kLightning;
  HEARTH_TRY(want(interleaved, copies || ops.embed == nullptr, "rows with the parts of each head"));
  // A table without `embed` only measures.
  const bool more = c.norm != Norm::kRms || !c.gated_ffn || c.attention_gate || c.gate_in_q ||
                    c.canvas.mask_token >= 0 || c.position_scale > 0 || kind == Kind::kKimiDelta ||
                    kind == Kind::kLightning || kind == Kind::kWkv;
  HEARTH_TRY(want(more, ops.encoder != nullptr || ops.embed == nullptr,
                  "layer norms, gelu, factors of rows, or attention to all tokens"));
  const bool scales = c.logit_scale != 1 || c.logit_soft_cap > 0 || c.altup.streams > 0 ||
                      c.layer_scale || c.experts.logit_scale != 1 || c.normed_stream > 0 ||
                      kind == Kind::kWkv;
  return want(scales, ops.soft_cap != nullptr, "soft caps");
}

}  // namespace

Result<Decoder::Parts> Decoder::load_parts(const GgufFile& file, DecoderConfig config,
                                           const OpTable& ops, const LoadProgressFn& progress,
                                           const LoadOptions& options) {
  HEARTH_TRY(check_ops(config, ops));
  HEARTH_TRY(config.choose_stage(options.layers));
  HEARTH_TRY(config.choose_share(options.share));
  config.experts.apart = options.experts != nullptr && config.experts.count > 0;
  config.experts.some_hot =
      config.experts.apart && options.hot_experts != nullptr &&
      std::ranges::any_of(*options.hot_experts, [](const auto& hot) { return !hot.empty(); });
  HEARTH_ASSIGN_OR_RETURN(ModelInfo info, describe_file(file));
  HEARTH_ASSIGN_OR_RETURN(DecoderWeights weights,
                          DecoderWeights::load(file, config, ops, progress, options));
  info.context_length = config.context_length;
  info.vocab_size = weights.vocab_size;
  info.width = config.width;
  info.num_layers = config.num_layers;
  info.weight_bytes = weights.bytes;
  info.expert_bytes = weights.expert_bytes;
  info.drafts = config.draft_layer;
  info.draft_weight_bytes = weights.draft_bytes;
  info.draft_vocab =
      weights.draft.head ? narrow<int32_t>(weights.draft.head->rows) : info.vocab_size;
  info.stages.push_back(config.stage_info(weights.bytes));
  config.narrow_to_share();
  info.num_heads = config.most([](const LayerSpec& layer) { return layer.num_heads; });
  info.groups = config.groups;
  info.canvas = config.canvas;
  if (info.canvas.mask_token >= info.vocab_size) {
    return Error::corrupt(fmt::format("tokenizer.ggml.mask_token_id: {}, the model has {} tokens",
                                      info.canvas.mask_token, info.vocab_size));
  }
  HEARTH_ASSIGN_OR_RETURN(info.pooling, load_pooling(file, config.architecture));
  Parts parts{std::move(config), std::move(weights), std::move(info), ops, {}};
  if (parts.config.experts.apart) parts.expert_ops = *options.experts;
  return parts;
}

Decoder::Decoder(Parts parts)
    : config_(std::move(parts.config)),
      info_(std::move(parts.info)),
      ops_(std::move(parts.ops)),
      expert_ops_(std::move(parts.expert_ops)),
      weights_(std::move(parts.weights)) {
  set_context_length(config_.context_length);
}

Decoder::~Decoder() = default;

void Decoder::set_context_length(int32_t context_length) {
  long_context_ = !config_.ropes.empty() && context_length > config_.ropes.front().original_context;
}

uint64_t Decoder::activation_bytes(int32_t max_tokens, int32_t max_outputs) const {
  return Activations().lay_out(config_, max_tokens, max_outputs, nullptr) +
         (feature_head_ == nullptr ? 0 : feature_head_->activation_bytes(max_tokens, max_outputs));
}

Result<void> Decoder::reserve(int32_t max_tokens, int32_t max_outputs) {
  const uint64_t bytes = act_.lay_out(config_, max_tokens, max_outputs, nullptr);
  HEARTH_ASSIGN_OR_RETURN(memory_, kernels::DeviceBuffer::allocate(ops_, bytes, "activations"));
  act_.lay_out(config_, max_tokens, max_outputs, memory_.data());
  if (config_.experts.apart) HEARTH_TRY(reserve_expert_rows(max_tokens));
  if (feature_head_ != nullptr) HEARTH_TRY(feature_head_->reserve(max_tokens, max_outputs));
  if (config_.latent.kv_rank == 0) return {};
  const TensorView& heads = act_.latent.heads;
  std::vector<int32_t> numbers;
  for (int64_t row = 0; row < heads.rows; ++row) {
    for (int32_t head = 0; head < heads.cols; ++head) numbers.push_back(head);
  }
  ops_.copy_to_device(state(), heads.data, numbers.data(), numbers.size() * sizeof(int32_t));
  ops_.synchronize(state());
  return {};
}

void Decoder::forward(const StepArgs& args) {
  const BatchIndex& batch = *args.batch;
  HEARTH_CHECK(batch.num_tokens <= act_.x.rows && batch.num_outputs <= act_.out_x.rows,
               "{} tokens, {} outputs, reserved {} and {}", batch.num_tokens, batch.num_outputs,
               act_.x.rows, act_.out_x.rows);
  HEARTH_CHECK(args.pools.size() == config_.groups.size(), "{} pools for {} groups",
               args.pools.size(), config_.groups.size());
  adapted_ = args.adapted;
  begin_step(args);
  for (int32_t i = config_.stage.first; i < config_.stage.end; ++i) {
    if (feature_head_ != nullptr) feature_head_->take(batch, i, act_.x);
    layer(step_of(args, i));
  }
  end_step(args);
  if (config_.draft_layer) store_draft_kv(args);
  if (feature_head_ != nullptr) feature_head_->store(args);
  adapted_ = {};
}

Decoder::LayerStep Decoder::step_of(const StepArgs& args, int32_t i) const {
  const LayerSpec& spec = config_.layers[i];
  return {*args.batch,
          weights_.layers[i],
          spec,
          layer_kv(args.pools, spec),
          act_.attn.columns(0, spec.num_heads > 0 ? spec.out_width() : 0),
          act_.gated.columns(0, spec.ffn_width),
          i,
          layer_state(args.pools, spec),
          args.also_stored};
}

// The result reuses an activation buffer, whose content is not needed after the last layer.
TensorView Decoder::final_rows(const BatchIndex& batch) {
  if (config_.draft_layer) return act_.draft.hidden;
  norm_rows(batch, Rows::kTokens, act_.x, weights_.output_norm, weights_.output_norm_bias,
            act_.normed, nullptr);
  return act_.normed;
}

// ---- Before and after the layers --------------------------------------------------------------

const Weight* Decoder::frequencies(size_t rope) const {
  const bool stretched = rope == 0 && long_context_ && weights_.long_rope_frequencies;
  return stretched ? weights_.long_rope_frequencies.get() : weights_.rope_frequencies[rope].get();
}

void Decoder::embed(const BatchIndex& batch) {
  ops_.embed(state(), {.batch = &batch,
                       .table = weights_.embedding.get(),
                       .scale = config_.embedding_scale,
                       .out = act_.x});
  if (config_.share.is_part()) config_.share.link->join_embedding(batch.num_tokens, act_.x);
  if (weights_.embedding_norm) {
    norm_rows(batch, Rows::kTokens, act_.x, weights_.embedding_norm, weights_.embedding_norm_bias,
              act_.x, nullptr);
  }
  rotations(batch);
  if (config_.per_layer_width > 0) embed_per_layer(batch);
}

void Decoder::rotations(const BatchIndex& batch) {
  for (size_t i = 0; i < config_.ropes.size(); ++i) {
    ops_.rope_table(state(), {.batch = &batch,
                              .inv_freq = frequencies(i),
                              .magnitude = rope_magnitude(config_.ropes[i]),
                              .cos_sin = act_.cos_sin[i]});
  }
}

/// Computes only the requested rows: a prefill needs one of hundreds, and the head is the largest
/// matrix.
void Decoder::head(const BatchIndex& batch, const Weight* weight, const TensorView& logits) {
  ops_.gather_rows(state(), {.batch = &batch, .x = act_.x, .out = act_.out_x});
  norm_rows(batch, Rows::kOutputs, act_.out_x, weights_.output_norm, weights_.output_norm_bias,
            act_.out_norm, weight);
  head_product(batch, act_.out_norm, weight, logits);
}

void Decoder::head_product(const BatchIndex& batch, const TensorView& rows, const Weight* weight,
                           const TensorView& logits) {
  multiply({.batch = &batch, .rows = Rows::kOutputs, .x = rows, .w = weight, .out = logits});
  if (config_.logit_scale == 1 && config_.logit_soft_cap == 0) return;
  ops_.soft_cap(state(), {.batch = &batch,
                          .scale = config_.logit_scale,
                          .soft_cap = config_.logit_soft_cap,
                          .x = logits});
}

PagedKv Decoder::layer_kv(std::span<const KvPool> pools, const LayerSpec& spec) const {
  PagedKv kv;
  if (spec.num_heads == 0) return kv;
  const KvPool& pool = pools[spec.group];
  kv.base = pool.base;
  kv.block_bytes = pool.block_bytes;
  kv.layer_offset =
      spec.index * kernels::kv_layer_bytes(pool.types, pool.block_size, spec.kv) - pool.first_byte;
  kv.types = pool.types;
  kv.block_size = pool.block_size;
  kv.shape = spec.kv;
  return kv;
}

kernels::StatePart Decoder::layer_state(std::span<const KvPool> pools,
                                        const LayerSpec& spec) const {
  if (!spec.recurrent) return {};
  const KvPool& pool = pools.back();
  return {pool.base, pool.block_bytes,
          spec.state_index * config_.recurrent.state_bytes() - pool.first_byte};
}

// ---- Parts of a layer -------------------------------------------------------------------------

void Decoder::gated(const LayerStep& s, const TensorView& in) {
  if (!config_.gated_ffn) {
    product(s, in, s.weights.gate_up, s.weights.gate_up_bias, s.gated);
    if (config_.relu_squared) {
      ops_.encoder->relu_squared(state(), {.batch = &s.batch, .x = s.gated});
    } else {
      ops_.encoder->gelu(state(), {.batch = &s.batch, .x = s.gated, .by_tanh = true});
    }
    return;
  }
  const TensorView gate_up = act_.gate_up.columns(0, 2 * int64_t{s.spec.ffn_width});
  const kernels::GatedActivationArgs activation = {
      .batch = &s.batch,
      .gate_up = gate_up,
      .activation = config_.activation,
      .out = s.gated,
      .reader = config_.share.is_part() ? nullptr : s.weights.down.get()};
  const auto at_once = ops_.encoder == nullptr ? nullptr : ops_.encoder->multiply_and_gate;
  if (at_once != nullptr && !s.weights.gate_up_bias && adapted_.empty() &&
      s.spec.gate_cutoff == kNoCutoff) {
    return at_once(state(),
                   {.batch = &s.batch, .x = in, .w = s.weights.gate_up.get(), .out = gate_up},
                   activation);
  }
  product(s, in, s.weights.gate_up, s.weights.gate_up_bias, gate_up);
  if (s.spec.gate_cutoff != kNoCutoff) {
    ops_.keep_peaks(state(), {.batch = &s.batch,
                              .x = gate_up.columns(0, s.spec.ffn_width),
                              .deviations = s.spec.gate_cutoff});
  }
  ops_.gated_activation(state(), activation);
}

void Decoder::add_feed_forward(const LayerStep& s, const TensorView& in) {
  if (s.spec.experts) {
    route(s, in);
    sum_experts(s, in, act_.x, true);
  }
  if (s.spec.ffn_width == 0) return;
  if (s.weights.shared_gate) return add_shared_expert(s, in);
  gated(s, in);
  add_product(s, s.gated, s.weights.down, s.weights.down_bias);
}

void Decoder::norm_rows(const BatchIndex& batch, Rows rows, const TensorView& x,
                        const WeightHandle& weight, const WeightHandle& bias, const TensorView& out,
                        const Weight* reader) {
  if (config_.norm == Norm::kRms) {
    ops_.rms_norm(state(), {.batch = &batch,
                            .rows = rows,
                            .x = x,
                            .weight = weight.get(),
                            .eps = config_.eps,
                            .out = out,
                            .reader = reader});
    return;
  }
  ops_.encoder->layer_norm(state(), {.batch = &batch,
                                     .x = x,
                                     .weight = weight.get(),
                                     .bias = bias.get(),
                                     .eps = config_.eps,
                                     .out = out,
                                     .rows = rows});
}

void Decoder::norm_input(const LayerStep& s, const WeightHandle& weight, const WeightHandle& bias,
                         const Weight* reader) {
  norm_rows(s.batch, Rows::kTokens, act_.x, weight, bias, act_.normed, reader);
}

void Decoder::copy_columns(const BatchIndex& batch, const TensorView& x, int64_t first,
                           const TensorView& out) {
  ops_.copy_heads(state(), {.batch = &batch,
                            .x = x,
                            .x_dim = narrow<int32_t>(x.cols),
                            .x_first = narrow<int32_t>(first),
                            .out = out,
                            .out_dim = narrow<int32_t>(out.cols),
                            .out_first = 0,
                            .num_heads = 1,
                            .count = narrow<int32_t>(out.cols)});
}

void Decoder::norm_stream(const LayerStep& s, const WeightHandle& weight) {
  norm(s, act_.x, weight, act_.normed);
  copy_columns(s.batch, act_.normed, 0, act_.x);
  scale_stream(s.batch, config_.normed_stream);
}

void Decoder::scale_stream(const BatchIndex& batch, float factor) {
  ops_.soft_cap(state(), {.batch = &batch, .rows = Rows::kTokens, .scale = factor, .x = act_.x});
}

void Decoder::norm(const LayerStep& s, const TensorView& x, const WeightHandle& weight,
                   const TensorView& out, const Weight* reader) {
  ops_.rms_norm(state(), {.batch = &s.batch,
                          .x = x,
                          .weight = weight.get(),
                          .eps = config_.eps,
                          .out = out,
                          .reader = reader});
}

const Weight* Decoder::first_of_feed_forward(const LayerStep& s) const {
  return s.spec.experts || s.weights.recurrent.shift ? nullptr : s.weights.gate_up.get();
}

void Decoder::multiply(const kernels::MatmulArgs& args) {
  ops_.matmul(state(), args);
  if (!adapted_.empty()) adapters_.add(args, adapted_, ops_);
}

void Decoder::product(const LayerStep& s, const TensorView& x, const WeightHandle& w,
                      const WeightHandle& bias, const TensorView& out) {
  multiply({.batch = &s.batch, .x = x, .w = w.get(), .out = out});
  if (bias) ops_.add_bias(state(), {.batch = &s.batch, .bias = bias.get(), .out = out});
}

void Decoder::products(const LayerStep& s, std::initializer_list<Product> all) {
  std::vector<kernels::MatmulArgs> args;
  for (const Product& each : all) {
    if (each.w)
      args.push_back({.batch = &s.batch, .x = each.x, .w = each.w.get(), .out = each.out});
  }
  kernels::multiply_all(ops_, args);
  if (adapted_.empty()) return;
  for (const kernels::MatmulArgs& each : args) adapters_.add(each, adapted_, ops_);
}

void Decoder::add_product(const LayerStep& s, const TensorView& y, const WeightHandle& w,
                          const WeightHandle& bias) {
  const TensorView in = all_columns(s, y);
  if (config_.residual_scale != 1) {
    product(s, in, w, bias, own_columns(act_.branch));
    join_columns(s, act_.branch);
    ops_.add_scaled(
        state(),
        {.batch = &s.batch, .x = act_.branch, .scale = config_.residual_scale, .out = act_.x});
    return;
  }
  const TensorView out = own_columns(act_.x);
  multiply({.batch = &s.batch, .x = in, .w = w.get(), .residual = &out, .out = out});
  if (bias) ops_.add_bias(state(), {.batch = &s.batch, .bias = bias.get(), .out = out});
  join_columns(s, act_.x);
}

void Decoder::add_normed_product(const LayerStep& s, const TensorView& y, const WeightHandle& w,
                                 const WeightHandle& bias, const WeightHandle& norm_weight) {
  product(s, all_columns(s, y), w, bias, own_columns(act_.branch));
  join_columns(s, act_.branch);
  ops_.rms_norm(state(), {.batch = &s.batch,
                          .x = act_.branch,
                          .weight = norm_weight.get(),
                          .eps = config_.post_eps,
                          .out = act_.branch});
  ops_.add_scaled(state(), {.batch = &s.batch, .x = act_.branch, .out = act_.x});
}

void PreNormDecoder::layer(const LayerStep& s) {
  if (s.spec.recurrent) {
    norm_input(s, s.weights.attn_norm, s.weights.attn_norm_bias, s.weights.recurrent.in.get());
    recurrent(s, act().normed);
    // Attention of the same layer reads the same row.
    if (s.spec.num_heads > 0) attention(s, act().normed);
    add_product(s, act().recurrent.out, s.weights.recurrent.out, {});
    if (s.spec.num_heads > 0) add_product(s, s.attn, s.weights.attn_out, s.weights.attn_bias);
  } else if (s.spec.num_heads > 0) {
    norm_input(s, s.weights.attn_norm, s.weights.attn_norm_bias, s.weights.qkv.get());
    attention(s, act().normed);
    add_product(s, s.attn, s.weights.attn_out, s.weights.attn_bias);
  } else if (s.spec.linear) {
    norm_input(s, s.weights.attn_norm, s.weights.attn_norm_bias, s.weights.attn_out.get());
    add_product(s, act().normed, s.weights.attn_out, s.weights.attn_bias);
  }
  if (!s.spec.experts && s.spec.ffn_width == 0) return;
  norm_input(s, s.weights.ffn_norm, s.weights.ffn_norm_bias, first_of_feed_forward(s));
  add_feed_forward(s, feed_forward_rows(s));
}

void ParallelDecoder::layer(const LayerStep& s) {
  norm_input(s, s.weights.attn_norm, s.weights.attn_norm_bias, s.weights.qkv.get());
  attention(s, act().normed);
  add_product(s, s.attn, s.weights.attn_out, s.weights.attn_bias);
  add_feed_forward(s, act().normed);
}

void LatentDecoder::layer(const LayerStep& s) {
  norm(s, act().x, s.weights.attn_norm, act().normed);
  if (s.spec.recurrent) {
    recurrent(s, act().normed);
    add_product(s, act().recurrent.out, s.weights.recurrent.out, {});
  } else {
    latent_attention(s, act().normed);
    add_product(s, act().latent.out, s.weights.attn_out, s.weights.attn_bias);
  }
  norm(s, act().x, s.weights.ffn_norm, act().normed, first_of_feed_forward(s));
  add_feed_forward(s, act().normed);
}

void NormedStreamDecoder::layer(const LayerStep& s) {
  norm_stream(s, s.weights.attn_norm);
  if (s.spec.recurrent) {
    recurrent(s, act().normed);
    add_product(s, act().recurrent.out, s.weights.recurrent.out, {});
  } else {
    attention(s, act().normed);
    add_product(s, s.attn, s.weights.attn_out, s.weights.attn_bias);
  }
  norm_stream(s, s.weights.ffn_norm);
  add_feed_forward(s, act().normed);
}

void SandwichDecoder::layer(const LayerStep& s) {
  if (s.spec.recurrent) {
    norm(s, act().x, s.weights.attn_norm, act().normed, s.weights.recurrent.in.get());
    recurrent(s, act().normed);
    add_normed_product(s, act().recurrent.out, s.weights.recurrent.out, {},
                       s.weights.attn_post_norm);
  } else {
    norm(s, act().x, s.weights.attn_norm, act().normed, s.weights.qkv.get());
    attention(s, act().normed);
    add_normed_product(s, s.attn, s.weights.attn_out, s.weights.attn_bias,
                       s.weights.attn_post_norm);
  }
  if (s.spec.experts) {
    add_feed_forward_with_experts(s);
  } else {
    norm(s, act().x, s.weights.ffn_norm, act().normed, s.weights.gate_up.get());
    gated(s, act().normed);
    add_normed_product(s, s.gated, s.weights.down, s.weights.down_bias, s.weights.ffn_post_norm);
  }
  if (s.weights.per_layer.gate) {
    per_layer_branch(s, act().x);
    ops().add_scaled(state(), {.batch = &s.batch, .x = act().branch, .out = act().x});
  }
  if (s.weights.scale != 1) scale_stream(s.batch, s.weights.scale);
}

void PostNormDecoder::layer(const LayerStep& s) {
  attention(s, act().x);
  add_normed_product(s, s.attn, s.weights.attn_out, s.weights.attn_bias, s.weights.attn_post_norm);
  gated(s, act().x);
  add_normed_product(s, s.gated, s.weights.down, s.weights.down_bias, s.weights.ffn_post_norm);
}

}  // namespace hearth::models
