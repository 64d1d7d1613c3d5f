#include "models/convert/tensor_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

std::vector<uint64_t> reversed(const std::vector<uint64_t>& shape) {
  return {shape.rbegin(), shape.rend()};
}

using Drafting = ConvertedFamily::Drafting;

constexpr uint64_t kBlockValues = 32;  // of MXFP4

Edit factor(double value) { return value == 1 ? Edit() : times(value); }

}  // namespace

Edit add_one() {
  return {nullptr, [](double x) { return x + 1; }, {}};
}
Edit minus_exp() {
  return {nullptr, [](double x) { return -std::exp(x); }, {}};
}
Edit times(double factor) {
  return {nullptr, [factor](double x) { return factor * x; }, {}};
}
Edit rows(uint64_t cols, std::function<uint64_t(uint64_t)> source) {
  return {
      [cols, source = std::move(source)](uint64_t i) { return source(i / cols) * cols + i % cols; },
      nullptr,
      {}};
}
Edit swap_pairs(uint64_t cols, uint64_t head_dim) {
  return rows(cols, [head_dim](uint64_t row) {
    const uint64_t lane = row % head_dim;
    return row - lane + lane % 2 * (head_dim / 2) + lane / 2;
  });
}

TensorPlanner::TensorPlanner(const Checkpoint& checkpoint, const FamilyKeys& keys)
    : in_(checkpoint), k_(keys), family_(*keys.family) {}

Result<std::vector<PlannedTensor>> TensorPlanner::plan() {
  const std::string root(family_.root);
  HEARTH_TRY(matrix(root + std::string(family_.embedding), "token_embd.weight",
                    factor(k_.embedding_factor)));
  for (const auto& [name, values] : k_.vectors) {
    PlannedTensor tensor;
    tensor.name = name;
    tensor.dims = {values.size()};
    tensor.values = values;
    out_.push_back(std::move(tensor));
  }
  if (family_.plan_rest != nullptr) HEARTH_TRY(family_.plan_rest(*this));
  for (uint64_t i = 0; i < k_.num_layers; ++i) {
    HEARTH_TRY(family_.plan_layer != nullptr ? family_.plan_layer(*this, i) : plan_layer(i));
  }
  HEARTH_TRY(plan_draft_layer());
  HEARTH_TRY(plan_head());
  HEARTH_TRY(check_all_used());
  return std::move(out_);
}

Result<void> TensorPlanner::plan_head() {
  const std::string from = std::string(family_.root) + std::string(family_.final_norm);
  const std::string to(family_.output_norm);
  HEARTH_TRY(vector(from + ".weight", to + ".weight", norm()));
  if (family_.norm_biases) HEARTH_TRY(vector(from + ".bias", to + ".bias"));
  if (k_.tied) {
    leave_out("lm_head.weight");  // a copy of the embedding, if present
    return {};
  }
  return matrix("lm_head.weight", "output.weight", factor(k_.head_factor));
}

std::string TensorPlanner::from(uint64_t layer) const {
  if (layer >= k_.num_layers && family_.drafting == Drafting::kApart) {
    return fmt::format("mtp.layers.{}.", layer - k_.num_layers);
  }
  return fmt::format("{}layers.{}.", family_.root, layer);
}
std::string TensorPlanner::to(uint64_t layer) { return fmt::format("blk.{}.", layer); }

Edit TensorPlanner::norm() const { return family_.adds_one_to_norms ? add_one() : Edit(); }

Result<const SafeTensor*> TensorPlanner::find(const std::string& name, size_t num_dims) {
  const SafeTensor* tensor = in_.tensor(name);
  if (tensor == nullptr) return Error::corrupt(fmt::format("{}: missing", name));
  if (tensor->shape.size() != num_dims || tensor->num_elements() == 0) {
    return Error::corrupt(fmt::format("{}: {} dimensions, want {} and at least one value", name,
                                      tensor->shape.size(), num_dims));
  }
  HEARTH_TRY(tensor->dtype());
  used_.insert(name);
  return tensor;
}

Result<const SafeTensor*> TensorPlanner::find_of(const std::string& name,
                                                 const std::vector<uint64_t>& shape) {
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find(name, shape.size()));
  if (tensor->shape != shape) {
    return Error::corrupt(
        fmt::format("{}: {}, want {}", name, shape_text(tensor->shape), shape_text(shape)));
  }
  return tensor;
}

