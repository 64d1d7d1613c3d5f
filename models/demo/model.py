"""The network: llama as GGUF's arch `llama` has it, in PyTorch.

RMSNorm before each half of a layer, rotary positions on neighbouring pairs (x[2i], x[2i+1]), grouped-query
attention, SwiGLU, no biases, the embedding tied to the output.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    width: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int = 64
    vocab: int = 4096
    context: int = 2048
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    causal: bool = True  # no: every token attends to all

    def as_dict(self) -> dict:
        return asdict(self)

    def num_params(self) -> int:
        """Without the embedding."""
        attention = 2 * self.width * (self.heads + self.kv_heads) * self.head_dim
        return self.layers * (attention + 3 * self.width * self.ffn + 2 * self.width) + self.width


class RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.q = nn.Linear(s.width, s.heads * s.head_dim, bias=False)
        self.k = nn.Linear(s.width, s.kv_heads * s.head_dim, bias=False)
        self.v = nn.Linear(s.width, s.kv_heads * s.head_dim, bias=False)
        self.output = nn.Linear(s.heads * s.head_dim, s.width, bias=False)

    def forward(self, x, rope):
        b, t, _ = x.shape
        s = self.s
        q = rotate(self.q(x).view(b, t, s.heads, s.head_dim), rope).transpose(1, 2)
        k = rotate(self.k(x).view(b, t, s.kv_heads, s.head_dim), rope).transpose(1, 2)
        v = self.v(x).view(b, t, s.kv_heads, s.head_dim).transpose(1, 2)
        group = s.heads // s.kv_heads
        if group > 1:
            k = k.repeat_interleave(group, dim=1)
            v = v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=s.causal)
        return self.output(y.transpose(1, 2).reshape(b, t, -1))


def rope_table(s: Shape, length: int):
    """cos and sin, each (length, 1, head_dim / 2)."""
    frequency = s.rope_base ** (-torch.arange(0, s.head_dim, 2, dtype=torch.float64) / s.head_dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)[:, None, :]
    return angle.cos().float(), angle.sin().float()


def rotate(x, rope):
    cos, sin = rope
    cos, sin = cos[:x.shape[1]].to(x.dtype), sin[:x.shape[1]].to(x.dtype)
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.attn_norm = RmsNorm(s.width, s.norm_eps)
        self.attn = Attention(s)
        self.ffn_norm = RmsNorm(s.width, s.norm_eps)
        self.ffn_gate = nn.Linear(s.width, s.ffn, bias=False)
        self.ffn_up = nn.Linear(s.width, s.ffn, bias=False)
        self.ffn_down = nn.Linear(s.ffn, s.width, bias=False)

    def forward(self, x, rope):
        x = x + self.attn(self.attn_norm(x), rope)
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Llama(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.output_norm = RmsNorm(shape.width, shape.norm_eps)
        cos, sin = rope_table(shape, shape.context)
        self.register_buffer("rope_cos", cos, persistent=False)
        self.register_buffer("rope_sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if name.endswith(("attn.output.weight", "ffn_down.weight")):
                nn.init.normal_(p, std=0.02 / (2 * shape.layers) ** 0.5)
            elif p.dim() == 2:
                nn.init.normal_(p, std=0.02 if "token_embd" in name else p.shape[1] ** -0.5 * 0.6)

    def forward(self, tokens):
        """tokens (batch, time) -> hidden states after the output norm (batch, time, width)."""
        x = self.token_embd(tokens)
        rope = (self.rope_cos, self.rope_sin)
        for layer in self.layers:
            x = layer(x, rope)
        return self.output_norm(x)

    def logits(self, tokens):
        return F.linear(self.forward(tokens), self.token_embd.weight)

    def gguf_tensors(self) -> dict:
        """Every parameter under its name in a GGUF file."""
        names = {}
        for name, p in self.named_parameters():
            part = name.split(".")
            if part[0] == "layers":
                name = "blk." + part[1] + "." + "_".join(part[2:-1]) + ".weight"
            names[name] = p.detach()
        return names
