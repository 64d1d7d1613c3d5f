// A decoder that drafts a block of tokens in one pass (DFlash). With f the rows of some of the
// target's layers side by side, t a position, and n that of the text's last token:
//
//   g[t] = norm(f[t] W_fc)                           for t < n, which the target has computed
//   x[n] = e[last token];  x[t] = e[mask token]      for n < t < n + block
//   x += attention(norm(x)) W_out;  x += (silu(gate) * up) W_down of norm(x)
//   logits of the token at t = norm(x[t]) W_head
//
// Each layer's K and V before n are products of g, and from n on of the layer's own normed rows.
// Rows of a block see all of it. So K and V at t < n depend on the tokens up to t alone: the
// target's steps store them for their rows, in a layer group of their own, a cached prefix holds
// them, and nothing has to catch up. Those from n on are written over when the target has computed
// these positions.
//
// Source: Chen et al. 2026 (DFlash: block diffusion for flash speculative decoding) and its
// published code.

#include "models/decoder/dflash.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/gguf/heads_keys.h"

namespace hearth::models {

using kernels::TensorView;
using kernels::WeightRole;

namespace {

Result<void> check_sizes(Metadata& m, const DecoderConfig& c, const ModelInfo& target) {
  const auto same = [&](std::string_view key, int64_t met, int64_t want) -> Result<void> {
    if (met == want) return {};
    return m.corrupt(key, fmt::format("{}, want {}, as {} has", met, want, printable(target.name)));
  };
  HEARTH_TRY(same("embedding_length", c.width, target.width));
  if (m.has("vocab_size")) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t met, m.number("vocab_size", INT32_MAX));
    HEARTH_TRY(same("vocab_size", met, target.vocab_size));
  }
  return check_target_name(m.file(), m.full("target.name"), target);
}

Result<int32_t> mask_token(const GgufFile& file, const ModelInfo& target) {
  constexpr std::string_view kKey = "tokenizer.ggml.mask_token_id";
  HEARTH_ASSIGN_OR_RETURN(const uint32_t token, file.get<uint32_t>(kKey));
  if (std::cmp_less(token, target.vocab_size)) return narrow<int32_t>(token);
  return Error::corrupt(
      fmt::format("{}: {}, the model has {} tokens", kKey, token, target.vocab_size));
}

Result<std::vector<int32_t>> target_layers(Metadata& m, const ModelInfo& target) {
  constexpr std::string_view kKey = "target_layers";
  HEARTH_ASSIGN_OR_RETURN(const GgufNumbers<int32_t> listed,
                          m.file().get<GgufNumbers<int32_t>>(m.full(kKey)));
  const size_t count = listed.size();
  if (count < 1 || std::cmp_greater(count, DFlash::kMostLayers)) {
    return m.corrupt(kKey, fmt::format("{} layers, want 1 to {}", count, DFlash::kMostLayers));
  }
  return m.numbers(kKey, target.num_layers, narrow<int32_t>(count), 0);
}

/// The factors that a file may have.
Result<void> load_factors(Metadata& m, DecoderConfig* c) {
  constexpr float kMost = 1e6f;
  HEARTH_ASSIGN_OR_RETURN(c->embedding_scale, m.factor_or("embedding_scale", kMost, 1));
  HEARTH_ASSIGN_OR_RETURN(c->attention_scale,
                          m.factor_or("attention.scale", kMost, c->attention_scale));
  HEARTH_ASSIGN_OR_RETURN(c->logit_scale, m.factor_or("logit_scale", kMost, 1));
  HEARTH_ASSIGN_OR_RETURN(c->logit_soft_cap, m.factor_or("final_logit_softcapping", kMost, 0));
  return {};
}

Result<DecoderWeights::Layer> dflash_layer(FeatureHeadLoader& from, const DecoderConfig& c,
                                           int32_t index) {
  constexpr WeightRole kVector = WeightRole::kVector;
  const int32_t dim = c.layers[index].kv.k_dim;
  const auto name = [&](const char* part) { return fmt::format("blk.{}.{}.weight", index, part); };
  HEARTH_ASSIGN_OR_RETURN(DecoderWeights::Layer w, from.layer(index, c.width));
  HEARTH_ASSIGN_OR_RETURN(w.attn_norm, from.pack(kVector, name("attn_norm"), {c.width}));
  HEARTH_ASSIGN_OR_RETURN(w.q_norm, from.pack(kVector, name("attn_q_norm"), {dim}));
  HEARTH_ASSIGN_OR_RETURN(w.k_norm, from.pack(kVector, name("attn_k_norm"), {dim}));
  return w;
}

}  // namespace

