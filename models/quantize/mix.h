#pragma once
// Chooses the type of each tensor of a model: one base type for most, and a more precise one for
// the tensors that affect the output most. Mixes with names from llama.cpp (Q4_K_M, ...) make
// essentially the same choices.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

struct Mix {
  std::string_view name;  ///< "Q4_K_M", "Q8_0"
  kernels::DType base;    ///< of all tensors without a special choice
  uint32_t file_type;     ///< general.file_type
};

std::span<const Mix> mixes();
/// Finds a mix by name, in any case. kUnsupported lists them.
Result<Mix> find_mix(std::string_view name);

/// What the choice depends on in addition to the tensor.
struct MixModel {
  int32_t num_layers = 0;
  int32_t num_draft_layers = 0;  ///< the last ones of num_layers
  int32_t num_experts = 0;
  int32_t heads_per_kv_head = 1;
  bool tied = false;  ///< the embedding is the output head

  static MixModel of(const GgufFile& file);
};

/// The number in "blk.N."; absent for other names.
std::optional<int32_t> layer_of(std::string_view tensor_name);

/// The type that `mix` stores the tensor in; vectors, norms and expert routers keep their own. If a
/// row is not a whole number of blocks, the nearest type whose blocks divide it is chosen, F16 as a
/// last resort.
kernels::DType choose_type(const Mix& mix, const MixModel& model, const GgufTensor& tensor);

}  // namespace hearth::models
