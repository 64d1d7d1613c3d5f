"""What rounding q, K, V and weights to integers costs a published model, next to storing K and V in f16.

Attention in f32 is exchanged for one that rounds its inputs first; logits of one text are compared with
those of unrounded inputs. K and V are multiples of a power of two, one per position and DIMS dimensions, so
that the largest has BITS bits after its first; q of a row and weights of 64 positions are multiples of their
largest over LEVELS.

usage: attention_rounding.py FILE.gguf TEXT [TOKENS]      needs torch, transformers, accelerate, gguf
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

TILE = 64


@dataclass
class Rounding:
    f16: bool = True  # K and V, before all else
    k: tuple[int, int] | None = None  # (DIMS, BITS)
    v: tuple[int, int] | None = None
    q: int = 0  # LEVELS
    weights: int = 0


CASES = {
    "K and V in f16": Rounding(),
    "K, 64 dimensions, 11 bits": Rounding(k=(64, 11)),
    "K, 32 dimensions, 11 bits": Rounding(k=(32, 11)),
    "K, 16 dimensions, 11 bits": Rounding(k=(16, 11)),
    "V, 64 dimensions, 11 bits": Rounding(v=(64, 11)),
    "V, 16 dimensions, 11 bits": Rounding(v=(16, 11)),
    "q, 8191 levels": Rounding(q=8191),
    "weights, 8191 levels": Rounding(weights=8191),
    "K and V 64, 11; q and weights 8191": Rounding(k=(64, 11), v=(64, 11), q=8191, weights=8191),
    "K 16, 12; V 64, 12; q and weights 8191": Rounding(k=(16, 12), v=(64, 12), q=8191, weights=8191),
    "K 16, 13; V 64, 12; q 16383, weights 8191": Rounding(k=(16, 13), v=(64, 12), q=16383, weights=8191),
}


def by_steps(x: torch.Tensor, dims: int, bits: int) -> torch.Tensor:
    parts = x.unflatten(-1, (-1, dims))
    bound = parts.abs().amax(-1, keepdim=True).clamp_min(2.0**-60)
    step = torch.exp2(torch.floor(torch.log2(bound)) - bits)
    return (torch.round(parts / step) * step).flatten(-2)


def by_levels(x: torch.Tensor, levels: int) -> torch.Tensor:
    unit = x.abs().amax(-1, keepdim=True) / levels
    unit = torch.where(unit > 0, unit, torch.ones_like(unit))
    return torch.round(x / unit) * unit


def attention(rounding: Rounding | None):
    def attend(module, q, k, v, mask, scaling, dropout=0.0, **_):
        r, groups, tokens = rounding or Rounding(f16=False), q.shape[1] // k.shape[1], q.shape[2]
        if r.f16:
            k, v = k.half().to(q.dtype), v.half().to(q.dtype)
        k = by_steps(k, *r.k) if r.k else k
        v = by_steps(v, *r.v) if r.v else v
        q = by_levels(q, r.q) if r.q else q
        scores = q @ k.repeat_interleave(groups, 1).transpose(-1, -2) * scaling
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -math.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        if r.weights:
            weights = by_levels(weights.unflatten(-1, (-1, TILE)), r.weights).flatten(-2)
        out = weights @ v.repeat_interleave(groups, 1) / weights.sum(-1, keepdim=True)
        return out.transpose(1, 2).contiguous(), None

    return attend


def main() -> None:
    path, text = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
    tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 1536
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").eval()
    model.config._attn_implementation = "rounded"
    ids = torch.tensor([tokenizer(text).input_ids[: tokens // TILE * TILE]])

    def logits(rounding: Rounding | None) -> torch.Tensor:
        transformers.AttentionInterface.register("rounded", attention(rounding))
        with torch.no_grad():
            return model(ids).logits[0].double()

    exact = logits(None)
    log_p = torch.log_softmax(exact, -1)
    for name, rounding in CASES.items():
        met = logits(rounding)
        error = met - exact
        kl = (log_p.exp() * (log_p - torch.log_softmax(met, -1))).sum(-1).mean()
        changed = int((met.argmax(-1) != exact.argmax(-1)).sum())
        print(f"{name:44} rms {error.pow(2).mean().sqrt():.2e}  largest {error.abs().max():.2e}  "
              f"KL {kl:.2e}  first choices changed {changed}", flush=True)


if __name__ == "__main__":
    main()
