"""Writes NAME.json of every tiny DFlash drafter: how to make its file, and what the reference drafts.

usage: record.py [NAME...]   (needs numpy and torch; ../families/README.md describes the models)

The target is a tiny model of ../families. The reference is PyTorch in float64, all positions at
once, written from the description of DFlash: block diffusion for flash speculative decoding.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "families"))

from drafters import EPS, TinyDrafter, read_target, recording, rows_before_layers, write_recordings  # noqa: E402
from reference import Reference, reference, rms_norm, rotate, silu  # noqa: E402
from tiny_models import VOCAB, Tensor, TinyModel  # noqa: E402

DRAFTS = 5
MASK = 3


@dataclass
class Drafter:
    name: str
    target: str
    layers: list[int]  # of the target, whose input rows are used
    depth: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 96
    own_ends: bool = False  # embedding and output
    causal: bool = False
    factors: bool = False  # of the embedding, attention and logits


DRAFTERS = [
    Drafter("llama", "llama", [0, 1, 2]),
    Drafter("qwen35", "qwen35", [0, 2, 3]),
    Drafter("qwen3_own_ends", "qwen3", [0, 1], depth=1, heads=3, kv_heads=1, head_dim=32, own_ends=True, factors=True),
    Drafter("qwen35_causal", "qwen35", [1, 1, 2, 3], causal=True),
]


def tiny_drafter(d: Drafter, target: TinyModel) -> TinyDrafter:
    width = target.metadata["embedding_length"]
    metadata = {"block_size": DRAFTS + 1, "attention.causal": d.causal}
    if d.factors:
        metadata |= {"embedding_scale": 2.0, "attention.scale": 0.25, "logit_scale": 0.5, "final_logit_softcapping": 8.0}
    model = TinyDrafter("dflash", d, width, d.depth, metadata, seed=9)
    matrix, vector = model.matrix, model.vector
    matrix("fc.weight", len(d.layers) * width, width)
    vector("enc.output_norm.weight", width)
    for i in range(d.depth):
        vector(f"blk.{i}.attn_norm.weight", width)
        matrix(f"blk.{i}.attn_q.weight", width, d.heads * d.head_dim, 2.0)
        matrix(f"blk.{i}.attn_k.weight", width, d.kv_heads * d.head_dim, 2.0)
        matrix(f"blk.{i}.attn_v.weight", width, d.kv_heads * d.head_dim)
        vector(f"blk.{i}.attn_q_norm.weight", d.head_dim)
        vector(f"blk.{i}.attn_k_norm.weight", d.head_dim)
        matrix(f"blk.{i}.attn_output.weight", d.heads * d.head_dim, width, 2.0)
        vector(f"blk.{i}.ffn_norm.weight", width)
        matrix(f"blk.{i}.ffn_gate.weight", width, d.ffn)
        matrix(f"blk.{i}.ffn_up.weight", width, d.ffn)
        matrix(f"blk.{i}.ffn_down.weight", d.ffn, width, 2.0)
    vector("output_norm.weight", width)
    if d.own_ends:
        model.tensors.append(Tensor("token_embd.weight", [width, VOCAB], 0.0, 1.0))
        matrix("output.weight", width, VOCAB, 4.0)
    return model


class Runner:
    def __init__(self, drafter: Drafter, model: TinyDrafter, target: Reference):
        self.d, self.target, self.w = drafter, target, model.weights()

    def features(self, ids: list[int]) -> torch.Tensor:
        f = rows_before_layers(self.target, ids, self.d.layers)
        return rms_norm(f @ self.w["fc.weight"].T, self.w["enc.output_norm.weight"], EPS)

    def rotated(self, x: torch.Tensor, norm: str, first: int) -> torch.Tensor:
        dim = self.d.head_dim
        frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        padded = torch.cat([torch.zeros(first, *x.shape[1:], dtype=x.dtype), rms_norm(x, self.w[norm], EPS)])
        return rotate(padded, frequencies, True)[first:]

    def attention(self, i: int, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        d, known, block = self.d, g.shape[0], x.shape[0]
        part = lambda rows, n, count: (rows @ self.w[f"blk.{i}.attn_{n}.weight"].T).view(-1, count, d.head_dim)
        rows = torch.cat([g, x])
        q = self.rotated(part(x, "q", d.heads), f"blk.{i}.attn_q_norm.weight", known)
        k = self.rotated(part(rows, "k", d.kv_heads), f"blk.{i}.attn_k_norm.weight", 0)
        k, v = (y.repeat_interleave(d.heads // d.kv_heads, 1) for y in (k, part(rows, "v", d.kv_heads)))
        scores = torch.einsum("qhd,khd->hqk", q, k) * (0.25 if d.factors else 1 / math.sqrt(d.head_dim))
        if d.causal:
            later = known + torch.arange(block)[:, None] < torch.arange(known + block)[None, :]
            scores = scores.masked_fill(later, -math.inf)
        out = torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), v).reshape(block, -1)
        return out @ self.w[f"blk.{i}.attn_output.weight"].T

    def drafts(self, ids: list[int]) -> list[torch.Tensor]:
        """The logits of the tokens after `ids`."""
        w = self.w
        g = self.features(ids[:-1])
        embedding = w.get("token_embd.weight", self.target.w["token_embd.weight"])
        x = embedding[torch.tensor([ids[-1]] + DRAFTS * [MASK])] * (2.0 if self.d.factors else 1.0)
        for i in range(self.d.depth):
            x = x + self.attention(i, g, rms_norm(x, w[f"blk.{i}.attn_norm.weight"], EPS))
            h = rms_norm(x, w[f"blk.{i}.ffn_norm.weight"], EPS)
            gated = silu(h @ w[f"blk.{i}.ffn_gate.weight"].T) * (h @ w[f"blk.{i}.ffn_up.weight"].T)
            x = x + gated @ w[f"blk.{i}.ffn_down.weight"].T
        output = w.get("output.weight", self.target.w.get("output.weight", self.target.w["token_embd.weight"]))
        logits = rms_norm(x[1:], w["output_norm.weight"], EPS) @ output.T
        return list(8.0 * torch.tanh(0.5 * logits / 8.0)) if self.d.factors else list(logits)


def record(drafter: Drafter) -> dict:
    family, target = read_target(drafter.target)
    model = tiny_drafter(drafter, target)
    runner = Runner(drafter, model, reference(target))
    ids = family["prompt"] + family["greedy"]
    drafts = {}
    for size in (2, len(family["prompt"]) + 1, len(ids) - 1):
        logits = runner.drafts(ids[:size])
        drafts[size] = [int(row.argmax()) for row in logits], logits
    metadata = model.full_metadata() | {"tokenizer.ggml.mask_token_id": MASK}
    return recording(model, drafter.target, [], metadata, drafts)


if __name__ == "__main__":
    write_recordings(HERE, __doc__, DRAFTERS, record)
