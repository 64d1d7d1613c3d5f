#include "models/convert/eagle3.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/base/numbers.h"
#include "models/convert/config_reader.h"
#include "models/gguf/byte_cursor.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/heads_keys.h"

namespace hearth::models {
namespace {

constexpr const char* kLayerIds = "eagle_aux_hidden_state_layer_ids";
constexpr size_t kTargetLayers = 3;

constexpr ConvertedFamily eagle3_family() {
  ConvertedFamily f{.model_type = "", .architecture = kEagle3Architecture};
  f.rope_divisors = true;
  f.own_layers = true;
  f.own_experts = true;
  return f;
}
constexpr ConvertedFamily kEagle3Family = eagle3_family();

/// What a head's keys have of the model that it drafts for.
struct TargetSizes {
  uint64_t width = 0;
  uint64_t num_layers = 0;
  std::string name;
};

Result<TargetSizes> sizes_of(const std::filesystem::path& path) {
  HEARTH_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  HEARTH_ASSIGN_OR_RETURN(const auto architecture,
                          file.get<std::string_view>("general.architecture"));
  const auto key = [&](std::string_view rest) { return fmt::format("{}.{}", architecture, rest); };
  TargetSizes out;
  HEARTH_ASSIGN_OR_RETURN(out.width, file.get<uint32_t>(key("embedding_length")));
  HEARTH_ASSIGN_OR_RETURN(const uint32_t all, file.get<uint32_t>(key("block_count")));
  HEARTH_ASSIGN_OR_RETURN(const uint32_t drafting,
                          file.get_or<uint32_t>(key("nextn_predict_layers"), 0));
  out.num_layers = all - std::min(all, drafting);
  HEARTH_ASSIGN_OR_RETURN(const auto name, file.get_or<std::string_view>("general.name", ""));
  out.name = name;
  return out;
}

Result<std::vector<int32_t>> target_layers(const Json& config,
                                           const std::optional<TargetSizes>& target) {
  std::vector<int32_t> out;
  const Json* ids = find(config, kLayerIds);
  if (ids == nullptr) {
    if (!target) {
      return Error::corrupt(
          fmt::format("config.json: {}: missing, want it or --target MODEL.gguf", kLayerIds));
    }
    // As published code chooses them: an early layer, a middle one and a late one.
    const auto layers = narrow<int32_t>(target->num_layers);
    if (layers < 5) return Error::corrupt(fmt::format("{} layers, want at least 5", layers));
    return std::vector<int32_t>{2, layers / 2, layers - 3};
  }
  const auto fits = [](const Json& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX;
  };
  if (!ids->is_array() || ids->size() != kTargetLayers || !std::ranges::all_of(*ids, fits)) {
    return corrupt_key(kLayerIds, "three numbers");
  }
  for (const Json& id : *ids) out.push_back(id.get<int32_t>());
  return out;
}

class Eagle3Planner : private HeadPlanner {
 public:
  Eagle3Planner(const Checkpoint& checkpoint, std::optional<TargetSizes> target)
      : HeadPlanner(checkpoint),
        config_(with_keys_of(in_.config(), {"transformer_layer_config", "eagle_config"})),
        target_(std::move(target)) {}

  Result<HeadPlan> plan() {
    ConfigReader reader(config_, kEagle3Family);
    HEARTH_ASSIGN_OR_RETURN(out_.keys, reader.read());
    const FamilyKeys& k = out_.keys;
    if (k.num_layers != 1) return corrupt_key("num_hidden_layers", "1");
    HEARTH_TRY(plan_keys());
    HEARTH_TRY(plan_tokens());
    HEARTH_TRY(plan_layer());
    use(in_.tensor("t2d"));
    return finish("an EAGLE-3 head");
  }

 private:
  Result<void> plan_keys() {
    HEARTH_ASSIGN_OR_RETURN(std::vector<int32_t> layers, target_layers(config_, target_));
    HEARTH_ASSIGN_OR_RETURN(const auto given, count_at(config_, "target_hidden_size"));
    target_width_ = given.value_or(target_ ? target_->width : out_.keys.width);
    HEARTH_ASSIGN_OR_RETURN(vocab_size_, want_count(config_, "vocab_size"));
    for (const uint64_t size : {target_width_, vocab_size_}) {
      if (size == 0 || size > INT32_MAX) {
        return corrupt_key("target_hidden_size, vocab_size", "1 to 2147483647");
      }
    }
    HEARTH_ASSIGN_OR_RETURN(const auto residual, flag_at(config_, "norm_before_residual"));
    HEARTH_ASSIGN_OR_RETURN(const auto norm_features, flag_at(config_, "norm_before_fc"));
    norm_features_ = norm_features.value_or(false);
    set("target_layers", std::move(layers));
    set("target_hidden_size", narrow<uint32_t>(target_width_));
    set("vocab_size", narrow<uint32_t>(vocab_size_));
    set("norm_before_residual", residual.value_or(false));
    set("norm_before_fc", norm_features_);
    if (target_ && !target_->name.empty()) set("target.name", target_->name);
    return {};
  }

