#include <array>

#include "models/convert/converted_family.h"

namespace hearth::models {
namespace {

using Drafting = ConvertedFamily::Drafting;
using Yarn = ConvertedFamily::Yarn;

// As Llama: norms before attention and feed-forward, q and k rotated in pairs of neighbours.
constexpr ConvertedFamily as_llama(std::string_view model_type, bool window) {
  ConvertedFamily f{.model_type = model_type, .architecture = "llama"};
  f.rope_divisors = true;
  f.whole_window = window;
  f.swaps_pairs = true;
  return f;
}

constexpr ConvertedFamily as_gemma(std::string_view model_type, std::string_view architecture) {
  ConvertedFamily f{.model_type = model_type, .architecture = architecture};
  f.is_gemma = true;
  f.adds_one_to_norms = true;
  return f;
}

constexpr ConvertedFamily gemma2() {
  ConvertedFamily f = as_gemma("gemma2", "gemma2");
  f.norms_branches = true;
  f.sliding_period = 2;
  f.largest_by_width = 46;
  return f;
}

constexpr ConvertedFamily gemma3() {
  ConvertedFamily f = as_gemma("gemma3_text", "gemma3");
  f.norms_branches = true;
  f.sliding_period = 6;
  f.local_base = true;
  f.largest_by_width = 62;
  return f;
}

// Norms by their weights themselves, heads of sizes of their own.
constexpr ConvertedFamily late_gemma(std::string_view model_type, std::string_view architecture) {
  ConvertedFamily f{.model_type = model_type, .architecture = architecture};
  f.is_gemma = true;
  f.norms_branches = true;
  f.own_layers = true;
  f.own_experts = true;
  return f;
}

constexpr ConvertedFamily as_granite(std::string_view model_type) {
  ConvertedFamily f{.model_type = model_type, .architecture = "granitemoe"};
  f.rope_divisors = true;
  f.swaps_pairs = true;
  return f;
}

// Norms after attention and feed-forward alone.
constexpr ConvertedFamily as_olmo(std::string_view model_type, uint32_t sliding_period) {
  ConvertedFamily f{.model_type = model_type, .architecture = "olmo2"};
  f.sliding_period = sliding_period;
  f.local_base = true;
  f.norms_branches = true;
  f.norms_before = false;
  return f;
}

constexpr ConvertedFamily as_deepseek(std::string_view model_type,
                                      Result<void> (*read)(ConfigReader&)) {
  ConvertedFamily f{.model_type = model_type, .architecture = "deepseek2"};
  f.own_experts = true;
  f.yarn = Yarn::kMagnitude;
  f.read = read;
  f.drafting = Drafting::kAfter;
  f.plan_layer = plan_deepseek;
  return f;
}

constexpr ConvertedFamily as_qwen35(std::string_view model_type, std::string_view architecture,
                                    bool experts,
                                    Result<void> (*plan_layer)(TensorPlanner&, uint64_t)) {
  ConvertedFamily f{.model_type = model_type, .architecture = architecture};
  f.own_layers = true;
  f.own_experts = true;
  f.drafting = Drafting::kApart;
  f.adds_one_to_norms = true;
  f.ffn_norm = "post_attention_norm";
  f.read = experts ? read_qwen35_moe : read_qwen35;
  f.plan_layer = plan_layer;
  return f;
}

constexpr ConvertedFamily as_lfm(std::string_view model_type, std::string_view architecture,
                                 Result<void> (*read)(ConfigReader&)) {
  ConvertedFamily f{.model_type = model_type, .architecture = architecture};
  f.eps_key = "norm_eps";
  f.own_layers = true;
  f.own_experts = true;
  f.tied = true;
  f.read = read;
  f.final_norm = "embedding_norm";
  f.output_norm = "token_embd_norm";
  f.plan_layer = plan_lfm2;
  return f;
}

constexpr ConvertedFamily as_mamba(std::string_view model_type, Result<void> (*read)(ConfigReader&),
                                   Result<void> (*plan_layer)(TensorPlanner&, uint64_t)) {
  ConvertedFamily f{.model_type = model_type, .architecture = model_type};
  f.eps_key = "layer_norm_epsilon";
  f.attends = false;
  f.own_layers = true;
  f.own_experts = true;
  f.tied = true;
  f.read = read;
  f.root = "backbone.";
  f.embedding = "embeddings.weight";
  f.final_norm = "norm_f";
  f.plan_layer = plan_layer;
  return f;
}

constexpr std::array kFamilies = {
    as_llama("llama", false),
    as_llama("mistral", true),
    as_llama("mixtral", true),
    ConvertedFamily{.model_type = "ministral3",
                    .architecture = "mistral3",
                    .rope_divisors = true,
                    .yarn = Yarn::kMagnitude,
                    .read = read_mistral3,
                    .swaps_pairs = true},
    ConvertedFamily{.model_type = "qwen2", .architecture = "qwen2"},
    ConvertedFamily{.model_type = "qwen2_moe",
                    .architecture = "qwen2moe",
                    .read = read_qwen2_moe,
                    .plan_layer = plan_qwen2_moe},
    ConvertedFamily{.model_type = "qwen3", .architecture = "qwen3"},
    ConvertedFamily{.model_type = "qwen3_moe", .architecture = "qwen3moe"},
    as_qwen35("qwen3_next", "qwen3next", true, plan_qwen3_next),
    as_qwen35("qwen3_5_text", "qwen35", false, plan_qwen35),
    as_qwen35("qwen3_5_moe_text", "qwen35moe", true, plan_qwen35),
    ConvertedFamily{.model_type = "phi3", .architecture = "phi3", .whole_window = true},
    as_gemma("gemma", "gemma"),
    gemma2(),
    gemma3(),
    [] {
      ConvertedFamily f = late_gemma("gemma3n_text", "gemma3n");
      f.read = read_gemma3n;
      f.plan_layer = plan_gemma3n;
      f.plan_rest = plan_gemma3n_rest;
      return f;
    }(),
    [] {
      ConvertedFamily f = late_gemma("gemma4_text", "gemma4");
      f.rotates = false;  // `read` reads it: its kind is unknown elsewhere
      f.read = read_gemma4;
      f.plan_layer = plan_gemma4;
      f.plan_rest = plan_gemma4_rest;
      return f;
    }(),
    ConvertedFamily{.model_type = "gpt_oss",
                    .architecture = "gpt-oss",
                    .sliding_period = 2,
                    .in_blocks = true,
                    .yarn = Yarn::kUnrounded,
                    .read = read_gpt_oss,
                    .ffn_norm = "post_attention_norm",
                    .plan_layer = plan_gpt_oss},
    as_deepseek("deepseek_v2", read_deepseek2),
    as_deepseek("deepseek_v3", read_deepseek3),
    as_deepseek("kimi_k2", read_deepseek3),
    as_deepseek("glm4_moe_lite", read_deepseek3),
    ConvertedFamily{.model_type = "glm4", .architecture = "glm4", .plan_layer = plan_glm4},
    ConvertedFamily{.model_type = "glm4_moe",
                    .architecture = "glm4moe",
                    .own_experts = true,
                    .read = read_glm4_moe,
                    .drafting = Drafting::kAfter,
                    .ffn_norm = "post_attention_norm",
                    .plan_layer = plan_glm4_moe},
    ConvertedFamily{.model_type = "ernie4_5", .architecture = "ernie4_5", .tied = true},
    ConvertedFamily{.model_type = "ernie4_5_moe",
                    .architecture = "ernie4_5-moe",
                    .own_experts = true,
                    .tied = true,
                    .read = read_ernie4_5_moe,
                    .plan_layer = plan_ernie4_5_moe},
    ConvertedFamily{.model_type = "cohere2",
                    .architecture = "cohere2",
                    .eps_key = "layer_norm_eps",
                    .layer_norm = true,
                    .sliding_period = 4,
                    .tied = true,
                    .read = read_cohere2,
                    .plan_layer = plan_cohere2},
    ConvertedFamily{.model_type = "exaone4",
                    .architecture = "exaone4",
                    .rope_divisors = true,
                    .own_layers = true,
                    .read = read_exaone4,
                    .norms_branches = true,
                    .norms_before = false},
    ConvertedFamily{.model_type = "seed_oss",
                    .architecture = "seed_oss",
                    .read = read_seed_oss,
                    .ffn_norm = "post_attention_norm"},
    ConvertedFamily{.model_type = "hunyuan_v1_dense",
                    .architecture = "hunyuan-dense",
                    .read = read_hunyuan,
                    .plan_layer = plan_hunyuan},
    ConvertedFamily{.model_type = "starcoder2",
                    .architecture = "starcoder2",
                    .eps_key = "norm_epsilon",
                    .layer_norm = true,
                    .activation = "gelu_pytorch_tanh",
                    .whole_window = true,
                    .tied = true,
                    .read = read_starcoder2,
                    .norm_biases = true,
                    .plan_layer = plan_starcoder2},
    ConvertedFamily{.model_type = "minimax",
                    .architecture = "minimax-01",
                    .own_layers = true,
                    .own_experts = true,
                    .read = read_minimax,
                    .plan_layer = plan_minimax},
    ConvertedFamily{.model_type = "kimi_linear",
                    .architecture = "kimi-linear",
                    .context_key = "model_max_length",
                    .rotates = false,
                    .own_layers = true,
                    .own_experts = true,
                    .read = read_kimi_linear,
                    .plan_layer = plan_kimi_linear},
    ConvertedFamily{.model_type = "minimax_m2",
                    .architecture = "minimax-m2",
                    .own_experts = true,
                    .read = read_minimax_m2,
                    .plan_layer = plan_minimax_m2},
    ConvertedFamily{.model_type = "granite",
                    .architecture = "granite",
                    .rope_divisors = true,
                    .swaps_pairs = true},
    as_granite("granitemoe"),
    as_granite("granitemoeshared"),
    ConvertedFamily{.model_type = "granitemoehybrid",
                    .architecture = "granitehybrid",
                    .own_layers = true,
                    .own_experts = true,
                    .read = read_granite_hybrid,
                    .swaps_pairs = true,
                    .plan_layer = plan_granite_hybrid},
    ConvertedFamily{.model_type = "smollm3", .architecture = "smollm3", .swaps_pairs = true},
    as_olmo("olmo2", 0),
    as_olmo("olmo3", 4),
    ConvertedFamily{.model_type = "olmoe", .architecture = "olmoe"},
    as_lfm("lfm2", "lfm2", read_lfm2),
    as_lfm("lfm2_moe", "lfm2moe", read_lfm2_moe),
    ConvertedFamily{.model_type = "falcon_h1",
                    .architecture = "falcon-h1",
                    .own_layers = true,
                    .own_experts = true,
                    .read = read_falcon_h1,
                    .final_norm = "final_layernorm",
                    .plan_layer = plan_falcon_h1},
    ConvertedFamily{.model_type = "nemotron_h",
                    .architecture = "nemotron_h",
                    .eps_key = "layer_norm_epsilon",
                    .activation_key = "mlp_hidden_act",
                    .activation = "relu2",
                    .rotates = false,
                    .own_layers = true,
                    .own_experts = true,
                    .read = read_nemotron_h,
                    .root = "backbone.",
                    .embedding = "embeddings.weight",
                    .final_norm = "norm_f",
                    .plan_layer = plan_nemotron_h},
    ConvertedFamily{.model_type = "jamba",
                    .architecture = "jamba",
                    .rotates = false,
                    .own_layers = true,
                    .own_experts = true,
                    .read = read_jamba,
                    .final_norm = "final_layernorm",
                    .plan_layer = plan_jamba},
    as_mamba("mamba", read_mamba, plan_mamba),
    as_mamba("mamba2", read_mamba2, plan_mamba2),
    ConvertedFamily{.model_type = "rwkv7",
                    .architecture = "rwkv7",
                    .eps_key = "norm_eps",
                    .layer_norm = true,
                    .activation = "sqrelu",
                    .attends = false,
                    .own_layers = true,
                    .own_experts = true,
                    .read = read_rwkv7,
                    .embedding = "embeddings.weight",
                    .norm_biases = true,
                    .plan_layer = plan_rwkv7},
    ConvertedFamily{.model_type = "rwkv_hybrid",
                    .architecture = "arwkv7",
                    .attends = false,
                    .own_layers = true,
                    .own_experts = true,
                    .read = read_arwkv7,
                    .plan_layer = plan_arwkv7},
    ConvertedFamily{.model_type = "plamo2",
                    .architecture = "plamo2",
                    .own_layers = true,
                    .own_experts = true,
                    .tied = true,
                    .read = read_plamo2,
                    .adds_one_to_norms = true,
                    .plan_layer = plan_plamo2},
};

}  // namespace

std::span<const ConvertedFamily> converted_families() { return kFamilies; }

}  // namespace hearth::models
