#pragma once
// Scales the inputs of matrices before they are quantized, so that less is lost where inputs are
// large: a matrix's column is multiplied by s, and what computes that input is divided by s. The
// model computes the same, and its file is an ordinary one.
//
// Where an input can be divided exactly:
//   attn_norm -> attn_q, attn_k, attn_v (or attn_qkv)      ffn_norm -> ffn_gate, ffn_up
//   the rows of attn_v -> attn_output                      the rows of ffn_up -> ffn_down
// s is the a-th power of the input's root mean square, times a constant; a is searched for in each
// place. Queries that share a row of attn_v share its s.
// Source: Lin et al. 2023 (AWQ), section 3.2, with the mean square in place of the mean magnitude.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/host/thread_pool.h"
#include "models/gguf/gguf_file.h"
#include "models/quantize/importance.h"
#include "models/quantize/mix.h"

namespace hearth::models {

/// What a tensor's values are multiplied by; empty: by 1.
struct TensorFactors {
  std::vector<float> rows;
  std::vector<float> cols;
};

struct InputScales {
  std::map<std::string, TensorFactors, std::less<>> factors;  ///< by tensor
  int32_t num_places = 0;                                     ///< where inputs could be scaled
  int32_t num_scaled = 0;                                     ///< where that leaves less error

  /// Null if the tensor stays as it is.
  const TensorFactors* find(std::string_view tensor) const;
};

/// Searches for the scales that leave the least error, weighted by `importance` (check_fits), in a
/// sample of each matrix's rows as `mix` stores them; a place where none leaves less than 1
/// keeps 1. kUnsupported names an architecture whose places are not known, and those that are;
/// kCancelled if `go_on` returned false; kInvalidArgument as quantize_rows.
Result<InputScales> search_input_scales(const GgufFile& model, const Mix& mix,
                                        const ImportanceMatrix& importance,
                                        kernels::ThreadPool& pool,
                                        const std::function<bool(int32_t, int32_t)>& progress);

}  // namespace hearth::models
