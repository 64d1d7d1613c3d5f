#pragma once
// Published heads that draft for another model (Medusa-1): config.json with medusa_num_heads and
// medusa_num_layers, and a safetensors file with, of head K, the residual blocks I below
// medusa_num_layers and the output:
//
//   K.I.linear.weight (width, width)   K.I.linear.bias (width)   K.medusa_num_layers.weight
//   (tokens, width)
//
// each name with or without "medusa_head." before it. The new file is that of
// models/decoder/draft_heads.h.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "models/convert/checkpoint.h"
#include "models/convert/tensor_plan.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::models {

/// Whether config.json is of such heads.
bool has_heads(const Json& config);

struct HeadsPlan {
  uint32_t num_heads = 0;
  uint32_t num_blocks = 0;  ///< of each head
  uint64_t width = 0;
  uint64_t vocab_size = 0;
  std::string target;  ///< the model that they were made for, as config.json names it, or empty
  std::vector<PlannedTensor> tensors;

  void describe(GgufWriter& writer) const;
};

/// kCorrupt: a count out of range, a tensor that is missing or of another shape. kUnsupported: a
/// tensor that is not of the heads. Both name it.
Result<HeadsPlan> plan_heads(const Checkpoint& checkpoint);

}  // namespace hearth::models
