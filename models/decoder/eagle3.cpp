// A head that drafts from rows of the target's residual stream (EAGLE-3). With f the rows of three
// layers side by side, e the embedding, and t a position:
//
//   g[t] = f[t] W_fc
//   x[t] = g[t - 1];  x += attention([norm_e(e[t]), norm_h(x[t])]) W_out
//   x += (silu(gate) * up) W_down of norm(x);   logits of token t + 1 = norm(x[t]) W_head
//
// Its next draft takes x[t] in place of g[t]. It is what draft_layer.cpp describes: K and V depend
// on the tokens up to t alone and are stored by every step, in a layer group of their own, and the
// row g[t - 1] of an earlier step comes from the state of the sequence. The first token has no row
// before it; zeros stand for it. (Published code leaves out that pair: docs/limits.md.)
//
// Source: Li et al. 2025 (EAGLE-3), section 3, and its published code.

#include "models/decoder/eagle3.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/gguf/byte_cursor.h"
#include "models/gguf/heads_keys.h"
#include "models/weights/tensor_set.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::Rows;
using kernels::TensorView;
using kernels::WeightRole;

namespace {

Result<void> check_eagle3_target(Metadata& m, const ModelInfo& target) {
  const auto same = [&](std::string_view key, int32_t want) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(const int32_t met, m.number(key, INT32_MAX));
    if (met == want) return {};
    return m.corrupt(key, fmt::format("{}, want {}, as {} has", met, want, printable(target.name)));
  };
  HEARTH_TRY(same("target_hidden_size", target.width));
  if (m.has("vocab_size")) HEARTH_TRY(same("vocab_size", target.vocab_size));
  return check_target_name(m.file(), m.full("target.name"), target);
}

/// The tokens that the head drafts, in the order of its rows; none: all.
Result<std::vector<int32_t>> eagle3_tokens(const GgufFile& file, TensorSet& set,
                                           int32_t vocab_size) {
  constexpr std::string_view kName = "d2t";
  std::vector<int32_t> out;
  const GgufTensor* tensor = file.find_tensor(kName);
  if (tensor == nullptr) return out;
  set.ignore(kName);
  const auto rows = tensor->dims[0];
  if (tensor->dtype != kernels::DType::kI64 || rows != tensor->num_elements() ||
      std::cmp_greater(rows, vocab_size)) {
    return Error::corrupt(fmt::format("{}: {} of shape {}, want I64 of 1 to {} elements", kName,
                                      tensor->type_name(), tensor->shape(), vocab_size));
  }
  for (uint64_t i = 0; i < rows; ++i) {
    const auto token = load_unaligned<int64_t>(tensor->bytes.data() + i * sizeof(int64_t));
    if (token < 0 || token >= vocab_size) {
      return Error::corrupt(
          fmt::format("{}: element {} is {}, want 0 to {}", kName, i, token, vocab_size - 1));
    }
    out.push_back(narrow<int32_t>(token));
  }
  return out;
}

/// The target's groups, with one for the head's layer, and its row in the states.
std::vector<LayerGroup> joined_groups(std::vector<LayerGroup> groups, const DecoderConfig& head) {
  if (groups.empty() || !groups.back().recurrent()) {
    groups.emplace_back().kind = LayerGroup::Kind::kRecurrent;
  }
  groups.back().hidden_bytes = int64_t{head.width} * 4;
  return with_group(std::move(groups), head.groups.front());
}

Result<DecoderConfig> eagle3_config(Metadata& m, const ModelInfo& target) {
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  if (c.num_layers != 1) {
    return m.corrupt("block_count", fmt::format("{}, want 1", c.num_layers));
  }
  if (c.width % kernels::kStateLanes != 0) {
    return m.unsupported("embedding_length",
                         fmt::format("{}, no multiple of {}", c.width, kernels::kStateLanes));
  }
  c.pairs = kernels::RopePairs::kNeighbours;
  c.draft_layer = true;
  c.feature_width = Eagle3::kFeatures * target.width;
  c.groups = joined_groups(target.groups, c);
  c.layers.front().group = added_group(c.groups);
  return c;
}

}  // namespace

Result<Eagle3::Weights> Eagle3::load_inputs(FeatureHeadLoader& from, const DecoderConfig& c,
                                            bool normed_features) {
  constexpr WeightRole kMatmul = WeightRole::kMatmul, kVector = WeightRole::kVector;
  Weights w;
  HEARTH_ASSIGN_OR_RETURN(w.fc, from.pack(kMatmul, "fc.weight", {c.feature_width, c.width}));
  if (normed_features) {
    HEARTH_ASSIGN_OR_RETURN(w.features_norm,
                            from.pack(kVector, "enc.output_norm.weight", {c.feature_width}));
  }
  HEARTH_ASSIGN_OR_RETURN(w.embedding_norm,
                          from.pack(kVector, "blk.0.attn_norm.weight", {c.width}));
  HEARTH_ASSIGN_OR_RETURN(w.hidden_norm, from.pack(kVector, "blk.0.attn_norm_2.weight", {c.width}));
  HEARTH_ASSIGN_OR_RETURN(w.before, pack_row_before(from.packer(), c.width));
  return w;
}

