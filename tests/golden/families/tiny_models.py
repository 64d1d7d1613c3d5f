"""Tiny models of every family: metadata, tensors, and values from a seed.

A value is a hash of the tensor's name and the element's index, so that the C++ tests make the same
files without carrying them (family_file.cpp). It is an odd multiple of amplitude / 256, at most 255
of them: exact in F32, F16 and BF16, where `amplitude` is a power of two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

VOCAB = 128
CONTEXT = 256
WIDTH = 64
MASK = (1 << 64) - 1


@dataclass
class Tensor:
    name: str
    dims: list[int]  # the contiguous one first, as GGUF counts
    mean: float
    amplitude: float


@dataclass
class TinyModel:
    name: str
    architecture: str
    metadata: dict  # without the architecture's prefix
    tensors: list[Tensor] = field(default_factory=list)
    seed: int = 1
    context: int = CONTEXT  # that it is run with

    def full_metadata(self) -> dict:
        return {f"{self.architecture}.{key}": value for key, value in self.metadata.items()}

    def values(self) -> dict[str, np.ndarray]:
        """Float64 arrays in row-major order: dims reversed."""
        return {
            t.name: tensor_values(t, self.seed).reshape(t.dims[::-1]).astype(np.float64)
            for t in self.tensors
        }


def hash_name(name: str, seed: int) -> int:
    """FNV-1a of the seed followed by the name."""
    state = 0xCBF29CE484222325
    for byte in seed.to_bytes(4, "little") + name.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def tensor_values(tensor: Tensor, seed: int) -> np.ndarray:
    """SplitMix64 (Steele, Lea and Flood 2014) over the index."""
    count = math.prod(tensor.dims)
    with np.errstate(over="ignore"):
        z = np.uint64(hash_name(tensor.name, seed)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    odd = 2 * (z >> np.uint64(56)).astype(np.int64) - 255
    return (tensor.mean + odd * (tensor.amplitude / 256)).astype(np.float32)


def power_of_two(value: float) -> float:
    return 2.0 ** round(math.log2(value))


class Builder:
    """The tensors of a model whose parts are named by flags."""

    def __init__(self, name: str, architecture: str, layers: int, *, heads=4, kv_heads=2, head_dim=16, ffn=96,
                 seed=1, context=CONTEXT, **metadata):
        self.layers, self.heads, self.kv_heads, self.head_dim, self.ffn = layers, heads, kv_heads, head_dim, ffn
        self.model = TinyModel(name, architecture, {
            "context_length": context,
            "embedding_length": WIDTH,
            "block_count": layers,
            "feed_forward_length": ffn,
            "attention.head_count": heads,
            "attention.head_count_kv": kv_heads,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": head_dim,
            "rope.freq_base": 10000.0,
            "vocab_size": VOCAB,
        }, seed=seed, context=context)
        if head_dim * heads != WIDTH:
            self.model.metadata["attention.key_length"] = head_dim
            self.model.metadata["attention.value_length"] = head_dim
        self.model.metadata.update({key.replace("__", "."): value for key, value in metadata.items()})

    def layer_norm(self, name: str, biased: bool) -> None:
        self.vector(f"{name}.weight", WIDTH)
        if biased:
            self.vector(f"{name}.bias", WIDTH, 0.0, 0.25)

    def matrix(self, name: str, cols: int, rows: int, gain: float = 1.0, experts: int = 0) -> None:
        amplitude = power_of_two(gain * math.sqrt(3.0 / cols))
        self.model.tensors.append(Tensor(name, [cols, rows] + ([experts] if experts else []), 0.0, amplitude))

    def vector(self, name: str, size: int, mean: float = 1.0, amplitude: float = 0.25) -> None:
        self.model.tensors.append(Tensor(name, [size], mean, amplitude))

    def build(self, *, tied=False, embedding=1.0, norm_first=True, norm_last=False, qk_norm=None, biases=False,
              fused=False, fused_ffn=False, experts=0, expert_ffn=0, shared_ffn=0, qk_gain=2.0, qk_mean=1.5, ffn_norm="ffn_norm",
              sinks=False, expert_biases=False, selection_bias=0.0, shared_gate=False, dense=0, latent=None,
              norm_biases=False, attn_gate=False, ffn_biases=False, gated=True, joined_experts=False) -> TinyModel:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.model.tensors.append(Tensor("token_embd.weight", [WIDTH, VOCAB], 0.0, embedding))
        for i in range(self.layers):
            blk = f"blk.{i}."
            if norm_first:
                self.layer_norm(blk + "attn_norm", norm_biases)
            if latent:
                rank, heads = latent["kv_rank"], self.heads
                if latent.get("q_rank"):
                    self.matrix(blk + "attn_q_a.weight", WIDTH, latent["q_rank"])
                    self.vector(blk + "attn_q_a_norm.weight", latent["q_rank"])
                    self.matrix(blk + "attn_q_b.weight", latent["q_rank"], heads * latent["head_dim"], qk_gain)
                else:
                    self.matrix(blk + "attn_q.weight", WIDTH, heads * latent["head_dim"], qk_gain)
                self.matrix(blk + "attn_kv_a_mqa.weight", WIDTH, rank + latent["rotated"], qk_gain)
                self.vector(blk + "attn_kv_a_norm.weight", rank)
                self.matrix(blk + "attn_k_b.weight", latent["head_dim"] - latent["rotated"], rank, 1.0, heads)
                self.matrix(blk + "attn_v_b.weight", rank, latent["v_dim"], 1.0, heads)
                q = heads * latent["v_dim"]
            elif fused:
                self.matrix(blk + "attn_qkv.weight", WIDTH, q + 2 * kv, qk_gain)
            else:
                self.matrix(blk + "attn_q.weight", WIDTH, q, qk_gain)
                self.matrix(blk + "attn_k.weight", WIDTH, kv, qk_gain)
                self.matrix(blk + "attn_v.weight", WIDTH, kv)
            if biases:
                self.vector(blk + "attn_q.bias", q, 0.0, 1.0)
                self.vector(blk + "attn_k.bias", kv, 0.0, 1.0)
                self.vector(blk + "attn_v.bias", kv, 0.0, 0.5)
            if qk_norm is not None:
                # Means above 1: normed heads would make attention nearly uniform.
                self.vector(blk + "attn_q_norm.weight", self.head_dim if qk_norm == "heads" else q, qk_mean, 0.5)
                self.vector(blk + "attn_k_norm.weight", self.head_dim if qk_norm == "heads" else kv, qk_mean, 0.5)
            if attn_gate:
                self.matrix(blk + "attn_gate.weight", WIDTH, q)
            self.matrix(blk + "attn_output.weight", q, WIDTH, 2.0)
            if expert_biases or ffn_biases:
                self.vector(blk + "attn_output.bias", WIDTH, 0.0, 0.5)
            if sinks:
                self.vector(blk + "attn_sinks.weight", self.heads, 1.0, 2.0)
            if norm_last:
                self.vector(blk + "post_attention_norm.weight", WIDTH)
            if norm_first and ffn_norm:
                self.layer_norm(blk + ffn_norm, norm_biases)
            if experts and i >= dense:
                self.matrix(blk + "ffn_gate_inp.weight", WIDTH, experts, 2.0)
                if expert_biases:
                    self.vector(blk + "ffn_gate_inp.bias", experts, 0.0, 1.0)
                    for part, size in (("gate", expert_ffn), ("up", expert_ffn), ("down", WIDTH)):
                        self.model.tensors.append(
                            Tensor(f"{blk}ffn_{part}_exps.bias", [size, experts], 0.0, 1.0))
                if selection_bias:
                    self.vector(blk + "exp_probs_b.bias", experts, 0.0, selection_bias)
                if shared_gate:
                    self.vector(blk + "ffn_gate_inp_shexp.weight", WIDTH, 0.0, 0.25)
                if joined_experts:
                    self.matrix(blk + "ffn_gate_up_exps.weight", WIDTH, 2 * expert_ffn, 1.0, experts)
                else:
                    self.matrix(blk + "ffn_gate_exps.weight", WIDTH, expert_ffn, 1.0, experts)
                    self.matrix(blk + "ffn_up_exps.weight", WIDTH, expert_ffn, 1.0, experts)
                self.matrix(blk + "ffn_down_exps.weight", expert_ffn, WIDTH, 2.0, experts)
                if shared_ffn:
                    self.matrix(blk + "ffn_gate_shexp.weight", WIDTH, shared_ffn)
                    self.matrix(blk + "ffn_up_shexp.weight", WIDTH, shared_ffn)
                    self.matrix(blk + "ffn_down_shexp.weight", shared_ffn, WIDTH)
            elif fused or fused_ffn:
                self.matrix(blk + "ffn_up.weight", WIDTH, 2 * self.ffn)
                self.matrix(blk + "ffn_down.weight", self.ffn, WIDTH, 2.0)
            else:
                if gated:
                    self.matrix(blk + "ffn_gate.weight", WIDTH, self.ffn)
                self.matrix(blk + "ffn_up.weight", WIDTH, self.ffn)
                self.matrix(blk + "ffn_down.weight", self.ffn, WIDTH, 2.0)
                if ffn_biases:
                    self.vector(blk + "ffn_up.bias", self.ffn, 0.0, 0.5)
                    self.vector(blk + "ffn_down.bias", WIDTH, 0.0, 0.5)
            if norm_last:
                self.vector(blk + "post_ffw_norm.weight", WIDTH)
        self.layer_norm("output_norm", norm_biases)
        if not tied:
            self.matrix("output.weight", WIDTH, VOCAB, 4.0)
        return self.model


def gemma3n(name: str, pattern, layers: int, shared: int, sparse: int, *, per_layer: int, rank: int) -> TinyModel:
    """The sharing layers have the tensors of keys and values too, as published files do."""
    b = Builder(name, "gemma3n", layers, rope__freq_base=1000000.0)
    streams = 4
    b.model.metadata.update({
        "attention.sliding_window": 20, "attention.sliding_window_pattern": pattern,
        "attention.shared_kv_layers": shared, "altup.active_idx": 0, "altup.num_inputs": streams,
        "embedding_length_per_layer_input": per_layer,
        "attention.key_length": 16, "attention.value_length": 16,
        "activation_sparsity_scale": [1.6448533535003662 if i < sparse else -math.inf for i in range(layers)],
    })
    for part in ("altup_proj", "altup_unembd_proj"):
        b.matrix(f"{part}.weight", WIDTH, WIDTH, 1.0, streams - 1)
    b.model.tensors.append(Tensor("per_layer_token_embd.weight", [per_layer * layers, VOCAB], 0.0, 0.125))
    b.matrix("per_layer_model_proj.weight", WIDTH, per_layer * layers)
    b.vector("per_layer_proj_norm.weight", per_layer)
    for i in range(layers):
        blk = f"blk.{i}."
        b.matrix(blk + "inp_gate.weight", WIDTH, per_layer)
        b.matrix(blk + "proj.weight", per_layer, WIDTH)
        b.vector(blk + "post_norm.weight", WIDTH)
        b.vector(blk + "altup_router_norm.weight", WIDTH)
        b.matrix(blk + "altup_router.weight", WIDTH, streams, 32.0)  # its product is divided by the width
        b.matrix(blk + "altup_predict_coef.weight", streams, streams * streams, 0.25)
        b.matrix(blk + "altup_correct_coef.weight", streams, streams, 0.5)
        b.vector(blk + "altup_correct_scale.weight", WIDTH)
        b.matrix(blk + "laurel_l.weight", WIDTH, rank)
        b.matrix(blk + "laurel_r.weight", rank, WIDTH)
        b.vector(blk + "laurel_post_norm.weight", WIDTH)
    # Scores are not divided by the root of the heads' size.
    return b.build(norm_last=True, qk_norm="heads", qk_gain=1.0, qk_mean=0.75, tied=True, embedding=0.125)


def gemma4(name: str, *, pattern, shared=0, per_layer=0, kv_heads=(2, 2), v_is_k=False, wide_ffn=False,
           experts=0) -> TinyModel:
    """Full layers have heads of 32 and sliding ones of 16; `kv_heads` of sliding and of full layers."""
    layers, expert_ffn, ffn = len(pattern), 32, 96
    storing = layers - shared
    widths = [2 * ffn if wide_ffn and i >= storing else ffn for i in range(layers)]
    b = Builder(name, "gemma4", layers, rope__freq_base=1000000.0)
    m = b.model
    m.metadata.update({
        "attention.sliding_window": 20, "attention.sliding_window_pattern": pattern,
        "attention.shared_kv_layers": shared, "embedding_length_per_layer_input": per_layer,
        "attention.key_length": 32, "attention.value_length": 32, "attention.key_length_swa": 16,
        "attention.value_length_swa": 16, "rope.dimension_count": 32, "rope.dimension_count_swa": 16,
        "rope.freq_base_swa": 10000.0, "final_logit_softcapping": 30.0,
        "attention.head_count_kv": [kv_heads[0 if slides else 1] for slides in pattern],
        "feed_forward_length": widths,
    })
    if experts:
        m.metadata.update({"expert_count": experts, "expert_used_count": 2, "expert_feed_forward_length": expert_ffn})
    m.tensors.append(Tensor("token_embd.weight", [WIDTH, VOCAB], 0.0, 0.125))
    m.tensors.append(Tensor("rope_freqs.weight", [16], 2.0, 1.0))
    if per_layer:
        m.tensors.append(Tensor("per_layer_token_embd.weight", [per_layer * layers, VOCAB], 0.0, 0.125))
        b.matrix("per_layer_model_proj.weight", WIDTH, per_layer * layers)
        b.vector("per_layer_proj_norm.weight", per_layer)
    for i, slides in enumerate(pattern):
        blk, dim, kv = f"blk.{i}.", 16 if slides else 32, kv_heads[0 if slides else 1]
        b.vector(blk + "attn_norm.weight", WIDTH)
        b.matrix(blk + "attn_q.weight", WIDTH, 4 * dim)
        b.vector(blk + "attn_q_norm.weight", dim, 0.75, 0.5)
        if i < storing:
            b.matrix(blk + "attn_k.weight", WIDTH, kv * dim)
            b.vector(blk + "attn_k_norm.weight", dim, 0.75, 0.5)
            if slides or not v_is_k:
                b.matrix(blk + "attn_v.weight", WIDTH, kv * dim)
        b.matrix(blk + "attn_output.weight", 4 * dim, WIDTH, 2.0)
        b.vector(blk + "post_attention_norm.weight", WIDTH)
        b.vector(blk + "ffn_norm.weight", WIDTH)
        b.matrix(blk + "ffn_gate.weight", WIDTH, widths[i])
        b.matrix(blk + "ffn_up.weight", WIDTH, widths[i])
        b.matrix(blk + "ffn_down.weight", widths[i], WIDTH, 2.0)
        b.vector(blk + "post_ffw_norm.weight", WIDTH)
        b.vector(blk + "layer_output_scale.weight", 1, 0.75, 0.125)
        if experts:
            b.matrix(blk + "ffn_gate_inp.weight", WIDTH, experts, 4.0)
            b.vector(blk + "ffn_gate_inp.scale", WIDTH, 4.0)
            for part in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                b.vector(f"{blk}{part}.weight", WIDTH)
            b.matrix(blk + "ffn_gate_up_exps.weight", WIDTH, 2 * expert_ffn, 1.0, experts)
            b.matrix(blk + "ffn_down_exps.weight", expert_ffn, WIDTH, 2.0, experts)
            b.vector(blk + "ffn_down_exps.scale", experts, 1.0, 0.5)
        if per_layer:
            b.matrix(blk + "inp_gate.weight", WIDTH, per_layer)
            b.matrix(blk + "proj.weight", per_layer, WIDTH)
            b.vector(blk + "post_norm.weight", WIDTH)
    b.vector("output_norm.weight", WIDTH)
    return m


def phi3(name: str, context: int, seed: int) -> TinyModel:
    b = Builder(name, "phi3", 2, heads=4, kv_heads=4, seed=seed, context=1024)
    b.model.context = context
    b.model.metadata.update({
        "rope.scaling.original_context_length": 512,
        "rope.scaling.attn_factor": 1.0535,
        "rope.dimension_count": 12,  # part of each head
    })
    b.vector("rope_factors_short.weight", 6, 1.25, 0.25)
    b.vector("rope_factors_long.weight", 6, 2.5, 1.0)
    return b.build(tied=False, fused=True)


def layer_norms(builder: Builder) -> Builder:
    eps = builder.model.metadata.pop("attention.layer_norm_rms_epsilon")
    builder.model.metadata["attention.layer_norm_epsilon"] = eps
    return builder


def deci(name: str, heads: list[int], kv_heads: list[int], ffn: list[int]) -> TinyModel:
    b = Builder(name, "deci", len(heads))
    b.model.metadata.update({
        "attention.head_count": heads, "attention.head_count_kv": kv_heads, "feed_forward_length": ffn,
        "attention.key_length": 16, "attention.value_length": 16})
    b.model.tensors.append(Tensor("token_embd.weight", [WIDTH, VOCAB], 0.0, 1.0))
    for i, (q, kv, width) in enumerate(zip(heads, kv_heads, ffn)):
        blk = f"blk.{i}."
        if q:
            b.vector(blk + "attn_norm.weight", WIDTH)
        if kv:
            b.matrix(blk + "attn_q.weight", WIDTH, 16 * q, 2.0)
            b.matrix(blk + "attn_k.weight", WIDTH, 16 * kv, 2.0)
            b.matrix(blk + "attn_v.weight", WIDTH, 16 * kv)
        if q:
            b.matrix(blk + "attn_output.weight", WIDTH, WIDTH, 2.0 if kv else 1.0)
        if width:
            b.vector(blk + "ffn_norm.weight", WIDTH)
            b.matrix(blk + "ffn_gate.weight", WIDTH, width)
            b.matrix(blk + "ffn_up.weight", WIDTH, width)
            b.matrix(blk + "ffn_down.weight", width, WIDTH, 2.0)
    b.vector("output_norm.weight", WIDTH)
    b.matrix("output.weight", WIDTH, VOCAB, 4.0)
    return b.model


def scan_sizes(*, heads: int, groups: int, state: int, inner: int, taps: int = 4) -> dict:
    return {"ssm.conv_kernel": taps, "ssm.inner_size": inner, "ssm.state_size": state,
            "ssm.time_step_rank": heads, "ssm.group_count": groups}


def recurrent_layer(b: Builder, blk: str, kind: str) -> None:
    """The tensors of a layer with a state: of sizes of the metadata ssm.*."""
    m, vector = b.model.metadata, b.vector
    if kind == "short_conv":
        b.matrix(blk + "shortconv.in_proj.weight", WIDTH, 3 * WIDTH)
        b.model.tensors.append(Tensor(blk + "shortconv.conv.weight", [m["shortconv.l_cache"], WIDTH], 0.0, 1.0))
        b.matrix(blk + "shortconv.out_proj.weight", WIDTH, WIDTH, 2.0)
        return
    taps, inner, state, heads = (m["ssm." + key] for key in (
        "conv_kernel", "inner_size", "state_size", "time_step_rank"))
    keys = m.get("ssm.group_count", 0) * state
    channels = inner if kind == "mamba" else inner + 2 * keys
    if kind == "gated_delta":
        b.matrix(blk + "attn_qkv.weight", WIDTH, channels)
        b.matrix(blk + "attn_gate.weight", WIDTH, inner)
        if b.model.architecture == "qwen3next":
            b.matrix(blk + "ssm_ba.weight", WIDTH, 2 * heads)
        else:
            b.matrix(blk + "ssm_beta.weight", WIDTH, heads)
            b.matrix(blk + "ssm_alpha.weight", WIDTH, heads)
        vector(blk + "ssm_norm.weight", state)
        vector(blk + "ssm_a", heads, -0.75, 0.5)
    else:
        b.matrix(blk + "ssm_in.weight", WIDTH, 2 * inner if kind == "mamba" else inner + channels + heads)
        vector(blk + "ssm_conv1d.bias", channels, 0.0, 0.5)
    b.model.tensors.append(Tensor(blk + "ssm_conv1d.weight", [taps, channels], 0.0, 1.0))
    vector(blk + "ssm_dt.bias", inner if kind == "mamba" else heads, -1.0, 1.0)
    b.matrix(blk + "ssm_out.weight", inner, WIDTH, 2.0)
    if kind == "mamba":
        rank = heads
        b.matrix(blk + "ssm_x.weight", inner, rank + 2 * state)
        b.matrix(blk + "ssm_dt.weight", rank, inner)
        b.model.tensors.append(Tensor(blk + "ssm_a", [state, inner], -1.0, 0.5))
        vector(blk + "ssm_d", inner)
        if b.model.architecture == "jamba":
            for part, size in (("dt", rank), ("b", state), ("c", state)):
                vector(f"{blk}ssm_{part}_norm.weight", size)
    elif kind == "mamba2":
        groups = m["ssm.group_count"]
        b.model.tensors.append(Tensor(blk + "ssm_a", [1, heads], -0.75, 0.5))
        b.model.tensors.append(Tensor(blk + "ssm_d", [1, heads], 1.0, 0.5))
        if b.model.architecture != "falcon-h1":
            b.model.tensors.append(Tensor(blk + "ssm_norm.weight", [inner // groups, groups], 1.0, 0.25))


def ffn_parts(b: Builder, blk: str, *, experts: bool, shared: int, expert_ffn: int, bias: float) -> None:
    """A feed-forward without gates, or experts without gates."""
    if not experts:
        b.matrix(blk + "ffn_up.weight", WIDTH, b.ffn)
        b.matrix(blk + "ffn_down.weight", b.ffn, WIDTH)
        return
    b.matrix(blk + "ffn_gate_inp.weight", WIDTH, 8, 2.0)
    b.vector(blk + "exp_probs_b.bias", 8, 0.0, bias)
    b.matrix(blk + "ffn_up_exps.weight", WIDTH, expert_ffn, 1.0, 8)
    b.matrix(blk + "ffn_down_exps.weight", expert_ffn, WIDTH, 1.0, 8)
    b.matrix(blk + "ffn_up_shexp.weight", WIDTH, shared)
    b.matrix(blk + "ffn_down_shexp.weight", shared, WIDTH)


def hybrid(name: str, architecture: str, kinds: list[str], keys: dict, *, kind: str, ffn_norm="ffn_norm",
           heads=4, kv_heads=2, head_dim=16, ffn=96, experts=(), shared_ffn=0, shared_gate=False, qk_norm=False,
           gate_in_q=False, selection_bias=0.0, tied=True, output_norm="output_norm", expert_ffn=32,
           embedding=0.5, ungated=False) -> TinyModel:
    """`kinds` of layers: "r" recurrent, "a" attention, "ra" both; `experts`: the layers that have eight."""
    b = Builder(name, architecture, len(kinds), heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn)
    m = b.model
    m.metadata.update(keys)
    m.tensors.append(Tensor("token_embd.weight", [WIDTH, VOCAB], 0.0, embedding))
    q, kv = heads * head_dim, kv_heads * head_dim
    for i, layer in enumerate(kinds):
        blk = f"blk.{i}."
        b.vector(blk + "attn_norm.weight", WIDTH)
        if "r" in layer:
            recurrent_layer(b, blk, kind)
        if "a" in layer:
            b.matrix(blk + "attn_q.weight", WIDTH, q * (2 if gate_in_q else 1), 2.0)
            b.matrix(blk + "attn_k.weight", WIDTH, kv, 2.0)
            b.matrix(blk + "attn_v.weight", WIDTH, kv)
            if qk_norm:
                b.vector(blk + "attn_q_norm.weight", head_dim, 1.5, 0.5)
                b.vector(blk + "attn_k_norm.weight", head_dim, 1.5, 0.5)
            b.matrix(blk + "attn_output.weight", q, WIDTH, 2.0)
        if not ffn or (ungated and layer != "f"):
            continue
        if ungated:
            ffn_parts(b, blk, experts=i in experts, shared=shared_ffn, expert_ffn=expert_ffn, bias=selection_bias)
            continue
        b.vector(blk + (ffn_norm if architecture == "falcon-h1" else f"{ffn_norm}.weight"), WIDTH)
        if i in experts:
            b.matrix(blk + "ffn_gate_inp.weight", WIDTH, 8, 2.0)
            if selection_bias:
                b.vector(blk + "exp_probs_b.bias", 8, 0.0, selection_bias)
            b.matrix(blk + "ffn_gate_exps.weight", WIDTH, expert_ffn, 1.0, 8)
            b.matrix(blk + "ffn_up_exps.weight", WIDTH, expert_ffn, 1.0, 8)
            b.matrix(blk + "ffn_down_exps.weight", expert_ffn, WIDTH, 2.0, 8)
            if shared_gate:
                b.vector(blk + "ffn_gate_inp_shexp.weight", WIDTH, 0.0, 0.25)
            if shared_ffn:
                b.matrix(blk + "ffn_gate_shexp.weight", WIDTH, shared_ffn)
                b.matrix(blk + "ffn_up_shexp.weight", WIDTH, shared_ffn)
                b.matrix(blk + "ffn_down_shexp.weight", shared_ffn, WIDTH)
        else:
            b.matrix(blk + "ffn_gate.weight", WIDTH, ffn)
            b.matrix(blk + "ffn_up.weight", WIDTH, ffn)
            b.matrix(blk + "ffn_down.weight", ffn, WIDTH, 2.0)
    b.vector(f"{output_norm}.weight", WIDTH)
    if not tied:
        b.matrix("output.weight", WIDTH, VOCAB, 4.0)
    return m


def plamo2(name: str, kinds: list[str]) -> TinyModel:
    heads, state, inner, rank, dim = 4, 16, 128, 64, 16
    b = Builder(name, "plamo2", len(kinds))
    m = b.model
    m.metadata.update({
        "ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": heads,
        "ssm.group_count": 0, "attention.key_length": dim, "attention.value_length": dim,
        "attention.head_count": [4 if kind == "a" else 0 for kind in kinds],
        "attention.head_count_kv": [2 if kind == "a" else 0 for kind in kinds]})
    m.tensors.append(Tensor("token_embd.weight", [WIDTH, VOCAB], 0.0, 0.5))
    for i, kind in enumerate(kinds):
        blk = f"blk.{i}."
        b.vector(blk + "attn_norm.weight", WIDTH)
        if kind == "r":
            b.matrix(blk + "ssm_in.weight", WIDTH, 2 * inner)
            m.tensors.append(Tensor(blk + "ssm_conv1d.weight", [4, inner], 0.0, 1.0))
            b.matrix(blk + "ssm_x.weight", inner, rank + 2 * state)
            b.matrix(blk + "ssm_dt.weight", rank, heads)
            b.vector(blk + "ssm_dt.bias", heads, -1.0, 1.0)
            b.vector(blk + "ssm_a", heads, -0.75, 0.5)
            b.vector(blk + "ssm_d", heads, 1.0, 0.5)
            b.matrix(blk + "ssm_out.weight", inner, WIDTH, 2.0)
            for part, size in (("dt", rank), ("b", state), ("c", state)):
                b.vector(f"{blk}ssm_{part}_norm", size)
        else:
            b.matrix(blk + "attn_qkv.weight", WIDTH, (4 + 2 + 2) * dim, 2.0)
            m.tensors.append(Tensor(blk + "attn_q_norm.weight", [dim, 4], 1.5, 0.5))
            m.tensors.append(Tensor(blk + "attn_k_norm.weight", [dim, 2], 1.5, 0.5))
            b.matrix(blk + "attn_output.weight", 4 * dim, WIDTH, 2.0)
        b.vector(blk + "post_attention_norm", WIDTH)
        b.vector(blk + "ffn_norm.weight", WIDTH)
        b.matrix(blk + "ffn_up.weight", WIDTH, 2 * 96)
        b.matrix(blk + "ffn_down.weight", 96, WIDTH, 2.0)
        b.vector(blk + "post_ffw_norm", WIDTH)
    b.vector("output_norm.weight", WIDTH)
    return m


def minimax_01(name: str, kinds: list[str]) -> TinyModel:
    """"r": lightning attention; "a": attention of which half a head rotates."""
    heads, kv_heads, dim, ffn = 4, 2, 16, 32
    b = Builder(name, "minimax-01", len(kinds), heads=heads, kv_heads=kv_heads, head_dim=dim, ffn=ffn)
    m = b.model
    m.metadata.update({
        "rope.dimension_count": dim // 2, "residual_scale": 3.5, "expert_count": 8, "expert_used_count": 2,
        "attention.recurrent_layers": [kind == "r" for kind in kinds]})
    m.tensors.append(Tensor("token_embd.weight", [WIDTH, VOCAB], 0.0, 0.5))
    inner = heads * dim
    for i, kind in enumerate(kinds):
        blk = f"blk.{i}."
        b.vector(blk + "attn_norm.weight", WIDTH)
        if kind == "r":
            b.matrix(blk + "attn_qkv.weight", WIDTH, 3 * inner, 2.0)
            b.matrix(blk + "attn_gate.weight", WIDTH, inner)
            b.vector(blk + "attn_norm_2.weight", inner)
        else:
            b.matrix(blk + "attn_q.weight", WIDTH, inner, 2.0)
            b.matrix(blk + "attn_k.weight", WIDTH, kv_heads * dim, 2.0)
            b.matrix(blk + "attn_v.weight", WIDTH, kv_heads * dim)
        b.matrix(blk + "attn_output.weight", inner, WIDTH, 2.0)
        b.vector(blk + "ffn_norm.weight", WIDTH)
        b.matrix(blk + "ffn_gate_inp.weight", WIDTH, 8, 2.0)
        b.matrix(blk + "ffn_gate_exps.weight", WIDTH, ffn, 1.0, 8)
        b.matrix(blk + "ffn_up_exps.weight", WIDTH, ffn, 1.0, 8)
        b.matrix(blk + "ffn_down_exps.weight", ffn, WIDTH, 2.0, 8)
    b.vector("output_norm.weight", WIDTH)
    b.matrix("output.weight", WIDTH, VOCAB, 4.0)
    return m


def rwkv7(name: str, layers: int, *, width=128, dim=64, qwen=False, gate=64, normed=True) -> TinyModel:
    """qwen: ARWKV-7, whose norms and feed-forward are Qwen2's. llama.cpp computes heads of 64 only."""
    ffn, ranks = 96, {"w": 32, "a": 16, "v": 32, "g": gate}
    m = TinyModel(name, "arwkv7" if qwen else "rwkv7", {
        "context_length": CONTEXT, "embedding_length": width, "block_count": layers, "feed_forward_length": ffn,
        "attention.head_count": 0, "wkv.head_size": dim, "attention.decay_lora_rank": ranks["w"],
        "attention.iclr_lora_rank": ranks["a"], "attention.value_residual_mix_lora_rank": ranks["v"],
        "attention.gate_lora_rank": gate, "vocab_size": VOCAB})
    m.metadata.update({"attention.layer_norm_rms_epsilon": 1e-5, "token_shift_count": 1} if qwen else
                      {"attention.layer_norm_epsilon": 1e-5})
    b = Builder(name, m.architecture, layers)
    b.model = m

    def norm(name, biased):
        b.vector(f"{name}.weight", width)
        if biased:
            b.vector(f"{name}.bias", width, 0.0, 0.25)

    m.tensors.append(Tensor("token_embd.weight", [width, VOCAB], 0.0, 0.5))
    if not qwen:
        norm("token_embd_norm", True)
    for i in range(layers):
        blk, mix = f"blk.{i}.", f"blk.{i}.time_mix_"
        norm(blk + "attn_norm", not qwen)
        m.tensors.append(Tensor(mix + "lerp_fused.weight", [width, 1, 1, 6 if gate else 5], 0.5, 0.5))
        for part in ("receptance", "key", "value"):
            b.matrix(f"{mix}{part}.weight", width, width, 2.0)
        b.matrix(mix + "output.weight", width, width, 2.0)
        for letter, rank in ranks.items():
            if rank == 0:
                continue
            if letter == "v" and i == 0:
                rank = ranks["a"]  # unused: converters write copies of the rate's
            if letter != "g":
                b.vector(f"{mix}{letter}0.weight", width, 0.0, 1.0)
            b.matrix(f"{mix}{letter}1.weight", width, rank)
            b.matrix(f"{mix}{letter}2.weight", rank, width, 2.0)
        b.vector(mix + "k_k.weight", width, 1.0, 0.5)
        b.vector(mix + "k_a.weight", width, 0.75, 0.5)
        b.vector(mix + "r_k.weight", width, 0.0, 0.25)
        if normed:
            norm(mix + "ln", True)
        if qwen:
            b.vector(blk + "ffn_norm.weight", width)
            b.matrix(blk + "ffn_gate.weight", width, ffn)
            b.matrix(blk + "ffn_up.weight", width, ffn)
            b.matrix(blk + "ffn_down.weight", ffn, width, 2.0)
        else:
            norm(blk + "attn_norm_2", True)
            b.vector(blk + "channel_mix_lerp_k.weight", width, 0.5, 0.5)
            b.matrix(blk + "channel_mix_key.weight", width, ffn)
            b.matrix(blk + "channel_mix_value.weight", ffn, width)
    norm("output_norm", not qwen)
    b.matrix("output.weight", width, VOCAB, 4.0)
    return m


