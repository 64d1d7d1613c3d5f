#pragma once
// How a family's published files differ from Llama's, and how they become a GGUF file.

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/base/result.h"

namespace hearth::models {

class ConfigReader;
class TensorPlanner;

struct ConvertedFamily {
  std::string_view model_type;  ///< of config.json
  std::string_view architecture;

  // ---- config.json
  std::string_view eps_key = "rms_norm_eps";
  std::string_view context_key = "max_position_embeddings";
  bool layer_norm = false;  ///< eps belongs to layer norms, not to RMS norms
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  bool attends = true;          ///< some layers have attention
  bool rotates = true;          ///< some layers use positions
  bool rope_divisors = false;   ///< accepts Llama 3's rope scaling
  uint32_t sliding_period = 0;  ///< every sliding_period-th layer is full, as in the loader
  bool local_base = false;      ///< sliding layers have a rotary base of their own
  bool whole_window = false;    ///< all layers slide if a window is given
  bool own_layers = false;      ///< `read` reads layer_types and sliding_window
  bool own_experts = false;     ///< `read` reads the keys of experts
  /// Number of layers of the model that scales scores by width / heads.
  uint64_t largest_by_width = 0;
  bool tied = false;       ///< the default if the file does not set it
  bool in_blocks = false;  ///< `plan_layer` plans experts in MXFP4
  enum class Yarn {
    kRounded,    ///< as the paper: the range of blended pairs is rounded to whole pairs
    kUnrounded,  ///< the loader does not round either
    kMagnitude,  ///< mscale_all_dim scales scores, or queries (DeepSeek, Mistral)
  };
  Yarn yarn = Yarn::kRounded;
  /// Reads the keys that only this family has.
  Result<void> (*read)(ConfigReader&) = nullptr;

  // ---- Tensors
  std::string_view root = "model.";
  /// The beginning of the tensor names of the layer that drafts.
  enum class Drafting {
    kNone,   ///< such layers are left out
    kAfter,  ///< as those of the layer after the last one
    kApart,  ///< "mtp."
  };
  Drafting drafting = Drafting::kNone;
  std::string_view embedding = "embed_tokens.weight";
  std::string_view final_norm = "norm";
  std::string_view output_norm = "output_norm";
  /// Published weights rotate a head's first half with its second; here the values of a pair must
  /// be adjacent.
  bool swaps_pairs = false;
  bool is_gemma = false;           ///< gelu, a head of 256 where the file gives none
  bool adds_one_to_norms = false;  ///< norm weights are stored without their 1
  bool norms_branches = false;     ///< has norms after attention and feed-forward
  bool norms_before = true;
  std::string_view ffn_norm = "ffn_norm";  ///< of the new file
  bool norm_biases = false;
  /// Plans a layer; nullptr: as Llama's.
  Result<void> (*plan_layer)(TensorPlanner&, uint64_t layer) = nullptr;
  /// Plans tensors that are not in a layer.
  Result<void> (*plan_rest)(TensorPlanner&) = nullptr;
};

std::span<const ConvertedFamily> converted_families();

// Of the families' files, for the table.
Result<void> read_gpt_oss(ConfigReader& r);
Result<void> plan_gpt_oss(TensorPlanner& p, uint64_t layer);
Result<void> read_qwen35(ConfigReader& r);
Result<void> read_qwen35_moe(ConfigReader& r);
Result<void> plan_qwen35(TensorPlanner& p, uint64_t layer);
Result<void> plan_qwen3_next(TensorPlanner& p, uint64_t layer);
Result<void> read_qwen2_moe(ConfigReader& r);
Result<void> plan_qwen2_moe(TensorPlanner& p, uint64_t layer);
Result<void> read_deepseek2(ConfigReader& r);
Result<void> read_deepseek3(ConfigReader& r);
Result<void> plan_deepseek(TensorPlanner& p, uint64_t layer);
Result<void> read_mistral3(ConfigReader& r);
Result<void> plan_glm4(TensorPlanner& p, uint64_t layer);
Result<void> read_glm4_moe(ConfigReader& r);
Result<void> plan_glm4_moe(TensorPlanner& p, uint64_t layer);
Result<void> read_ernie4_5_moe(ConfigReader& r);
Result<void> plan_ernie4_5_moe(TensorPlanner& p, uint64_t layer);
Result<void> read_cohere2(ConfigReader& r);
Result<void> plan_cohere2(TensorPlanner& p, uint64_t layer);
Result<void> read_exaone4(ConfigReader& r);
Result<void> read_seed_oss(ConfigReader& r);
Result<void> read_hunyuan(ConfigReader& r);
Result<void> plan_hunyuan(TensorPlanner& p, uint64_t layer);
Result<void> read_starcoder2(ConfigReader& r);
Result<void> plan_starcoder2(TensorPlanner& p, uint64_t layer);
Result<void> read_minimax(ConfigReader& r);
Result<void> plan_minimax(TensorPlanner& p, uint64_t layer);
Result<void> read_kimi_linear(ConfigReader& r);
Result<void> plan_kimi_linear(TensorPlanner& p, uint64_t layer);
Result<void> read_minimax_m2(ConfigReader& r);
Result<void> plan_minimax_m2(TensorPlanner& p, uint64_t layer);
Result<void> read_gemma3n(ConfigReader& r);
Result<void> plan_gemma3n(TensorPlanner& p, uint64_t layer);
Result<void> plan_gemma3n_rest(TensorPlanner& p);
Result<void> read_gemma4(ConfigReader& r);
Result<void> plan_gemma4(TensorPlanner& p, uint64_t layer);
Result<void> plan_gemma4_rest(TensorPlanner& p);
Result<void> read_lfm2(ConfigReader& r);
Result<void> read_lfm2_moe(ConfigReader& r);
Result<void> plan_lfm2(TensorPlanner& p, uint64_t layer);
Result<void> read_falcon_h1(ConfigReader& r);
Result<void> plan_falcon_h1(TensorPlanner& p, uint64_t layer);
Result<void> read_granite_hybrid(ConfigReader& r);
Result<void> plan_granite_hybrid(TensorPlanner& p, uint64_t layer);
Result<void> read_nemotron_h(ConfigReader& r);
Result<void> plan_nemotron_h(TensorPlanner& p, uint64_t layer);
Result<void> read_jamba(ConfigReader& r);
Result<void> plan_jamba(TensorPlanner& p, uint64_t layer);
Result<void> read_mamba(ConfigReader& r);
Result<void> read_mamba2(ConfigReader& r);
Result<void> plan_mamba(TensorPlanner& p, uint64_t layer);
Result<void> plan_mamba2(TensorPlanner& p, uint64_t layer);
Result<void> read_rwkv7(ConfigReader& r);
Result<void> plan_rwkv7(TensorPlanner& p, uint64_t layer);
Result<void> read_arwkv7(ConfigReader& r);
Result<void> plan_arwkv7(TensorPlanner& p, uint64_t layer);
Result<void> read_plamo2(ConfigReader& r);
Result<void> plan_plamo2(TensorPlanner& p, uint64_t layer);

}  // namespace hearth::models
