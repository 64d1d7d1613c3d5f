#include "models/decoder/activations.h"

namespace hearth::models {

uint64_t Activations::lay_out(const DecoderConfig& c, int32_t tokens, int32_t outputs,
                              std::byte* base) {
  uint64_t used = 0;
  const auto place = [&used, base](int64_t rows, int64_t cols) {
    kernels::TensorView view;
    view.data = base == nullptr ? nullptr : base + used;
    view.rows = rows;
    view.cols = view.row_stride = cols;
    constexpr uint64_t kAlignment = 64;
    const uint64_t bytes = rows * cols * 4;
    used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return view;
  };
  x = place(tokens, c.width);
  normed = place(tokens, c.width);
  if (c.has_branch()) branch = place(tokens, c.width);
  qkv = place(tokens, c.q_width() + 2 * c.kv_width());
  attn = place(tokens, c.q_width());
  if (c.dense_ffn_width() > 0) {
    gate_up = place(tokens, 2 * int64_t{c.dense_ffn_width()});
    gated = place(tokens, c.dense_ffn_width());
  }
  if (const ExpertConfig& e = c.experts; e.count > 0) {
    const int64_t choices = int64_t{tokens} * e.used;
    experts.logits = place(tokens, e.count);
    experts.ids = place(tokens, e.used);
    experts.ids.dtype = kernels::DType::kI32;
    experts.shares = place(tokens, e.used);
    experts.gate_up = place(choices, 2 * int64_t{e.ffn_width});
    experts.gated = place(choices, e.ffn_width);
    experts.out = place(choices, c.width);
  }
  cos_sin.clear();
  for (const RopeConfig& rope : c.ropes) cos_sin.push_back(place(tokens, rope.dim));
  out_x = place(outputs, c.width);
  out_norm = place(outputs, c.width);
  return used;
}

}  // namespace hearth::models
