#pragma once
// The least work of a model's step: bytes that must be read, operations that must be done. From the
// file's tensors; pure arithmetic.

#include <cstdint>
#include <vector>

#include "kernels/host/ceilings.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"

namespace hearth::worker {

struct ModelWork {
  double body_bytes = 0;         ///< of the weights that every token uses
  double expert_bytes = 0;       ///< of all experts together
  double head_bytes = 0;         ///< of the output head
  double body_ops = 0;           ///< per token; a multiplication and an addition count as two
  double expert_ops = 0;         ///< per token: of the experts that it uses
  double head_ops = 0;           ///< per output row
  double experts_used = 0;       ///< share of the experts that one token uses
  double unused_parameters = 0;  ///< of the experts that one token does not use
  bool quantized = false;        ///< most bytes are: the int8 unit computes, where there is one
  int32_t num_heads = 0;
  std::vector<models::LayerGroup> groups;
};
ModelWork work_of(const models::GgufFile& file, const models::ModelInfo& info);

/// Share of the experts chosen by at least one of `rows` tokens, each choosing a `share` of them at
/// random.
double chosen_share(double share, double rows);

/// One step of `sequences` sequences: `rows` tokens, of which `outputs` reach the head, each
/// attending to `context` positions on average.
struct StepWork {
  double bytes = 0;          ///< weights once, and each sequence's KV
  double matmul_ops = 0;     ///< on the unit for the weights' type
  double attention_ops = 0;  ///< on the unit for attention
};
StepWork step_work(const ModelWork& model, kernels::KvTypes kv_type, double rows, double outputs,
                   double sequences, double context);

/// The unit that computes, and its operations per second.
struct Peak {
  double ops_per_s = 0;
  const char* unit = "";  ///< "int8", "f16" or "f32"
};
/// For products of weights: int8 for quantized ones, f16 on tensor cores, else f32.
Peak product_peak(const kernels::Ceilings& ceilings, bool quantized);
/// For attention: f16 on tensor cores, else f32.
Peak attention_peak(const kernels::Ceilings& ceilings);

/// The least time under these ceilings: the larger of reading and computing.
struct Bound {
  double seconds = 0;
  const char* by = "";  ///< "read", or product_peak()'s unit
};
Bound least_time(const StepWork& work, bool quantized, const kernels::Ceilings& ceilings);

}  // namespace hearth::worker
