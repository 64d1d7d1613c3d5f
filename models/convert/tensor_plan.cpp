#include "models/convert/tensor_plan.h"

#include <fmt/core.h>

#include <optional>
#include <set>

#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

using Change = PlannedTensor::Change;

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const FamilyKeys& keys) : in_(checkpoint), k_(keys) {}

  Result<std::vector<PlannedTensor>> plan() {
    HEARTH_TRY(want("model.embed_tokens.weight", "token_embd.weight", 2));
    for (const auto& [name, values] : k_.vectors) {
      PlannedTensor tensor;
      tensor.name = name;
      tensor.dims = {values.size()};
      tensor.values = values;
      out_.push_back(std::move(tensor));
    }
    for (uint64_t i = 0; i < k_.num_layers; ++i) HEARTH_TRY(plan_layer(i));
    HEARTH_TRY(want("model.norm.weight", "output_norm.weight", 1, norm()));
    if (k_.tied) {
      used_.insert("lm_head.weight");  // a copy of the embedding, if present
    } else {
      HEARTH_TRY(want("lm_head.weight", "output.weight", 2));
    }
    HEARTH_TRY(check_all_used());
    return std::move(out_);
  }

 private:
  Change norm() const { return k_.adds_one_to_norms ? Change::kAddOne : Change::kNone; }

  Result<const SafeTensor*> find(const std::string& name, size_t num_dims) {
    const SafeTensor* tensor = in_.tensor(name);
    if (tensor == nullptr) {
      return Error::corrupt(fmt::format("{}: missing", name));
    }
    if (tensor->shape.size() != num_dims || tensor->num_elements() == 0) {
      return Error::corrupt(fmt::format("{}: {} dimensions, want {} and at least one value", name,
                                        tensor->shape.size(), num_dims));
    }
    HEARTH_TRY(tensor->dtype());
    used_.insert(name);
    return tensor;
  }

  static std::vector<uint64_t> reversed(const std::vector<uint64_t>& shape) {
    return {shape.rbegin(), shape.rend()};
  }

  Result<void> want(const std::string& from, const std::string& to, size_t num_dims,
                    Change change = Change::kNone, uint64_t heads = 0) {
    HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find(from, num_dims));
    if (change == Change::kSwapPairs) {
      // shape[0] is the number of rows, or of values of a bias.
      const uint64_t rows = tensor->shape.front();
      if (rows % heads != 0 || rows / heads % 2 != 0) {
        return Error::corrupt(
            fmt::format("{}: {} rows, want pairs for each of {} heads", from, rows, heads));
      }
    }
    PlannedTensor planned;
    planned.name = to;
    planned.dims = reversed(tensor->shape);
    planned.change = change;
    planned.num_heads = heads;
    planned.parts = {{tensor, 0, tensor->num_elements()}};
    out_.push_back(std::move(planned));
    return {};
  }

  Result<void> maybe(const std::string& from, const std::string& to, size_t num_dims,
                     Change change = Change::kNone, uint64_t heads = 0) {
    if (in_.tensor(from) == nullptr) return {};
    return want(from, to, num_dims, change, heads);
  }

  Result<void> plan_layer(uint64_t i) {
    const std::string from = fmt::format("model.layers.{}.", i), to = fmt::format("blk.{}.", i);
    HEARTH_TRY(plan_norms(from, to));
    HEARTH_TRY(plan_attention(from + "self_attn.", to));
    used_.insert(from + "self_attn.rotary_emb.inv_freq");  // config.json has the same information
    if (k_.num_experts == 0) return plan_feed_forward(from + "mlp.", to);
    if (in_.tensor(from + "block_sparse_moe.input_linear.weight") != nullptr) {
      return plan_joined_experts(from, to);
    }
    const bool mixtral = in_.tensor(from + "block_sparse_moe.gate.weight") != nullptr;
    const std::string moe = from + (mixtral ? "block_sparse_moe." : "mlp.");
    HEARTH_TRY(want(moe + "gate.weight", to + "ffn_gate_inp.weight", 2));
    HEARTH_TRY(stack(moe, mixtral ? "w1" : "gate_proj", to + "ffn_gate_exps.weight"));
    HEARTH_TRY(stack(moe, mixtral ? "w3" : "up_proj", to + "ffn_up_exps.weight"));
    return stack(moe, mixtral ? "w2" : "down_proj", to + "ffn_down_exps.weight");
  }

  Result<void> plan_norms(const std::string& from, const std::string& to) {
    if (k_.norms_before) {
      HEARTH_TRY(want(from + "input_layernorm.weight", to + "attn_norm.weight", 1, norm()));
    }
    if (!k_.norms_branches) {
      return want(from + "post_attention_layernorm.weight", to + "ffn_norm.weight", 1, norm());
    }
    HEARTH_TRY(want(from + "post_attention_layernorm.weight", to + "post_attention_norm.weight", 1,
                    norm()));
    if (k_.norms_before) {
      HEARTH_TRY(
          want(from + "pre_feedforward_layernorm.weight", to + "ffn_norm.weight", 1, norm()));
    }
    return want(from + "post_feedforward_layernorm.weight", to + "post_ffw_norm.weight", 1, norm());
  }

  Result<void> plan_attention(const std::string& from, const std::string& to) {
    if (in_.tensor(from + "qkv_proj.weight") != nullptr) {
      HEARTH_TRY(want(from + "qkv_proj.weight", to + "attn_qkv.weight", 2));
    } else {
      const Change swap = k_.swaps_pairs ? Change::kSwapPairs : Change::kNone;
      HEARTH_TRY(want(from + "q_proj.weight", to + "attn_q.weight", 2, swap, k_.num_heads));
      HEARTH_TRY(want(from + "k_proj.weight", to + "attn_k.weight", 2, swap, k_.num_kv_heads));
      HEARTH_TRY(want(from + "v_proj.weight", to + "attn_v.weight", 2));
      HEARTH_TRY(maybe(from + "q_proj.bias", to + "attn_q.bias", 1, swap, k_.num_heads));
      HEARTH_TRY(maybe(from + "k_proj.bias", to + "attn_k.bias", 1, swap, k_.num_kv_heads));
      HEARTH_TRY(maybe(from + "v_proj.bias", to + "attn_v.bias", 1));
    }
    HEARTH_TRY(maybe(from + "q_norm.weight", to + "attn_q_norm.weight", 1, norm()));
    HEARTH_TRY(maybe(from + "k_norm.weight", to + "attn_k_norm.weight", 1, norm()));
    HEARTH_TRY(want(from + "o_proj.weight", to + "attn_output.weight", 2));
    return maybe(from + "o_proj.bias", to + "attn_output.bias", 1);
  }

  Result<void> plan_feed_forward(const std::string& from, const std::string& to) {
    if (in_.tensor(from + "gate_up_proj.weight") != nullptr) {
      HEARTH_TRY(want(from + "gate_up_proj.weight", to + "ffn_up.weight", 2));
    } else {
      HEARTH_TRY(want(from + "gate_proj.weight", to + "ffn_gate.weight", 2));
      HEARTH_TRY(want(from + "up_proj.weight", to + "ffn_up.weight", 2));
      HEARTH_TRY(maybe(from + "gate_proj.bias", to + "ffn_gate.bias", 1));
      HEARTH_TRY(maybe(from + "up_proj.bias", to + "ffn_up.bias", 1));
    }
    HEARTH_TRY(want(from + "down_proj.weight", to + "ffn_down.weight", 2));
    return maybe(from + "down_proj.bias", to + "ffn_down.bias", 1);
  }

  /// Stacks the same matrix of every expert, one after the other.
  Result<void> stack(const std::string& moe, const std::string& which, const std::string& to) {
    PlannedTensor planned;
    planned.name = to;
    for (uint64_t e = 0; e < k_.num_experts; ++e) {
      const std::string name = fmt::format("{}experts.{}.{}.weight", moe, e, which);
      HEARTH_ASSIGN_OR_RETURN(const SafeTensor* tensor, find(name, 2));
      const SafeTensor* first = planned.parts.empty() ? tensor : planned.parts.front().tensor;
      if (tensor->shape != first->shape || tensor->type != first->type) {
        return Error::corrupt(fmt::format("{}: not of the shape and type of expert 0", name));
      }
      planned.parts.push_back({tensor, 0, tensor->num_elements()});
    }
    planned.dims = reversed(planned.parts.front().tensor->shape);
    planned.dims.push_back(k_.num_experts);
    out_.push_back(std::move(planned));
    return {};
  }

  /// Takes the first or second half of the rows of each matrix in a stack, or of one matrix.
  Result<void> half(const SafeTensor& tensor, bool second, const std::string& to) {
    const size_t rows_at = tensor.shape.size() - 2;
    const uint64_t cols = tensor.shape.back(), rows = tensor.shape[rows_at];
    if (rows % 2 != 0) {
      return Error::corrupt(fmt::format("{}: an odd number of rows", tensor.name));
    }
    const uint64_t matrices = rows_at == 0 ? 1 : tensor.shape.front();
    PlannedTensor planned;
    planned.name = to;
    planned.dims = {cols, rows / 2};
    if (rows_at > 0) planned.dims.push_back(matrices);
    for (uint64_t m = 0; m < matrices; ++m) {
      const uint64_t first = m * rows * cols + (second ? rows / 2 * cols : 0);
      planned.parts.push_back({&tensor, first, rows / 2 * cols});
    }
    out_.push_back(std::move(planned));
    return {};
  }

  // Granite: gate and up of all experts in one tensor.
  Result<void> plan_joined_experts(const std::string& from, const std::string& to) {
    const std::string moe = from + "block_sparse_moe.";
    HEARTH_TRY(want(moe + "router.layer.weight", to + "ffn_gate_inp.weight", 2));
    HEARTH_ASSIGN_OR_RETURN(const SafeTensor* joined, find(moe + "input_linear.weight", 3));
    HEARTH_TRY(half(*joined, false, to + "ffn_gate_exps.weight"));
    HEARTH_TRY(half(*joined, true, to + "ffn_up_exps.weight"));
    HEARTH_TRY(want(moe + "output_linear.weight", to + "ffn_down_exps.weight", 3));
    const std::string shared = from + "shared_mlp.";
    if (in_.tensor(shared + "input_linear.weight") == nullptr) return {};
    HEARTH_ASSIGN_OR_RETURN(const SafeTensor* both, find(shared + "input_linear.weight", 2));
    HEARTH_TRY(half(*both, false, to + "ffn_gate_shexp.weight"));
    HEARTH_TRY(half(*both, true, to + "ffn_up_shexp.weight"));
    return want(shared + "output_linear.weight", to + "ffn_down_shexp.weight", 2);
  }

  Result<void> check_all_used() const {
    for (const SafeTensor* tensor : in_.tensors()) {
      if (used_.contains(tensor->name)) continue;
      return Error::unsupported(
          fmt::format("{}: not a tensor of architecture {} as this build knows it",
                      printable(tensor->name), k_.architecture));
    }
    return {};
  }

  const Checkpoint& in_;
  const FamilyKeys& k_;
  std::set<std::string, std::less<>> used_;
  std::vector<PlannedTensor> out_;
};

}  // namespace

Result<std::vector<PlannedTensor>> plan_tensors(const Checkpoint& checkpoint,
                                                const FamilyKeys& keys) {
  return Planner(checkpoint, keys).plan();
}

}  // namespace hearth::models
