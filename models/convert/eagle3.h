#pragma once
// A published EAGLE-3 head: config.json of a llama of one layer, and a safetensors file with
//
//   fc.weight (width, 3 target widths)   input_norm.weight, if norm_before_fc   norm.weight
//   L.input_layernorm.weight, L.hidden_norm.weight, and the rest of a llama's layer; L is midlayer,
//   layers.0 or model.layers.0, and q, k and v have 2 widths of columns
//   lm_head.weight (draft tokens, width), embed_tokens.weight; may be missing
//   d2t (draft tokens) I64: the target's token of each, less its own number; t2d is not needed
//
// The new file is that of models/decoder/eagle3.h.

#include <filesystem>

#include "kernels/base/result.h"
#include "models/convert/head_planner.h"

namespace hearth::models {

/// Whether config.json is of such a head.
bool has_eagle3(const Json& config);

/// `target`: the GGUF file of the model that the head drafts for; empty: not given. Then
/// config.json has to name the layers (eagle_aux_hidden_state_layer_ids). kCorrupt: a key or tensor
/// that is missing or out of range, which it names. kUnsupported: a tensor that is not of the head.
Result<HeadPlan> plan_eagle3(const Checkpoint& checkpoint, const std::filesystem::path& target);

}  // namespace hearth::models
