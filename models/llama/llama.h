#pragma once
// Family llama: Llama 1 to 3.x, Mistral, SmolLM, TinyLlama and whatever else has this shape.

#include <memory>

#include "kernels/base/result.h"
#include "models/model.h"

namespace hearth::models {

/// As load_model, for general.architecture "llama".
Result<std::unique_ptr<Model>> load_llama(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress);

}  // namespace hearth::models
