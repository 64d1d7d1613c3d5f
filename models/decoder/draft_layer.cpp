// The layer after the last one that drafts (multi-token prediction, nextn in files). With h the
// row after the model's last norm, e the embedding, and t a position:
//
//   x[t] = [norm_e(e[t]), norm_h(h[t - 1])] W_pair
//   x[t] = layer(x)[t];   h'[t] = norm(x[t]);   logits of token t + 1 = h'[t] W_head
//
// of the first tokens of a large vocabulary alone (decoder_weights.cpp).
//
// Its next draft takes h'[t] in place of h[t]. h[-1] is zero. The layer's K and V at t depend on
// the tokens up to t alone, as any layer's do, so they are part of the same blocks: every step
// stores them for its rows (that takes x and two products, no attention), and a cached prefix holds
// them. The row h[t - 1] of an earlier step comes from the state of the sequence (kernels/ops/
// recurrent_ops.h), where it is what a convolution of two taps remembers.
//
// Source: DeepSeek-AI 2024 (DeepSeek-V3) section 2.2; Qwen Team 2025 (Qwen3-Next), the published
// code; Gloeckle et al. 2024 (multi-token prediction).

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/decoder/feature_head.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::Rows;
using kernels::TensorView;

namespace {

// Parts of act().draft.hidden. With heads, the step's rows are those of act().x, before the last
// norm.
constexpr int32_t kStep = 0;       ///< final rows of the last step
constexpr int32_t kContinued = 1;  ///< the rows that were chosen
constexpr int32_t kOwn = 2;        ///< final rows of the last draft

}  // namespace

TensorView Decoder::draft_part(int32_t part) const {
  TensorView view = act_.draft.hidden;
  const int64_t tokens = act_.x.rows, outputs = act_.out_x.rows;
  const int64_t first = part == kStep ? 0 : tokens + (part - 1) * outputs;
  view.rows = part == kStep ? tokens : outputs;
  if (view.data != nullptr) view.data = act_.draft.hidden.row<float>(first);
  return view;
}

TensorView Decoder::step_draft_rows() const { return draft_part(kStep); }
TensorView Decoder::chosen_draft_rows() const { return draft_part(kContinued); }
TensorView Decoder::own_draft_rows() const { return draft_part(kOwn); }

void Decoder::rows_before(const StepArgs& args, const WeightHandle& weight, const TensorView& out) {
  const KvPool& pool = args.pools.back();
  ops_.recurrent->short_conv(
      state(), {.batch = args.batch,
                .x = step_draft_rows(),
                .weight = weight.get(),
                .bias = nullptr,
                .taps = 2,
                .state = {pool.base, pool.block_bytes,
                          config_.groups.back().num_layers * config_.groups.back().state_bytes},
                .kept = act_.draft.kept,
                .out = out});
}

void Decoder::store_draft_kv(const StepArgs& args) {
  const BatchIndex& batch = *args.batch;
  const LayerStep s = step_of(args, config_.num_layers);
  const TensorView before = act_.draft.pair.columns(config_.width, config_.width);
  norm_rows(batch, Rows::kTokens, act_.x, weights_.output_norm, weights_.output_norm_bias,
            step_draft_rows(), nullptr);
  rows_before(args, weights_.draft.before, before);
  norm(s, before, weights_.draft.hidden_norm, before);
  join_pairs(batch);
  norm_input(s, s.weights.attn_norm, s.weights.attn_norm_bias, nullptr);
  if (config_.latent.kv_rank > 0) {
    store_latent(s, act_.normed);
  } else {
    store_rows(s, act_.normed);
  }
}

void Decoder::join_pairs(const BatchIndex& batch) {
  const DecoderWeights::Draft& w = weights_.draft;
  const TensorView embedding = act_.draft.pair.columns(0, config_.width);
  ops_.embed(state(), {.batch = &batch,
                       .table = w.embedding ? w.embedding.get() : weights_.embedding.get(),
                       .scale = config_.embedding_scale,
                       .out = embedding});
  norm_rows(batch, Rows::kTokens, embedding, w.embedding_norm, {}, embedding, nullptr);
  multiply({.batch = &batch, .x = act_.draft.pair, .w = w.pair_proj.get(), .out = act_.x});
}

void Decoder::store_rows(const LayerStep& s, const TensorView& in) {
  const kernels::KvShape& kv = s.spec.kv;
  const int64_t q_rows = s.spec.q_width() * (config_.gate_in_q ? 2 : 1);
  if (s.weights.kv) {
    product(s, in, s.weights.kv, s.weights.kv_bias, act_.qkv.columns(q_rows, s.weights.kv->rows));
  } else {
    product(s, in, s.weights.qkv, s.weights.qkv_bias, act_.qkv.columns(0, s.weights.qkv->rows));
  }
  const TensorView k = act_.qkv.columns(q_rows, kv.k_width());
  store_kv(s, k, act_.qkv.columns(q_rows + kv.k_width(), kv.v_width()), k);
}

void Decoder::choose_draft_rows(std::span<const int32_t> rows, bool own) {
  if (feature_head_ != nullptr) return feature_head_->choose_draft_rows(rows, own);
  const int64_t tokens = act_.x.rows, outputs = act_.out_x.rows;
  HEARTH_CHECK(std::ssize(rows) <= outputs, "{} rows, reserved {}", rows.size(), outputs);
  copy_src_.clear();
  copy_dst_.clear();
  for (const int32_t row : rows) {
    HEARTH_CHECK(row >= 0 && row < (own ? outputs : tokens), "row {}", row);
    copy_src_.push_back(narrow<int32_t>(own ? tokens + outputs + row : row));
    copy_dst_.push_back(narrow<int32_t>(tokens + std::ssize(copy_dst_)));
  }
  const TensorView& hidden = act_.draft.hidden;
  ops_.copy_blocks(state(), {hidden.row<std::byte>(0), hidden.cols * 4, copy_src_, copy_dst_});
}

void Decoder::draft(const StepArgs& args, int32_t place) {
  const BatchIndex& batch = *args.batch;
  const bool fits = batch.num_tokens <= act_.x.rows && batch.num_outputs <= act_.out_x.rows;
  HEARTH_CHECK(
      info_.drafts && fits && (info_.draft_block > 0 || batch.num_tokens == batch.num_outputs),
      "{} tokens, {} outputs", batch.num_tokens, batch.num_outputs);
  if (feature_head_ != nullptr) return feature_head_->draft(args, place);
  if (info_.draft_heads > 0) return draft_by_head(args, place);
  draft_by_layer(args);
}

void Decoder::draft_by_layer(const StepArgs& args) {
  const BatchIndex& batch = *args.batch;
  const DecoderWeights::Draft& w = weights_.draft;
  const TensorView own = own_draft_rows();
  norm_rows(batch, Rows::kTokens, chosen_draft_rows(), w.hidden_norm, {},
            act_.draft.pair.columns(config_.width, config_.width), nullptr);
  rotations(batch);
  join_pairs(batch);
  layer(step_of(args, config_.num_layers));
  const kernels::Weight* head = w.head ? w.head.get() : weights_.head();
  norm_rows(batch, Rows::kTokens, act_.x, w.head_norm ? w.head_norm : weights_.output_norm,
            weights_.output_norm_bias, own, head);
  head_product(batch, own, head, args.logits.columns(0, head->rows));
}

}  // namespace hearth::models