Result<std::unique_ptr<Eagle3>> Eagle3::load(const GgufFile& file, const Target& target,
                                             const kernels::OpTable& ops) {
  Metadata m(file, kEagle3Architecture);
  HEARTH_TRY(check_eagle3_target(m, target.info));
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, eagle3_config(m, target.info));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t> layers,
                          m.numbers("target_layers", target.info.num_layers, kFeatures, 0));
  HEARTH_ASSIGN_OR_RETURN(const bool normed_residual, m.flag_or("norm_before_residual", false));
  HEARTH_ASSIGN_OR_RETURN(const bool normed_features, m.flag_or("norm_before_fc", false));
  HEARTH_TRY(m.refuse_others());

  FeatureHeadLoader from(file, c, ops);
  ModelInfo info;
  HEARTH_ASSIGN_OR_RETURN(info.draft_tokens,
                          eagle3_tokens(file, from.set(), target.info.vocab_size));
  info.draft_vocab = info.draft_tokens.empty() ? target.info.vocab_size : size32(info.draft_tokens);
  HEARTH_ASSIGN_OR_RETURN(Weights own, load_inputs(from, c, normed_features));
  DecoderWeights w;
  HEARTH_ASSIGN_OR_RETURN(DecoderWeights::Layer layer, from.layer(0, 2 * int64_t{c.width}));
  w.layers.push_back(std::move(layer));
  HEARTH_TRY(from.ends(target.info, info, &w));

  info.groups = c.groups;
  info.weight_bytes = from.device_bytes();
  std::unique_ptr<Eagle3> out(new Eagle3({std::move(c), std::move(w), std::move(info), ops},
                                         std::move(own), target, layers));
  out->normed_residual_ = normed_residual;
  return out;
}

Eagle3::Eagle3(Parts parts, Weights own, const Target& target, std::vector<int32_t> layers)
    : FeatureHead(std::move(parts), target, std::move(layers)), own_(std::move(own)) {}

Result<void> check_eagle3(const GgufFile& file, const kernels::OpTable& ops) {
  Metadata m(file, kEagle3Architecture);
  ModelInfo sizes;
  HEARTH_ASSIGN_OR_RETURN(sizes.width, m.number("target_hidden_size", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(sizes.vocab_size, m.number("vocab_size", INT32_MAX));
  sizes.num_layers = kMaxLayers;
  HEARTH_TRY(Eagle3::load(file, {sizes, nullptr, nullptr}, ops));
  return {};
}

void Eagle3::store(const StepArgs& args) {
  const LayerStep s = step_of(args, 0);
  const TensorView& features = act().draft.features;
  const TensorView before = act().draft.pair.columns(config().width, config().width);
  if (own_.features_norm) norm(s, features, own_.features_norm, features);
  product(s, features, own_.fc, {}, step_draft_rows());
  rows_before(args, own_.before, before);
  join_pairs(s);
  store_rows(s, act().draft.pair);
}

void Eagle3::join_pairs(const LayerStep& s) {
  const TensorView embedding = act().draft.pair.columns(0, config().width);
  const TensorView hidden = act().draft.pair.columns(config().width, config().width);
  ops().embed(state(), {.batch = &s.batch, .table = embedding_, .out = embedding});
  norm(s, embedding, own_.embedding_norm, embedding);
  norm(s, hidden, own_.hidden_norm, hidden);
  rotations(s.batch);
}

void Eagle3::layer(const LayerStep& s) {
  attention(s, act().draft.pair);
  add_product(s, s.attn, s.weights.attn_out, {});
  norm_input(s, s.weights.ffn_norm, {}, first_of_feed_forward(s));
  add_feed_forward(s, act().normed);
}

void Eagle3::draft(const StepArgs& args, int32_t) {
  const LayerStep s = step_of(args, 0);
  const TensorView hidden = act().draft.pair.columns(config().width, config().width);
  copy_columns(s.batch, chosen_draft_rows(), 0, hidden);
  join_pairs(s);
  copy_columns(s.batch, normed_residual_ ? hidden : chosen_draft_rows(), 0, act().x);
  layer(s);
  copy_columns(s.batch, act().x, 0, own_draft_rows());
  norm_input(s, weights().output_norm, {}, head_);
  head_product(s.batch, act().normed, head_, args.logits.columns(0, head_->rows));
}

}  // namespace hearth::models
