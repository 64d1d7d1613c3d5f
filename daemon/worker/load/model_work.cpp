#include "daemon/worker/load/model_work.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "daemon/worker/load/inspection.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

/// Whether the tensor belongs to a layer for drafting, after the model's layers.
bool of_draft_layer(std::string_view name, int32_t num_layers) {
  constexpr std::string_view kPrefix = "blk.";
  int32_t layer = -1;
  if (name.starts_with(kPrefix)) {
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  }
  return layer >= num_layers;
}

}  // namespace

ModelWork work_of(const models::GgufFile& file, const models::ModelInfo& info) {
  ModelWork work;
  work.num_heads = info.num_heads;
  work.groups = info.groups;
  const std::string prefix = info.architecture + ".";
  const auto experts = file.get_or<uint32_t>(prefix + "expert_count", 0);
  const auto used = file.get_or<uint32_t>(prefix + "expert_used_count", 0);
  if (experts.ok() && used.ok() && experts.value() > 0) {
    work.experts_used = std::min(1.0, as_double(used.value()) / experts.value());
  }
  const bool tied = file.find_tensor("output.weight") == nullptr;
  double quantized = 0, plain = 0;
  for (const models::GgufTensor& tensor : file.tensors()) {
    if (of_draft_layer(tensor.name, info.num_layers)) continue;
    const auto bytes = as_double(tensor.bytes.size());
    const double ops = 2.0 * as_double(tensor.num_elements());
    const bool blocks = tensor.dtype && kernels::info(*tensor.dtype).block_elements > 1;
    if (tensor.name == "output.weight" || (tied && tensor.name == "token_embd.weight")) {
      work.head_bytes += bytes;
      work.head_ops += ops;
    } else if (tensor.name == "token_embd.weight" || tensor.name == "per_layer_token_embd.weight") {
      continue;  // only one row of it per token
    } else if (tensor.num_dims == 3 && tensor.name.find("_exps") != tensor.name.npos) {
      work.expert_bytes += bytes;
      work.expert_ops += ops * work.experts_used;
      work.unused_parameters += as_double(tensor.num_elements()) * (1 - work.experts_used);
    } else {
      work.body_bytes += bytes;
      if (tensor.num_dims >= 2) work.body_ops += ops;
    }
    (blocks ? quantized : plain) += bytes;
  }
  work.quantized = quantized > plain;
  return work;
}

double chosen_share(double share, double rows) {
  return share > 0 ? 1 - std::pow(1 - std::min(share, 1.0), rows) : 0;
}

StepWork step_work(const ModelWork& model, kernels::KvTypes kv_type, double rows, double outputs,
                   double sequences, double context) {
  StepWork step;
  step.bytes = model.body_bytes + model.head_bytes +
               model.expert_bytes * chosen_share(model.experts_used, rows);
  step.matmul_ops = rows * (model.body_ops + model.expert_ops) + outputs * model.head_ops;
  for (const models::LayerGroup& group : model.groups) {
    if (group.recurrent()) {
      // Read and written once a step; of each value two products and two sums for each row.
      const double state = as_double(group.block_bytes(kv_type, kernels::kAttentionTile));
      step.bytes += 2 * sequences * state;
      step.attention_ops += rows * state;
      continue;
    }
    const bool sliding = group.kind == models::LayerGroup::Kind::kSliding;
    const double seen = sliding ? std::min(context, as_double(group.window)) : context;
    // Layers that share KV read it again.
    const double readers = group.num_layers + group.num_sharing;
    step.bytes += sequences * seen * as_double(kv_bytes_per_token(group, kv_type)) * readers /
                  group.num_layers;
    // q.k and the weighted sum of v.
    step.attention_ops +=
        rows * seen * 2.0 * model.num_heads * (group.kv.k_dim + group.kv.v_dim) * readers;
  }
  return step;
}

Peak attention_peak(const kernels::Ceilings& ceilings) {
  if (ceilings.half_ops_per_s > 0) return {ceilings.half_ops_per_s, "f16"};
  return {ceilings.f32_ops_per_s, "f32"};
}

Peak product_peak(const kernels::Ceilings& ceilings, bool quantized) {
  if (quantized && ceilings.int8_ops_per_s > 0) return {ceilings.int8_ops_per_s, "int8"};
  return attention_peak(ceilings);
}

Bound least_time(const StepWork& work, bool quantized, const kernels::Ceilings& ceilings) {
  const Peak products = product_peak(ceilings, quantized);
  const double reading = work.bytes / ceilings.read_bytes_per_s;
  const double computing = work.matmul_ops / products.ops_per_s +
                           work.attention_ops / attention_peak(ceilings).ops_per_s;
  if (reading >= computing) return {reading, "read"};
  return {computing, products.unit};
}

}  // namespace hearth::worker
