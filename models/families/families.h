#pragma once
// The model families this build computes, one function per value of general.architecture (or per
// group of values that are one family). Errors as of load_model.

#include <memory>

#include "models/model.h"

namespace hearth::models {

class GgufFile;

using FamilyLoader = Result<std::unique_ptr<Model>>(const GgufFile&, const kernels::OpTable&,
                                                    const LoadProgressFn&, const LoadOptions&);

FamilyLoader load_llama;
FamilyLoader load_qwen2;
FamilyLoader load_qwen3;
FamilyLoader load_gemma;
FamilyLoader load_gemma2;
FamilyLoader load_gemma3;
FamilyLoader load_gemma3n;
FamilyLoader load_gemma4;
FamilyLoader load_phi3;
FamilyLoader load_granite;
FamilyLoader load_smollm3;
FamilyLoader load_olmo2;
FamilyLoader load_qwen3moe;
FamilyLoader load_olmoe;
FamilyLoader load_granitemoe;
FamilyLoader load_gpt_oss;
FamilyLoader load_glm4;
FamilyLoader load_glm4moe;
FamilyLoader load_qwen2moe;
FamilyLoader load_ernie4_5;
FamilyLoader load_ernie4_5_moe;
FamilyLoader load_seed_oss;
FamilyLoader load_exaone4;
FamilyLoader load_hunyuan_dense;
FamilyLoader load_internlm2;
FamilyLoader load_minimax_01;
FamilyLoader load_rwkv7;
FamilyLoader load_arwkv7;
FamilyLoader load_minimax_m2;
FamilyLoader load_deepseek2;
FamilyLoader load_mistral4;
FamilyLoader load_cohere2;
FamilyLoader load_starcoder2;
FamilyLoader load_mistral3;
FamilyLoader load_deci;
FamilyLoader load_muse_glimmer;
FamilyLoader load_qwen35;
FamilyLoader load_qwen35moe;
FamilyLoader load_qwen3next;
FamilyLoader load_mamba;
FamilyLoader load_mamba2;
FamilyLoader load_jamba;
FamilyLoader load_lfm2;
FamilyLoader load_lfm2moe;
FamilyLoader load_falcon_h1;
FamilyLoader load_granitehybrid;
FamilyLoader load_nemotron_h;
FamilyLoader load_nemotron_h_moe;
FamilyLoader load_plamo2;
FamilyLoader load_kimi_linear;
FamilyLoader load_llada;
FamilyLoader load_llada_moe;
FamilyLoader load_dream;
FamilyLoader load_bert;
FamilyLoader load_nomic_bert;

}  // namespace hearth::models
