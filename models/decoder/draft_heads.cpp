// Heads that draft from the final row of a step (Medusa). With h the row after the model's last
// norm at position t, head k drafts token t + 2 + k by residual blocks and an output of its own:
//
//   x = h;   x = x + silu(x W_i + b_i) for each block i;   logits = x W_out
//
// Chained heads also take the embedding e of the token drafted before, and continue their own row
// h' in place of h; places beyond the last head use that one again:
//
//   x = [norm_e(e), norm_h(h)] W_pair;   blocks as above;   h' = norm(x);   logits = h' W_out
//
// The heads have no K and V and no state, so nothing of a sequence changes with them.
//
// Source: Cai et al. 2024 (Medusa), section 2.1; Ankner et al. 2024 (Hydra) for the chain.

#include "models/decoder/draft_heads.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "kernels/ops/encoder_ops.h"
#include "models/decoder/dflash.h"
#include "models/decoder/eagle3.h"
#include "models/gguf/heads_keys.h"
#include "models/weights/tensor_set.h"

namespace hearth::models {

using kernels::BatchIndex;
using kernels::Rows;
using kernels::TensorView;
using kernels::WeightRole;

namespace {

Result<int32_t> count_of(const GgufFile& file, std::string_view key, uint32_t least,
                         uint32_t most) {
  HEARTH_ASSIGN_OR_RETURN(const uint32_t count, file.get<uint32_t>(key));
  if (count >= least && count <= most) return narrow<int32_t>(count);
  return Error::corrupt(fmt::format("{}: {}, want {} to {}", key, count, least, most));
}

/// Heads of another model draft nothing that is right: sizes and the name are compared.
Result<void> check_target(const GgufFile& file, const ModelInfo& model) {
  const auto same = [&](const char* key, int32_t want) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(const uint32_t met, file.get<uint32_t>(key));
    if (std::cmp_equal(met, want)) return {};
    return Error::corrupt(
        fmt::format("{}: {}, want {}, as {} has", key, met, want, printable(model.name)));
  };
  HEARTH_TRY(same("medusa.embedding_length", model.width));
  HEARTH_TRY(same("medusa.vocab_size", model.vocab_size));
  return check_target_name(file, "medusa.target.name", model);
}

Result<std::vector<int32_t>> draft_tokens(const GgufFile& file, int32_t vocab_size) {
  constexpr const char* kKey = "medusa.draft_tokens";
  std::vector<int32_t> out;
  if (!file.has(kKey)) return out;
  HEARTH_ASSIGN_OR_RETURN(const auto ids, file.get<GgufNumbers<int32_t>>(kKey));
  if (ids.size() == 0) return Error::corrupt(fmt::format("{}: empty, want a token", kKey));
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t least = out.empty() ? 0 : out.back() + 1;
    if (ids[i] < least || ids[i] >= vocab_size) {
      return Error::corrupt(fmt::format("{}: element {} is {}, want {} to {}", kKey, i, ids[i],
                                        least, vocab_size - 1));
    }
    out.push_back(ids[i]);
  }
  return out;
}

}  // namespace

Result<void> check_target_name(const GgufFile& file, std::string_view key, const ModelInfo& model) {
  HEARTH_ASSIGN_OR_RETURN(const auto name, file.get_or<std::string_view>(key, ""));
  if (name.empty() || model.title.empty() || name == model.title) return {};
  return Error::corrupt(fmt::format("{}: \"{}\", want \"{}\", the general.name of {}", key,
                                    printable(name), printable(model.title),
                                    printable(model.name)));
}

int32_t DraftHeads::most_drafts() const { return chained ? kMostHeads : size32(heads); }