Result<const SafeTensor*> TensorPlanner::find_bytes(const std::string& name,
                                                    const std::vector<uint64_t>& shape) {
  const SafeTensor* tensor = in_.tensor(name);
  if (tensor == nullptr) return Error::corrupt(fmt::format("{}: missing", name));
  if (tensor->type != "U8" || tensor->shape != shape) {
    return Error::corrupt(fmt::format("{}: {} of {}, want U8 of {}", name, tensor->type,
                                      shape_text(tensor->shape), shape_text(shape)));
  }
  used_.insert(name);
  return tensor;
}

Result<void> TensorPlanner::want(const std::string& from, const std::string& to, size_t num_dims,
                                 Edit edit) {
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find(from, num_dims));
  PlannedTensor planned;
  planned.name = to;
  planned.dims = reversed(tensor->shape);
  planned.edit = std::move(edit);
  planned.parts = {{tensor, 0, tensor->num_elements()}};
  out_.push_back(std::move(planned));
  return {};
}
Result<void> TensorPlanner::vector(const std::string& from, const std::string& to, Edit edit) {
  return want(from, to, 1, std::move(edit));
}
Result<void> TensorPlanner::matrix(const std::string& from, const std::string& to, Edit edit) {
  return want(from, to, 2, std::move(edit));
}
Result<void> TensorPlanner::maybe_vector(const std::string& from, const std::string& to,
                                         Edit edit) {
  return has(from) ? vector(from, to, std::move(edit)) : Result<void>();
}

Result<void> TensorPlanner::taken(const std::string& from, const std::string& to,
                                  const std::vector<uint64_t>& shape, std::vector<uint64_t> dims,
                                  Edit edit) {
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find_of(from, shape));
  PlannedTensor planned;
  planned.name = to;
  planned.dims = std::move(dims);
  planned.edit = std::move(edit);
  uint64_t count = 1;
  for (const uint64_t size : planned.dims) count *= size;
  if (count == 0 || count > tensor->num_elements()) {
    return Error::corrupt(fmt::format("{}: want values for {}", from, to));
  }
  planned.parts = {{tensor, 0, count}};
  out_.push_back(std::move(planned));
  return {};
}
Result<void> TensorPlanner::reshaped(const std::string& from, const std::string& to,
                                     const std::vector<uint64_t>& shape, std::vector<uint64_t> dims,
                                     Edit edit) {
  HEARTH_TRY(taken(from, to, shape, std::move(dims), std::move(edit)));
  out_.back().exact = true;
  return {};
}

Result<void> TensorPlanner::transposed(const std::string& from, const std::string& to,
                                       uint64_t num_rows, uint64_t num_cols) {
  return taken(from, to, {num_rows, num_cols}, {num_rows, num_cols},
               {[=](uint64_t i) { return i % num_rows * num_cols + i / num_rows; }, nullptr, {}});
}

Result<const SafeTensor*> TensorPlanner::find_flat(const std::string& name, uint64_t count) {
  const SafeTensor* tensor = in_.tensor(name);
  HEARTH_ASSIGN_OR_RETURN(tensor, find(name, tensor == nullptr ? 1 : tensor->shape.size()));
  if (tensor->num_elements() == count) return tensor;
  return Error::corrupt(
      fmt::format("{}: {}, want {} values", name, shape_text(tensor->shape), count));
}
Result<void> TensorPlanner::flat(const std::string& from, const std::string& to, uint64_t count) {
  return joined({from}, to, count, {count});
}
Result<void> TensorPlanner::joined(const std::vector<std::string>& names, const std::string& to,
                                   uint64_t count, std::vector<uint64_t> dims, Edit edit) {
  PlannedTensor planned;
  planned.name = to;
  planned.dims = std::move(dims);
  planned.edit = std::move(edit);
  planned.exact = true;
  for (const std::string& name : names) {
    HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find_flat(name, count));
    const SafeTensor* first = planned.parts.empty() ? tensor : planned.parts.front().tensor;
    if (tensor->type != first->type) {
      return Error::corrupt(fmt::format("{}: not of the type of {}", name, first->name));
    }
    planned.parts.push_back({tensor, 0, count});
  }
  out_.push_back(std::move(planned));
  return {};
}

