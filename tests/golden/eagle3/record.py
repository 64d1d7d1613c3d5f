"""Writes NAME.json of every tiny EAGLE-3 head: how to make its file, and what the reference drafts.

usage: record.py [NAME...]   (needs numpy and torch; ../families/README.md describes the models)

The target is a tiny model of ../families. The reference is PyTorch in float64, all positions at
once, written from the paper (Li et al. 2025, section 3).
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
from record import DRAFTS  # noqa: E402
from reference import Reference, reference, rms_norm, rotate, silu  # noqa: E402
from tiny_models import VOCAB, Tensor, TinyModel  # noqa: E402


@dataclass
class Head:
    name: str
    target: str
    layers: list[int]  # of the target, whose input rows are used
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 96
    own_embedding: bool = False
    own_output: bool = True
    tokens: list[int] | None = None  # that are drafted
    norm_before_residual: bool = False
    norm_before_fc: bool = False


HEADS = [
    Head("llama", "llama", [0, 1, 2]),
    Head("qwen3_other_width", "qwen3", [1, 0, 1], width=96, heads=3, kv_heads=1, head_dim=32, own_embedding=True,
         tokens=[*range(0, VOCAB, 3)], norm_before_residual=True, norm_before_fc=True),
    Head("qwen35_shared_output", "qwen35", [1, 2, 3], own_output=False),
]


def tiny_head(head: Head, target: TinyModel) -> TinyDrafter:
    target_width, width = target.metadata["embedding_length"], head.width
    model = TinyDrafter("eagle3", head, width, 1, {
        "target_hidden_size": target_width,
        "norm_before_residual": head.norm_before_residual,
        "norm_before_fc": head.norm_before_fc,
    }, seed=7)
    matrix, vector = model.matrix, model.vector
    matrix("fc.weight", 3 * target_width, width)
    if head.norm_before_fc:
        vector("enc.output_norm.weight", 3 * target_width)
    vector("blk.0.attn_norm.weight", width)
    vector("blk.0.attn_norm_2.weight", width)
    matrix("blk.0.attn_q.weight", 2 * width, head.heads * head.head_dim, 2.0)
    matrix("blk.0.attn_k.weight", 2 * width, head.kv_heads * head.head_dim, 2.0)
    matrix("blk.0.attn_v.weight", 2 * width, head.kv_heads * head.head_dim)
    matrix("blk.0.attn_output.weight", head.heads * head.head_dim, width, 2.0)
    vector("blk.0.ffn_norm.weight", width)
    matrix("blk.0.ffn_gate.weight", width, head.ffn)
    matrix("blk.0.ffn_up.weight", width, head.ffn)
    matrix("blk.0.ffn_down.weight", head.ffn, width, 2.0)
    vector("output_norm.weight", width)
    if head.own_output:
        matrix("output.weight", width, len(head.tokens) if head.tokens else VOCAB, 4.0)
    if head.own_embedding:
        model.tensors.append(Tensor("token_embd.weight", [width, VOCAB], 0.0, 1.0))
    return model


class Drafter:
    def __init__(self, head: Head, model: TinyDrafter, target: Reference):
        self.head, self.target, self.w = head, target, model.weights()

    def fused(self, ids: list[int]) -> torch.Tensor:
        f = rows_before_layers(self.target, ids, self.head.layers)
        if self.head.norm_before_fc:
            f = rms_norm(f, self.w["enc.output_norm.weight"], EPS)
        return f @ self.w["fc.weight"].T

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        h, tokens = self.head, x.shape[0]
        frequencies = 10000.0 ** (-torch.arange(0, h.head_dim, 2, dtype=torch.float64) / h.head_dim)
        part = lambda n, count: (x @ self.w[f"blk.0.attn_{n}.weight"].T).view(tokens, count, h.head_dim)
        q, k = (rotate(part(n, count), frequencies, False) for n, count in (("q", h.heads), ("k", h.kv_heads)))
        k, v = (y.repeat_interleave(h.heads // h.kv_heads, 1) for y in (k, part("v", h.kv_heads)))
        later = torch.arange(tokens)[:, None] < torch.arange(tokens)[None, :]
        scores = (torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(h.head_dim)).masked_fill(later, -math.inf)
        out = torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), v).reshape(tokens, -1)
        return out @ self.w["blk.0.attn_output.weight"].T

    def layer(self, ids: list[int], before: torch.Tensor) -> torch.Tensor:
        w = self.w
        embedding = w.get("token_embd.weight", self.target.w["token_embd.weight"])[torch.tensor(ids)]
        normed = rms_norm(before, w["blk.0.attn_norm_2.weight"], EPS)
        pair = torch.cat([rms_norm(embedding, w["blk.0.attn_norm.weight"], EPS), normed], -1)
        x = (normed if self.head.norm_before_residual else before) + self.attention(pair)
        h = rms_norm(x, w["blk.0.ffn_norm.weight"], EPS)
        return x + (silu(h @ w["blk.0.ffn_gate.weight"].T) * (h @ w["blk.0.ffn_up.weight"].T)) @ w[
            "blk.0.ffn_down.weight"].T

    def drafts(self, ids: list[int], count: int, published: bool) -> tuple[list[int], list[torch.Tensor]]:
        """The drafts after `ids`, each taken as right, and their logits.

        Published code leaves out the first token, which has no row before it; here zeros stand for the row.
        """
        ids, tokens, logits = list(ids), [], []
        fused = self.fused(ids[:-1])
        before = torch.cat([torch.zeros_like(fused[:1]), fused])
        first = 1 if published else 0
        output = self.w.get("output.weight", self.target.w.get("output.weight", self.target.w["token_embd.weight"]))
        for _ in range(count):
            own = self.layer(ids[first:], before[first:])[-1:]
            logits.append((rms_norm(own, self.w["output_norm.weight"], EPS) @ output.T)[0])
            best = int(logits[-1].argmax())
            tokens.append(self.head.tokens[best] if self.head.tokens else best)
            ids.append(tokens[-1])
            before = torch.cat([before, own])
        return tokens, logits


def record(head: Head) -> dict:
    family, target = read_target(head.target)
    model = tiny_head(head, target)
    drafter = Drafter(head, model, reference(target))
    ids = family["prompt"] + family["greedy"]
    drafts = {}
    for size in (2, len(family["prompt"]) + 1, len(ids) - 1):
        drafts[size] = tokens, logits = drafter.drafts(ids[:size], DRAFTS, published=False)
        _, other = drafter.drafts(ids[:size], 1, published=True)
        apart = (other[0] - logits[0]).abs().max() / logits[0].abs().max()
        print(f"{head.name} after {size}: without the first token's pair, {float(apart):.3f} of the largest logit away")
    return recording(model, head.target, head.tokens or [], model.full_metadata(), drafts)


if __name__ == "__main__":
    write_recordings(HERE, __doc__, HEADS, record)
