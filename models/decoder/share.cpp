// A decoder that has a share of each layer (models/split_model.h).

#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/numbers.h"
#include "models/decoder/decoder.h"
#include "models/decoder/decoder_tensors.h"

namespace hearth::models {

using kernels::TensorView;

namespace {

/// The heads of KV of a layer that a share has.
ShareRange kv_heads(const LayerSpec& layer, const Share& share) {
  return share.part(layer.kv.num_kv_heads, 1);
}

/// Those of its queries.
ShareRange q_heads(const LayerSpec& layer, const Share& share) {
  return kv_heads(layer, share).times(layer.num_heads / layer.kv.num_kv_heads);
}

/// Makes views of parts of tensors.
class Cutter {
 public:
  explicit Cutter(std::deque<GgufTensor>* cut) : cut_(cut) {}

  const GgufTensor* rows(const GgufTensor* tensor, const ShareRange& range) {
    return of_dim(tensor, 1, range);
  }
  const GgufTensor* values(const GgufTensor* vector, const ShareRange& range) {
    return of_dim(vector, 0, range);
  }

 private:
  const GgufTensor* of_dim(const GgufTensor* tensor, size_t dim, const ShareRange& range) {
    if (tensor == nullptr) return nullptr;
    GgufTensor& part = cut_->emplace_back(*tensor);
    const uint64_t size = tensor->bytes.size() / tensor->dims[dim];
    part.dims[dim] = range.count;
    part.bytes = tensor->bytes.subspan(range.first * size, range.count * size);
    return &part;
  }

