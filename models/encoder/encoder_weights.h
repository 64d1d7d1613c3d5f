#pragma once
// The weights of an encoder: found in a file, checked, and loaded into a device.

#include <cstdint>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/encoder/encoder_config.h"
#include "models/weights/weight_packer.h"

namespace hearth::models {

/// Of a layer norm; both vectors of width.
struct NormWeights {
  WeightHandle weight;
  WeightHandle bias;
};

struct EncoderWeights {
  /// Biases are null if the file has none.
  struct Layer {
    WeightHandle qkv;  ///< (3 width, width): q, then k, then v
    WeightHandle qkv_bias;
    WeightHandle attn_out;  ///< (width, width)
    WeightHandle attn_out_bias;
    NormWeights attn_norm;
    WeightHandle up;  ///< (ffn_width, width); gated: (2 ffn_width, width), gate, then up
    WeightHandle up_bias;
    WeightHandle down;  ///< (width, ffn_width)
    WeightHandle down_bias;
    NormWeights ffn_norm;
  };

  WeightHandle embedding;  ///< (vocab_size, width)
  WeightHandle
      token_type;  ///< vector of width, added to all tokens (the row of the first text); null: none
  WeightHandle positions;         ///< (context_length or more, width); null with rotary positions
  WeightHandle rope_frequencies;  ///< vector of head_dim / 2, or null
  NormWeights embedding_norm;
  std::vector<Layer> layers;
  uint64_t bytes = 0;  ///< of all, on the device

  /// Checks all tensors, then loads them. Errors name the tensor: kCorrupt, kUnsupported,
  /// kOutOfMemory.
  static Result<EncoderWeights> load(const GgufFile& file, const EncoderConfig& config,
                                     const kernels::OpTable& ops, const LoadProgressFn& progress);
};

}  // namespace hearth::models