def kimi_linear(name: str, kinds: list[str]) -> TinyModel:
    """"r": Kimi delta attention; "a": latent attention without positions. The first layer is dense."""
    heads, dim, taps, rank, plain, rotated, v_dim = 4, 32, 4, 32, 32, 8, 16
    inner = heads * dim
    b = Builder(name, "kimi-linear", len(kinds), heads=heads)
    m = b.model
    m.metadata.update({
        "attention.head_count_kv": [1 if kind == "a" else 0 for kind in kinds],
        "attention.kv_lora_rank": rank, "attention.key_length": rank + rotated, "attention.value_length": WIDTH // heads,
        "attention.key_length_mla": plain + rotated, "attention.value_length_mla": v_dim,
        "rope.dimension_count": rotated, "ssm.conv_kernel": taps, "kda.head_dim": dim,
        "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32, "expert_shared_count": 1,
        "leading_dense_block_count": 1, "expert_weights_norm": True, "expert_weights_scale": 1.5,
        "expert_gating_func": 2})
    m.tensors.append(Tensor("token_embd.weight", [WIDTH, VOCAB], 0.0, 0.5))
    for i, kind in enumerate(kinds):
        blk = f"blk.{i}."
        b.vector(blk + "attn_norm.weight", WIDTH)
        if kind == "r":
            for part in "qkv":
                b.matrix(f"{blk}attn_{part}.weight", WIDTH, inner)
                m.tensors.append(Tensor(f"{blk}ssm_conv1d_{part}.weight", [taps, 1, inner], 0.0, 1.0))
            b.matrix(blk + "ssm_f_a.weight", WIDTH, dim)
            b.matrix(blk + "ssm_f_b.weight", dim, inner)
            b.matrix(blk + "ssm_beta.weight", WIDTH, heads)
            m.tensors.append(Tensor(blk + "ssm_a", [1, heads], -0.75, 0.5))
            b.vector(blk + "ssm_dt.bias", inner, -1.0, 1.0)
            b.matrix(blk + "ssm_g_a.weight", WIDTH, dim)
            b.matrix(blk + "ssm_g_b.weight", dim, inner)
            b.vector(blk + "ssm_norm.weight", dim)
            b.matrix(blk + "attn_output.weight", inner, WIDTH, 2.0)
        else:
            b.matrix(blk + "attn_q.weight", WIDTH, heads * (plain + rotated), 2.0)
            b.matrix(blk + "attn_kv_a_mqa.weight", WIDTH, rank + rotated, 2.0)
            b.vector(blk + "attn_kv_a_norm.weight", rank)
            b.matrix(blk + "attn_k_b.weight", plain, rank, 1.0, heads)
            b.matrix(blk + "attn_v_b.weight", rank, v_dim, 1.0, heads)
            b.matrix(blk + "attn_output.weight", heads * v_dim, WIDTH, 2.0)
        b.vector(blk + "ffn_norm.weight", WIDTH)
        if i == 0:
            b.matrix(blk + "ffn_gate.weight", WIDTH, b.ffn)
            b.matrix(blk + "ffn_up.weight", WIDTH, b.ffn)
            b.matrix(blk + "ffn_down.weight", b.ffn, WIDTH, 2.0)
            continue
        b.matrix(blk + "ffn_gate_inp.weight", WIDTH, 8, 2.0)
        b.vector(blk + "exp_probs_b.bias", 8, 0.0, 0.25)
        for suffix, count in (("exps", 8), ("shexp", 0)):
            b.matrix(f"{blk}ffn_gate_{suffix}.weight", WIDTH, 32, 1.0, count)
            b.matrix(f"{blk}ffn_up_{suffix}.weight", WIDTH, 32, 1.0, count)
            b.matrix(f"{blk}ffn_down_{suffix}.weight", 32, WIDTH, 2.0, count)
    b.vector("output_norm.weight", WIDTH)
    b.matrix("output.weight", WIDTH, VOCAB, 4.0)
    return m


