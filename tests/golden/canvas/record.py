"""Writes NAME.json of tiny models that denoise: how to make their files, and every pass of their canvases.

usage: record.py [--gguf-dir DIR] [NAME...]   (DIR: also writes the files, for llama.cpp)

The models are random, in float64 (../families). The passes are those of the published code of LLaDA
(generate.py) and Dream (generation_utils.py), written anew here, with two differences: random numbers are the
addressed noise of kernels/ops/draw.h, and the mask token has no share in any distribution.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "families"))

from gguf_file import write_gguf  # noqa: E402
from record import dump, prompt_of  # noqa: E402
from reference import Llama, Qwen2, Qwen3  # noqa: E402
from tiny_models import MASK as BITS, VOCAB, Builder, TinyModel  # noqa: E402

MASK_TOKEN = VOCAB - 2
PROMPT = 16
LEAST_GAP = 1e-3  # between what is chosen and what is not, so that float32 chooses the same


# ---- Noise (kernels/ops/draw.h) ----


def mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & BITS
    return x ^ (x >> 31)


def noise_bits(seed: int, sample: int, position: int, token: int) -> int:
    return mix(mix(mix(mix(seed) ^ sample) ^ position) ^ token)


def uniform(bits: int) -> float:
    return ((bits >> 12) + 0.5) * 2.0**-52


def gumbel(seed: int, position: int) -> torch.Tensor:
    row = [-math.log(-math.log(uniform(noise_bits(seed, 0, position, token)))) for token in range(VOCAB)]
    return torch.tensor(row, dtype=torch.float64)


# ---- Models ----


class ToAll:
    """Every token attends to the whole sequence."""

    def attention(self, blk, x, layer):
        tokens = x.shape[0]
        q, k, v = self.qkv(blk, x)
        q = q.view(tokens, self.heads, self.head_dim)
        k = k.view(tokens, self.kv_heads, self.head_dim)
        v = v.view(tokens, self.kv_heads, self.head_dim)
        if self.qk_norm == "heads":
            q, k = self.norm(q, blk + "attn_q_norm.weight"), self.norm(k, blk + "attn_k_norm.weight")
        q, k = self.rotated(q, layer), self.rotated(k, layer)
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        shares = torch.softmax(torch.einsum("qhd,khd->hqk", q, k) * self.scale, -1)
        out = torch.einsum("hqk,khd->qhd", shares, v).reshape(tokens, -1)
        return out @ self.w[blk + "attn_output.weight"].T


class Llada(ToAll, Llama):
    pass


class LladaMoe(ToAll, Qwen3):
    """Shares of the softmax over all experts, as they are."""

    def feed_forward(self, blk, x):
        shares = torch.softmax(x @ self.w[blk + "ffn_gate_inp.weight"].T, -1)
        used = torch.topk(shares, self.m["expert_used_count"], -1)
        out = torch.zeros_like(x)
        for t in range(x.shape[0]):
            for share, e in zip(used.values[t], used.indices[t]):
                gate = self.w[blk + "ffn_gate_exps.weight"][e] @ x[t]
                up = self.w[blk + "ffn_up_exps.weight"][e] @ x[t]
                out[t] += share * (self.w[blk + "ffn_down_exps.weight"][e] @ (self.activation(gate) * up))
        return out


class Dream(ToAll, Qwen2):
    pass


def tiny_models() -> list[tuple[TinyModel, type]]:
    keys = {"attention.causal": False}

    def made(builder: Builder, more: dict | None = None) -> Builder:
        builder.model.metadata.update({**keys, **(more or {})})
        return builder

    return [
        (made(Builder("llada", "llada", 2, kv_heads=4)).build(), Llada),
        (made(Builder("llada_moe", "llada-moe", 2, kv_heads=4, ffn=32),
              {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32}).build(
                  qk_norm="heads", experts=8, expert_ffn=32), LladaMoe),
        (made(Builder("dream", "dream", 2, rope__freq_base=1000000.0)).build(biases=True), Dream),
    ]


# ---- The passes ----


class Close(Exception):
    """A choice that float32 might make otherwise."""


def pick(scores: torch.Tensor) -> int:
    best = torch.topk(scores, 2)
    if best.values[0] - best.values[1] < LEAST_GAP:
        raise Close
    return int(best.indices[0])


def top(ranks: list[float], count: int) -> list[int]:
    order = sorted(range(len(ranks)), key=lambda i: -ranks[i])
    if 0 < count < len(order):
        gap = ranks[order[count - 1]] - ranks[order[count]]
        if 0 < gap < LEAST_GAP / 10:  # equal ones, of distributions of a single token, are equal anywhere
            raise Close
    return order[:count]


def rank(p: torch.Tensor, token: int, rule: str) -> float:
    if rule == "entropy":
        return float((p[p > 0] * torch.log(p[p > 0])).sum())
    if rule == "margin":
        best = torch.topk(p, 2).values
        return float(best[0] - best[1])
    return float(p[token])


def unmasked(logits: torch.Tensor) -> torch.Tensor:
    logits = logits.clone()
    logits[:, MASK_TOKEN] = -math.inf
    return logits


def llada_passes(net, prompt: list[int], case: dict) -> list[list[int]]:
    x = prompt + [MASK_TOKEN] * case["length"]
    blocks = case["length"] // case["block_length"]
    steps = case["steps"] // blocks
    passes = []
    for block in range(blocks):
        begin = len(prompt) + block * case["block_length"]
        base, more = divmod(case["block_length"], steps)
        for step in range(steps):
            count = base + (step < more)
            seed = noise_bits(case["seed"], 0, block * steps + step, MASK_TOKEN)
            logits = unmasked(net.forward(x))
            places = [i for i in range(begin, begin + case["block_length"]) if x[i] == MASK_TOKEN]
            x0, confidence = {}, []
            for i in places:
                scores = logits[i]
                if case["temperature"] > 0:
                    scores = scores + case["temperature"] * gumbel(seed, i)
                x0[i] = pick(scores)
                p = torch.softmax(logits[i], -1)
                confidence.append(uniform(noise_bits(seed, 0, i, MASK_TOKEN)) if case["remasking"] == "random"
                                  else rank(p, x0[i], case["remasking"]))
            for at in top(confidence, count):
                x[places[at]] = x0[places[at]]
            if count > 0:
                passes.append(x[len(prompt):])
    return passes


def filtered(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    values, order = torch.sort(logits, descending=True)
    total = torch.cumsum(torch.softmax(values, -1), -1)
    if float((total - top_p).abs().min()) < LEAST_GAP / 50:
        raise Close
    removed = total > top_p
    removed[1:] = removed[:-1].clone()
    removed[0] = False
    out = logits.clone()
    out[order[removed]] = -math.inf
    return out


def dream_passes(net, prompt: list[int], case: dict) -> list[list[int]]:
    x = prompt + [MASK_TOKEN] * case["length"]
    steps, eps, passes = case["steps"], 1e-3, []
    time = lambda i: 1 - i / steps * (1 - eps)
    for step in range(steps):
        share = 1 - time(step + 1) / time(step) if step < steps - 1 else 1
        seed = noise_bits(case["seed"], 0, step, MASK_TOKEN)
        logits = net.forward(x)
        logits = unmasked(torch.cat([logits[:1], logits[:-1]]))
        places = [i for i in range(len(x)) if x[i] == MASK_TOKEN]
        chosen = places
        if case["remasking"] == "origin":
            chosen = [i for i in places if uniform(noise_bits(seed, 0, i, MASK_TOKEN)) < share]
        x0, ranks = {}, []
        for i in chosen:
            row = logits[i] / case["temperature"] if case["temperature"] > 0 else logits[i]
            if case["top_p"] < 1:
                row = filtered(row, case["top_p"])
            p = torch.softmax(row, -1)
            scores = torch.log(p)
            if case["temperature"] > 0:
                scores = scores + gumbel(seed, i)
            x0[i] = pick(scores)
            ranks.append(rank(p, x0[i], case["remasking"]))
        if case["remasking"] != "origin":
            chosen = [chosen[at] for at in top(ranks, int(len(places) * share))]
        for i in chosen:
            x[i] = x0[i]
        if chosen:
            passes.append(x[len(prompt):])
    return passes


def cases(dream: bool) -> list[dict]:
    even = dict(length=24, top_p=1.0)
    whole = dict(length=24, block_length=24)
    if dream:
        return [dict(remasking=rule, steps=steps, temperature=temperature, top_p=top_p, **whole)
                for rule, steps, temperature, top_p in (
                    ("confidence", 24, 0.0, 1.0), ("entropy", 12, 0.0, 1.0), ("margin", 8, 0.0, 1.0),
                    ("origin", 6, 0.0, 1.0), ("entropy", 12, 0.75, 1.0), ("confidence", 4, 1.0, 0.875),
                    ("margin", 4, 0.5, 0.75))]
    return [dict(remasking=rule, steps=steps, block_length=block, temperature=temperature, **even)
            for rule, steps, block, temperature in (
                ("confidence", 24, 24, 0.0), ("confidence", 24, 8, 0.0), ("confidence", 15, 8, 0.0),
                ("random", 6, 8, 0.0), ("confidence", 12, 12, 0.75), ("entropy", 6, 12, 0.0),
                ("margin", 12, 24, 0.5))]


def record(model: TinyModel, kind: type) -> dict:
    prompt = [id if id < MASK_TOKEN else 5 for id in prompt_of(model)[:PROMPT]]
    net, recorded = kind(model), []
    for case in cases(kind is Dream):
        for seed in range(1, 400):
            case = {**case, "seed": seed}
            try:
                # Without noise the seed is the prompt's: another first token.
                own = prompt if case["temperature"] > 0 else [3 + seed % (VOCAB - 8)] + prompt[1:]
                passes = (dream_passes if kind is Dream else llada_passes)(net, own, case)
            except Close:
                continue
            recorded.append({**case, "prompt": own, "passes": [
                [-1 if id == MASK_TOKEN else id for id in row] for row in passes]})
            break
        else:
            raise SystemExit(f"{model.name} {case}: every seed has a close choice")
    return {
        "name": model.name, "architecture": model.architecture, "context": model.context, "seed": model.seed,
        "mask_token": MASK_TOKEN,
        "metadata": model.full_metadata(),
        "tensors": [[t.name, t.dims, t.mean, t.amplitude] for t in model.tensors],
        "cases": recorded,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf-dir", type=Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    for model, kind in tiny_models():
        if args.names and model.name not in args.names:
            continue
        path = HERE / f"{model.name}.json"
        path.write_text(dump(record(model, kind)))
        if args.gguf_dir:
            write_gguf(model, args.gguf_dir / f"{model.name}.gguf")
        print(model.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
