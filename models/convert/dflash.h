#pragma once
// A published DFlash drafter: config.json of a Qwen3 with `dflash_config`, and safetensors with
//
//   fc.weight (width, target layers * width)   hidden_norm.weight   norm.weight
//   layers.N of a Qwen3
//   embed_tokens.weight, lm_head.weight; may be missing
//
// all of them with or without "model." before. The new file is that of models/decoder/dflash.h.

#include <filesystem>

#include "kernels/base/result.h"
#include "models/convert/head_planner.h"

namespace hearth::models {

/// Whether config.json is of such a drafter.
bool has_dflash(const Json& config);

/// The token that stands for those to be drafted; has_dflash() and plan_dflash() have checked it.
uint32_t dflash_mask_token(const Json& config);

/// `target`: the GGUF file of the model that it drafts for, for its name; empty: not given.
/// kCorrupt: a key or tensor that is missing or out of range, which it names. kUnsupported: a
/// window, or a tensor of a later form.
Result<HeadPlan> plan_dflash(const Checkpoint& checkpoint, const std::filesystem::path& target);

}  // namespace hearth::models