def with_draft_layer(model: TinyModel, own_head=False) -> TinyModel:
    """The last layer drafts."""
    b = Builder("", "", 0)
    b.model = model
    blk = f"blk.{model.metadata['block_count'] - 1}.nextn."
    model.metadata["nextn_predict_layers"] = 1
    b.matrix(blk + "eh_proj.weight", 2 * WIDTH, WIDTH, 2.0)
    for part in ("enorm", "hnorm") + (() if own_head and model.architecture == "glm4moe" else ("shared_head_norm",)):
        b.vector(f"{blk}{part}.weight", WIDTH)
    if own_head:
        model.tensors.append(Tensor(blk + "embed_tokens.weight", [WIDTH, VOCAB], 0.0, 1.0))
        b.matrix(blk + "shared_head_head.weight", WIDTH, VOCAB, 4.0)
    return model


def recurrent_models() -> list[TinyModel]:
    delta = scan_sizes(heads=4, groups=2, state=32, inner=128)
    ssd = scan_sizes(heads=4, groups=2, state=16, inner=128)
    channels = {key: value for key, value in scan_sizes(heads=8, groups=1, state=16, inner=128).items()
                if key != "ssm.group_count"}
    no_heads = {"attention.head_count": 0, "feed_forward_length": 0}
    qwen = {**delta, "attention.key_length": 32, "attention.value_length": 32, "rope.dimension_count": 16,
            "full_attention_interval": 3}
    experts = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32}
    gated = dict(kind="gated_delta", ffn_norm="post_attention_norm", head_dim=32, qk_norm=True, gate_in_q=True)
    qwen_layers = ["r", "r", "a", "r"]
    every = range(4)

    def kv_heads(layers: list[str]) -> dict:
        return {"attention.head_count_kv": [2 if "a" in layer else 0 for layer in layers]}

    lfm, jamba, granite = ["r", "a", "r", "r", "a"], ["r", "r", "a", "r"], ["r", "r", "a", "r"]
    models = [
        hybrid("qwen35", "qwen35", qwen_layers, {**qwen, "rope.dimension_sections": [3, 3, 2, 0]}, **gated),
        hybrid("qwen35moe", "qwen35moe", qwen_layers, {
            **qwen, **experts, "expert_shared_feed_forward_length": 64, "rope.dimension_sections": [3, 3, 2, 0]},
            experts=every, shared_ffn=64, shared_gate=True, **gated),
        hybrid("qwen3next", "qwen3next", qwen_layers, {
            **qwen, **experts, "expert_shared_feed_forward_length": 64},
            experts=every, shared_ffn=64, shared_gate=True, **gated),
        with_draft_layer(hybrid("qwen35_nextn", "qwen35", [*qwen_layers, "a"], {
            **qwen, "rope.dimension_sections": [3, 3, 2, 0]}, **gated)),
        with_draft_layer(hybrid("qwen35moe_nextn", "qwen35moe", [*qwen_layers, "a"], {
            **qwen, **experts, "expert_shared_feed_forward_length": 64, "rope.dimension_sections": [3, 3, 2, 0]},
            experts=range(5), shared_ffn=64, shared_gate=True, **gated)),
        with_draft_layer(hybrid("qwen3next_nextn", "qwen3next", [*qwen_layers, "a"], {
            **qwen, **experts, "expert_shared_feed_forward_length": 64},
            experts=range(5), shared_ffn=64, shared_gate=True, **gated)),
        hybrid("mamba", "mamba", ["r", "r", "r"], {**channels, **no_heads}, kind="mamba", ffn=0),
        hybrid("mamba2", "mamba2", ["r", "r", "r"], {**ssd, **no_heads}, kind="mamba2", ffn=0),
        hybrid("jamba", "jamba", jamba, {**channels, **kv_heads(jamba), "expert_count": 8, "expert_used_count": 2},
               kind="mamba", experts=(1, 3), expert_ffn=96),
        hybrid("falcon_h1", "falcon-h1", ["ra", "ra"], ssd, kind="mamba2"),
        hybrid("granitehybrid", "granitehybrid", granite, {
            **ssd, **kv_heads(granite), "embedding_scale": 4.0, "residual_scale": 0.375, "logit_scale": 0.5,
            "attention.scale": 0.15625, "rope.scaling.finetuned": False}, kind="mamba2", embedding=0.25, tied=False),
        hybrid("granitehybrid_moe", "granitehybrid", granite, {
            **ssd, **kv_heads(granite), "embedding_scale": 4.0, "residual_scale": 0.375, "logit_scale": 0.5,
            "attention.scale": 0.15625, "expert_count": 8, "expert_used_count": 2,
            "expert_shared_feed_forward_length": 64}, kind="mamba2", experts=every, shared_ffn=64, expert_ffn=32,
            ffn=32, embedding=0.25, tied=False),
        hybrid("lfm2", "lfm2", lfm, {"shortconv.l_cache": 3, **kv_heads(lfm)}, kind="short_conv", qk_norm=True,
               output_norm="token_embd_norm"),
        hybrid("lfm2moe", "lfm2moe", lfm, {
            "shortconv.l_cache": 3, **kv_heads(lfm), **experts, "expert_gating_func": 2,
            "leading_dense_block_count": 2}, kind="short_conv", qk_norm=True, experts=(2, 3, 4), selection_bias=0.25,
            output_norm="token_embd_norm"),
    ]
    nemotron = ["r", "f", "a", "r", "f"]
    parts = {**ssd, **kv_heads(nemotron), "attention.layer_norm_epsilon": 1e-5, "feed_forward_length": [96 if p == "f" else 0 for p in nemotron]}
    models += [
        hybrid("nemotron_h", "nemotron_h", nemotron, parts, kind="mamba2", ungated=True),
        hybrid("nemotron_h_moe", "nemotron_h_moe", nemotron, {
            **parts, **experts, "expert_shared_feed_forward_length": 64, "expert_shared_count": 1,
            "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_group_count": 1,
            "expert_group_used_count": 1}, kind="mamba2", ungated=True, experts=(1, 4), shared_ffn=64,
            selection_bias=0.25),
    ]
    models.append(plamo2("plamo2", ["r", "a", "r", "r"]))
    models.append(kimi_linear("kimi_linear", ["r", "r", "a", "r"]))
    models.append(minimax_01("minimax_01", ["r", "r", "a", "r", "a"]))
    models.append(rwkv7("rwkv7", 3))
    models.append(rwkv7("arwkv7", 3, qwen=True))
    models.append(rwkv7("arwkv7_plain", 3, width=WIDTH, dim=16, qwen=True, gate=0, normed=False))
    for model in models:
        if model.architecture in ("mamba", "mamba2"):
            for key in ("attention.head_count_kv", "rope.dimension_count", "rope.freq_base"):
                model.metadata.pop(key)
    return models


