#pragma once
// Which type each tensor of a model gets: most of them one type, those that a model's output hangs
// on most a finer one. The mixes named as llama.cpp names them (Q4_K_M, ...) are its choices in
// substance.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

struct Mix {
  std::string_view name;  ///< "Q4_K_M", "Q8_0"
  kernels::DType base;    ///< of what is not named otherwise
  uint32_t file_type;     ///< general.file_type
};

std::span<const Mix> mixes();
/// By name, in any case. kUnsupported lists them.
Result<Mix> find_mix(std::string_view name);

/// What the choice depends on beside the tensor.
struct MixModel {
  int32_t num_layers = 0;
  int32_t num_experts = 0;
  int32_t heads_per_kv_head = 1;
  bool tied = false;  ///< the embedding is the output head

  static MixModel of(const GgufFile& file);
};

/// The type that `mix` stores the tensor in; its own where it stays as it is: vectors, norms,
/// expert routers. Rows that do not divide into the type's blocks get the nearest type whose blocks
/// divide them, F16 at last.
kernels::DType choose_type(const Mix& mix, const MixModel& model, const GgufTensor& tensor);

}  // namespace hearth::models
