"""Writes what the tests of the converter need: NAME.json per family, and tokenizers.

NAME.json holds config.json as `transformers` writes it, the tensors that it saves (name, shape, mean,
amplitude, and the type unless it is F32; values are those of families/tiny_models.py, so no weights are
carried), and the logits that it computes in float64 from the files on disk. Folders with a layer that
drafts also have its drafts, each taken as right, and their logits.

tokenizer_NAME.json is a small tokenizer.json trained here; ids_NAME.json what `tokenizers` makes of
some texts with it.

usage: record.py [NAME...]      needs torch, transformers, tokenizers, safetensors, numpy
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as T
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from recording import HERE, PROMPT, SEED, VOCAB, write

sys.path.insert(0, str(HERE.parent / "families"))
from tiny_models import Tensor, power_of_two, tensor_values  # noqa: E402

BASE = dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=256, rms_norm_eps=1e-5,
            pad_token_id=0, bos_token_id=1, eos_token_id=2)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16)
LATENT = dict(num_key_value_heads=4, kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16)
HYBRID = ["mamba", "mamba", "attention", "mamba"]
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)

MODELS = {
    "llama": (T.LlamaConfig, {}),
    "llama_stretched": (T.LlamaConfig, dict(head_dim=16, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64), attention_bias=True, mlp_bias=True)),
    "mistral": (T.MistralConfig, dict(sliding_window=10)),
    "mixtral": (T.MixtralConfig, dict(num_local_experts=4, num_experts_per_tok=2)),
    "qwen2": (T.Qwen2Config, {}),
    "qwen3": (T.Qwen3Config, dict(head_dim=16, rope_parameters=YARN, tie_word_embeddings=True)),
    "qwen3_moe": (T.Qwen3MoeConfig, dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                         head_dim=16, norm_topk_prob=True)),
    "phi3": (T.Phi3Config, dict(sliding_window=None)),
    "gemma": (T.GemmaConfig, dict(head_dim=16)),
    "gemma2": (T.Gemma2Config, dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=10,
                                    attn_logit_softcapping=4.0, final_logit_softcapping=8.0)),
    "gemma3": (T.Gemma3TextConfig, dict(num_hidden_layers=7, head_dim=16, query_pre_attn_scalar=16,
                                        sliding_window=10)),
    "granite": (T.GraniteConfig, dict(embedding_multiplier=4.0, residual_multiplier=0.375,
                                      logits_scaling=0.5, attention_multiplier=0.15625)),
    "granitemoe": (T.GraniteMoeSharedConfig, dict(
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=32, embedding_multiplier=4.0,
        residual_multiplier=0.375, logits_scaling=0.5, attention_multiplier=0.15625)),
    "smollm3": (T.SmolLM3Config, dict(num_hidden_layers=5)),
    "olmo2": (T.Olmo2Config, {}),
    "olmo3": (T.Olmo3Config, dict(num_hidden_layers=4, sliding_window=10)),
    "olmoe": (T.OlmoeConfig, dict(num_experts=4, num_experts_per_tok=2, num_key_value_heads=4)),
    "gpt_oss": (T.GptOssConfig, dict(num_hidden_layers=4, head_dim=16, sliding_window=10, num_local_experts=4,
                                     num_experts_per_tok=2)),
    "gpt_oss_mxfp4": (T.GptOssConfig, dict(num_hidden_layers=2, hidden_size=64, intermediate_size=96, head_dim=16,
                                           sliding_window=10, num_local_experts=4, num_experts_per_tok=2)),
    "qwen2_moe": (T.Qwen2MoeConfig, dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                         shared_expert_intermediate_size=64)),
    "qwen3_next": (T.Qwen3NextConfig, dict(num_hidden_layers=4, head_dim=16, num_experts=4, num_experts_per_tok=2,
                                           moe_intermediate_size=32, shared_expert_intermediate_size=32, **DELTA)),
    "qwen3_5": (T.Qwen3_5TextConfig, dict(num_hidden_layers=4, head_dim=16, **DELTA)),
    "qwen3_5_moe": (T.Qwen3_5MoeTextConfig, dict(
        num_hidden_layers=4, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=32, **DELTA)),
    "deepseek_v2": (T.DeepseekV2Config, dict(
        q_lora_rank=None, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=32,
        first_k_dense_replace=1, **LATENT)),
    "deepseek_v3": (T.DeepseekV3Config, dict(
        q_lora_rank=32, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32,
        first_k_dense_replace=1, n_group=4, topk_group=2, num_nextn_predict_layers=0, rope_parameters=dict(
            YARN, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0), **LATENT)),
    "glm4": (T.Glm4Config, dict(head_dim=16, attention_bias=True)),
    "glm4_moe": (T.Glm4MoeConfig, dict(head_dim=16, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                       routed_scaling_factor=1.5, use_qk_norm=True, num_nextn_predict_layers=0)),
    "glm4_moe_lite": (T.Glm4MoeLiteConfig, dict(q_lora_rank=32, n_routed_experts=4, num_experts_per_tok=2,
                                                moe_intermediate_size=32, **LATENT)),
    "ernie4_5": (T.Ernie4_5Config, dict(head_dim=16)),
    "ernie4_5_moe": (T.Ernie4_5_MoeConfig, dict(moe_num_experts=4, moe_k=2, moe_intermediate_size=32,
                                                moe_num_shared_experts=1)),
    "cohere2": (T.Cohere2Config, dict(num_hidden_layers=5, sliding_window=10, layer_norm_eps=1e-5)),
    "exaone4": (T.Exaone4Config, dict(sliding_window=None, sliding_window_pattern=None,
                                        layer_types=["full_attention"] * 2)),
    "exaone4_window": (T.Exaone4Config, dict(num_hidden_layers=5, sliding_window=10, sliding_window_pattern=4)),
    "seed_oss": (T.SeedOssConfig, dict(head_dim=16)),
    "hunyuan": (T.HunYuanDenseV1Config, dict(head_dim=16, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, alpha=8.0, factor=1.0))),
    "starcoder2": (T.Starcoder2Config, dict(norm_epsilon=1e-5, sliding_window=10)),
    "minimax": (T.MiniMaxConfig, dict(
        num_hidden_layers=3, head_dim=16, num_local_experts=4, num_experts_per_tok=2, full_attn_alpha_factor=3.5,
        linear_attn_alpha_factor=3.5, mlp_alpha_factor=3.5,
        layer_types=["linear_attention", "linear_attention", "full_attention"])),
    "minimax_m2": (T.MiniMaxM2Config, dict(head_dim=16, num_local_experts=4, num_experts_per_tok=2, rotary_dim=8)),
    "ministral3": (T.Ministral3Config, dict(head_dim=16, rope_parameters=dict(
        YARN, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1,
        beta_fast=32.0, beta_slow=1.0))),
    "gemma3n": (T.Gemma3nTextConfig, dict(
        num_hidden_layers=7, head_dim=16, num_kv_shared_layers=2, sliding_window=10, vocab_size_per_layer_input=VOCAB,
        hidden_size_per_layer_input=16, laurel_rank=16, intermediate_size=[64] * 7,
        activation_sparsity_pattern=[0.95] * 3 + [0.0] * 4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                     "full_attention", "sliding_attention", "full_attention"])),
    "gemma4": (T.Gemma4TextConfig, dict(
        num_hidden_layers=4, head_dim=16, global_head_dim=32, sliding_window=10, num_kv_shared_layers=2,
        hidden_size_per_layer_input=16, vocab_size_per_layer_input=VOCAB, use_double_wide_mlp=True,
        final_logit_softcapping=8.0, layer_types=["sliding_attention", "full_attention"] * 2)),
    "gemma4_moe": (T.Gemma4TextConfig, dict(
        num_hidden_layers=2, head_dim=16, global_head_dim=32, sliding_window=10, num_kv_shared_layers=0,
        hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True,
        num_experts=4, top_k_experts=2, moe_intermediate_size=32, layer_types=["sliding_attention", "full_attention"])),
    "lfm2": (T.Lfm2Config, dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"],
                                block_multiple_of=32, norm_eps=1e-5)),
    "lfm2_moe": (T.Lfm2MoeConfig, dict(
        num_hidden_layers=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, num_dense_layers=1,
        layer_types=["conv", "full_attention", "conv", "conv"], norm_eps=1e-5)),
    "falcon_h1": (T.FalconH1Config, dict(
        mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16, head_dim=16,
        mamba_rms_norm=True, mamba_norm_before_gate=False, attention_in_multiplier=0.75, attention_out_multiplier=1.25,
        key_multiplier=0.5, embedding_multiplier=1.5, lm_head_multiplier=0.5, mlp_multipliers=[0.75, 1.5],
        ssm_in_multiplier=1.25, ssm_out_multiplier=0.5, ssm_multipliers=[0.5, 1.5, 0.75, 1.25, 2.0])),
    "granitemoehybrid": (T.GraniteMoeHybridConfig, dict(
        num_hidden_layers=4, layer_types=HYBRID, num_local_experts=4, num_experts_per_tok=2,
        shared_intermediate_size=32, mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16,
        embedding_multiplier=4.0, residual_multiplier=0.375, logits_scaling=0.5, attention_multiplier=0.15625)),
    "granitehybrid_dense": (T.GraniteMoeHybridConfig, dict(
        num_hidden_layers=4, layer_types=HYBRID, num_local_experts=0, shared_intermediate_size=64, mamba_n_heads=6,
        mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16, position_embedding_type="rope", embedding_multiplier=4.0,
        residual_multiplier=0.375, logits_scaling=0.5, attention_multiplier=0.15625)),
    "nemotron_h": (T.NemotronHConfig, dict(
        num_hidden_layers=5, mamba_num_heads=4, mamba_head_dim=16, n_groups=2, ssm_state_size=16, head_dim=16,
        layers_block_type=["mamba", "mlp", "attention", "mamba", "mlp"])),
    "nemotron_h_moe": (T.NemotronHConfig, dict(
        num_hidden_layers=4, mamba_num_heads=4, mamba_head_dim=16, n_groups=2, ssm_state_size=16, head_dim=16,
        n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, moe_shared_expert_intermediate_size=32,
        routed_scaling_factor=1.5, layers_block_type=["mamba", "moe", "attention", "moe"])),
    "jamba": (T.JambaConfig, dict(
        num_hidden_layers=4, num_experts=4, num_experts_per_tok=2, attn_layer_period=4, attn_layer_offset=2,
        expert_layer_period=2, expert_layer_offset=1, mamba_dt_rank=8, mamba_expand=2, use_mamba_kernels=False)),
    "mamba": (T.MambaConfig, dict(state_size=16, time_step_rank=8, expand=2)),
    "mamba2": (T.Mamba2Config, dict(state_size=16, num_heads=6, head_dim=16, n_groups=2, expand=2)),
}


# With a layer that drafts: what its names begin with.
DRAFTING = {
    "qwen3_next": "mtp.",
    "qwen3_5": "mtp.",
    "deepseek_v3": "model.layers.2.",
    "glm4_moe": "model.layers.2.",
}
for _name, _root in DRAFTING.items():
    _kind, _own = MODELS[_name]
    MODELS[f"{_name}_mtp"] = (_kind, _own if _root == "mtp." else {**_own, "num_nextn_predict_layers": 1})
DRAFTED = {12: 2, 24: 3}  # after so many tokens, so many drafts

# Families whose files hold norm weights without their 1.
WITHOUT_ONE = {"gemma", "gemma2", "gemma3", "qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_next_mtp", "qwen3_5_mtp"}


def scale_of(name: str, shape: list[int], without_one: bool) -> tuple[float, float]:
    """Mean and amplitude. Sharp attention, so that a wrong order of rows shows."""
    if name.endswith("_blocks"):  # all bytes
        return 127.5, 128.0
    if name.endswith("_scales"):  # 2^-6 to 2^-3
        return 123.0, 2.0
    if "embed_tokens" in name or "embeddings" in name:
        return 0.0, 0.125 if without_one else 1.0
    if name.endswith("A_log"):  # of rates 0.4 to 2.5
        return 0.0, 1.0
    if name.endswith("dt_bias") or name.endswith("dt_proj.bias"):
        return -1.0, 1.0
    if "conv" in name and name.endswith(".weight") and len(shape) == 3:
        return 0.0, 1.0
    if name.endswith("sinks"):
        return 1.0, 2.0
    if name.endswith("bias"):
        return 0.0, 0.5
    if len(shape) == 1:
        mean = 1.5 if "q_norm" in name or "k_norm" in name else 1.0
        return mean - (1.0 if without_one and "linear_attn" not in name else 0.0), 0.25
    if len(shape) == 3 and name.endswith("_proj") and "gate_up" in name:  # gpt-oss: applied from the left
        return 0.0, power_of_two(math.sqrt(3.0 / min(shape[1:])))
    gain = 2.0 if any(part in name for part in ("q_proj", "k_proj", "qkv_proj", "o_proj", "down_proj", "gate.weight",
                                                "router", "lm_head")) else 1.0
    return 0.0, power_of_two(gain * math.sqrt(3.0 / shape[-1]))


def load(folder: str, **options):
    return T.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                                  experts_implementation="eager", **options).double().eval()


def in_blocks(shapes: dict[str, list[int]]) -> dict[str, list[int]]:
    """The experts as gpt-oss is published: blocks of 32 values along a row, two per byte, and a scale each."""
    out = {}
    for key, shape in shapes.items():
        if not key.endswith("_proj"):
            out[key] = shape
            continue
        experts, cols, rows = shape
        out[f"{key}_blocks"] = [experts, rows, cols // 32, 16]
        out[f"{key}_scales"] = [experts, rows, cols // 32]
    return out


def draft_shapes(shapes: dict[str, list[int]], layer: str, root: str) -> dict[str, list[int]]:
    """A layer that drafts is one more of the last kind, with a product and norms of its own."""
    width = BASE["hidden_size"]
    own = f"{root}layers.0." if root == "mtp." else root
    out = {own + key.removeprefix(layer): shape for key, shape in shapes.items() if key.startswith(layer)}
    norms = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm") if root == "mtp." else (
        "enorm", "hnorm", "shared_head.norm")
    out.update({f"{root}{norm}.weight": [width] for norm in norms})
    out[root + ("fc.weight" if root == "mtp." else "eh_proj.weight")] = [width, 2 * width]
    if root != "mtp.":
        out[f"{root}embed_tokens.weight"] = out[f"{root}shared_head.head.weight"] = [VOCAB, width]
    return out


def drafts_of(model, folder: str, values: dict, layer: str, root: str, one: float) -> dict:
    """DeepSeek-V3, section 2.2, by the published layer: what follows PROMPT's first tokens, and the logits.

    For that the last layer of the model is exchanged for the one that drafts.
    """
    own = f"{root}layers.0." if root == "mtp." else root
    changed = {key: values.get(own + key.removeprefix(layer), value) if key.startswith(layer) else value
               for key, value in values.items() if not key.startswith(root)}
    save_file(changed, f"{folder}/model.safetensors", metadata={"format": "pt"})
    drafter = load(folder)
    drafter.model.layers = drafter.model.layers[-1:]
    drafter.config.num_hidden_layers = 1
    if getattr(drafter.config, "layer_types", None):
        drafter.config.layer_types = drafter.config.layer_types[-1:]
    weight = {key.removeprefix(root): torch.tensor(value, dtype=torch.float64) for key, value in values.items()
              if key.startswith(root)}
    names = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc") if root == "mtp." else (
        "enorm", "hnorm", "shared_head.norm", "eh_proj")
    first, second, last, pair = (weight[f"{key}.weight"] for key in names)
    drafter.model.norm.weight.data = last
    embedding = weight.get("embed_tokens.weight", model.get_input_embeddings().weight)
    head = weight.get("shared_head.head.weight", model.get_output_embeddings().weight)

    def norm(x, w):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + BASE["rms_norm_eps"]) * (w + one)

    out = {}
    for size, count in DRAFTED.items():
        ids, drafts, logits = list(PROMPT[:size]), [], []
        hidden = model.model(torch.tensor([ids[:-1]])).last_hidden_state[0]
        hidden = torch.cat([torch.zeros_like(hidden[:1]), hidden])
        for _ in range(count):
            x = torch.cat([norm(embedding[torch.tensor(ids)], first), norm(hidden, second)], -1) @ pair.T
            row = drafter.model(inputs_embeds=x[None], use_cache=False).last_hidden_state[0, -1:]
            logits.append([float(f"{value:.7g}") for value in (row @ head.T)[0].tolist()])
            drafts.append(int(np.argmax(logits[-1])))
            ids.append(drafts[-1])
            hidden = torch.cat([hidden, row])
        out[str(size)] = [drafts, logits]
    return out


def record(name: str) -> None:
    kind, own = MODELS[name]
    config = kind(**{**BASE, **own})
    root = DRAFTING.get(name.removesuffix("_mtp")) if name.endswith("_mtp") else None
    blocks = name.endswith("_mxfp4")
    drafts = None
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        T.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "np") as file:
            values = {key: file.get_tensor(key) for key in file.keys() if key.endswith(("_decay", "slope_rate"))}  # constants
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys() if key not in values}
        last = f"model.layers.{config.num_hidden_layers - 1}."
        if root:
            shapes |= draft_shapes(shapes, last, root)
        if blocks:
            shapes = in_blocks(shapes)
            raw = json.loads(Path(f"{folder}/config.json").read_text())
            raw["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
                "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
            Path(f"{folder}/config.json").write_text(json.dumps(raw))
        tensors = []
        for key, shape in sorted(shapes.items()):
            mean, amplitude = scale_of(key, shape, name in WITHOUT_ONE)
            tensors.append([key, shape, mean, amplitude])
            values[key] = tensor_values(Tensor(key, shape[::-1], mean, amplitude), SEED).reshape(shape)
            if key.endswith(("_blocks", "_scales")):
                tensors[-1].append("U8")
                values[key] = values[key].astype(np.uint8)
        save_file(values, f"{folder}/model.safetensors", metadata={"format": "pt"})
        # BF16, to which it dequantizes, holds every value of MXFP4.
        model = load(folder, **(dict(quantization_config=T.Mxfp4Config(dequantize=True)) if blocks else {}))
        logits = model(torch.tensor([PROMPT])).logits[0]
        written = json.loads(Path(f"{folder}/config.json").read_text())
        if root:
            drafts = drafts_of(model, folder, values, last, root, 1.0 if name in WITHOUT_ONE else 0.0)
    write(name, written, tensors, logits, {"drafts": drafts} if drafts else {})


# ---- Packed weights -------------------------------------------------------------------------------

GROUP = 32  # inputs that share a scale
TILE = 32   # of a matrix, both ways
WEIGHTS8 = {"num_bits": 8, "type": "int", "symmetric": True}
WEIGHTS4 = {"num_bits": 4, "type": "int", "symmetric": False, "group_size": GROUP}
FOUR = {"bits": 4, "group_size": GROUP}
# The family, its quantization_config, and the type to convert to where the kept one rounds scales or values.
PACKED = {
    "packed_gptq": ("llama", {"quant_method": "gptq", "sym": True, **FOUR}, None),
    "packed_gptq_zeros": ("qwen3", {"quant_method": "gptq", "sym": False, **FOUR}, None),
    "packed_awq": ("llama", {"quant_method": "awq", "zero_point": True, "version": "gemm", **FOUR}, None),
    "packed_int4": ("qwen3", {"quant_method": "compressed-tensors", "format": "pack-quantized",
                              "config_groups": {"group_0": {"weights": WEIGHTS4}}}, None),
    "packed_int8": ("llama", {"quant_method": "compressed-tensors", "format": "int-quantized",
                              "config_groups": {"group_0": {"weights": WEIGHTS8}}}, None),
    "packed_fp8": ("qwen3", {"quant_method": "fp8", "weight_block_size": [TILE, TILE]}, "F32"),
    "packed_llm_int8": ("llama", {"quant_method": "bitsandbytes", "load_in_8bit": True}, "F32"),
}


def stored(entry: list, seed: int) -> np.ndarray:
    """The elements of a packed folder's tensor: those of published_folder.cpp."""
    name, shape, mean, amplitude, kind = entry[:5]
    if kind == "I64":
        return np.array(entry[5], np.int64)
    dims = [*([4] if kind == "I32" else []), *shape[::-1]]
    values = tensor_values(Tensor(name, dims, mean, amplitude), seed)
    if kind in ("F32", "F16"):
        return values.astype(np.float16 if kind == "F16" else np.float32).reshape(shape)
    data = values.astype(np.uint8)
    if kind == "F8_E4M3":
        data &= 0xBF  # no NaN
    return data.view({"I8": np.int8, "I32": "<i4", "F8_E4M3": np.uint8}[kind]).reshape(shape)


