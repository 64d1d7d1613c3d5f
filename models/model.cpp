#include "models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <array>
#include <string>

#include "models/families/families.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/heads_keys.h"

namespace hearth::models {
namespace {

struct Family {
  std::string_view architecture;  // general.architecture
  FamilyLoader* load;
};

constexpr std::array kFamilies = {
    Family{"llama", load_llama},
    Family{"qwen2", load_qwen2},
    Family{"qwen3", load_qwen3},
    Family{"phi3", load_phi3},
    Family{"gemma", load_gemma},
    Family{"gemma2", load_gemma2},
    Family{"gemma3", load_gemma3},
    Family{"gemma3n", load_gemma3n},
    Family{"gemma4", load_gemma4},
    Family{"granite", load_granite},
    Family{"smollm3", load_smollm3},
    Family{"olmo2", load_olmo2},
    Family{"qwen3moe", load_qwen3moe},
    Family{"olmoe", load_olmoe},
    Family{"granitemoe", load_granitemoe},
    Family{"gpt-oss", load_gpt_oss},
    Family{"glm4", load_glm4},
    Family{"glm4moe", load_glm4moe},
    Family{"qwen2moe", load_qwen2moe},
    Family{"ernie4_5", load_ernie4_5},
    Family{"ernie4_5-moe", load_ernie4_5_moe},
    Family{"seed_oss", load_seed_oss},
    Family{"exaone4", load_exaone4},
    Family{"hunyuan-dense", load_hunyuan_dense},
    Family{"internlm2", load_internlm2},
    Family{"minimax-m2", load_minimax_m2},
    Family{"deepseek2", load_deepseek2},
    Family{"mistral4", load_mistral4},
    Family{"cohere2", load_cohere2},
    Family{"starcoder2", load_starcoder2},
    Family{"mistral3", load_mistral3},
    Family{"deci", load_deci},
    Family{"muse-glimmer", load_muse_glimmer},
    Family{"qwen35", load_qwen35},
    Family{"qwen35moe", load_qwen35moe},
    Family{"qwen3next", load_qwen3next},
    Family{"mamba", load_mamba},
    Family{"mamba2", load_mamba2},
    Family{"jamba", load_jamba},
    Family{"lfm2", load_lfm2},
    Family{"lfm2moe", load_lfm2moe},
    Family{"falcon-h1", load_falcon_h1},
    Family{"granitehybrid", load_granitehybrid},
    Family{"nemotron_h", load_nemotron_h},
    Family{"nemotron_h_moe", load_nemotron_h_moe},
    Family{"plamo2", load_plamo2},
    Family{"kimi-linear", load_kimi_linear},
    Family{"minimax-01", load_minimax_01},
    Family{"rwkv7", load_rwkv7},
    Family{"arwkv7", load_arwkv7},
    Family{"llada", load_llada},
    Family{"llada-moe", load_llada_moe},
    Family{"dream", load_dream},
    Family{"bert", load_bert},
    Family{"nomic-bert", load_nomic_bert},
};

}  // namespace

Result<void> check_kv_types(const ModelInfo& info, kernels::KvTypes types) {
  for (const LayerGroup& group : info.groups) {
    if (types.alike() || group.recurrent() || !group.kv.v_in_k) continue;
    return Error::invalid(fmt::format("kv_type is {}, want one type: the KV of {} is latent, its "
                                      "V is the front of K",
                                      kernels::kv_type_name(types), info.architecture),
                          "kv_type");
  }
  return {};
}

Result<void> Model::add_heads(const GgufFile& file) {
  return Error::unsupported(fmt::format("{}: {} takes no heads for drafting",
                                        printable(file.name()), info().architecture));
}

Result<int32_t> Model::add_adapter(const GgufFile& file) {
  return Error::unsupported(
      fmt::format("{}: {} takes no adapters", printable(file.name()), info().architecture));
}
uint64_t Model::adapter_bytes(int32_t) const { return 0; }
void Model::remove_adapter(int32_t) {}

kernels::OpTable with_experts_on(kernels::OpTable ops, const kernels::OpTable& experts,
                                 const HotExperts& hot) {
  ops.begin_capture = nullptr;  // a step waits for its experts
  ops.put_off = nullptr;
  if (experts.numerics_id == ops.numerics_id) return ops;
  ops.numerics_id += "+experts:" + experts.numerics_id;
  std::string places;
  for (size_t layer = 0; layer < hot.size(); ++layer) {
    if (!hot[layer].empty()) places += fmt::format("{}:{};", layer, fmt::join(hot[layer], ","));
  }
  if (!places.empty()) {
    ops.numerics_id += fmt::format(":{:016x}", XXH3_64bits(places.data(), places.size()));
  }
  return ops;
}

Result<std::unique_ptr<Model>> load_model(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options) {
  LoadOptions possible = options;
  // A table without `embed` only measures.
  possible.draft_layer &= ops.recurrent != nullptr || ops.embed == nullptr;
  HEARTH_ASSIGN_OR_RETURN(const auto wanted, file.get<std::string_view>("general.architecture"));
  const auto type = file.get<std::string_view>("general.type");
  if (type.ok() && *type == "adapter") {
    return Error::unsupported(
        "general.type: \"adapter\", which changes a model; want the model itself");
  }
  for (const Family& family : kFamilies) {
    if (family.architecture != wanted) continue;
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                            family.load(file, ops, progress, possible));
    if (options.experts != nullptr && model->info().expert_bytes == 0) {
      return Error::unsupported(
          fmt::format("experts: architecture {} has none", model->info().architecture), "experts");
    }
    if (options.heads != nullptr) HEARTH_TRY(model->add_heads(*options.heads));
    return model;
  }
  if (is_heads(file)) {
    return Error::unsupported(fmt::format(
        "general.architecture: \"{}\", heads that draft for a model; want the model itself",
        printable(wanted)));
  }
  std::string known;
  for (const Family& family : kFamilies) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  return Error::unsupported(
      fmt::format("general.architecture: \"{}\", this build knows {}", printable(wanted), known));
}

}  // namespace hearth::models