def all_models() -> list[TinyModel]:
    window = {"attention.sliding_window": 20}

    def with_keys(builder: Builder, keys: dict) -> Builder:
        builder.model.metadata.update(keys)
        return builder

    scales = {"embedding_scale": 4.0, "residual_scale": 0.375, "logit_scale": 0.5, "attention.scale": 0.15625}
    experts = {"expert_count": 8, "expert_used_count": 2}
    gemma = {"tied": True, "embedding": 0.125}
    latent = {"kv_rank": 32, "rotated": 8, "head_dim": 40, "v_dim": 16}
    latent_keys = {"attention.kv_lora_rank": 32, "attention.key_length": 40, "attention.value_length": 32,
                   "attention.key_length_mla": 40, "attention.value_length_mla": 16, "rope.dimension_count": 8}
    deepseek_keys = {**experts, **latent_keys, "expert_feed_forward_length": 32, "expert_shared_count": 2,
                     "leading_dense_block_count": 1, "expert_weights_norm": False, "expert_weights_scale": 1.0}

    def glm4moe(name: str, layers: int) -> TinyModel:
        return with_keys(Builder(name, "glm4moe", layers), {
            **experts, "rope.dimension_count": 8, "expert_feed_forward_length": 32, "expert_shared_count": 2,
            "leading_dense_block_count": 1, "expert_weights_norm": True, "expert_weights_scale": 1.5,
            "expert_gating_func": 2}).build(
                qk_norm="heads", experts=8, expert_ffn=32, shared_ffn=64, selection_bias=0.5, dense=1,
                ffn_norm="post_attention_norm")

    def deepseek3(name: str, layers: int) -> TinyModel:
        return with_keys(Builder(name, "deepseek2", layers, kv_heads=1), {
            **experts, **latent_keys, "attention.q_lora_rank": 32, "expert_feed_forward_length": 32,
            "expert_shared_count": 1, "leading_dense_block_count": 1, "expert_weights_norm": True,
            "expert_weights_scale": 2.5, "expert_gating_func": 2, "expert_group_count": 4,
            "expert_group_used_count": 2}).build(
                experts=8, expert_ffn=32, shared_ffn=32, dense=1, selection_bias=0.25,
                latent={**latent, "q_rank": 32})

    return [
        Builder("llama", "llama", 2).build(),
        Builder("qwen2", "qwen2", 2, rope__freq_base=1000000.0).build(biases=True),
        Builder("qwen3", "qwen3", 2, head_dim=32, rope__freq_base=1000000.0).build(
            qk_norm="heads", qk_gain=1.0, tied=True, embedding=0.5),
        Builder("gemma", "gemma", 2, kv_heads=1, head_dim=32).build(**gemma),
        with_keys(Builder("gemma2", "gemma2", 4, head_dim=32),
                  {**window, "attn_logit_softcapping": 4.0, "final_logit_softcapping": 8.0}).build(
                      norm_last=True, **gemma),
        with_keys(Builder("gemma3", "gemma3", 7, head_dim=32, rope__freq_base=1000000.0),
                  {**window, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}).build(
                      norm_last=True, qk_norm="heads", **gemma),
        gemma3n("gemma3n", [True, False, True, True, False, True, False], 7, 2, 3, per_layer=32, rank=32),
        gemma4("gemma4", pattern=[True, False, True, False, True, True, False], shared=3, per_layer=32, wide_ffn=True),
        gemma4("gemma4_moe", pattern=[True, True, False], kv_heads=(2, 1), v_is_k=True, experts=8),
        phi3("phi3_long", 1024, 1),
        phi3("phi3_short", 512, 1),
        with_keys(Builder("granite", "granite", 2), scales).build(embedding=0.25),
        Builder("smollm3", "smollm3", 5, kv_heads=1).build(),
        Builder("olmo2", "olmo2", 2).build(norm_first=False, norm_last=True, qk_norm="width"),
        with_keys(Builder("olmo3", "olmo2", 5), {
            **window, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64}).build(norm_first=False, norm_last=True, qk_norm="width"),
        with_keys(Builder("mixtral", "llama", 2), {"expert_count": 4, "expert_used_count": 2}).build(
            experts=4, expert_ffn=96),
        with_keys(Builder("qwen3moe", "qwen3moe", 2, head_dim=32),
                  {**experts, "expert_feed_forward_length": 32}).build(
                      qk_norm="heads", experts=8, expert_ffn=32),
        with_keys(Builder("olmoe", "olmoe", 2, kv_heads=4, ffn=32), experts).build(
            qk_norm="width", experts=8, expert_ffn=32),
        with_keys(Builder("granitemoe", "granitemoe", 2, ffn=32),
                  {**experts, **scales, "expert_shared_feed_forward_length": 64}).build(
                      experts=8, expert_ffn=32, shared_ffn=64, embedding=0.25),
        # Its base makes the range of blended pairs the whole head, rounded or not.
        with_keys(Builder("gpt_oss", "gpt-oss", 4, rope__freq_base=2.0), {
            **experts, **window, "expert_feed_forward_length": 32, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}).build(
                biases=True, sinks=True, experts=8, expert_ffn=32, expert_biases=True,
                ffn_norm="post_attention_norm"),
        with_keys(Builder("glm4", "glm4", 2), {"rope.dimension_count": 8}).build(
            norm_last=True, biases=True, fused_ffn=True),
        glm4moe("glm4moe", 3),
        with_draft_layer(glm4moe("glm4moe_nextn", 4), own_head=True),
        with_keys(Builder("qwen2moe", "qwen2moe", 2), {
            **experts, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64}).build(
                biases=True, experts=8, expert_ffn=32, shared_ffn=64, shared_gate=True),
        Builder("ernie4_5", "ernie4_5", 2).build(tied=True, embedding=0.5),
        with_keys(Builder("ernie4_5_moe", "ernie4_5-moe", 3), {
            **experts, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64,
            "leading_dense_block_count": 1, "interleave_moe_layer_step": 1}).build(
                experts=8, expert_ffn=32, shared_ffn=64, selection_bias=0.25, dense=1),
        Builder("seed_oss", "seed_oss", 2, head_dim=32).build(biases=True, ffn_norm="post_attention_norm"),
        Builder("exaone4", "exaone4", 2).build(norm_first=False, norm_last=True, qk_norm="heads"),
        with_keys(Builder("exaone4_window", "exaone4", 5), window).build(
            norm_first=False, norm_last=True, qk_norm="heads"),
        Builder("hunyuan", "hunyuan-dense", 2).build(qk_norm="heads", tied=True, embedding=0.5),
        Builder("internlm2", "internlm2", 2).build(),
        with_keys(Builder("minimax_m2", "minimax-m2", 2, ffn=32), {
            **experts, "rope.dimension_count": 8, "expert_feed_forward_length": 32,
            "expert_gating_func": 2}).build(
                qk_norm="width", experts=8, expert_ffn=32, selection_bias=0.5),
        with_keys(Builder("deepseek2_lite", "deepseek2", 2, kv_heads=1), deepseek_keys).build(
            experts=8, expert_ffn=32, shared_ffn=64, dense=1, latent=latent),
        with_keys(Builder("deepseek2", "deepseek2", 3, kv_heads=1), {
            **deepseek_keys, "attention.q_lora_rank": 32, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64, "rope.scaling.yarn_log_multiplier": 0.0707}).build(
                experts=8, expert_ffn=32, shared_ffn=64, dense=1, latent={**latent, "q_rank": 32}),
        deepseek3("deepseek3", 3),
        with_draft_layer(deepseek3("deepseek3_nextn", 4), own_head=True),
        # Queries grow within the recorded text: at 16, 32, 48 and 64 positions.
        with_keys(Builder("mistral4", "mistral4", 3, kv_heads=1), {
            **experts, **latent_keys, "attention.q_lora_rank": 32, "expert_feed_forward_length": 32,
            "expert_shared_count": 1, "leading_dense_block_count": 0, "expert_weights_norm": True,
            "expert_weights_scale": 1.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64, "rope.scaling.yarn_log_multiplier": 0.1,
            "attention.temperature_scale": 0.25, "attention.temperature_length": 16}).build(
                experts=8, expert_ffn=32, shared_ffn=32, joined_experts=True, latent={**latent, "q_rank": 32}),
        layer_norms(with_keys(Builder("cohere2", "cohere2", 5), {
            **window, "logit_scale": 0.25, "rope.scaling.type": "none"})).build(
                tied=True, embedding=1.0, ffn_norm=""),
        layer_norms(Builder("starcoder2", "starcoder2", 2, rope__freq_base=100000.0)).build(
            biases=True, norm_biases=True, ffn_biases=True, gated=False),
        with_keys(Builder("mistral3", "mistral3", 2, head_dim=32), {
            "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16,
            "rope.scaling.yarn_log_multiplier": 0.5, "attention.temperature_scale": 0.25}).build(),
        # The fourth layer has no part at all.
        deci("deci", [4, 0, 4, 0, 4], [2, 0, 0, 0, 1], [96, 96, 160, 0, 64]),
        deci("deci_no_ffn", [4, 4, 4], [2, 2, 0], [96, 0, 0]),
        with_keys(Builder("muse_glimmer", "muse-glimmer", 5, head_dim=32, rope__freq_base=500000.0), {
            **window, "attention.sliding_window_pattern": [True, True, False, True, True],
            "logit_scale": 0.5, "final_logit_softcapping": 10.0}).build(
                norm_last=True, qk_norm="heads", attn_gate=True),
        *recurrent_models(),
    ]