Result<void> TensorPlanner::blocks(const std::string& from, const std::string& to,
                                   std::vector<uint64_t> dims, uint64_t first, uint64_t step) {
  const uint64_t cols = dims[0], num_rows = dims[1] * step, matrices = dims[2];
  if (cols % kBlockValues != 0) {
    return Error::corrupt(fmt::format("{}_blocks: rows of {} values, want a multiple of {}", from,
                                      cols, kBlockValues));
  }
  const uint64_t per_row = cols / kBlockValues;
  PlannedTensor planned;
  PlannedTensor::Blocks source{.first = first, .step = step};
  HEARTH_ASSIGN_OR_RETURN(
      source.codes, find_bytes(from + "_blocks", {matrices, num_rows, per_row, kBlockValues / 2}));
  HEARTH_ASSIGN_OR_RETURN(source.scales,
                          find_bytes(from + "_scales", {matrices, num_rows, per_row}));
  if (matrices * num_rows * per_row == 0) return Error::corrupt(fmt::format("{}: of nothing", to));
  planned.name = to;
  planned.dims = std::move(dims);
  planned.blocks = source;
  out_.push_back(std::move(planned));
  return {};
}

Result<void> TensorPlanner::scaled_rows(const std::string& from, const std::string& to,
                                        std::vector<double> factors) {
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find(from, 2));
  const std::vector<uint64_t> shape{factors.size(), tensor->shape[1]};
  Edit edit;
  edit.row_factors = std::move(factors);
  return taken(from, to, shape, {shape[1], shape[0]}, std::move(edit));
}

Result<void> TensorPlanner::product(const std::string& from, const std::string& to) {
  HEARTH_TRY(matrix(from + ".weight", to + ".weight"));
  return maybe_vector(from + ".bias", to + ".bias");
}

Result<void> TensorPlanner::rotated_product(const std::string& from, const std::string& to,
                                            uint64_t heads) {
  if (!family_.swaps_pairs) return product(from, to);
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* weights, find(from + ".weight", 2));
  const uint64_t num_rows = weights->shape[0];
  if (num_rows % heads != 0 || num_rows / heads % 2 != 0) {
    return Error::corrupt(
        fmt::format("{}.weight: {} rows, want pairs for each of {} heads", from, num_rows, heads));
  }
  const uint64_t dim = num_rows / heads;
  HEARTH_TRY(matrix(from + ".weight", to + ".weight", swap_pairs(weights->shape[1], dim)));
  if (!has(from + ".bias")) return {};
  HEARTH_TRY(find_of(from + ".bias", {num_rows}));
  return vector(from + ".bias", to + ".bias", swap_pairs(1, dim));
}

Result<void> TensorPlanner::stack(const std::vector<std::string>& names, const std::string& to) {
  PlannedTensor planned;
  planned.name = to;
  for (const std::string& name : names) {
    HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find(name, 2));
    const SafeTensor* first = planned.parts.empty() ? tensor : planned.parts.front().tensor;
    if (tensor->shape != first->shape || tensor->type != first->type) {
      return Error::corrupt(fmt::format("{}: not of the shape and type of {}", name, first->name));
    }
    planned.parts.push_back({tensor, 0, tensor->num_elements()});
  }
  if (planned.parts.empty()) return Error::corrupt(fmt::format("{}: of nothing", to));
  planned.dims = reversed(planned.parts.front().tensor->shape);
  planned.dims.push_back(names.size());
  out_.push_back(std::move(planned));
  return {};
}

Result<void> TensorPlanner::half(const std::string& from, size_t num_dims, bool second,
                                 const std::string& to) {
  HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find(from, num_dims));
  const size_t rows_at = num_dims - 2;
  const uint64_t cols = tensor->shape.back(), num_rows = tensor->shape[rows_at];
  if (num_rows % 2 != 0) return Error::corrupt(fmt::format("{}: an odd number of rows", from));
  const uint64_t matrices = rows_at == 0 ? 1 : tensor->shape.front();
  PlannedTensor planned;
  planned.name = to;
  planned.dims = {cols, num_rows / 2};
  if (rows_at > 0) planned.dims.push_back(matrices);
  for (uint64_t m = 0; m < matrices; ++m) {
    const uint64_t first = m * num_rows * cols + (second ? num_rows / 2 * cols : 0);
    planned.parts.push_back({tensor, first, num_rows / 2 * cols});
  }
  out_.push_back(std::move(planned));
  return {};
}

Result<void> TensorPlanner::plan_layer(uint64_t layer) {
  const std::string from = this->from(layer), to = TensorPlanner::to(layer);
  HEARTH_TRY(plan_norms(from, to));
  HEARTH_TRY(plan_attention(from + "self_attn.", to));
  if (k_.num_experts == 0) return plan_feed_forward(from + "mlp.", to);
  if (has(from + "block_sparse_moe.input_linear.weight")) return plan_joined_experts(from, to);
  const bool mixtral = has(from + "block_sparse_moe.gate.weight");
  const std::string moe = from + (mixtral ? "block_sparse_moe." : "mlp.");
  HEARTH_TRY(matrix(moe + "gate.weight", to + "ffn_gate_inp.weight"));
  return plan_experts(moe, to, mixtral ? ExpertNames{"w1", "w3", "w2"} : ExpertNames{});
}