  std::deque<GgufTensor>* cut_;
};

void cut_attention(const DecoderConfig& config, const LayerSpec& layer, Cutter& cut,
                   LayerTensors& t) {
  const ShareRange kv = kv_heads(layer, config.share), heads = q_heads(layer, config.share);
  const ShareRange q = heads.times(layer.kv.k_dim * (config.gate_in_q ? 2 : 1));
  const ShareRange k = kv.times(layer.kv.k_dim), v = kv.times(layer.kv.v_dim);
  const bool joined = t.fused_qkv != nullptr;
  const int64_t before_k = joined ? layer.q_width() : 0;
  const int64_t before_v = joined ? before_k + layer.kv.k_width() : 0;
  t.q = cut.rows(joined ? t.fused_qkv : t.q, q);
  t.k = cut.rows(joined ? t.fused_qkv : t.k, k.after(before_k));
  t.v = cut.rows(joined ? t.fused_qkv : t.v, v.after(before_v));
  t.q_bias = cut.values(joined ? t.fused_qkv_bias : t.q_bias, q);
  t.k_bias = cut.values(joined ? t.fused_qkv_bias : t.k_bias, k.after(before_k));
  t.v_bias = cut.values(joined ? t.fused_qkv_bias : t.v_bias, v.after(before_v));
  t.fused_qkv = t.fused_qkv_bias = nullptr;
  t.q_norms = cut.rows(t.q_norms, heads);
  t.k_norms = cut.rows(t.k_norms, kv);
  t.attn_gate = cut.rows(t.attn_gate, heads.times(layer.kv.v_dim));
  t.sinks = cut.values(t.sinks, heads);
  const ShareRange width = config.share.part(config.width);
  t.attn_out = cut.rows(t.attn_out, width);
  t.attn_bias = cut.values(t.attn_bias, width);
}

void cut_feed_forward(const DecoderConfig& config, const LayerSpec& layer, Cutter& cut,
                      LayerTensors& t) {
  const ShareRange rows = config.share.part(layer.ffn_width);
  if (t.fused_gate_up != nullptr) {
    t.gate = cut.rows(t.fused_gate_up, rows);
    t.up = cut.rows(t.fused_gate_up, rows.after(layer.ffn_width));
    t.fused_gate_up = nullptr;
  } else {
    t.gate = cut.rows(t.gate, rows);
    t.up = cut.rows(t.up, rows);
  }
  t.gate_bias = cut.values(t.gate_bias, rows);
  t.up_bias = cut.values(t.up_bias, rows);
  const ShareRange width = config.share.part(config.width);
  t.down = cut.rows(t.down, width);
  t.down_bias = cut.values(t.down_bias, width);
}

}  // namespace

Result<void> DecoderConfig::choose_share(const Share& chosen) {
  share = chosen;
  if (!share.is_part()) return {};
  const auto refuse = [this](bool has, std::string_view what) -> Result<void> {
    if (!has) return {};
    return Error::unsupported(
        fmt::format("architecture {}: {}, not split between devices", architecture, what), "split");
  };
  const auto any_layer = [this](bool (*has)(const LayerSpec&)) {
    return std::ranges::any_of(layers, has);
  };
  HEARTH_TRY(refuse(experts.count > 0, "mixture of experts"));
  HEARTH_TRY(refuse(latent.kv_rank > 0, "latent attention"));
  HEARTH_TRY(refuse(recurrent.kind != RecurrentConfig::Kind::kNone, "layers with a state"));
  HEARTH_TRY(refuse(altup.streams > 0, "several residual streams"));
  HEARTH_TRY(refuse(per_layer_width > 0, "per-layer embeddings"));
  HEARTH_TRY(refuse(canvas.mask_token >= 0, "a model that denoises"));
  HEARTH_TRY(refuse(draft_layer, "a layer for drafting"));
  HEARTH_TRY(refuse(qk_norm == QkNorm::kWidth, "norms over the heads together"));
  HEARTH_TRY(refuse(any_layer([](const LayerSpec& l) { return l.linear; }),
                    "layers with a product in place of attention"));
  HEARTH_TRY(refuse(any_layer([](const LayerSpec& l) { return !l.stores_kv() || l.v_may_be_k; }),
                    "layers that share their KV, or make values from keys"));
  for (const LayerSpec& layer : layers) {
    const int32_t heads = layer.kv.num_kv_heads;
    if (layer.num_heads == 0 || heads >= share.count) continue;
    return Error::invalid(
        fmt::format("split: {} devices, the model's layers have {} head{} of KV, so {} can share "
                    "it at most; stages divide whole layers",
                    share.count, heads, heads == 1 ? "" : "s", heads),
        "split");
  }
  return {};
}

void DecoderConfig::narrow_to_share() {
  if (!share.is_part()) return;
  for (LayerSpec& layer : layers) {
    const ShareRange gate = share.part(layer.ffn_width);
    layer.first_gated = gate.first;
    layer.ffn_width = narrow<int32_t>(gate.count);
    if (layer.num_heads == 0) continue;
    const ShareRange kv = kv_heads(layer, share), heads = q_heads(layer, share);
    layer.first_out = heads.first * layer.kv.v_dim;
    layer.num_heads = narrow<int32_t>(heads.count);
    layer.kv.num_kv_heads = narrow<int32_t>(kv.count);
  }
  for (LayerGroup& group : groups) {
    group.kv.num_kv_heads = narrow<int32_t>(share.part(group.kv.num_kv_heads, 1).count);
  }
}

void cut_to_share(const DecoderConfig& config, DecoderTensors* tensors,
                  std::deque<GgufTensor>* cut) {
  Cutter cutter(cut);
  for (size_t i = 0; i < tensors->layers.size(); ++i) {
    const LayerSpec& layer = config.layers[i];
    if (layer.num_heads > 0) cut_attention(config, layer, cutter, tensors->layers[i]);
    if (layer.ffn_width > 0) cut_feed_forward(config, layer, cutter, tensors->layers[i]);
  }
  const ShareRange vocab = config.share.part(narrow<int64_t>(tensors->embedding->dims[1]));
  tensors->embedding = cutter.rows(tensors->embedding, vocab);
  tensors->output = cutter.rows(tensors->output, vocab);
}

TensorView Decoder::all_columns(const LayerStep& s, const TensorView& y) {
  if (!config_.share.is_part()) return y;
  const bool of_attention = y.data == s.attn.data;
  const int64_t first = of_attention ? s.spec.first_out : s.spec.first_gated;
  const int64_t cols = of_attention ? s.weights.attn_out->cols : s.weights.down->cols;
  return config_.share.link->gather(s.batch.num_tokens, y, first, cols);
}

TensorView Decoder::own_columns(const TensorView& rows) const {
  if (!config_.share.is_part()) return rows;
  const ShareRange own = config_.share.part(config_.width);
  return rows.columns(own.first, own.count);
}

void Decoder::join_columns(const LayerStep& s, const TensorView& rows) {
  if (!config_.share.is_part()) return;
  config_.share.link->join_columns(s.batch.num_tokens, rows, config_.share.part(config_.width));
}

}  // namespace hearth::models