Result<DraftHeads> DraftHeads::load(const GgufFile& file, const ModelInfo& model,
                                    const kernels::OpTable& ops) {
  HEARTH_ASSIGN_OR_RETURN(const auto architecture,
                          file.get<std::string_view>("general.architecture"));
  if (architecture != kHeadsArchitecture) {
    return Error::corrupt(fmt::format("general.architecture: \"{}\", want \"{}\"",
                                      printable(architecture), kHeadsArchitecture));
  }
  HEARTH_TRY(check_target(file, model));
  HEARTH_ASSIGN_OR_RETURN(const int32_t count,
                          count_of(file, "medusa.head_count", 1, kMostHeadsOfFile));
  HEARTH_ASSIGN_OR_RETURN(const int32_t blocks,
                          count_of(file, "medusa.block_count", 0, kMostHeadBlocks));
  DraftHeads out;
  HEARTH_ASSIGN_OR_RETURN(out.chained, file.get_or<bool>("medusa.chained", false));
  HEARTH_ASSIGN_OR_RETURN(out.tokens, draft_tokens(file, model.vocab_size));

  const LoadProgressFn no_progress;
  WeightPacker packer(file, ops, no_progress);
  TensorSet set(file);
  const int64_t width = model.width;
  const int64_t rows = out.tokens.empty() ? model.vocab_size : size32(out.tokens);
  const auto matrix = [&](const std::string& name, int64_t cols,
                          int64_t outputs) -> Result<WeightHandle> {
    HEARTH_ASSIGN_OR_RETURN(const GgufTensor* tensor, set.want(name, {cols, outputs}));
    return packer.pack({tensor}, WeightRole::kMatmul);
  };
  const auto vector = [&](const std::string& name) -> Result<WeightHandle> {
    HEARTH_ASSIGN_OR_RETURN(const GgufTensor* tensor, set.want(name, {width}));
    return packer.pack({tensor}, WeightRole::kVector);
  };
  for (int32_t k = 0; k < std::min(count, kMostHeads); ++k) {
    const auto name = [k](std::string_view rest) { return fmt::format("head.{}.{}", k, rest); };
    Head head;
    if (out.chained) {
      HEARTH_ASSIGN_OR_RETURN(head.pair, matrix(name("pair.weight"), 2 * width, width));
      HEARTH_ASSIGN_OR_RETURN(head.embedding_norm, vector(name("embedding_norm.weight")));
      HEARTH_ASSIGN_OR_RETURN(head.hidden_norm, vector(name("hidden_norm.weight")));
      HEARTH_ASSIGN_OR_RETURN(head.output_norm, vector(name("output_norm.weight")));
    }
    for (int32_t i = 0; i < blocks; ++i) {
      Block block;
      HEARTH_ASSIGN_OR_RETURN(block.weight,
                              matrix(name(fmt::format("block.{}.weight", i)), width, width));
      HEARTH_ASSIGN_OR_RETURN(block.bias, vector(name(fmt::format("block.{}.bias", i))));
      head.blocks.push_back(std::move(block));
    }
    if (!out.tokens.empty() || set.has(name("output.weight"))) {
      HEARTH_ASSIGN_OR_RETURN(head.output, matrix(name("output.weight"), width, rows));
    }
    out.heads.push_back(std::move(head));
  }
  for (int32_t k = kMostHeads; k < count; ++k) set.ignore_all(fmt::format("head.{}.", k));
  HEARTH_TRY(set.check_all_used());
  out.bytes = packer.device_bytes();
  return out;
}

Result<void> check_heads(const GgufFile& file, const kernels::OpTable& ops) {
  if (is_eagle3(file)) return check_eagle3(file, ops);
  if (is_dflash(file)) return check_dflash(file, ops);
  ModelInfo sizes;
  HEARTH_ASSIGN_OR_RETURN(sizes.width, count_of(file, "medusa.embedding_length", 1, INT32_MAX));
  HEARTH_ASSIGN_OR_RETURN(sizes.vocab_size, count_of(file, "medusa.vocab_size", 1, INT32_MAX));
  HEARTH_TRY(DraftHeads::load(file, sizes, ops));
  return {};
}

Result<void> Decoder::add_heads(const GgufFile& file) {
  const bool computes = ops_.embed != nullptr;  // a table without it only measures
  if (config_.draft_layer || !info_.generates) return Model::add_heads(file);
  if (is_eagle3(file) || is_dflash(file)) return add_feature_head(file);
  if (computes && (ops_.encoder == nullptr || ops_.add_scaled == nullptr)) {
    return Error::unsupported(fmt::format("{}: this build does not do heads for drafting on {}",
                                          printable(file.name()), ops_.device.kind));
  }
  HEARTH_ASSIGN_OR_RETURN(heads_, DraftHeads::load(file, info_, ops_));
  config_.draft_heads = heads_.chained ? HeadKind::kChained : HeadKind::kPlain;
  info_.drafts = true;
  info_.draft_heads = heads_.most_drafts();
  info_.draft_weight_bytes = heads_.bytes;
  info_.weight_bytes += heads_.bytes;
  info_.draft_tokens = heads_.tokens;
  info_.draft_vocab = heads_.tokens.empty() ? info_.vocab_size : size32(heads_.tokens);
  return {};
}

