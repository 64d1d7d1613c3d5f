#include "models/decoder/activations.h"

#include <algorithm>

namespace hearth::models {

namespace {

/// Places views in one piece of memory.
class Placer {
 public:
  explicit Placer(std::byte* base) : base_(base) {}
  uint64_t used() const { return used_; }
  kernels::TensorView operator()(int64_t rows, int64_t cols) {
    kernels::TensorView view;
    view.data = base_ == nullptr ? nullptr : base_ + used_;
    view.rows = rows;
    view.cols = view.row_stride = cols;
    constexpr uint64_t kAlignment = 64;
    const uint64_t bytes = rows * cols * 4;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return view;
  }

 private:
  std::byte* base_;
  uint64_t used_ = 0;
};

/// What the experts' products write.
void place_products(const DecoderConfig& c, int32_t tokens, Placer& place,
                    Activations::Experts* experts) {
  const ExpertConfig& e = c.experts;
  const int64_t choices = int64_t{tokens} * e.used;
  experts->gate_up = place(choices, (c.gated_ffn ? 2 : 1) * int64_t{e.ffn_width});
  if (c.gated_ffn) experts->gated = place(choices, e.ffn_width);
  experts->out = place(choices, c.width);
}

}  // namespace

uint64_t Activations::lay_out(const DecoderConfig& c, int32_t tokens, int32_t outputs,
                              std::byte* base) {
  Placer place(base);
  const bool by_heads = c.draft_heads != HeadKind::kNone;
  x = place(tokens + (by_heads ? 2 * int64_t{outputs} : 0), c.width);
  if (by_heads) draft.hidden = x;
  x.rows = tokens;
  normed = place(tokens, c.width);
  if (c.has_branch()) branch = place(tokens, c.width);
  if (c.latent.kv_rank == 0) {
    qkv = place(tokens, c.most([&c](const LayerSpec& layer) {
      return layer.qkv_width() + (c.gate_in_q ? layer.q_width() : 0);
    }));
  }
  attn = place(tokens, c.most([](const LayerSpec& layer) { return layer.out_width(); }));
  const int64_t ffn_width = c.most([](const LayerSpec& layer) { return layer.ffn_width; });
  if (ffn_width > 0) {
    if (c.gated_ffn) gate_up = place(tokens, 2 * ffn_width);
    gated = place(tokens, ffn_width);
  }
  if (const ExpertConfig& e = c.experts; e.count > 0) {
    experts.logits = place(tokens, e.count);
    experts.ids = place(tokens, e.used);
    experts.ids.dtype = kernels::DType::kI32;
    experts.shares = place(tokens, e.used);
    if (e.apart) experts.sum = place(tokens, c.width);
    if (!e.apart || e.some_hot) place_products(c, tokens, place, &experts);
    if (e.shared_gate) experts.shared_gate = place(tokens, 1);
  }
  if (const LatentAttention& a = c.latent; a.kv_rank > 0) {
    const int64_t heads = c.most([](const LayerSpec& layer) { return layer.num_heads; });
    if (a.q_rank > 0) latent.q_a = place(tokens, a.q_rank);
    latent.q = place(tokens, heads * a.head_dim());
    latent.full = place(tokens, heads * (a.kv_rank + a.rotated));
    latent.k = place(tokens, a.kv_rank + a.rotated);
    latent.out = place(tokens, heads * a.v_dim);
    latent.heads = place(tokens, heads);
    latent.heads.dtype = kernels::DType::kI32;
  }
  if (const int64_t width = c.per_layer_width; width > 0) {
    per_layer.inputs = place(tokens, c.num_layers * width);
    per_layer.projected = place(tokens, c.num_layers * width);
    per_layer.gate_up = place(tokens, 2 * width);
    per_layer.gated = place(tokens, width);
  }
  if (const int64_t streams = c.altup.streams; streams > 0) {
    for (kernels::TensorView& rows : altup.streams) rows = place(tokens, streams * c.width);
    altup.router = place(tokens, streams);
    altup.coefs = place(tokens, streams * streams);
    altup.low = place(tokens, c.altup.laurel_rank);
  }
  if (const RecurrentConfig& r = c.recurrent; r.kind != RecurrentConfig::Kind::kNone) {
    const int64_t kept = 2 * kernels::kKeptRows * c.groups.back().num_layers;
    recurrent.row = place(tokens, r.row_width());
    recurrent.conv = place(tokens, r.conv_channels());
    if (r.joined_gates) recurrent.gates = place(tokens, 2 * int64_t{r.num_heads});
    if (r.dt_rank > 0) {
      recurrent.low = place(tokens, r.dt_rank + 2 * int64_t{r.d_state});
      recurrent.dt = place(tokens, r.num_heads > 0 ? r.num_heads : r.inner);
    }
    if (r.kind == RecurrentConfig::Kind::kKimiDelta) recurrent.dt = place(tokens, r.inner);
    if (r.kind == RecurrentConfig::Kind::kWkv) {
      recurrent.low = place(tokens, int64_t{r.decay_rank} + r.rate_rank + r.v_rank + r.gate_rank);
      recurrent.first_v = place(tokens, r.inner);
    }
    if (r.ffn_shift) recurrent.shift_kept = place(kept, r.inner);
    recurrent.out = place(tokens, r.inner);
    recurrent.conv_kept = place(kept, r.conv_channels());
    if (r.kept_width() > 0) recurrent.scan_kept = place(kept, r.kept_width());
  }
  if (c.draft_layer) {
    draft.hidden = place(tokens + 2 * int64_t{outputs}, c.width);
    draft.pair = place(tokens, 2 * int64_t{c.width});
    draft.kept = place(2 * kernels::kKeptRows, c.width);
  }
  if (c.feature_width > 0) draft.features = place(tokens, c.feature_width);
  if (by_heads) {
    for (kernels::TensorView& rows : draft.rows) rows = place(outputs, c.width);
    if (c.draft_heads == HeadKind::kChained) draft.pair = place(outputs, 2 * int64_t{c.width});
  }
  if (c.gate_in_q) {
    q = place(tokens, c.most([](const LayerSpec& layer) { return layer.q_width(); }));
    gate = place(tokens, c.most([](const LayerSpec& layer) { return layer.q_width(); }));
  }
  cos_sin.clear();
  for (const RopeConfig& rope : c.ropes) cos_sin.push_back(place(tokens, rope.dim));
  out_x = place(outputs, c.width);
  out_norm = place(outputs, c.width);
  return place.used();
}

uint64_t ExpertRows::lay_out(const DecoderConfig& c, int32_t tokens, std::byte* base,
                             std::byte* shared) {
  Placer place(base), place_shared(shared);
  place_products(c, tokens, place, &views);
  in = place_shared(tokens, c.width);
  views.ids = place_shared(tokens, c.experts.used);
  views.ids.dtype = kernels::DType::kI32;
  views.shares = place_shared(tokens, c.experts.used);
  views.sum = place_shared(tokens, c.width);
  if (c.experts.some_hot) {
    hot_ids = place_shared(tokens, c.experts.used);
    hot_ids.dtype = kernels::DType::kI32;
    hot_out = place_shared(int64_t{tokens} * c.experts.used, c.width);
  }
  shared_bytes = place_shared.used();
  return place.used();
}

}  // namespace hearth::models
