"""Presets of the trained models."""

from dataclasses import dataclass

from model import Shape
from trainer import Plan


@dataclass(frozen=True)
class Preset:
    target: Shape
    draft: Shape
    target_plan: Plan
    draft_plan: Plan
    target_type: str    # of the matrices in the GGUF files
    draft_type: str
    sample_batches: int # batches of 256 of the target's own tales that the draft learns from


PRESETS = {
    # About an hour and a half on two cores with AVX512-BF16.
    "small-cpu": Preset(
        target=Shape(width=256, layers=4, ffn=768, heads=4, kv_heads=2),
        draft=Shape(width=256, layers=2, ffn=256, heads=4, kv_heads=2),
        target_plan=Plan(epochs=4.2, lr=5e-3, micro_tokens=1024),
        draft_plan=Plan(epochs=1.7, lr=4e-3, warmup_steps=15, decay_part=0.7, length=512, decay_length=1024,
                        long_part=0.2, blocks_per_step=2, micro_tokens=1024),
        target_type="f16",
        draft_type="q8_0",
        sample_batches=4,
    ),
    # 14 M parameters in addition to the embedding; with the draft under 24 MB only as q8_0.
    "gpu": Preset(
        target=Shape(width=512, layers=6, ffn=1024, heads=8, kv_heads=4),
        draft=Shape(width=256, layers=2, ffn=512, heads=4, kv_heads=2),
        target_plan=Plan(epochs=10, lr=2e-3, length=512, decay_length=1024, micro_tokens=16384),
        draft_plan=Plan(epochs=10, lr=2e-3, length=512, decay_length=1024, micro_tokens=16384),
        target_type="q8_0",
        draft_type="q8_0",
        sample_batches=64,
    ),
}
