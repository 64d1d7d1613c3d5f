#pragma once
// The weights of a model of family llama: found in a file, checked, taken into a device.

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"
#include "models/llama/llama_config.h"
#include "models/model.h"

namespace hearth::models {

struct LlamaWeights {
  using Handle = std::unique_ptr<kernels::Weight>;

  struct Layer {
    Handle attn_norm;     ///< vector of width
    Handle qkv;           ///< (q_width + 2 kv_width, width): q, then k, then v
    Handle qkv_bias;      ///< or null
    Handle attn_out;      ///< (width, q_width)
    Handle attn_bias;     ///< or null
    Handle ffn_norm;      ///< vector of width
    Handle gate_up;       ///< (2 ffn_width, width): gate, then up
    Handle gate_up_bias;  ///< or null
    Handle down;          ///< (width, ffn_width)
    Handle down_bias;     ///< or null
  };

  Handle embedding;         ///< (vocab_size, width)
  Handle rope_frequencies;  ///< vector of rope.dim / 2
  std::vector<Layer> layers;
  Handle output_norm;
  Handle output;  ///< (vocab_size, width), or null where the head is tied to the embedding

  const kernels::Weight* head() const { return output ? output.get() : embedding.get(); }
  uint64_t bytes = 0;  ///< of all, on the device

  /// Checks all tensors, then takes them in layer by layer, and gives the file's pages back behind
  /// it. Errors name the tensor: kCorrupt, kUnsupported, kOutOfMemory.
  static Result<LlamaWeights> load(const GgufFile& file, const LlamaConfig& config,
                                   const kernels::OpTable& ops, const LoadProgressFn& progress);
};

}  // namespace hearth::models
