#include "models/decoder/decoder_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "kernels/base/numbers.h"
#include "models/decoder/decoder_tensors.h"

namespace hearth::models {
namespace {

using kernels::WeightRole;

Result<WeightHandle> pack_ones(WeightPacker& packer, int32_t count) {
  return packer.pack_values("ones", std::vector<float>(count, 1.0f));
}

Result<void> pack_altup(WeightPacker& packer, const LayerTensors& t,
                        DecoderWeights::Layer::AltUp& w) {
  constexpr WeightRole kMatmul = WeightRole::kMatmul;
  constexpr WeightRole kVector = WeightRole::kVector;
  HEARTH_ASSIGN_OR_RETURN(w.router_norm, packer.pack({t.altup_router_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.router, packer.pack({t.altup_router}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.predict, packer.pack({t.altup_predict}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.correct, packer.pack({t.altup_correct}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.scale, packer.pack({t.altup_scale}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.laurel_in, packer.pack({t.laurel_in}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.laurel_out, packer.pack({t.laurel_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.laurel_norm, packer.pack({t.laurel_post_norm}, kVector));
  return {};
}

Result<void> pack_expert_products(WeightPacker& packer, const LayerTensors& t,
                                  DecoderWeights::Layer::Experts& w) {
  constexpr WeightRole kExperts = WeightRole::kExperts;
  if (t.gate_up_experts != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.gate_up, packer.pack({t.gate_up_experts}, kExperts));
  } else if (t.gate_experts != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.gate_up, packer.pack({t.gate_experts, t.up_experts}, kExperts));
  } else {
    HEARTH_ASSIGN_OR_RETURN(w.gate_up, packer.pack({t.up_experts}, kExperts));
  }
  HEARTH_ASSIGN_OR_RETURN(w.down, packer.pack({t.down_experts}, kExperts));
  HEARTH_ASSIGN_OR_RETURN(w.gate_up_bias,
                          packer.pack_biases({t.gate_experts_bias, t.up_experts_bias}));
  HEARTH_ASSIGN_OR_RETURN(w.down_bias, packer.pack_biases({t.down_experts_bias}));
  return {};
}

/// A second time, for the model's own table. `hot` ascends.
Result<void> pack_hot_experts(WeightPacker& packer, const LayerTensors& t,
                              std::span<const int32_t> hot, int32_t num_experts,
                              DecoderWeights::Layer& w) {
  if (hot.empty() || !w.experts.gate_up) return {};
  w.hot_place.assign(num_experts, -1);
  for (size_t i = 0; i < hot.size(); ++i) {
    if (hot[i] < 0 || hot[i] >= num_experts) {
      return Error::invalid(fmt::format("hot experts: {} of {}", hot[i], num_experts), "experts");
    }
    w.hot_place[hot[i]] = narrow<int32_t>(i);
  }
  return packer.pack_chosen(hot, [&] { return pack_expert_products(packer, t, w.hot_experts); });
}

Result<void> pack_experts(WeightPacker& packer, const LayerTensors& t, DecoderWeights::Layer& w) {
  constexpr WeightRole kVector = WeightRole::kVector;
  HEARTH_ASSIGN_OR_RETURN(w.router, packer.pack({t.router}, WeightRole::kMatmul));
  HEARTH_TRY(packer.pack_on_experts([&] { return pack_expert_products(packer, t, w.experts); }));
  HEARTH_ASSIGN_OR_RETURN(w.router_bias, packer.pack({t.router_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.selection_bias, packer.pack({t.selection_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.shared_gate, packer.pack({t.shared_gate}, WeightRole::kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.router_norm, packer.pack({t.router_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.expert_norm, packer.pack({t.expert_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.dense_post_norm, packer.pack({t.dense_post_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.expert_post_norm, packer.pack({t.expert_post_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.expert_scale, packer.pack({t.expert_scale}, kVector));
  return {};
}

/// A matrix of few columns as one vector, column after column. `more`: further rows, or null.
Result<WeightHandle> pack_transposed(WeightPacker& packer, const GgufTensor& tensor,
                                     std::initializer_list<const GgufTensor*> more = {}) {
  HEARTH_ASSIGN_OR_RETURN(std::vector<float> values, f32_values(tensor));
  for (const GgufTensor* next : more) {
    if (next == nullptr) continue;
    HEARTH_ASSIGN_OR_RETURN(const std::vector<float> added, f32_values(*next));
    values.insert(values.end(), added.begin(), added.end());
  }
  const size_t cols = tensor.dims[0], rows = values.size() / cols;
  std::vector<float> out(values.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) out[c * rows + r] = values[r * cols + c];
  }
  return packer.pack_values(tensor.name, out);
}

/// Each row of a matrix as a vector of its own; none if `tensor` is null.
Result<std::vector<WeightHandle>> pack_rows(WeightPacker& packer, const GgufTensor* tensor) {
  std::vector<WeightHandle> rows;
  if (tensor == nullptr) return rows;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> values, f32_values(*tensor));
  const size_t cols = tensor->dims[0];
  for (size_t first = 0; first < values.size(); first += cols) {
    HEARTH_ASSIGN_OR_RETURN(
        WeightHandle row, packer.pack_values(tensor->name, std::span(values).subspan(first, cols)));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// HeadScanArgs::a of lightning attention: heads forget faster the lower their number, and layers
/// slower the higher theirs.
std::vector<float> lightning_decays(int32_t num_heads, int32_t layer, int32_t num_layers) {
  constexpr double kLeastSlope = 1e-5;
  const double last = std::max(num_layers - 1, 1);
  std::vector<float> out;
  for (int32_t h = 1; h <= num_heads; ++h) {
    const double slope = std::exp2(-8.0 * h / num_heads) * (1 - layer / last + kLeastSlope);
    out.emplace_back(-slope);
  }
  return out;
}

/// ShortConvArgs::weight of two taps for rows mixed with those before: mu * before + (1 - mu) * row
/// for each row mu of the tensor.
Result<WeightHandle> pack_mix(WeightPacker& packer, const GgufTensor& tensor) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> mu, f32_values(tensor));
  const size_t width = tensor.dims[0];
  std::vector<float> out;
  out.reserve(2 * mu.size());
  for (size_t first = 0; first < mu.size(); first += width) {
    const std::span<const float> row = std::span(mu).subspan(first, width);
    out.insert(out.end(), row.begin(), row.end());
    for (const float value : row) out.emplace_back(1 - value);
  }
  return packer.pack_values(tensor.name, out);
}

Result<void> pack_wkv(WeightPacker& packer, const LayerTensors::Recurrent::Wkv& t,
                      DecoderWeights::Layer::Recurrent::Wkv& w) {
  constexpr WeightRole kMatmul = WeightRole::kMatmul;
  constexpr WeightRole kVector = WeightRole::kVector;
  HEARTH_ASSIGN_OR_RETURN(w.r, packer.pack({t.r}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.k, packer.pack({t.k}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.v, packer.pack({t.v}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.decay_in, packer.pack({t.decay_in}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.decay_out, packer.pack({t.decay_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.rate_in, packer.pack({t.rate_in}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.rate_out, packer.pack({t.rate_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.v_in, packer.pack({t.v_in}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.v_out, packer.pack({t.v_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.gate_in, packer.pack({t.gate_in}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.gate_out, packer.pack({t.gate_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.decay_bias, packer.pack({t.decay_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.rate_bias, packer.pack({t.rate_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.v_bias, packer.pack({t.v_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.erased_scale, packer.pack({t.erased_scale}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.k_scale, packer.pack({t.k_scale}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.bonus, packer.pack({t.bonus}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.norm, packer.pack({t.norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.norm_bias, packer.pack({t.norm_bias}, kVector));
  return {};
}

Result<void> pack_recurrent(WeightPacker& packer, const LayerTensors::Recurrent& t,
                            const RecurrentConfig& c, DecoderWeights::Layer::Recurrent& w) {
  constexpr WeightRole kMatmul = WeightRole::kMatmul;
  constexpr WeightRole kVector = WeightRole::kVector;
  if (t.out == nullptr) return {};
  if (t.shift != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.shift, pack_mix(packer, *t.shift));
  }
  if (c.kind == RecurrentConfig::Kind::kWkv) {
    HEARTH_ASSIGN_OR_RETURN(w.conv, pack_mix(packer, *t.conv));
    HEARTH_TRY(pack_wkv(packer, t.wkv, w.wkv));
    HEARTH_ASSIGN_OR_RETURN(w.out, packer.pack({t.out}, kMatmul));
    return {};
  }
  if (t.in[5] != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(
        w.in, packer.pack({t.in[0], t.in[1], t.in[2], t.in[3], t.in[4], t.in[5]}, kMatmul));
  } else if (t.in[3] != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.in, packer.pack({t.in[0], t.in[1], t.in[2], t.in[3]}, kMatmul));
  } else if (t.in[2] != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.in, packer.pack({t.in[0], t.in[1], t.in[2]}, kMatmul));
  } else if (t.in[1] != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.in, packer.pack({t.in[0], t.in[1]}, kMatmul));
  } else {
    HEARTH_ASSIGN_OR_RETURN(w.in, packer.pack({t.in[0]}, kMatmul));
  }
  if (t.conv != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.conv, pack_transposed(packer, *t.conv, {t.conv_k, t.conv_v}));
  }
  HEARTH_ASSIGN_OR_RETURN(w.conv_bias, packer.pack({t.conv_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.x, packer.pack({t.x}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.dt, packer.pack({t.dt}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.gate, packer.pack({t.gate}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.dt_bias, packer.pack({t.dt_bias}, kVector));
  if (c.kind == RecurrentConfig::Kind::kMamba) {
    HEARTH_ASSIGN_OR_RETURN(w.a, pack_transposed(packer, *t.a));
  } else if (t.a != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<float> a, f32_values(*t.a));
    HEARTH_ASSIGN_OR_RETURN(w.a, packer.pack_values(t.a->name, a));
  }
  if (t.skip != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<float> skip, f32_values(*t.skip));
    HEARTH_ASSIGN_OR_RETURN(w.skip, packer.pack_values(t.skip->name, skip));
  }
  HEARTH_ASSIGN_OR_RETURN(w.norms, pack_rows(packer, t.norm));
  HEARTH_ASSIGN_OR_RETURN(w.dt_norm, packer.pack({t.dt_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.b_norm, packer.pack({t.b_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.c_norm, packer.pack({t.c_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.out, packer.pack({t.out}, kMatmul));
  return {};
}

/// `split`: K and V have a product of their own.
Result<DecoderWeights::Layer> pack_layer(WeightPacker& packer, const LayerTensors& t, bool split) {
  constexpr WeightRole kMatmul = WeightRole::kMatmul;
  constexpr WeightRole kVector = WeightRole::kVector;
  DecoderWeights::Layer w;
  HEARTH_ASSIGN_OR_RETURN(w.attn_norm, packer.pack({t.attn_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.attn_norm_bias, packer.pack({t.attn_norm_bias}, kVector));
  if (t.kv_a != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.q_a, packer.pack({t.q_a}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.q_a_norm, packer.pack({t.q_a_norm}, kVector));
    HEARTH_ASSIGN_OR_RETURN(w.q, packer.pack({t.q}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.kv_a, packer.pack({t.kv_a}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.kv_a_norm, packer.pack({t.kv_a_norm}, kVector));
    HEARTH_ASSIGN_OR_RETURN(w.k_b, packer.pack({t.k_b}, WeightRole::kExperts));
    HEARTH_ASSIGN_OR_RETURN(w.v_b, packer.pack({t.v_b}, WeightRole::kExperts));
  } else if (t.fused_qkv != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.qkv, packer.pack({t.fused_qkv}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.qkv_bias, packer.pack({t.fused_qkv_bias}, kVector));
  } else if (t.k == nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.qkv, packer.pack({t.q}, kMatmul));
  } else if (t.v == nullptr) {
    w.v_is_k = true;
    HEARTH_ASSIGN_OR_RETURN(w.qkv, packer.pack({t.q, t.k}, kMatmul));
  } else if (split) {
    HEARTH_ASSIGN_OR_RETURN(w.qkv, packer.pack({t.q}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.qkv_bias, packer.pack({t.q_bias}, kVector));
    HEARTH_ASSIGN_OR_RETURN(w.kv, packer.pack({t.k, t.v}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.kv_bias, packer.pack({t.k_bias, t.v_bias}, kVector));
  } else {
    HEARTH_ASSIGN_OR_RETURN(w.qkv, packer.pack({t.q, t.k, t.v}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.qkv_bias, packer.pack({t.q_bias, t.k_bias, t.v_bias}, kVector));
  }
  HEARTH_ASSIGN_OR_RETURN(w.q_norm, packer.pack({t.q_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.k_norm, packer.pack({t.k_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.q_norms, pack_rows(packer, t.q_norms));
  HEARTH_ASSIGN_OR_RETURN(w.k_norms, pack_rows(packer, t.k_norms));
  HEARTH_ASSIGN_OR_RETURN(w.attn_gate, packer.pack({t.attn_gate}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.attn_out, packer.pack({t.attn_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.attn_bias, packer.pack({t.attn_bias}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.attn_post_norm, packer.pack({t.attn_post_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.ffn_norm, packer.pack({t.ffn_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.ffn_norm_bias, packer.pack({t.ffn_norm_bias}, kVector));
  if (t.fused_gate_up != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.gate_up, packer.pack({t.fused_gate_up}, kMatmul));
  } else if (t.gate == nullptr) {
    HEARTH_ASSIGN_OR_RETURN(w.gate_up, packer.pack({t.up}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.gate_up_bias, packer.pack({t.up_bias}, kVector));
  } else {
    HEARTH_ASSIGN_OR_RETURN(w.gate_up, packer.pack({t.gate, t.up}, kMatmul));
    HEARTH_ASSIGN_OR_RETURN(w.gate_up_bias, packer.pack({t.gate_bias, t.up_bias}, kVector));
  }
  HEARTH_ASSIGN_OR_RETURN(w.down, packer.pack({t.down}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.down_bias, packer.pack({t.down_bias}, kVector));
  HEARTH_TRY(pack_experts(packer, t, w));
  HEARTH_ASSIGN_OR_RETURN(w.per_layer.gate, packer.pack({t.per_layer_gate}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.per_layer.out, packer.pack({t.per_layer_out}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.per_layer.post_norm, packer.pack({t.per_layer_post_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.scale, scale_value(t.scale));
  HEARTH_TRY(pack_altup(packer, t, w.altup));
  HEARTH_ASSIGN_OR_RETURN(w.sinks, packer.pack({t.sinks}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.ffn_post_norm, packer.pack({t.ffn_post_norm}, kVector));
  return w;
}

/// The head is read for each draft, and for a large vocabulary it is a fifth of the model. Tokens
/// with high numbers are rare, as vocabularies are ordered by the merges that made them, so drafts
/// are made among the first ones alone. Source: Zhao et al. 2025 (FR-Spec), with ranks for counts.
int64_t draft_rows(int64_t vocab_size) {
  constexpr int64_t kLeastDraftRows = 32768, kRows = 16;
  const int64_t rows = std::max(kLeastDraftRows, vocab_size / 4 / kRows * kRows);
  return rows <= vocab_size / 2 ? rows : vocab_size;
}

Result<void> pack_draft(WeightPacker& packer, const DecoderTensors& all, int32_t width,
                        DecoderWeights::Draft& w) {
  const DraftTensors& t = all.draft;
  constexpr WeightRole kMatmul = WeightRole::kMatmul;
  constexpr WeightRole kVector = WeightRole::kVector;
  HEARTH_ASSIGN_OR_RETURN(w.pair_proj, packer.pack({t.pair_proj}, kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.embedding_norm, packer.pack({t.embedding_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.hidden_norm, packer.pack({t.hidden_norm}, kVector));
  HEARTH_ASSIGN_OR_RETURN(w.embedding, packer.pack({t.embedding}, WeightRole::kEmbedding));
  HEARTH_ASSIGN_OR_RETURN(w.head_norm, packer.pack({t.head_norm}, kVector));
  const GgufTensor* head = t.head != nullptr       ? t.head
                           : all.output != nullptr ? all.output
                                                   : all.embedding;
  const auto vocab_size = narrow<int64_t>(all.embedding->dims[1]);
  const int64_t rows = draft_rows(vocab_size);
  if (t.head != nullptr || rows < vocab_size) {
    HEARTH_ASSIGN_OR_RETURN(w.head, packer.pack_front(*head, rows, kMatmul, rows < vocab_size));
  }
  HEARTH_ASSIGN_OR_RETURN(w.before, pack_row_before(packer, width));
  return {};
}

Result<void> pack_frequencies(WeightPacker& packer, const DecoderTensors& t,
                              const DecoderConfig& config, DecoderWeights& w) {
  const GgufTensor* first = t.rope_divisors != nullptr ? t.rope_divisors : t.rope_short;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> divisors, positive_values(first));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> long_divisors, positive_values(t.rope_long));
  for (const RopeConfig& rope : config.ropes) {
    // Stored divisors apply to the first rope, that of full layers.
    const bool stretched = w.rope_frequencies.empty();
    const std::vector<float> values =
        rope_frequencies(rope, stretched ? divisors : std::vector<float>());
    HEARTH_ASSIGN_OR_RETURN(WeightHandle packed, packer.pack_values("rope frequencies", values));
    w.rope_frequencies.push_back(std::move(packed));
  }
  if (long_divisors.empty()) return {};
  HEARTH_ASSIGN_OR_RETURN(
      w.long_rope_frequencies,
      packer.pack_values("long rope frequencies",
                         rope_frequencies(config.ropes.front(), long_divisors)));
  return {};
}

/// What all layers use of per-layer embeddings and of AltUp.
Result<void> pack_inputs(WeightPacker& packer, const DecoderTensors& t, const DecoderConfig& config,
                         DecoderWeights& w) {
  HEARTH_ASSIGN_OR_RETURN(w.per_layer.embedding,
                          packer.pack({t.per_layer_embedding}, WeightRole::kEmbedding));
  HEARTH_ASSIGN_OR_RETURN(w.per_layer.projection,
                          packer.pack({t.per_layer_projection}, WeightRole::kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.per_layer.norm, packer.pack({t.per_layer_norm}, WeightRole::kVector));
  if (w.per_layer.embedding) packer.report();
  if (config.altup.streams == 0) return {};
  HEARTH_ASSIGN_OR_RETURN(w.altup.in, packer.pack({t.altup_in}, WeightRole::kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.altup.out, packer.pack_slices(*t.altup_out, WeightRole::kMatmul));
  HEARTH_ASSIGN_OR_RETURN(w.altup.ones, pack_ones(packer, config.width));
  HEARTH_ASSIGN_OR_RETURN(w.altup.bias, pack_ones(packer, config.altup.streams));
  return {};
}

/// What follows the last layer.
Result<void> pack_head(WeightPacker& packer, const DecoderTensors& tensors, DecoderWeights& w) {
  HEARTH_ASSIGN_OR_RETURN(w.output_norm, packer.pack({tensors.output_norm}, WeightRole::kVector));
  HEARTH_ASSIGN_OR_RETURN(w.output_norm_bias,
                          packer.pack({tensors.output_norm_bias}, WeightRole::kVector));
  HEARTH_ASSIGN_OR_RETURN(w.output, packer.pack({tensors.output}, WeightRole::kMatmul));
  return {};
}

}  // namespace

Result<WeightHandle> pack_row_before(WeightPacker& packer, int32_t width) {
  // Of the two taps, the older one counts alone.
  std::vector<float> before(2 * size_t(width), 0.0f);
  std::fill_n(before.begin(), width, 1.0f);
  return packer.pack_values("row before", before);
}

Result<DecoderWeights> DecoderWeights::load(const GgufFile& file, const DecoderConfig& config,
                                            const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(DecoderTensors tensors, DecoderTensors::find(file, config));
  const auto vocab_size = narrow<int32_t>(tensors.embedding->dims[1]);
  std::deque<GgufTensor> cut;
  if (config.share.is_part()) cut_to_share(config, &tensors, &cut);
  WeightPacker packer(file, ops, progress, options.experts);
  DecoderWeights w;
  HEARTH_TRY(pack_frequencies(packer, tensors, config, w));
  w.vocab_size = vocab_size;
  if (config.has_first_layer() || (config.has_last_layer() && tensors.output == nullptr)) {
    HEARTH_ASSIGN_OR_RETURN(w.embedding, packer.pack({tensors.embedding}, WeightRole::kEmbedding));
  }
  if (config.embedding_norm && config.has_first_layer()) {
    const std::vector<float> ones(config.width, 1.0f);
    HEARTH_ASSIGN_OR_RETURN(w.embedding_norm, packer.pack_values("embedding norm", ones));
  } else {
    HEARTH_ASSIGN_OR_RETURN(w.embedding_norm,
                            packer.pack({tensors.embedding_norm}, WeightRole::kVector));
    HEARTH_ASSIGN_OR_RETURN(w.embedding_norm_bias,
                            packer.pack({tensors.embedding_norm_bias}, WeightRole::kVector));
  }
  packer.report();
  HEARTH_TRY(pack_inputs(packer, tensors, config, w));
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    const bool draft = std::cmp_equal(i, config.num_layers);
    if (!draft && !config.in_stage(narrow<int32_t>(i))) {
      w.layers.emplace_back();
      continue;
    }
    const uint64_t before = packer.device_bytes();
    HEARTH_ASSIGN_OR_RETURN(Layer packed, pack_layer(packer, tensors.layers[i], draft));
    if (options.hot_experts != nullptr && i < options.hot_experts->size()) {
      HEARTH_TRY(pack_hot_experts(packer, tensors.layers[i], (*options.hot_experts)[i],
                                  config.experts.count, packed));
    }
    const LayerSpec& spec = config.layers[i];
    HEARTH_TRY(
        pack_recurrent(packer, tensors.layers[i].recurrent, config.recurrent, packed.recurrent));
    if (spec.recurrent && config.recurrent.kind == RecurrentConfig::Kind::kLightning) {
      const std::vector<float> decays =
          lightning_decays(config.recurrent.num_heads, narrow<int32_t>(i), config.num_layers);
      HEARTH_ASSIGN_OR_RETURN(packed.recurrent.a, packer.pack_values("decays", decays));
    }
    if (config.v_norm && spec.stores_kv()) {
      HEARTH_ASSIGN_OR_RETURN(packed.v_norm, pack_ones(packer, spec.kv.v_dim));
    }
    if (draft) {
      HEARTH_TRY(pack_draft(packer, tensors, config.width, w.draft));
      w.draft_bytes = packer.device_bytes() - before;
    }
    w.layers.push_back(std::move(packed));
    packer.report();
  }
  if (config.has_last_layer()) HEARTH_TRY(pack_head(packer, tensors, w));
  packer.report();
  w.bytes = packer.device_bytes();
  w.expert_bytes = packer.expert_bytes();
  w.parts = packer.take_parts();
  return w;
}

}  // namespace hearth::models
