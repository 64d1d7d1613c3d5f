#pragma once
// The model of benchmarks that measure everything but a model's computation: it costs next to
// nothing, and its context holds long requests.

#include "models/random_model.h"

namespace hearth::bench {

inline constexpr models::ModelShape kTinyShape = {.name = "bench",
                                                  .layers = 2,
                                                  .width = 64,
                                                  .ffn = 128,
                                                  .heads = 4,
                                                  .kv_heads = 2,
                                                  .head_dim = 16,
                                                  .vocab = 512,
                                                  .context = 8192};

}  // namespace hearth::bench