Result<void> TensorPlanner::plan_norms(const std::string& from, const std::string& to) {
  const auto plan = [&](const char* which, std::string_view name) -> Result<void> {
    const std::string target = to + std::string(name);
    HEARTH_TRY(vector(fmt::format("{}{}.weight", from, which), target + ".weight", norm()));
    if (!family_.norm_biases) return {};
    return vector(fmt::format("{}{}.bias", from, which), target + ".bias");
  };
  if (family_.norms_before) HEARTH_TRY(plan("input_layernorm", "attn_norm"));
  if (!family_.norms_branches) return plan("post_attention_layernorm", family_.ffn_norm);
  HEARTH_TRY(plan("post_attention_layernorm", "post_attention_norm"));
  if (family_.norms_before) HEARTH_TRY(plan("pre_feedforward_layernorm", family_.ffn_norm));
  return plan("post_feedforward_layernorm", "post_ffw_norm");
}

Result<void> TensorPlanner::plan_attention(const std::string& from, const std::string& to) {
  leave_out(from + "rotary_emb.inv_freq");  // config.json has the same information
  if (has(from + "qkv_proj.weight")) {
    HEARTH_TRY(matrix(from + "qkv_proj.weight", to + "attn_qkv.weight"));
  } else {
    HEARTH_TRY(rotated_product(from + "q_proj", to + "attn_q", k_.num_heads));
    HEARTH_TRY(rotated_product(from + "k_proj", to + "attn_k", k_.num_kv_heads));
    HEARTH_TRY(product(from + "v_proj", to + "attn_v"));
  }
  HEARTH_TRY(maybe_vector(from + "q_norm.weight", to + "attn_q_norm.weight", norm()));
  HEARTH_TRY(maybe_vector(from + "k_norm.weight", to + "attn_k_norm.weight", norm()));
  return product(from + "o_proj", to + "attn_output");
}

Result<void> TensorPlanner::plan_feed_forward(const std::string& from, const std::string& to) {
  if (!has(from + "gate_up_proj.weight")) return plan_gated(from, to, "");
  HEARTH_TRY(matrix(from + "gate_up_proj.weight", to + "ffn_up.weight"));
  return product(from + "down_proj", to + "ffn_down");
}

Result<void> TensorPlanner::plan_gated(const std::string& from, const std::string& to,
                                       std::string_view suffix, const ExpertNames& names) {
  for (const auto& [which, target] :
       {std::pair{names.gate, "gate"}, std::pair{names.up, "up"}, std::pair{names.down, "down"}}) {
    if (which.empty()) continue;
    HEARTH_TRY(
        product(fmt::format("{}{}", from, which), fmt::format("{}ffn_{}{}", to, target, suffix)));
  }
  return {};
}

Result<void> TensorPlanner::plan_experts(const std::string& moe, const std::string& to,
                                         const ExpertNames& names) {
  for (const auto& [which, target] :
       {std::pair{names.gate, "gate"}, std::pair{names.up, "up"}, std::pair{names.down, "down"}}) {
    if (which.empty()) continue;
    std::vector<std::string> all;
    for (uint64_t e = 0; e < k_.num_experts; ++e) {
      all.push_back(fmt::format("{}experts.{}.{}.weight", moe, e, which));
    }
    HEARTH_TRY(stack(all, fmt::format("{}ffn_{}_exps.weight", to, target)));
  }
  return {};
}

Result<void> TensorPlanner::plan_gated_expert(const std::string& moe, const std::string& to) {
  HEARTH_TRY(reshaped(moe + "shared_expert_gate.weight", to + "ffn_gate_inp_shexp.weight",
                      {1, k_.width}, {k_.width}));
  return plan_gated(moe + "shared_expert.", to, "_shexp");
}

