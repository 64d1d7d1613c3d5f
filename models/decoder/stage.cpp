// A decoder that has some of its model's layers (models/staged_model.h).

#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/numbers.h"
#include "models/decoder/decoder.h"
#include "models/decoder/feature_head.h"

namespace hearth::models {

using kernels::BatchIndex;

Result<void> DecoderConfig::choose_stage(const LayerRange& chosen) {
  stage = {chosen.first, chosen.end == 0 ? num_layers : chosen.end};
  if (has_first_layer() && has_last_layer()) return {};
  if (stage.first < 0 || stage.first >= stage.end || stage.end > num_layers) {
    return Error::invalid(fmt::format("stages: layers {} to {}, the model has {}", stage.first,
                                      stage.end, num_layers),
                          "stages");
  }
  const auto refuse = [this](bool has, std::string_view what) -> Result<void> {
    if (!has) return {};
    return Error::unsupported(
        fmt::format("architecture {}: {}, not computed in stages", architecture, what), "stages");
  };
  HEARTH_TRY(refuse(altup.streams > 0, "several residual streams"));
  HEARTH_TRY(refuse(per_layer_width > 0, "per-layer embeddings"));
  HEARTH_TRY(refuse(canvas.mask_token >= 0, "a model that denoises"));
  HEARTH_TRY(refuse(draft_layer, "a layer for drafting"));
  HEARTH_TRY(refuse(recurrent.kind == RecurrentConfig::Kind::kWkv,
                    "layers that read the first layer's values"));
  return refuse(std::ranges::any_of(layers, [](const auto& l) { return !l.stores_kv(); }),
                "layers that share their KV");
}

StageInfo DecoderConfig::stage_info(uint64_t weight_bytes) const {
  StageInfo out;
  out.layers = stage;
  out.weight_bytes = weight_bytes;
  out.group_layers.assign(groups.size(), 0);
  for (int32_t i = stage.first; i < stage.end; ++i) {
    const LayerSpec& layer = layers[i];
    if (layer.num_heads > 0 && layer.stores_kv()) ++out.group_layers[layer.group];
    if (layer.recurrent) ++out.group_layers.back();
  }
  if (!share.is_part()) return out;
  for (const LayerGroup& group : groups) {
    out.group_heads.push_back(narrow<int32_t>(share.part(group.kv.num_kv_heads, 1).count));
  }
  out.gathered_columns = most(
      [](const LayerSpec& layer) { return std::max<int64_t>(layer.out_width(), layer.ffn_width); });
  return out;
}

void Decoder::begin_step(const StepArgs& args) {
  const BatchIndex& batch = *args.batch;
  if (config_.has_first_layer()) {
    embed(batch);
    return begin(batch);
  }
  rotations(batch);
  ops_.copy_to_device(state(), act_.x.data, args.hidden.data, row_bytes(batch));
}

void Decoder::end_step(const StepArgs& args) {
  const BatchIndex& batch = *args.batch;
  if (!config_.has_last_layer()) {
    return ops_.copy_to_host(state(), args.hidden.data, act_.x.data, row_bytes(batch));
  }
  if (feature_head_ != nullptr) feature_head_->take(batch, config_.num_layers, act_.x);
  finish(batch);
  if (batch.num_outputs > 0) head(batch, weights_.head(), args.logits);
  if (args.hidden.data == nullptr) return;
  ops_.copy_to_host(state(), args.hidden.data, final_rows(batch).data, row_bytes(batch));
}

size_t Decoder::row_bytes(const BatchIndex& batch) const {
  return size_t{sizeof(float)} * batch.num_tokens * config_.width;
}

}  // namespace hearth::models