  Result<void> plan_tokens() {
    const SafeTensor* offsets = in_.tensor("d2t");
    if (offsets == nullptr) return {};
    use(offsets);
    if (offsets->type != "I64" || offsets->shape.size() != 1) {
      return Error::corrupt(fmt::format("d2t: {} of shape [{}], want I64 of one dimension",
                                        printable(offsets->type), fmt::join(offsets->shape, ",")));
    }
    PlannedTensor& tensor = out_.tensors.emplace_back();
    tensor.name = "d2t";
    tensor.dims = {offsets->num_elements()};
    for (uint64_t i = 0; i < offsets->num_elements(); ++i) {
      const auto offset = load_unaligned<int64_t>(offsets->bytes.data() + i * sizeof(int64_t));
      const auto most = narrow<int64_t>(vocab_size_) - 1 - narrow<int64_t>(i);
      if (offset < -narrow<int64_t>(i) || offset > most) {
        return Error::corrupt(fmt::format("d2t: element {} is {}, want {} to {}", i, offset,
                                          -narrow<int64_t>(i), most));
      }
      tensor.ids.push_back(narrow<int64_t>(i) + offset);
    }
    draft_tokens_ = offsets->num_elements();
    return {};
  }

  Result<void> plan_layer() {
    const FamilyKeys& k = out_.keys;
    const uint64_t width = k.width, q = k.num_heads * k.head_dim, kv = k.num_kv_heads * k.head_dim;
    HEARTH_ASSIGN_OR_RETURN(const uint64_t ffn, want_count(config_, "intermediate_size"));
    HEARTH_TRY(add("fc.weight", "fc.weight", {width, kTargetLayers * target_width_}));
    if (norm_features_) {
      HEARTH_TRY(
          add("input_norm.weight", "enc.output_norm.weight", {kTargetLayers * target_width_}));
    }
    const auto layer = [this](const char* rest) {
      for (const char* root : {"midlayer.", "layers.0.", "model.layers.0."}) {
        if (in_.tensor(fmt::format("{}{}", root, rest)) != nullptr) {
          return fmt::format("{}{}", root, rest);
        }
      }
      return fmt::format("midlayer.{}", rest);
    };
    const Edit pairs = swap_pairs(2 * width, k.head_dim);
    HEARTH_TRY(add(layer("input_layernorm.weight"), "blk.0.attn_norm.weight", {width}));
    HEARTH_TRY(add(layer("hidden_norm.weight"), "blk.0.attn_norm_2.weight", {width}));
    HEARTH_TRY(add(layer("self_attn.q_proj.weight"), "blk.0.attn_q.weight", {q, 2 * width}, pairs));
    HEARTH_TRY(
        add(layer("self_attn.k_proj.weight"), "blk.0.attn_k.weight", {kv, 2 * width}, pairs));
    HEARTH_TRY(add(layer("self_attn.v_proj.weight"), "blk.0.attn_v.weight", {kv, 2 * width}));
    HEARTH_TRY(add(layer("self_attn.o_proj.weight"), "blk.0.attn_output.weight", {width, q}));
    HEARTH_TRY(add(layer("post_attention_layernorm.weight"), "blk.0.ffn_norm.weight", {width}));
    HEARTH_TRY(add(layer("mlp.gate_proj.weight"), "blk.0.ffn_gate.weight", {ffn, width}));
    HEARTH_TRY(add(layer("mlp.up_proj.weight"), "blk.0.ffn_up.weight", {ffn, width}));
    HEARTH_TRY(add(layer("mlp.down_proj.weight"), "blk.0.ffn_down.weight", {width, ffn}));
    HEARTH_TRY(add("norm.weight", "output_norm.weight", {width}));
    if (in_.tensor("embed_tokens.weight") != nullptr) {
      HEARTH_TRY(add("embed_tokens.weight", "token_embd.weight", {vocab_size_, width}));
    }
    if (in_.tensor("lm_head.weight") == nullptr && draft_tokens_ == 0) return {};
    const uint64_t rows = draft_tokens_ > 0 ? draft_tokens_ : vocab_size_;
    return add("lm_head.weight", "output.weight", {rows, width});
  }

  const Json config_;
  const std::optional<TargetSizes> target_;
  uint64_t target_width_ = 0;
  uint64_t vocab_size_ = 0;
  uint64_t draft_tokens_ = 0;  ///< of d2t; 0: it drafts all tokens
  bool norm_features_ = false;
};

}  // namespace

bool has_eagle3(const Json& config) { return has_architecture_with(config, "Eagle3"); }

Result<HeadPlan> plan_eagle3(const Checkpoint& checkpoint, const std::filesystem::path& target) {
  std::optional<TargetSizes> sizes;
  if (!target.empty()) {
    HEARTH_ASSIGN_OR_RETURN(sizes, sizes_of(target));
  }
  return Eagle3Planner(checkpoint, std::move(sizes)).plan();
}

}  // namespace hearth::models
