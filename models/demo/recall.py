"""Trains a tiny hybrid to recall pairs, for tests/golden/recall.gguf: a minute on a CPU.

    python recall.py [--out FILE] [--steps N]

A prompt is pairs of a key and a value, then keys again; after each of those the model names its value. The file is of
arch `qwen35`: one layer of attention, then one gated delta net. Attention alone cannot do it: one layer sees a key and
its value as tokens of their own. So what is recalled went through the delta net's state, which reads the token before
by its convolution. It has no tokenizer.

Source: Arora et al. 2023 (Zoology, the task); Yang et al. 2024 (Gated Delta Networks, the layer and its parallel form).
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import gguf_file as gguf

WIDTH, FFN, VOCAB, EPS = 64, 96, 128, 1e-5
HEADS, KV_HEADS, HEAD_DIM, ROTATED, ROPE_BASE = 2, 1, 32, 16, 10000.0
DELTA_HEADS, DELTA_DIM, TAPS = 4, 32, 4
INNER = DELTA_HEADS * DELTA_DIM
FIRST_KEY, FIRST_VALUE = 8, 64  # keys are ids 8 to 63, values 64 to 127
FEWEST, PAIRS, QUERIES = 3, 36, 16  # in training
LAYERS = ("attention", "delta")
SUFFIXES = {"ssm_dt": ".bias", "ssm_a": ""}  # of the other parameters' tensors: .weight


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def rotate(x: torch.Tensor) -> torch.Tensor:
    """x (batch, tokens, heads, dim): of each head the first ROTATED values, as halves."""
    frequency = ROPE_BASE ** (-torch.arange(0, ROTATED, 2) / ROTATED)
    angle = (torch.arange(x.shape[1])[:, None] * frequency)[None, :, None]
    a, b, rest = x[..., :ROTATED // 2], x[..., ROTATED // 2:ROTATED], x[..., ROTATED:]
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos(), rest), -1)


def linear(inputs: int, outputs: int, gain: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(outputs, inputs) * gain * inputs ** -0.5)


def first_taps() -> nn.Parameter:
    """(3 INNER, TAPS): queries and values begin with their own row, keys with the row before."""
    taps = 0.1 * torch.randn(3, INNER, TAPS)
    taps[:, :, -1] += torch.tensor([1.0, 0.0, 1.0])[:, None]
    taps[1, :, -2] += 1.0
    return nn.Parameter(taps.flatten(0, 1))


class Attention(nn.ParameterDict):
    def __init__(self):
        super().__init__({
            "attn_q": linear(WIDTH, 2 * HEADS * HEAD_DIM), "attn_k": linear(WIDTH, KV_HEADS * HEAD_DIM),
            "attn_v": linear(WIDTH, KV_HEADS * HEAD_DIM), "attn_output": linear(HEADS * HEAD_DIM, WIDTH, 0.2),
            "attn_q_norm": nn.Parameter(torch.ones(HEAD_DIM)),
            "attn_k_norm": nn.Parameter(torch.ones(HEAD_DIM))})

    def mix(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, gate = (x @ self["attn_q"].T).view(batch, tokens, HEADS, 2, HEAD_DIM).unbind(3)
        k = (x @ self["attn_k"].T).view(batch, tokens, KV_HEADS, HEAD_DIM)
        v = (x @ self["attn_v"].T).view(batch, tokens, KV_HEADS, HEAD_DIM)
        q, k = rotate(rms_norm(q, self["attn_q_norm"])), rotate(rms_norm(k, self["attn_k_norm"]))
        q, k, v = (y.transpose(1, 2) for y in (q, *(y.repeat_interleave(HEADS // KV_HEADS, 2) for y in (k, v))))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return (out * torch.sigmoid(gate)).flatten(2) @ self["attn_output"].T


class GatedDelta(nn.ParameterDict):
    def __init__(self):
        super().__init__({
            "attn_qkv": linear(WIDTH, 3 * INNER), "attn_gate": linear(WIDTH, INNER),
            "ssm_beta": linear(WIDTH, DELTA_HEADS), "ssm_alpha": linear(WIDTH, DELTA_HEADS),
            "ssm_conv1d": first_taps(),
            "ssm_dt": nn.Parameter(torch.full((DELTA_HEADS,), -4.0)),
            "ssm_a": nn.Parameter(torch.full((DELTA_HEADS,), -1.0)),
            "ssm_norm": nn.Parameter(torch.ones(DELTA_DIM)), "ssm_out": linear(INNER, WIDTH, 0.5)})

    def mix(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        rows = F.pad((x @ self["attn_qkv"].T).transpose(1, 2), (TAPS - 1, 0))
        qkv = F.silu(F.conv1d(rows, self["ssm_conv1d"][:, None], groups=3 * INNER)).transpose(1, 2)
        q, k, v = (y.view(batch, tokens, DELTA_HEADS, DELTA_DIM).transpose(1, 2) for y in qkv.chunk(3, -1))
        q, k = (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
        beta = torch.sigmoid(x @ self["ssm_beta"].T).transpose(1, 2)[..., None]
        dt = F.softplus(x @ self["ssm_alpha"].T + self["ssm_dt"])
        decay = (self["ssm_a"] * dt).transpose(1, 2).cumsum(-1)
        # State after t: sum over j <= t of exp(decay_t - decay_j) k_j u_j^T. The rule makes u the solution of
        # (1 + A) u = beta v, A_tj = beta_t exp(decay_t - decay_j) k_t.k_j for j < t.
        seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        kept = (decay[..., :, None] - decay[..., None, :]).masked_fill(~seen, -torch.inf).exp()
        a = (beta * (k @ k.transpose(-1, -2)) * kept).tril(-1)
        u = torch.linalg.solve_triangular(a + torch.eye(tokens), beta * v, upper=False, unitriangular=True)
        out = (q @ k.transpose(-1, -2) * DELTA_DIM ** -0.5 * kept) @ u
        out = rms_norm(out.transpose(1, 2), self["ssm_norm"]).flatten(2)
        return (out * F.silu(x @ self["attn_gate"].T)) @ self["ssm_out"].T


class Layer(nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.mixer = Attention() if kind == "attention" else GatedDelta()
        self.rest = nn.ParameterDict({
            "attn_norm": nn.Parameter(torch.ones(WIDTH)),
            "post_attention_norm": nn.Parameter(torch.ones(WIDTH)), "ffn_gate": linear(WIDTH, FFN),
            "ffn_up": linear(WIDTH, FFN), "ffn_down": linear(FFN, WIDTH, 0.2)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.rest
        x = x + self.mixer.mix(rms_norm(x, w["attn_norm"]))
        h = rms_norm(x, w["post_attention_norm"])
        return x + (F.silu(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T


class Recall(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(VOCAB, WIDTH))
        self.output = linear(WIDTH, VOCAB)
        self.layers = nn.ModuleList(Layer(kind) for kind in LAYERS)
        self.norm = nn.Parameter(torch.ones(WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding[ids]
        for layer in self.layers:
            x = layer(x)
        return rms_norm(x, self.norm) @ self.output.T

    def tensors(self) -> dict[str, torch.Tensor]:
        out = {"token_embd.weight": self.embedding, "output_norm.weight": self.norm, "output.weight": self.output}
        for i, layer in enumerate(self.layers):
            parts = (*layer.mixer.items(), *layer.rest.items())
            out |= {f"blk.{i}.{name}{SUFFIXES.get(name, '.weight')}": p for name, p in parts}
        return out


def prompts(rng: np.random.Generator, rows: int, pairs: int, queries: int) -> torch.Tensor:
    """(rows, 2 pairs + 2 queries): distinct keys with values, then some of the keys with them again."""
    keys = rng.permuted(np.tile(np.arange(FIRST_KEY, FIRST_VALUE), (rows, 1)), axis=1)[:, :pairs]
    values = rng.integers(FIRST_VALUE, VOCAB, size=(rows, pairs))
    asked = rng.permuted(np.tile(np.arange(pairs), (rows, 1)), axis=1)[:, :queries]
    known = np.stack((keys, values), -1)
    again = np.take_along_axis(known, asked[..., None], axis=1)
    return torch.from_numpy(np.concatenate((known, again), 1).reshape(rows, -1))


@torch.no_grad()
def accuracy(model: Recall, pairs: int) -> float:
    ids = prompts(np.random.default_rng(1), 256, pairs, QUERIES)
    best = model(ids[:, :-1]).argmax(-1)
    return (best[:, 2 * pairs::2] == ids[:, 2 * pairs + 1::2]).float().mean().item()


def train(model: Recall, steps: int) -> None:
    """From few pairs to PAIRS: one more whenever a batch was recalled well."""
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.01)
    most = FEWEST
    for step in range(steps):
        pairs = int(rng.integers(max(FEWEST, most // 2), most + 1))
        ids = prompts(rng, 64, pairs, min(pairs, QUERIES))
        logits = model(ids[:, :-1])[:, 2 * pairs::2].flatten(0, 1)
        wanted = ids[:, 2 * pairs + 1::2].flatten()
        loss = F.cross_entropy(logits, wanted)
        optimizer.param_groups[0]["lr"] = 5e-3 * min(1.0, step / 50) * min(1.0, 3 * (1 - step / steps))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recalled = (logits.argmax(-1) == wanted).float().mean().item()
        if recalled > 0.95 and most < PAIRS:
            most += 1
        if step % 50 == 49:
            print(f"step {step + 1}, {time.process_time():.0f} s: {pairs} of at most {most} pairs, loss {loss.item():.3f}, "
                  f"recalled {recalled:.3f}", flush=True)


def export(model: Recall, path: Path) -> None:
    u32, f32 = gguf.UINT32, gguf.FLOAT32
    keys = {
        "context_length": (u32, 512), "embedding_length": (u32, WIDTH), "block_count": (u32, len(LAYERS)),
        "feed_forward_length": (u32, FFN), "attention.head_count": (u32, HEADS),
        "attention.head_count_kv": (u32, KV_HEADS), "attention.key_length": (u32, HEAD_DIM),
        "attention.value_length": (u32, HEAD_DIM), "attention.layer_norm_rms_epsilon": (f32, EPS),
        "rope.dimension_count": (u32, ROTATED), "rope.freq_base": (f32, ROPE_BASE), "ssm.conv_kernel": (u32, TAPS),
        "ssm.inner_size": (u32, INNER), "ssm.state_size": (u32, DELTA_DIM), "ssm.time_step_rank": (u32, DELTA_HEADS),
        "ssm.group_count": (u32, DELTA_HEADS), "vocab_size": (u32, VOCAB),
        "attention.recurrent_layers": (gguf.ARRAY, (gguf.BOOL, [kind == "delta" for kind in LAYERS]))}
    metadata = {"general.architecture": (gguf.STRING, "qwen35"), "general.name": (gguf.STRING, "recall")}
    metadata |= {f"qwen35.{key}": value for key, value in keys.items()}
    tensors = {name: p.detach().numpy() for name, p in model.tensors().items()}
    gguf.write(path, metadata, tensors, "f16", tuple(name for name in tensors if "conv1d" in name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests/golden/recall.gguf")
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Recall()
    train(model, args.steps)
    with torch.no_grad():  # rounded as in the file
        for p in model.parameters():
            p.copy_(p.half().float() if p.dim() == 2 else p)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, recalled {accuracy(model, 32):.4f} of 32 pairs")
    export(model, args.out)


if __name__ == "__main__":
    main()
