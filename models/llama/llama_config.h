#pragma once
// The numbers of a model of family llama, read from a file's metadata and checked.

#include <cstdint>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"
#include "models/rope_frequencies.h"

namespace hearth::models {

struct LlamaConfig {
  int32_t context_length = 0;
  int32_t width = 0;
  int32_t num_layers = 0;
  int32_t ffn_width = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  ///< divides num_heads
  int32_t head_dim = 0;
  int32_t window = 0;  ///< positions attended to; 0: all
  float rms_eps = 0;
  RopeConfig rope;

  int64_t q_width() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }

  /// kCorrupt: a key that is missing or impossible. kUnsupported: one that asks for what this
  /// family does not do here (experts, ...). Both name the key.
  static Result<LlamaConfig> load(const GgufFile& file);
};

}  // namespace hearth::models
