"""What recordings of decoders that draft for a model (../eagle3, ../dflash) have in common.

The target is a tiny model of this folder. The reference is PyTorch in float64.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Callable

import torch

from record import dump
from reference import Reference
from tiny_models import VOCAB, Tensor, TinyModel, all_models, power_of_two

EPS = 1e-5
FAMILIES = Path(__file__).parent


class TinyDrafter(TinyModel):
    """`sizes` has width, heads, kv_heads, head_dim and ffn."""

    def __init__(self, architecture: str, sizes, width: int, depth: int, metadata: dict, seed: int):
        super().__init__(sizes.name, architecture, {
            "context_length": 256,
            "embedding_length": width,
            "block_count": depth,
            "feed_forward_length": sizes.ffn,
            "attention.head_count": sizes.heads,
            "attention.head_count_kv": sizes.kv_heads,
            "attention.key_length": sizes.head_dim,
            "attention.value_length": sizes.head_dim,
            "attention.layer_norm_rms_epsilon": EPS,
            "rope.dimension_count": sizes.head_dim,
            "rope.freq_base": 10000.0,
            "vocab_size": VOCAB,
            "target_layers": sizes.layers,
        } | metadata, seed=seed)

    def matrix(self, name: str, cols: int, rows: int, gain: float = 1.0) -> None:
        self.tensors.append(Tensor(name, [cols, rows], 0.0, power_of_two(gain * math.sqrt(3.0 / cols))))

    def vector(self, name: str, size: int) -> None:
        self.tensors.append(Tensor(name, [size], 1.0, 0.25))

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(value) for name, value in self.values().items()}


def rows_before_layers(target: Reference, ids: list[int], layers: list[int]) -> torch.Tensor:
    """Rows of the target's residual stream before these layers, side by side: (tokens, layers * width)"""
    x, before = target.embed(ids), []
    for i in range(target.layers):
        before.append(x)
        x = target.layer(x, i)
    before.append(x)
    return torch.cat([before[i] for i in layers], -1)


def read_target(name: str) -> tuple[dict, TinyModel]:
    """Its recording, and the model."""
    family = json.loads((FAMILIES / f"{name}.json").read_text())
    target = next(model for model in all_models() if model.name == name)
    target.seed = family["seed"]
    return family, target


def recording(model: TinyModel, target: str, tokens: list[int], metadata: dict,
              drafts: dict[int, tuple[list[int], list[torch.Tensor]]]) -> dict:
    """`drafts`: by the number of tokens before them, the drafts and their logits."""
    rounded = lambda rows: [[float(f"{v:.7g}") for v in row.tolist()] for row in rows]
    return {
        "name": model.name,
        "architecture": model.architecture,
        "context": model.context,
        "seed": model.seed,
        "metadata": metadata,
        "tensors": [[t.name, t.dims, t.mean, t.amplitude] for t in model.tensors],
        "target": target,
        "tokens": tokens,
        "drafts": {str(size): [chosen, rounded(logits)] for size, (chosen, logits) in drafts.items()},
    }


def write_recordings(folder: Path, described: str, drafters: list, record: Callable[..., dict]) -> None:
    """Those that the command line names, or all."""
    parser = argparse.ArgumentParser(description=described)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    for drafter in drafters:
        if not args.names or drafter.name in args.names:
            (folder / f"{drafter.name}.json").write_text(dump(record(drafter)))
