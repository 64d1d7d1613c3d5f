"""Sampling with a KV cache, many rows at a time."""

import torch
import torch.nn.functional as F

from model import rotate


@torch.no_grad()
def generate(model, prompts: torch.Tensor, count: int, temperature: float, generator: torch.Generator):
    """prompts (rows, time) -> (rows, time + count) token ids. The end of a tale does not stop a row."""
    s = model.shape
    rows, start = prompts.shape
    shape = (s.layers, rows, s.kv_heads, start + count, s.head_dim)
    keys = torch.zeros(shape, device=prompts.device)
    values = torch.zeros(shape, device=prompts.device)
    tokens, fresh, past = prompts, prompts, 0
    for _ in range(count):
        hidden = forward_cached(model, fresh, past, keys, values)
        logits = F.linear(hidden[:, -1], model.token_embd.weight).float()
        chances = torch.softmax(logits / temperature, dim=-1)
        fresh = torch.multinomial(chances, 1, generator=generator)
        past = tokens.shape[1]
        tokens = torch.cat((tokens, fresh), dim=1)
    return tokens


def forward_cached(model, tokens, past: int, keys, values):
    """Like Llama.forward for the tokens after the first `past`, whose keys and values are in the cache."""
    s = model.shape
    rows, time = tokens.shape
    end = past + time
    rope = (model.rope_cos[past:end], model.rope_sin[past:end])
    x = model.token_embd(tokens)
    for i, layer in enumerate(model.layers):
        h = layer.attn_norm(x)
        q = rotate(layer.attn.q(h).view(rows, time, s.heads, s.head_dim), rope).transpose(1, 2)
        keys[i, :, :, past:end] = rotate(layer.attn.k(h).view(rows, time, s.kv_heads, -1), rope).transpose(1, 2)
        values[i, :, :, past:end] = layer.attn.v(h).view(rows, time, s.kv_heads, -1).transpose(1, 2)
        group = s.heads // s.kv_heads
        k = keys[i, :, :, :end].repeat_interleave(group, dim=1)
        v = values[i, :, :, :end].repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=time > 1)  # a prompt comes with nothing cached
        x = x + layer.attn.output(y.transpose(1, 2).reshape(rows, time, -1))
        h = layer.ffn_norm(x)
        x = x + layer.ffn_down(F.silu(layer.ffn_gate(h)) * layer.ffn_up(h))
    return model.output_norm(x)