def nibbles(words: np.ndarray, axis: int, order=range(8)) -> np.ndarray:
    """Words of eight numbers along an axis, number i in bits 4 * order[i] and up."""
    parts = [words.view(np.uint32) >> np.uint32(4 * place) & np.uint32(15) for place in order]
    shape = list(words.shape)
    shape[axis] *= 8
    return np.stack(parts, axis + 1).reshape(shape).astype(np.float64)


def packed_parts(method: str, base: str, rows: int, cols: int, gain: float) -> list[list]:
    """What takes the place of a matrix: entries of the recording."""
    def codes(name, shape, kind):
        return [f"{base}.{name}", shape, 127.5, 128.0, kind]

    def scales(name, shape, kind, levels):  # levels: their root mean square
        mean = power_of_two(gain / math.sqrt(cols) / levels)
        return [f"{base}.{name}", shape, mean, mean / 2, kind]

    groups = cols // GROUP
    if method.startswith("packed_gptq"):
        zeros = codes("qzeros", [groups, rows // 8], "I32")
        if method == "packed_gptq":
            zeros[2:4] = [119.0, 0.0]  # 7: one less than the middle
        return [codes("qweight", [cols // 8, rows], "I32"), zeros, scales("scales", [groups, rows], "F16", 5)]
    if method == "packed_awq":
        return [codes("qweight", [cols, rows // 8], "I32"), codes("qzeros", [groups, rows // 8], "I32"),
                scales("scales", [groups, rows], "F16", 5)]
    if method == "packed_int4":
        return [codes("weight_packed", [rows, cols // 8], "I32"), codes("weight_zero_point", [rows // 8, groups], "I32"),
                scales("weight_scale", [rows, groups], "F16", 5),
                [f"{base}.weight_shape", [2], 0.0, 0.0, "I64", [rows, cols]]]
    if method == "packed_int8":
        return [codes("weight", [rows, cols], "I8"), scales("weight_scale", [rows, 1], "F16", 74)]
    if method == "packed_fp8":
        return [codes("weight", [rows, cols], "F8_E4M3"),
                scales("weight_scale_inv", [-(-rows // TILE), -(-cols // TILE)], "F32", 0.5)]
    return [codes("weight", [rows, cols], "I8"), scales("SCB", [rows], "F32", 74 / 127)]


def dequantized(method: str, parts: dict[str, np.ndarray]) -> np.ndarray:
    """(rows, cols) in float64, as each format's definition has it."""
    if method in ("packed_int8", "packed_llm_int8"):
        scale = parts["weight_scale"] if method == "packed_int8" else parts["SCB"][:, None].astype(np.float64) / 127
        return parts["weight"].astype(np.float64) * scale.astype(np.float64)
    if method == "packed_fp8":
        values = torch.tensor(parts["weight"]).view(torch.float8_e4m3fn).to(torch.float64).numpy()
        tiles = parts["weight_scale_inv"].astype(np.float64).repeat(TILE, 0).repeat(TILE, 1)
        return values * tiles[:values.shape[0], :values.shape[1]]
    if method == "packed_int4":
        level = nibbles(parts["weight_packed"], 1) - nibbles(parts["weight_zero_point"], 0).repeat(GROUP, 1)
        return level * parts["weight_scale"].astype(np.float64).repeat(GROUP, 1)
    order = (0, 4, 1, 5, 2, 6, 3, 7) if method == "packed_awq" else range(8)
    zeros = nibbles(parts["qzeros"], 1, order) + (0 if method == "packed_awq" else 1)
    level = nibbles(parts["qweight"], 1 if method == "packed_awq" else 0, order) - zeros.repeat(GROUP, 0)
    return (level * parts["scales"].astype(np.float64).repeat(GROUP, 0)).T


def record_packed(name: str) -> None:
    family, method, to = PACKED[name]
    kind, own = MODELS[family]
    config = kind(**{**BASE, **own, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16})
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        T.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "np") as file:
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}
        tensors, values = [], {}
        for key, shape in sorted(shapes.items()):
            if not key.endswith("_proj.weight"):
                tensors.append([key, shape, *scale_of(key, shape, False), "F32"])
                values[key] = stored(tensors[-1], SEED)
                continue
            base = key.removesuffix(".weight")
            gain = 2.0 if base.endswith(("q_proj", "k_proj", "o_proj", "down_proj")) else 1.0
            parts = packed_parts(name, base, *shape, gain)
            tensors += parts
            values[key] = dequantized(name, {part[0].removeprefix(base + "."): stored(part, SEED) for part in parts})
        save_file({key: np.ascontiguousarray(value, np.float64) for key, value in values.items()},
                  f"{folder}/model.safetensors", metadata={"format": "pt"})
        logits = load(folder)(torch.tensor([PROMPT])).logits[0]
        written = json.loads(Path(f"{folder}/config.json").read_text())
    written["quantization_config"] = method
    write(name, written, tensors, logits, {"type": to} if to else {})


# ---- Tokenizers -----------------------------------------------------------------------------------

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
SEED_OSS = QWEN2.replace(r"\p{N}|", r"\p{N}{1}|").replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = TEKKEN.replace(r"\p{M}]+|", rf"\p{{M}}]+{CONTRACTIONS}|").replace(
    r"\p{M}]*|", rf"\p{{M}}]*{CONTRACTIONS}|").replace(r"\p{N}|", r"\p{N}{1,3}|")
# Ends of ranges that are one character under NFC are escaped.
DEEPSEEK_LETTERS = (
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+")
DEEPSEEK_MARKS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" + "\r\n" + r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"""| ?[\p{P}\p{S}]+[""" + "\r\n" + r"""]*|\s*[""" + "\r\n" + r"""]+|\s+(?!\S)|\s+""")
TEXTS = [
    "The fox said: \"It's 1234 o'clock, isn't it?\"\n\n  Nobody   knew.",
    "Gr\u00fc\u00dfe aus K\u00f6ln, caf\u00e9 cafe\u0301 \u65e5\u672c\u8a9e \U0001f98a end",
    " leading and trailing ",
    "x" * 20 + "\t\t3.14159 a_b-c 'LL I'll <s> </s>",
    "Nobody;fooBar HTTPServer's 1234567 \u1f7d\u03a9\u2126K\u212a \ud55c\uad6d\uc5b4 \u304b\u306a\u30ab\u30ca!? foo/bar//\n\n"
    " x\r\n\u0928\u092e\u0938\u094d\u0924\u0947\u3002 \n  ",
]


def corpus() -> list[str]:
    root = HERE.parents[2]
    return [(root / "README.md").read_text(), *TEXTS, "Once upon a time there was a fox. " * 40]


def split(*expressions: str, digits=False, inverted=False) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([
        *(pre_tokenizers.Split(Regex(expression), behavior="removed" if inverted else "isolated", invert=inverted)
          for expression in expressions),
        *([pre_tokenizers.Digits(individual_digits=True)] if digits else []),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


def byte_level(pre: pre_tokenizers.PreTokenizer, normalizer=None, ignore_merges=False, bos=True) -> Tokenizer:
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer is not None:
        t.normalizer = normalizer
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>"],
        show_progress=False))
    if bos:
        t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return t


def hidden_piece(t: Tokenizer) -> Tokenizer:
    """A word becomes a token that no merges lead to, so that "ignore_merges" matters."""
    raw = json.loads(t.to_str())
    raw["model"]["vocab"]["Nobody"] = len(raw["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(raw))


def sentence_pieces(prefix: bool, every_split=True) -> Tokenizer:
    """As Llama 2's (prefix) and Gemma's files have it: byte tokens, then merges; no pre-tokenizer.

    Merges are all ways to split each piece, as in files made from SentencePiece's, or those of the training.
    """
    mark = "\u2581"
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    steps = [normalizers.Prepend(mark)] if prefix else []
    t.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", mark)])
    # Trained on words, so that no piece spans two.
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(replacement=mark, prepend_scheme="always")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trained.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=560, special_tokens=special, limit_alphabet=80,
                                                              show_progress=False))
    model = json.loads(trained.to_str())["model"]
    raw = json.loads(t.to_str())
    vocab, merges = model["vocab"], model["merges"]
    if every_split:
        pieces = ["".join(merge) for merge in merges]
        merges = [[piece[:cut], piece[cut:]] for piece in pieces for cut in range(1, len(piece))
                  if piece[:cut] in vocab and piece[cut:] in vocab]
    raw["model"]["vocab"], raw["model"]["merges"] = vocab, merges
    raw["added_tokens"] = [dict(id=i, content=c, single_word=False, lstrip=False, rstrip=False, normalized=False,
                                special=True) for i, c in enumerate(["<unk>", "<s>", "</s>"])]
    t = Tokenizer.from_str(json.dumps(raw))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


TOKENIZERS = {
    "gpt2": (lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), bos=False), "gpt-2"),
    "llama3": (lambda: byte_level(split(LLAMA3), ignore_merges=True), "llama-bpe"),
    "dbrx": (lambda: byte_level(split(LLAMA3, inverted=True)), "dbrx"),
    "qwen2": (lambda: byte_level(split(QWEN2), normalizers.NFC(), bos=False), "qwen2"),
    "qwen35": (lambda: byte_level(split(QWEN35), normalizers.NFC(), bos=False), "qwen35"),
    "seed": (lambda: byte_level(split(SEED_OSS)), "seed-coder"),
    "gpt_oss": (lambda: hidden_piece(byte_level(split(O200K), ignore_merges=True, bos=False)), "gpt-4o"),
    "tekken": (lambda: hidden_piece(byte_level(split(TEKKEN))), "tekken"),
    "deepseek_v2": (lambda: byte_level(split("[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_MARKS, "\\s+$", EAST_ASIAN,
                                             digits=True)), "deepseek-llm"),
    "deepseek_coder": (lambda: byte_level(split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, digits=True)),
                       "deepseek-coder"),
    "deepseek_v3": (lambda: byte_level(split(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK3)),
                    "deepseek-v3"),
    "smollm": (lambda: byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])), "smollm"),
    "llama2": (lambda: sentence_pieces(True), "default"),
    "gemma": (lambda: sentence_pieces(False), "default"),
    "gemma4": (lambda: sentence_pieces(False, every_split=False), "gemma4"),
}


def record_tokenizer(name: str) -> None:
    make, pre = TOKENIZERS[name]
    t = make()
    raw = json.loads(t.to_str())
    for part in ("truncation", "padding"):
        raw.pop(part, None)
    (HERE / f"tokenizer_{name}.json").write_text(json.dumps(raw, separators=(",", ":"), ensure_ascii=True) + "\n")
    # Special tokens in a text stay text.
    plain = json.loads(json.dumps(raw))
    plain["added_tokens"] = []
    reader = Tokenizer.from_str(json.dumps(plain))
    first = t.encode("").ids
    expected = [{"text": text, "ids": first + reader.encode(text, add_special_tokens=False).ids} for text in TEXTS]
    (HERE / f"ids_{name}.json").write_text(json.dumps(
        {"pre": pre, "size": t.get_vocab_size(), "texts": expected}, separators=(",", ":")) + "\n")
    print(name, t.get_vocab_size(), "tokens")


def main() -> None:
    wanted = sys.argv[1:] or [*MODELS, *PACKED, *(f"tokenizer_{name}" for name in TOKENIZERS)]
    for name in wanted:
        if name in MODELS:
            record(name)
        elif name in PACKED:
            record_packed(name)
        else:
            record_tokenizer(name.removeprefix("tokenizer_"))


if __name__ == "__main__":
    main()
