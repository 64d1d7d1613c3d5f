"""Recordings of families that `transformers` does not have, or saves otherwise: NAME.json as record.py writes it.

The logits are those of ../families/reference.py in float64, whose tensors have the names of a GGUF file. How the
published ones become them is written here anew, from the published code, and was compared with what llama.cpp's
converter makes of the same folder.

usage: by_hand.py [NAME...]      needs torch, numpy; for kimi_linear what record.py needs
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recording import HERE, PROMPT, SEED, VOCAB, write

sys.path.append(str(HERE.parent / "families"))
from reference import FAMILIES  # noqa: E402
from tiny_models import Tensor, TinyModel, power_of_two, tensor_values  # noqa: E402

LAYERS = 3


@dataclass
class Folder:
    """Published tensors with their places in a GGUF file."""

    architecture: str  # empty: `transformers` computes the logits
    config: dict
    metadata: dict
    entries: list = field(default_factory=list)
    values: dict = field(default_factory=dict)

    def add(self, name: str, shape: list[int], to: str | None = None, mean=0.0, amplitude=None,
            change=lambda x: x) -> None:
        if amplitude is None:
            amplitude = power_of_two(math.sqrt(3.0 / shape[-1]))
        self.entries.append([name, shape, mean, amplitude])
        values = tensor_values(Tensor(name, shape[::-1], mean, amplitude), SEED).reshape(shape)
        self.values[to or name] = change(values.astype(np.float64)) if to else values

    def of_transformers(self):
        import torch
        from record import load, save_file

        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            Path(folder, "config.json").write_text(json.dumps(self.config))
            save_file(self.values, f"{folder}/model.safetensors", metadata={"format": "pt"})
            return load(folder)(torch.tensor([PROMPT])).logits[0]

    def record(self, name: str) -> None:
        values = self.values
        if not self.architecture:
            return write(name, self.config, sorted(self.entries), self.of_transformers(), {})

        class Given(TinyModel):
            def values(self):
                return values

        model = Given(name, self.architecture, dict(self.metadata))
        logits = FAMILIES[self.architecture](model).forward(PROMPT)
        write(name, self.config, sorted(self.entries), logits, {})


def rwkv7() -> Folder:
    """As flash-linear-attention publishes it (fla/models/rwkv7, fla/layers/rwkv7.py)."""
    width, dim, ffn, ranks = 128, 64, 256, {"w": 32, "a": 16, "v": 32, "g": 64}
    f = Folder("rwkv7", {
        "architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "hidden_size": width, "num_hidden_layers": LAYERS,
        "vocab_size": VOCAB, "head_dim": dim, "num_heads": width // dim, "intermediate_size": ffn, "hidden_act": "sqrelu",
        "norm_eps": 1e-5, "norm_first": True, "norm_bias": True, "attn": None, "decay_low_rank_dim": ranks["w"],
        "a_low_rank_dim": ranks["a"], "v_low_rank_dim": ranks["v"], "gate_low_rank_dim": ranks["g"],
        "max_position_embeddings": 2048, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0,
    }, {"embedding_length": width, "block_count": LAYERS, "attention.head_count": 0, "wkv.head_size": dim,
        "attention.layer_norm_epsilon": 1e-5})

    def norm(name: str, to: str) -> None:
        f.add(f"{name}.weight", [width], f"{to}.weight", 1.0, 0.25)
        f.add(f"{name}.bias", [width], f"{to}.bias", 0.0, 0.25)

    f.add("model.embeddings.weight", [VOCAB, width], "token_embd.weight", 0.0, 1.0)
    for i in range(LAYERS):
        layer, blk = f"model.layers.{i}.", f"blk.{i}."
        mix = f"{blk}time_mix_"
        if i == 0:
            norm(f"{layer}pre_norm", "token_embd_norm")
        norm(f"{layer}attn_norm", f"{blk}attn_norm")
        norm(f"{layer}ffn_norm", f"{blk}attn_norm_2")
        for letter in "rwkvag":
            f.add(f"{layer}attn.x_{letter}", [1, 1, width], f"{mix}{letter}", 0.5, 0.5)
        f.values[f"{mix}lerp_fused.weight"] = np.stack([f.values.pop(f"{mix}{letter}") for letter in "rwkvag"])
        for letter, rank in ranks.items():
            if letter == "v" and i == 0:
                continue
            low = f"{layer}attn.{letter}_lora.lora."
            f.add(f"{low}0.weight", [rank, width], f"{mix}{letter}1.weight")
            f.add(f"{low}2.weight", [width, rank], f"{mix}{letter}2.weight")
            if letter != "g":
                f.add(f"{low}2.bias", [width], f"{mix}{letter}0.weight", 0.0, 1.0)
        for letter, name in (("r", "receptance"), ("k", "key"), ("v", "value"), ("o", "output")):
            f.add(f"{layer}attn.{letter}_proj.weight", [width, width], f"{mix}{name}.weight")
        f.add(f"{layer}attn.k_k", [width], f"{mix}k_k.weight", 1.0, 0.5)
        f.add(f"{layer}attn.k_a", [width], f"{mix}k_a.weight", 0.75, 0.5)
        f.add(f"{layer}attn.r_k", [width // dim, dim], f"{mix}r_k.weight", 0.0, 0.25, lambda x: x.reshape(-1))
        norm(f"{layer}attn.g_norm", f"{mix}ln")
        f.add(f"{layer}ffn.x_k", [width], f"{blk}channel_mix_lerp_k.weight", 0.5, 0.5)
        f.add(f"{layer}ffn.key.weight", [ffn, width], f"{blk}channel_mix_key.weight")
        f.add(f"{layer}ffn.value.weight", [width, ffn], f"{blk}channel_mix_value.weight")
    norm("model.norm", "output_norm")
    f.add("lm_head.weight", [VOCAB, width], "output.weight")
    return f


def plamo2() -> Folder:
    """As Preferred Networks publishes it (modeling_plamo.py): norms are stored without what the code adds."""
    width, heads, kv_heads, dim, mamba_heads, state, ffn, rank = 64, 4, 2, 16, 4, 16, 96, 64
    inner = mamba_heads * dim
    f = Folder("plamo2", {
        "architectures": ["Plamo2ForCausalLM"], "model_type": "plamo2", "hidden_size": width, "num_hidden_layers": LAYERS,
        "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "hidden_size_per_head": dim, "intermediate_size": ffn, "max_position_embeddings": 512,
        "attention_window_size": 256, "mamba_d_state": state, "mamba_d_conv": 4, "mamba_num_heads": mamba_heads,
        "mamba_step": 2, "mamba_enabled": True, "tie_word_embeddings": True,
    }, {"embedding_length": width, "block_count": LAYERS, "ssm.time_step_rank": mamba_heads, "ssm.state_size": state,
        "attention.head_count": [0, heads, 0], "attention.head_count_kv": [0, kv_heads, 0],
        "attention.key_length": dim, "rope.dimension_count": dim, "rope.freq_base": 10000.0,
        "attention.layer_norm_rms_epsilon": 1e-5})

    def norm(name: str, to: str, added: float) -> None:
        f.add(name, [width], to, 0.0, 0.125, lambda x: x + added)

    f.add("model.embed_tokens.weight", [VOCAB, width], "token_embd.weight", 0.0, 0.5)
    for i in range(LAYERS):
        layer, blk = f"model.layers.layers.{i}.", f"blk.{i}."
        mixer = f"{layer}mixer."
        norm(f"{layer}pre_mixer_norm.weight", f"{blk}attn_norm.weight", 1.0)
        norm(f"{layer}post_mixer_norm.weight", f"{blk}post_attention_norm", 1 / 5)
        norm(f"{layer}pre_mlp_norm.weight", f"{blk}ffn_norm.weight", 1.0)
        norm(f"{layer}post_mlp_norm.weight", f"{blk}post_ffw_norm", 1 / 5**1.5)
        f.add(f"{layer}mlp.gate_up_proj.weight", [2 * ffn, width], f"{blk}ffn_up.weight")
        f.add(f"{layer}mlp.down_proj.weight", [width, ffn], f"{blk}ffn_down.weight")
        if i % 2 == 1:
            f.add(f"{mixer}qkv_proj.weight", [(heads + 2 * kv_heads) * dim, width], f"{blk}attn_qkv.weight")
            f.add(f"{mixer}q_weight", [heads, dim], f"{blk}attn_q_norm.weight", 1.5, 0.5)
            f.add(f"{mixer}k_weight", [kv_heads, dim], f"{blk}attn_k_norm.weight", 1.5, 0.5)
            f.add(f"{mixer}o_proj.weight", [width, heads * dim], f"{blk}attn_output.weight")
            continue
        f.add(f"{mixer}in_proj.weight", [2 * inner, width], f"{blk}ssm_in.weight")
        f.add(f"{mixer}conv1d.weight", [inner, 1, 4], f"{blk}ssm_conv1d.weight", 0.0, 1.0, lambda x: x[:, 0])
        f.add(f"{mixer}bcdt_proj.weight", [rank + 2 * state, inner], f"{blk}ssm_x.weight")
        f.add(f"{mixer}dt_proj.weight", [mamba_heads, rank], f"{blk}ssm_dt.weight")
        f.add(f"{mixer}dt_bias", [mamba_heads], f"{blk}ssm_dt.bias", -1.0, 1.0)
        f.add(f"{mixer}A_log", [mamba_heads], f"{blk}ssm_a", 0.0, 1.0, lambda x: -np.exp(x))
        f.add(f"{mixer}D", [mamba_heads], f"{blk}ssm_d", 1.0, 0.5)
        for letter, name, size in (("dt", "dt", rank), ("B", "b", state), ("C", "c", state)):
            f.add(f"{mixer}{letter}_norm_weight", [size], f"{blk}ssm_{name}_norm", 1.0, 0.25)
        f.add(f"{mixer}out_proj.weight", [width, inner], f"{blk}ssm_out.weight")
    norm("model.norm.weight", "output_norm.weight", 1.0)
    return f


def rwkv_hybrid(gated: bool) -> Folder:
    """ARWKV-7, as RWKV-Red-Team publishes it: pairs of matrices that rows are multiplied with from the left."""
    width, dim, ffn, ranks = 128, 64, 192, {"w": 64, "a": 64, "v": 32, "g": 128}
    letters = "rwkvag" if gated else "rwkva"
    f = Folder("arwkv7", {
        "architectures": ["RwkvHybridForCausalLM"], "model_type": "rwkv_hybrid", "hidden_size": width,
        "num_hidden_layers": LAYERS, "vocab_size": VOCAB, "head_size": dim, "head_size_divisor": 8,
        "num_wkv_heads": width // dim, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": ffn,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "wkv_version": 7, "wkv_layers": "full", "wkv_has_gate": gated,
        "wkv_has_group_norm": gated, "max_position_embeddings": 2048, "tie_word_embeddings": False,
    }, {"embedding_length": width, "block_count": LAYERS, "attention.head_count": 0, "wkv.head_size": dim,
        "attention.layer_norm_rms_epsilon": 1e-6})

    f.add("model.embed_tokens.weight", [VOCAB, width], "token_embd.weight", 0.0, 1.0)
    for i in range(LAYERS):
        layer, blk = f"model.layers.{i}.", f"blk.{i}."
        mixer, mix = f"{layer}self_attn.time_mixer.", f"{blk}time_mix_"
        f.add(f"{layer}input_layernorm.weight", [width], f"{blk}attn_norm.weight", 1.0, 0.25)
        f.add(f"{layer}post_attention_layernorm.weight", [width], f"{blk}ffn_norm.weight", 1.0, 0.25)
        for letter in "rwkvag":  # x_g is there without a gate, too
            f.add(f"{mixer}x_{letter}", [1, 1, width], f"{mix}{letter}", 0.5, 0.5)
        shifts = {letter: f.values.pop(f"{mix}{letter}") for letter in "rwkvag"}
        f.values[f"{mix}lerp_fused.weight"] = np.stack([shifts[letter] for letter in letters])
        for letter, rank in ranks.items():
            if letter == "g" and not gated:
                continue
            f.add(f"{mixer}{letter}1", [width, rank], f"{mix}{letter}1.weight", 0.0, 0.25, lambda x: x.T.copy())
            f.add(f"{mixer}{letter}2", [rank, width], f"{mix}{letter}2.weight", 0.0, 0.25, lambda x: x.T.copy())
            if letter != "g":
                f.add(f"{mixer}{letter}0", [1, 1, width], f"{mix}{letter}0.weight", 0.0, 1.0, lambda x: x.reshape(-1))
        for name in ("receptance", "key", "value", "output"):
            f.add(f"{mixer}{name}.weight", [width, width], f"{mix}{name}.weight")
        f.add(f"{mixer}k_k", [1, 1, width], f"{mix}k_k.weight", 1.0, 0.5, lambda x: x.reshape(-1))
        f.add(f"{mixer}k_a", [1, 1, width], f"{mix}k_a.weight", 0.75, 0.5, lambda x: x.reshape(-1))
        f.add(f"{mixer}r_k", [width // dim, dim], f"{mix}r_k.weight", 0.0, 0.25, lambda x: x.reshape(-1))
        if gated:
            f.add(f"{mixer}ln_x.weight", [width], f"{mix}ln.weight", 1.0, 0.25)
            f.add(f"{mixer}ln_x.bias", [width], f"{mix}ln.bias", 0.0, 0.25)
        f.add(f"{layer}mlp.gate_proj.weight", [ffn, width], f"{blk}ffn_gate.weight")
        f.add(f"{layer}mlp.up_proj.weight", [ffn, width], f"{blk}ffn_up.weight")
        f.add(f"{layer}mlp.down_proj.weight", [width, ffn], f"{blk}ffn_down.weight")
    f.add("model.norm.weight", [width], "output_norm.weight", 1.0, 0.25)
    f.add("lm_head.weight", [VOCAB, width], "output.weight")
    return f


def kimi_linear() -> Folder:
    """As Moonshot publishes it, where layers are counted from 1. `transformers` reads that, but saves other names."""
    width, heads, dim, taps, rank, plain, rotated, v_dim = 64, 4, 32, 4, 32, 32, 8, 16
    inner, ffn, expert_ffn, experts, layers, latent = heads * dim, 96, 32, 8, 5, [3, 5]
    f = Folder("", {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_size": width, "head_dim": 16,
        "num_hidden_layers": layers, "vocab_size": VOCAB, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "num_attention_heads": heads, "num_key_value_heads": heads, "intermediate_size": ffn, "kv_lora_rank": rank,
        "q_lora_rank": None, "qk_nope_head_dim": plain, "qk_rope_head_dim": rotated, "v_head_dim": v_dim,
        "mla_use_nope": True, "linear_attn_config": {
            "full_attn_layers": latent, "kda_layers": [i for i in range(1, layers + 1) if i not in latent],
            "head_dim": dim, "num_heads": heads, "short_conv_kernel_size": taps},
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_experts": experts, "num_experts_per_token": 3,
        "num_shared_experts": 2, "moe_intermediate_size": expert_ffn, "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 2.446, "use_grouped_topk": True,
        "num_expert_group": 2, "topk_group": 1, "num_nextn_predict_layers": 0, "model_max_length": 4096,
        "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": False,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }, {})

    def norm(name: str, size: int) -> None:
        f.add(f"{name}.weight", [size], None, 1.0, 0.25)

    def gated(root: str, names: list[str], size: int) -> None:
        for name, shape in zip(names, ([size, width], [size, width], [width, size])):
            f.add(f"{root}{name}.weight", shape)

    f.add("model.embed_tokens.weight", [VOCAB, width], None, 0.0, 0.5)
    for i in range(layers):
        layer = f"model.layers.{i}."
        mixer, moe, named = f"{layer}self_attn.", f"{layer}block_sparse_moe.", ["gate_proj", "up_proj", "down_proj"]
        norm(f"{layer}input_layernorm", width)
        norm(f"{layer}post_attention_layernorm", width)
        if i + 1 in latent:
            f.add(f"{mixer}q_proj.weight", [heads * (plain + rotated), width])
            f.add(f"{mixer}kv_a_proj_with_mqa.weight", [rank + rotated, width])
            norm(f"{mixer}kv_a_layernorm", rank)
            f.add(f"{mixer}kv_b_proj.weight", [heads * (plain + v_dim), rank])
            f.add(f"{mixer}o_proj.weight", [width, heads * v_dim])
        else:
            for part in "qkv":
                f.add(f"{mixer}{part}_proj.weight", [inner, width])
                f.add(f"{mixer}{part}_conv1d.weight", [inner, 1, taps], None, 0.0, 1.0)
            for part in "fg":
                f.add(f"{mixer}{part}_a_proj.weight", [dim, width])
                f.add(f"{mixer}{part}_b_proj.weight", [inner, dim])
            f.add(f"{mixer}b_proj.weight", [heads, width])
            f.add(f"{mixer}A_log", [1, 1, heads, 1], None, 0.0, 1.0)
            f.add(f"{mixer}dt_bias", [inner], None, -1.0, 1.0)
            norm(f"{mixer}o_norm", dim)
            f.add(f"{mixer}o_proj.weight", [width, inner])
        if i == 0:
            gated(f"{layer}mlp.", named, ffn)
            continue
        f.add(f"{moe}gate.weight", [experts, width], None, 0.0, 0.5)
        f.add(f"{moe}gate.e_score_correction_bias", [experts], None, 0.0, 0.25)
        for e in range(experts):
            gated(f"{moe}experts.{e}.", ["w1", "w3", "w2"], expert_ffn)
        gated(f"{moe}shared_experts.", named, 2 * expert_ffn)
    norm("model.norm", width)
    f.add("lm_head.weight", [VOCAB, width])
    return f


MODELS = {"rwkv7": rwkv7, "plamo2": plamo2, "kimi_linear": kimi_linear, "rwkv_hybrid": lambda: rwkv_hybrid(True),
          "rwkv_hybrid_gate_free": lambda: rwkv_hybrid(False)}


def main() -> None:
    for name in sys.argv[1:] or MODELS:
        MODELS[name]().record(name)


if __name__ == "__main__":
    main()
