#pragma once
// The sizes and parameters of an encoder, read from a file's metadata and checked, and the parts
// that its family uses.

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/base/result.h"
#include "models/pooling.h"
#include "models/weights/file_info.h"
#include "models/weights/metadata.h"
#include "models/weights/rope_frequencies.h"

namespace hearth::models {

struct EncoderConfig {
  std::string architecture;
  int32_t context_length = 0;
  int32_t width = 0;
  int32_t num_layers = 0;
  int32_t ffn_width = 0;
  int32_t num_heads = 0;
  int32_t head_dim = 0;  ///< width / num_heads
  float eps = 0;         ///< of the layer norms
  Pooling pooling = Pooling::kNone;

  // ---- Set by the family: which parts it uses ----
  std::optional<RopeConfig> rope;  ///< positions rotate q and k; absent: positions are learned rows
  bool gated = false;              ///< silu(gate) * up; else gelu(up)

  /// Reads the keys that all encoders have. Errors name the key.
  static Result<EncoderConfig> load_common(Metadata& metadata);
};

}  // namespace hearth::models