// Granite: gate and up of all experts in one tensor.
Result<void> TensorPlanner::plan_joined_experts(const std::string& from, const std::string& to) {
  const std::string moe = from + "block_sparse_moe.";
  HEARTH_TRY(matrix(moe + "router.layer.weight", to + "ffn_gate_inp.weight"));
  HEARTH_TRY(half(moe + "input_linear.weight", 3, false, to + "ffn_gate_exps.weight"));
  HEARTH_TRY(half(moe + "input_linear.weight", 3, true, to + "ffn_up_exps.weight"));
  HEARTH_TRY(want(moe + "output_linear.weight", to + "ffn_down_exps.weight", 3));
  if (!has(from + "shared_mlp.input_linear.weight")) return {};
  return plan_halves(from + "shared_mlp.", to, "_shexp");
}

Result<void> TensorPlanner::plan_halves(const std::string& from, const std::string& to,
                                        std::string_view suffix) {
  HEARTH_TRY(
      half(from + "input_linear.weight", 2, false, fmt::format("{}ffn_gate{}.weight", to, suffix)));
  HEARTH_TRY(
      half(from + "input_linear.weight", 2, true, fmt::format("{}ffn_up{}.weight", to, suffix)));
  return matrix(from + "output_linear.weight", fmt::format("{}ffn_down{}.weight", to, suffix));
}

Result<void> TensorPlanner::plan_draft_layer() {
  const bool apart = family_.drafting == Drafting::kApart;
  const std::string layer = from(k_.num_layers), root = apart ? "mtp." : layer;
  const std::string pair = root + (apart ? "fc.weight" : "eh_proj.weight");
  if (family_.drafting == Drafting::kNone || !has(pair)) return {};
  drafts_ = true;
  HEARTH_TRY(family_.plan_layer(*this, k_.num_layers));
  const std::string to = TensorPlanner::to(k_.num_layers) + "nextn.";
  HEARTH_TRY(matrix(pair, to + "eh_proj.weight"));
  const auto plan_norm = [&](std::string_view from, std::string_view name) {
    return vector(fmt::format("{}{}.weight", root, from), fmt::format("{}{}.weight", to, name),
                  norm());
  };
  HEARTH_TRY(plan_norm(apart ? "pre_fc_norm_embedding" : "enorm", "enorm"));
  HEARTH_TRY(plan_norm(apart ? "pre_fc_norm_hidden" : "hnorm", "hnorm"));
  HEARTH_TRY(plan_norm(apart ? "norm" : "shared_head.norm", "shared_head_norm"));
  if (apart) return {};
  const std::string embedding = std::string(family_.root) + std::string(family_.embedding);
  HEARTH_TRY(plan_copy(layer + "embed_tokens.weight", to + "embed_tokens.weight", embedding));
  return plan_copy(layer + "shared_head.head.weight", to + "shared_head_head.weight",
                   k_.tied ? embedding : "lm_head.weight");
}

Result<void> TensorPlanner::plan_copy(const std::string& from, const std::string& to,
                                      const std::string& original) {
  const SafeTensor* copy = in_.tensor(from);
  const SafeTensor* first = in_.tensor(original);
  if (copy == nullptr) return {};
  if (first == nullptr || copy->type != first->type || copy->shape != first->shape ||
      !std::ranges::equal(copy->bytes, first->bytes)) {
    return matrix(from, to);
  }
  leave_out(from);
  return {};
}

// Files of families whose drafts this build does not convert may have such layers too.
bool TensorPlanner::is_of_other_draft_layer(std::string_view name) const {
  if (drafts_ && name.starts_with(from(k_.num_layers))) return false;
  if (name.starts_with("mtp.")) return !drafts_ || name.starts_with("mtp.layers.");
  const auto layers = count_at(config(), "num_nextn_predict_layers");
  for (uint64_t i = 0; layers.ok() && i < std::min<uint64_t>(layers->value_or(0), 16); ++i) {
    if (name.starts_with(fmt::format("{}layers.{}.", family_.root, k_.num_layers + i))) return true;
  }
  return false;
}

Result<void> TensorPlanner::check_all_used() {
  for (const auto& [name, tensor] : in_.tensors()) {
    if (used_.contains(name)) continue;
    if (is_of_other_draft_layer(name)) {
      ++num_left_out_;
      continue;
    }
    return Error::unsupported(
        fmt::format("{}: not a tensor of architecture {} as this build knows it", printable(name),
                    k_.architecture));
  }
  return {};
}

Result<TensorPlan> plan_tensors(const Checkpoint& checkpoint, const FamilyKeys& keys) {
  TensorPlanner planner(checkpoint, keys);
  TensorPlan out;
  HEARTH_ASSIGN_OR_RETURN(out.tensors, planner.plan());
  out.drafts = planner.drafts();
  out.num_left_out = planner.num_left_out();
  return out;
}

}  // namespace hearth::models