Result<std::unique_ptr<DFlash>> DFlash::load(const GgufFile& file, const Target& target,
                                             const kernels::OpTable& ops) {
  Metadata m(file, kDFlashArchitecture);
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig c, DecoderConfig::load_common(m));
  HEARTH_TRY(check_sizes(m, c, target.info));
  HEARTH_ASSIGN_OR_RETURN(const int32_t block, m.number("block_size", kMostBlock));
  if (block < 2) return m.corrupt("block_size", "1, want a token to draft");
  HEARTH_ASSIGN_OR_RETURN(std::vector<int32_t> layers, target_layers(m, target.info));
  HEARTH_ASSIGN_OR_RETURN(const bool causal, m.flag_or("attention.causal", false));
  HEARTH_ASSIGN_OR_RETURN(const int32_t mask, mask_token(file, target.info));
  m.know({"rope.dimension_sections"});  // of a text, all positions of a token are the same
  HEARTH_TRY(load_factors(m, &c));
  HEARTH_TRY(m.refuse_others());
  if (!causal) c.canvas.mask_token = mask;  // every row of a block sees all of it
  c.qk_norm = QkNorm::kHeads;
  c.feature_width = size32(layers) * c.width;
  if (c.groups.size() != 1) return m.unsupported("attention.head_count_kv", "one for each layer");
  c.groups = with_group(target.info.groups, c.groups.front());
  for (LayerSpec& layer : c.layers) layer.group = added_group(c.groups);

  FeatureHeadLoader from(file, c, ops);
  ModelInfo info;
  info.draft_vocab = target.info.vocab_size;
  info.draft_block = block - 1;
  info.draft_mask = mask;
  Inputs inputs;
  HEARTH_ASSIGN_OR_RETURN(inputs.fc,
                          from.pack(WeightRole::kMatmul, "fc.weight", {c.feature_width, c.width}));
  HEARTH_ASSIGN_OR_RETURN(inputs.norm,
                          from.pack(WeightRole::kVector, "enc.output_norm.weight", {c.width}));
  DecoderWeights w;
  for (int32_t i = 0; i < c.num_layers; ++i) {
    HEARTH_ASSIGN_OR_RETURN(DecoderWeights::Layer layer, dflash_layer(from, c, i));
    w.layers.push_back(std::move(layer));
  }
  HEARTH_TRY(from.ends(target.info, info, &w));
  info.groups = c.groups;
  info.weight_bytes = from.device_bytes();
  return std::unique_ptr<DFlash>(new DFlash({std::move(c), std::move(w), std::move(info), ops},
                                            std::move(inputs), target, std::move(layers)));
}

DFlash::DFlash(Parts parts, Inputs inputs, const Target& target, std::vector<int32_t> layers)
    : FeatureHead(std::move(parts), target, std::move(layers)), inputs_(std::move(inputs)) {}

Result<void> check_dflash(const GgufFile& file, const kernels::OpTable& ops) {
  Metadata m(file, kDFlashArchitecture);
  ModelInfo sizes;
  HEARTH_ASSIGN_OR_RETURN(sizes.width, m.number("embedding_length", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(sizes.vocab_size, m.number_or("vocab_size", INT32_MAX, INT32_MAX));
  sizes.num_layers = kMaxLayers;
  HEARTH_TRY(DFlash::load(file, {sizes, nullptr, nullptr}, ops));
  return {};
}

void DFlash::store(const StepArgs& args) {
  const LayerStep first = step_of(args, 0);
  rotations(*args.batch);
  product(first, act().draft.features, inputs_.fc, {}, act().x);
  norm(first, act().x, inputs_.norm, act().normed);
  for (int32_t i = 0; i < config().num_layers; ++i) store_rows(step_of(args, i), act().normed);
}

// Its rows continue none of the target's.
void DFlash::choose_draft_rows(std::span<const int32_t>, bool) {}

void DFlash::layer(const LayerStep& s) {
  norm_input(s, s.weights.attn_norm, {}, s.weights.qkv.get());
  attention(s, act().normed);
  add_product(s, s.attn, s.weights.attn_out, {});
  norm_input(s, s.weights.ffn_norm, {}, first_of_feed_forward(s));
  add_feed_forward(s, act().normed);
}

void DFlash::draft(const StepArgs& args, int32_t) {
  ops().embed(state(), {.batch = args.batch,
                        .table = embedding_,
                        .scale = config().embedding_scale,
                        .out = act().x});
  rotations(*args.batch);
  for (int32_t i = 0; i < config().num_layers; ++i) layer(step_of(args, i));
  head(*args.batch, head_, args.logits);
}

}  // namespace hearth::models