Result<void> Decoder::add_feature_head(const GgufFile& file) {
  const bool eagle3 = is_eagle3(file);
  const bool computes = ops_.embed != nullptr;  // a table without it only measures
  const bool can =
      ops_.copy_heads != nullptr && (eagle3 ? ops_.recurrent != nullptr : ops_.encoder != nullptr);
  if (config_.altup.streams > 0 || (computes && !can)) {
    return Error::unsupported(
        fmt::format("{}: {} takes no {} on {}", printable(file.name()), info_.architecture,
                    eagle3 ? "EAGLE-3 head" : "DFlash drafter", ops_.device.kind));
  }
  const FeatureHead::Target target{info_, weights_.embedding.get(), weights_.head()};
  if (eagle3) {
    HEARTH_ASSIGN_OR_RETURN(feature_head_, Eagle3::load(file, target, ops_));
  } else {
    HEARTH_ASSIGN_OR_RETURN(feature_head_, DFlash::load(file, target, ops_));
  }
  const ModelInfo& head = feature_head_->info();
  config_.groups = info_.groups = head.groups;
  info_.drafts = true;
  info_.eagle3 = eagle3;
  info_.draft_block = head.draft_block;
  info_.draft_mask = head.draft_mask;
  info_.draft_weight_bytes = head.weight_bytes;
  info_.weight_bytes += head.weight_bytes;
  info_.draft_tokens = head.draft_tokens;
  info_.draft_vocab = head.draft_vocab;
  info_.draft_fingerprint = file.fingerprint();
  return {};
}

// The blocks write to the two parts of act().draft.rows in turn; `chosen` is not the first one.
TensorView Decoder::head_rows(const BatchIndex& batch, const DraftHeads::Head& head,
                              const TensorView& chosen) {
  TensorView x = chosen;
  for (size_t i = 0; i < head.blocks.size(); ++i) {
    const TensorView& y = act_.draft.rows[i % 2];
    ops_.matmul(state(), {.batch = &batch, .x = x, .w = head.blocks[i].weight.get(), .out = y});
    ops_.add_bias(state(), {.batch = &batch, .bias = head.blocks[i].bias.get(), .out = y});
    ops_.encoder->sigmoid_gate(state(), {.batch = &batch, .x = y, .gate = y});
    ops_.add_scaled(state(), {.batch = &batch, .x = x, .out = y});
    x = y;
  }
  return x;
}

void Decoder::draft_by_head(const StepArgs& args, int32_t place) {
  const BatchIndex& batch = *args.batch;
  const auto last = std::ssize(heads_.heads) - 1;
  const DraftHeads::Head& head = heads_.heads[std::min<int64_t>(place, last)];
  const kernels::Weight* output = head.output ? head.output.get() : weights_.head();
  const TensorView logits = args.logits.columns(0, output->rows);
  const TensorView chosen = chosen_draft_rows(), own = own_draft_rows();
  if (place == 0) {
    norm_rows(batch, Rows::kTokens, chosen, weights_.output_norm, weights_.output_norm_bias, chosen,
              nullptr);
  }
  if (!heads_.chained) {
    head_product(batch, head_rows(batch, head, chosen), output, logits);
    ops_.gather_rows(state(), {.batch = &batch, .x = chosen, .out = own});  // a copy of all
    return;
  }
  const TensorView& pair = act_.draft.pair;
  const TensorView embedding = pair.columns(0, config_.width);
  ops_.embed(state(), {.batch = &batch,
                       .table = weights_.embedding.get(),
                       .scale = config_.embedding_scale,
                       .out = embedding});
  norm_rows(batch, Rows::kTokens, embedding, head.embedding_norm, {}, embedding, nullptr);
  norm_rows(batch, Rows::kTokens, chosen, head.hidden_norm, {},
            pair.columns(config_.width, config_.width), nullptr);
  const TensorView& joined = act_.draft.rows[1];
  ops_.matmul(state(), {.batch = &batch, .x = pair, .w = head.pair.get(), .out = joined});
  norm_rows(batch, Rows::kTokens, head_rows(batch, head, joined), head.output_norm, {}, own,
            output);
  head_product(batch, own, output, logits);
}

}  // namespace hearth::models
