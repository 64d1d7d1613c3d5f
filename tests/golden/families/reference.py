"""Each family's forward pass in PyTorch, float64, without cache, blocks or fusion: the formulas.

Written from the papers that models/families/*.cpp name. One sequence, all positions at once.
"""

from __future__ import annotations

import math

import torch

from tiny_models import TinyModel


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | float, eps: float) -> torch.Tensor:
    return rms_norm(x - x.mean(-1, keepdim=True), weight, eps) + bias


def silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rotate(x: torch.Tensor, frequencies: torch.Tensor, halves: bool, magnitude: float = 1.0) -> torch.Tensor:
    """x: (tokens, heads, head_dim), of which the first 2 * len(frequencies) values are rotated."""
    pairs = len(frequencies)
    angles = torch.arange(x.shape[0], dtype=torch.float64)[:, None, None] * frequencies
    cos, sin = torch.cos(angles) * magnitude, torch.sin(angles) * magnitude
    out = x.clone()
    first, second = (slice(0, pairs), slice(pairs, 2 * pairs)) if halves else (
        slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out


class Reference:
    HALVES = True

    def __init__(self, model: TinyModel):
        self.model = model
        self.m = model.metadata
        self.w = {name: torch.from_numpy(value) for name, value in model.values().items()}
        self.layers = self.m["block_count"] - self.m.get("nextn_predict_layers", 0)
        self.heads = self.m["attention.head_count"]
        self.kv_heads = self.m["attention.head_count_kv"]
        self.head_dim = self.m.get("attention.key_length", self.m["embedding_length"] // self.heads)
        self.eps = self.m.get("attention.layer_norm_rms_epsilon", self.m.get("attention.layer_norm_epsilon"))
        self.scale = 1 / math.sqrt(self.head_dim)

    # ---- What families change ----
    embedding_scale = 1.0
    residual_scale = 1.0
    soft_cap = 0.0
    qk_norm = None
    norm_first = True
    norm_last = False
    norm_late = False  # q and k after the rotation
    ffn_norm = "ffn_norm"

    def activation(self, x):
        return silu(x)

    def window(self, layer: int) -> int:
        return 0

    def rotated(self, x, layer: int):
        return rotate(x, self.frequencies(self.m["rope.freq_base"]), self.HALVES)

    def qkv(self, blk: str, x):
        return tuple(x @ self.w[f"{blk}attn_{n}.weight"].T for n in "qkv")

    def feed_forward(self, blk: str, x):
        gate, up = x @ self.w[blk + "ffn_gate.weight"].T, x @ self.w[blk + "ffn_up.weight"].T
        return (self.activation(gate) * up) @ self.w[blk + "ffn_down.weight"].T

    def logits(self, x):
        return x @ self.w.get("output.weight", self.w["token_embd.weight"]).T

    # ---- What they share ----
    def frequencies(self, base: float) -> torch.Tensor:
        dim = self.m["rope.dimension_count"]
        return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)

    def yarn(self, x, rounded: bool, magnitude: float | None = None):
        """Peng et al. 2023, section 3.2; published code rounds the range of blended pairs, or does not."""
        factor, original = self.m["rope.scaling.factor"], self.m["rope.scaling.original_context_length"]
        base, dim = self.m["rope.freq_base"], self.m["rope.dimension_count"]

        def pair(turns):
            return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = pair(32), pair(1)
        if rounded:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
        plain = self.frequencies(base)
        return rotate(x, plain * (1 - ramp) + plain / factor * ramp, self.HALVES,
                      0.1 * math.log(factor) + 1 if magnitude is None else magnitude)

    def norm(self, x, name: str):
        return rms_norm(x, self.w[name], self.eps)

    def growth(self, tokens: int) -> torch.Tensor:
        """Of the queries, by their position; as published for Ministral 3."""
        scale = self.m.get("attention.temperature_scale", 0.0)
        length = self.m.get("attention.temperature_length", self.m.get("rope.scaling.original_context_length", 1))
        return 1 + scale * torch.log1p(torch.arange(tokens) // length).double()

    def attention(self, blk: str, x, layer: int):
        tokens = x.shape[0]
        q, k, v = self.qkv(blk, x)
        if self.qk_norm == "width":
            q, k = self.norm(q, blk + "attn_q_norm.weight"), self.norm(k, blk + "attn_k_norm.weight")
        q = q.view(tokens, self.heads, self.head_dim)
        k = k.view(tokens, self.kv_heads, self.head_dim)
        v = v.view(tokens, self.kv_heads, self.head_dim)
        if self.norm_late:
            q, k = self.rotated(q, layer), self.rotated(k, layer)
        if self.qk_norm == "heads":
            q, k = self.norm(q, blk + "attn_q_norm.weight"), self.norm(k, blk + "attn_k_norm.weight")
        if not self.norm_late:
            q, k = self.rotated(q, layer), self.rotated(k, layer)
        q = q * self.growth(tokens)[:, None, None]
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.scale
        if self.soft_cap:
            scores = self.soft_cap * torch.tanh(scores / self.soft_cap)
        distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
        seen = distance >= 0
        if self.window(layer):
            seen &= distance < self.window(layer)
        scores = scores.masked_fill(~seen, -math.inf)
        if blk + "attn_sinks.weight" in self.w:
            sinks = self.w[blk + "attn_sinks.weight"][:, None, None].expand(-1, tokens, 1)
            shares = torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1]
        else:
            shares = torch.softmax(scores, -1)
        out = torch.einsum("hqk,khd->qhd", shares, v).reshape(tokens, -1)
        if blk + "attn_gate.weight" in self.w:
            out = out * torch.sigmoid(x @ self.w[blk + "attn_gate.weight"].T)
        return out @ self.w[blk + "attn_output.weight"].T + self.w.get(blk + "attn_output.bias", 0.0)

    def embed(self, ids: list[int]) -> torch.Tensor:
        return self.w["token_embd.weight"][torch.tensor(ids)] * self.embedding_scale

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        blk = f"blk.{i}."
        added = self.attention(blk, self.norm(x, blk + "attn_norm.weight") if self.norm_first else x, i)
        if self.norm_last:
            added = self.norm(added, blk + "post_attention_norm.weight")
        x = x + self.residual_scale * added
        added = self.feed_forward(blk, self.norm(x, f"{blk}{self.ffn_norm}.weight") if self.norm_first else x)
        if self.norm_last:
            added = self.norm(added, blk + "post_ffw_norm.weight")
        return x + self.residual_scale * added

    def hidden(self, ids: list[int]) -> torch.Tensor:
        """After the last norm."""
        x = self.embed(ids)
        for i in range(self.layers):
            x = self.layer(x, i)
        return self.norm(x, "output_norm.weight")

    def forward(self, ids: list[int]) -> torch.Tensor:
        return self.logits(self.hidden(ids))

    def drafts(self, ids: list[int], count: int) -> tuple[list[int], list[torch.Tensor]]:
        """What the layer behind the last one guesses after `ids`, each guess taken as right, and its logits.

        DeepSeek-V3, section 2.2: a token's embedding and the final row of the token before it, each normed, make
        the layer's row. A guess is continued from the layer's own final row. Before the first token: zeros.
        """
        blk = f"blk.{self.layers}."
        own_embedding = self.w.get(blk + "nextn.embed_tokens.weight", self.w["token_embd.weight"])
        head = self.w.get(blk + "nextn.shared_head_head.weight", self.w.get("output.weight", self.w["token_embd.weight"]))
        last_norm = blk + "nextn.shared_head_norm.weight"
        ids, guesses, logits = list(ids), [], []
        before = torch.zeros_like(self.embed(ids[:1]))
        if len(ids) > 1:
            before = torch.cat([before, self.hidden(ids[:-1])])
        for _ in range(count):
            pair = torch.cat([self.norm(own_embedding[torch.tensor(ids)], blk + "nextn.enorm.weight"),
                              self.norm(before, blk + "nextn.hnorm.weight")], -1)
            x = self.layer(pair @ self.w[blk + "nextn.eh_proj.weight"].T, self.layers)
            own = self.norm(x[-1:], last_norm if last_norm in self.w else "output_norm.weight")
            logits.append((own @ head.T)[0])
            guesses.append(int(logits[-1].argmax()))
            ids.append(guesses[-1])
            before = torch.cat([before, own])
        return guesses, logits


class Llama(Reference):
    HALVES = False


class Qwen2(Reference):
    def qkv(self, blk, x):
        return tuple(part + self.w[f"{blk}attn_{n}.bias"] for part, n in zip(super().qkv(blk, x), "qkv"))


class Qwen3(Reference):
    qk_norm = "heads"


class Gemma(Reference):
    def __init__(self, model):
        super().__init__(model)
        self.embedding_scale = math.sqrt(self.m["embedding_length"])

    def activation(self, x):
        return gelu_tanh(x)


class Gemma2(Gemma):
    norm_last = True

    def __init__(self, model):
        super().__init__(model)
        self.soft_cap = self.m["attn_logit_softcapping"]

    def window(self, layer):
        return self.m["attention.sliding_window"] if layer % 2 == 0 else 0

    def logits(self, x):
        cap = self.m["final_logit_softcapping"]
        return cap * torch.tanh(super().logits(x) / cap)


class Gemma3(Gemma):
    norm_last = True
    qk_norm = "heads"

    def window(self, layer):
        return self.m["attention.sliding_window"] if layer % 6 != 5 else 0

    def rotated(self, x, layer):
        if self.window(layer):
            return rotate(x, self.frequencies(10000.0), True)
        return rotate(x, self.frequencies(self.m["rope.freq_base"]) / self.m["rope.scaling.factor"], True)


class SharedKv(Gemma):
    """The last layers read keys and values of the last layer of their kind before them; scores are q.k."""

    norm_last = True
    qk_norm = "heads"

    def __init__(self, model):
        super().__init__(model)
        self.scale = 1.0
        self.stored = {}

    def slides(self, layer):
        pattern = self.m["attention.sliding_window_pattern"]
        return pattern[layer] if isinstance(pattern, list) else layer % pattern != pattern - 1

    def window(self, layer):
        return self.m["attention.sliding_window"] if self.slides(layer) else 0

    def sizes(self, layer):
        """Of a head, and the number of heads of K and V."""
        return self.head_dim, self.kv_heads

    def rotated(self, x, layer):
        return rotate(x, self.frequencies(10000.0 if self.slides(layer) else self.m["rope.freq_base"]), True)

    def attention(self, blk, x, layer):
        tokens = x.shape[0]
        dim, kv_heads = self.sizes(layer)
        heads = lambda n, count: (x @ self.w[f"{blk}attn_{n}.weight"].T).view(tokens, count, dim)
        q = self.rotated(self.norm(heads("q", self.heads), blk + "attn_q_norm.weight"), layer)
        if layer < self.layers - self.m["attention.shared_kv_layers"]:
            k = heads("k", kv_heads)
            v = heads("v", kv_heads) if blk + "attn_v.weight" in self.w else k
            k = self.rotated(self.norm(k, blk + "attn_k_norm.weight"), layer)
            self.stored[self.slides(layer)] = k, rms_norm(v, 1.0, self.eps)
        k, v = (part.repeat_interleave(self.heads // kv_heads, 1) for part in self.stored[self.slides(layer)])
        distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
        seen = (distance >= 0) & (distance < (self.window(layer) or tokens))
        scores = torch.einsum("qhd,khd->hqk", q, k).masked_fill(~seen, -math.inf)
        out = torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), v).reshape(tokens, -1)
        return out @ self.w[blk + "attn_output.weight"].T

    def per_layer_inputs(self, ids, x):
        """(tokens, layers, width of each)"""
        width = self.m["embedding_length_per_layer_input"]
        made = (x @ self.w["per_layer_model_proj.weight"].T / math.sqrt(x.shape[1])).view(len(ids), self.layers, width)
        own = self.w["per_layer_token_embd.weight"][torch.tensor(ids)].view_as(made) * math.sqrt(width)
        return (self.norm(made, "per_layer_proj_norm.weight") + own) / math.sqrt(2)

    def per_layer(self, blk, x, given):
        added = (gelu_tanh(x @ self.w[blk + "inp_gate.weight"].T) * given) @ self.w[blk + "proj.weight"].T
        return self.norm(added, blk + "post_norm.weight")

    def capped(self, logits, cap):
        return cap * torch.tanh(logits / cap) if cap else logits


class Gemma3n(SharedKv):
    def feed_forward(self, blk, x):
        gate, up = x @ self.w[blk + "ffn_gate.weight"].T, x @ self.w[blk + "ffn_up.weight"].T
        cutoff = self.m["activation_sparsity_scale"][int(blk.split(".")[1])]
        if cutoff > -math.inf:
            deviation = gate.std(-1, keepdim=True, correction=0)
            gate = (gate - gate.mean(-1, keepdim=True) - cutoff * deviation).clamp(min=0)
        return (gelu_tanh(gate) * up) @ self.w[blk + "ffn_down.weight"].T

    def routed(self, blk, x):
        return torch.tanh(self.norm(x, blk + "altup_router_norm.weight") / x.shape[1] @ self.w[blk + "altup_router.weight"].T)

    def forward(self, ids):
        magnitude = lambda x: x.pow(2).mean(-1, keepdim=True).sqrt()
        like = lambda x, other: x * magnitude(other) / magnitude(x)
        active, count = self.m["altup.active_idx"], self.m["altup.num_inputs"]
        x = self.w["token_embd.weight"][torch.tensor(ids)] * self.embedding_scale
        inputs = self.per_layer_inputs(ids, x)
        streams = torch.stack([x] + [like(x @ w.T, x) for w in self.w["altup_proj.weight"]])
        for i in range(self.layers):
            blk = f"blk.{i}."
            coefs = (self.routed(blk, streams[active]) @ self.w[blk + "altup_predict_coef.weight"].T).view(-1, count, count)
            streams = streams + torch.einsum("tij,jtw->itw", coefs, streams)
            h = self.norm(streams[active], blk + "attn_norm.weight")
            laurel = self.norm(h @ self.w[blk + "laurel_l.weight"].T @ self.w[blk + "laurel_r.weight"].T,
                               blk + "laurel_post_norm.weight")
            added = self.norm(self.attention(blk, h, i), blk + "post_attention_norm.weight")
            x = (streams[active] + added + h + laurel) / math.sqrt(2)
            added = self.feed_forward(blk, self.norm(x, blk + "ffn_norm.weight"))
            x = x + self.norm(added, blk + "post_ffw_norm.weight")
            coefs = self.routed(blk, x) @ self.w[blk + "altup_correct_coef.weight"].T + 1
            streams = streams + coefs.T[:, :, None] * (x - streams[active])
            branch = self.per_layer(blk, streams[active] * self.w[blk + "altup_correct_scale.weight"], inputs[:, i])
            streams = torch.cat([streams[:1], streams[1:] + branch])
        out = [like(x @ w.T, streams[0]) for x, w in zip(streams[1:], self.w["altup_unembd_proj.weight"])]
        x = (streams[0] + sum(out)) / count
        return self.capped(self.logits(self.norm(x, "output_norm.weight")), self.m.get("final_logit_softcapping", 30.0))


class Gemma4(SharedKv):
    def sizes(self, layer):
        of = "attention.key_length_swa" if self.slides(layer) else "attention.key_length"
        return self.m[of], self.m["attention.head_count_kv"][layer]

    def rotated(self, x, layer):
        dim = x.shape[-1]
        base = self.m["rope.freq_base_swa" if self.slides(layer) else "rope.freq_base"]
        frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        return rotate(x, frequencies if self.slides(layer) else frequencies / self.w["rope_freqs.weight"], True)

    def experts(self, blk, x):
        router = rms_norm(x, self.w[blk + "ffn_gate_inp.scale"], self.eps) / math.sqrt(x.shape[1])
        shares = torch.softmax(router @ self.w[blk + "ffn_gate_inp.weight"].T, -1)
        shares, chosen = shares.topk(self.m["expert_used_count"], -1)
        shares = shares / shares.sum(-1, keepdim=True) * self.w[blk + "ffn_down_exps.scale"][chosen]
        h = self.norm(x, blk + "pre_ffw_norm_2.weight")
        gate, up = torch.einsum("tejw,tw->tej", self.w[blk + "ffn_gate_up_exps.weight"][chosen], h).chunk(2, -1)
        out = torch.einsum("tewj,tej->tew", self.w[blk + "ffn_down_exps.weight"][chosen], gelu_tanh(gate) * up)
        return (shares[..., None] * out).sum(1)

    def forward(self, ids):
        x = self.w["token_embd.weight"][torch.tensor(ids)] * self.embedding_scale
        inputs = self.per_layer_inputs(ids, x) if self.m["embedding_length_per_layer_input"] else None
        for i in range(self.layers):
            blk = f"blk.{i}."
            added = self.attention(blk, self.norm(x, blk + "attn_norm.weight"), i)
            x = x + self.norm(added, blk + "post_attention_norm.weight")
            added = self.feed_forward(blk, self.norm(x, blk + "ffn_norm.weight"))
            if "expert_count" in self.m:
                added = self.norm(added, blk + "post_ffw_norm_1.weight") + self.norm(
                    self.experts(blk, x), blk + "post_ffw_norm_2.weight")
            x = x + self.norm(added, blk + "post_ffw_norm.weight")
            if inputs is not None:
                x = x + self.per_layer(blk, x, inputs[:, i])
            x = x * self.w[blk + "layer_output_scale.weight"]
        return self.capped(self.logits(self.norm(x, "output_norm.weight")), self.m["final_logit_softcapping"])


class Phi3(Reference):
    def qkv(self, blk, x):
        joined = x @ self.w[blk + "attn_qkv.weight"].T
        return joined.split([self.heads * self.head_dim] + 2 * [self.kv_heads * self.head_dim], -1)

    def feed_forward(self, blk, x):
        gate, up = (x @ self.w[blk + "ffn_up.weight"].T).chunk(2, -1)
        return (silu(gate) * up) @ self.w[blk + "ffn_down.weight"].T

    def rotated(self, x, layer):
        which = "long" if self.model.context > self.m["rope.scaling.original_context_length"] else "short"
        frequencies = self.frequencies(self.m["rope.freq_base"]) / self.w[f"rope_factors_{which}.weight"]
        return rotate(x, frequencies, True, self.m["rope.scaling.attn_factor"])


class Granite(Reference):
    HALVES = False

    def __init__(self, model):
        super().__init__(model)
        self.embedding_scale = self.m["embedding_scale"]
        self.residual_scale = self.m["residual_scale"]
        self.scale = self.m["attention.scale"]

    def logits(self, x):
        return super().logits(x) / self.m["logit_scale"]


class SmolLm3(Reference):
    HALVES = False

    def rotated(self, x, layer):
        return x if (layer + 1) % 4 == 0 else super().rotated(x, layer)


class Olmo2(Reference):
    """With a window also OLMo 3: three sliding layers, then a full one, whose rotation alone is YaRN's."""

    norm_first = False
    norm_last = True
    qk_norm = "width"

    def window(self, layer):
        return self.m.get("attention.sliding_window", 0) if layer % 4 != 3 else 0

    def rotated(self, x, layer):
        if self.window(layer) or "rope.scaling.type" not in self.m:
            return super().rotated(x, layer)
        return self.yarn(x, rounded=True)


class Experts(Reference):
    """Shares of all experts; the largest few (share plus bias) compute, and their shares sum to 1 again."""

    shares_sum_to_1 = True

    def shares(self, logits):
        return torch.softmax(logits, -1)

    def selected(self, keys):
        return keys

    def expert(self, gate, up):
        return silu(gate) * up

    def feed_forward(self, blk, x):
        if blk + "ffn_gate_inp.weight" not in self.w:
            return super().feed_forward(blk, x)
        biased = lambda name, values, *at: values + (self.w[name][at] if name in self.w else 0.0)
        shares = self.shares(biased(blk + "ffn_gate_inp.bias", x @ self.w[blk + "ffn_gate_inp.weight"].T))
        keys = self.selected(biased(blk + "exp_probs_b.bias", shares))
        chosen = keys.topk(self.m["expert_used_count"], -1).indices
        shares = shares.gather(-1, chosen)
        if self.shares_sum_to_1:
            shares = shares / shares.sum(-1, keepdim=True)
        shares = shares * self.m.get("expert_weights_scale", 1.0)
        out = torch.zeros_like(x)
        for t in range(x.shape[0]):
            for share, e in zip(shares[t], chosen[t]):
                product = lambda n, y: biased(f"{blk}ffn_{n}_exps.bias", self.w[f"{blk}ffn_{n}_exps.weight"][e] @ y, e)
                if blk + "ffn_gate_up_exps.weight" in self.w:
                    gate, up = product("gate_up", x[t]).chunk(2)
                else:
                    gate, up = product("gate", x[t]), product("up", x[t])
                out[t] += share * product("down", self.expert(gate, up))
        if blk + "ffn_up_shexp.weight" in self.w:
            gate, up = (x @ self.w[f"{blk}ffn_{n}_shexp.weight"].T for n in ("gate", "up"))
            shared = (silu(gate) * up) @ self.w[blk + "ffn_down_shexp.weight"].T
            if blk + "ffn_gate_inp_shexp.weight" in self.w:
                shared = shared * torch.sigmoid(x @ self.w[blk + "ffn_gate_inp_shexp.weight"])[:, None]
            out = out + shared
        return out


class Mixtral(Experts):
    HALVES = False


class Qwen3Moe(Experts):
    qk_norm = "heads"


class Olmoe(Experts):
    qk_norm = "width"
    shares_sum_to_1 = False


class GraniteMoe(Experts, Granite):
    pass


class GptOss(Experts, Qwen2):
    """The softmax of the chosen experts' logits is that of all, made to sum to 1 again."""

    ffn_norm = "post_attention_norm"

    def window(self, layer):
        return self.m["attention.sliding_window"] if layer % 2 == 0 else 0

    def rotated(self, x, layer):
        return self.yarn(x, rounded=False)

    def expert(self, gate, up):
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)


class Glm4(Qwen2):
    HALVES = False
    norm_last = True

    def feed_forward(self, blk, x):
        gate, up = (x @ self.w[blk + "ffn_up.weight"].T).chunk(2, -1)
        return (silu(gate) * up) @ self.w[blk + "ffn_down.weight"].T


class SigmoidExperts(Experts):
    def shares(self, logits):
        return torch.sigmoid(logits)


class Glm4Moe(SigmoidExperts):
    qk_norm = "heads"
    ffn_norm = "post_attention_norm"


class Qwen2Moe(Experts, Qwen2):
    shares_sum_to_1 = False


class Ernie45Moe(Experts):
    HALVES = False


class SeedOss(Qwen2):
    ffn_norm = "post_attention_norm"


class Exaone4(Reference):
    norm_first = False
    norm_last = True
    qk_norm = "heads"

    def window(self, layer):
        return self.m.get("attention.sliding_window", 0) if layer % 4 != 3 else 0

    def rotated(self, x, layer):
        return x if "attention.sliding_window" in self.m and not self.window(layer) else super().rotated(x, layer)


class Hunyuan(Reference):
    qk_norm = "heads"
    norm_late = True


class MiniMaxM2(SigmoidExperts):
    qk_norm = "width"


class DeepSeek2(Experts):
    """The expanded form: keys and values of every head are computed for every position."""

    HALVES = False

    def __init__(self, model):
        super().__init__(model)
        self.shares_sum_to_1 = self.m["expert_weights_norm"]
        self.scale = 1 / math.sqrt(self.m["attention.key_length_mla"])
        if "rope.scaling.factor" in self.m:
            stretch = math.log(self.m["rope.scaling.factor"])
            self.scale *= (1 + self.m["rope.scaling.yarn_log_multiplier"] * stretch) ** 2

    def shares(self, logits):
        return torch.sigmoid(logits) if self.m.get("expert_gating_func") == 2 else torch.softmax(logits, -1)

    def selected(self, keys):
        groups = self.m.get("expert_group_count", 1)
        if groups == 1:
            return keys
        parts = keys.view(keys.shape[0], groups, -1)
        best = parts.topk(2, -1).values.sum(-1).topk(self.m["expert_group_used_count"], -1).indices
        unused = torch.ones_like(parts[..., 0], dtype=torch.bool).scatter(1, best, False)
        return parts.masked_fill(unused[..., None], -math.inf).view_as(keys)

    def rotated(self, x, layer):
        if "rope.scaling.factor" not in self.m:
            return super().rotated(x, layer)
        return self.yarn(x, rounded=True) / (0.1 * math.log(self.m["rope.scaling.factor"]) + 1)

    def attention(self, blk, x, layer):
        m, w, tokens = self.m, self.w, x.shape[0]
        rank, rotated = m["attention.kv_lora_rank"], m["rope.dimension_count"]
        low = self.norm(x @ w[blk + "attn_q_a.weight"].T, blk + "attn_q_a_norm.weight") if "attention.q_lora_rank" in m else x
        q = (low @ w[blk + ("attn_q_b.weight" if "attention.q_lora_rank" in m else "attn_q.weight")].T)
        q = q.view(tokens, self.heads, -1)
        plain = q.shape[-1] - rotated
        kv = x @ w[blk + "attn_kv_a_mqa.weight"].T
        latent = self.norm(kv[:, :rank], blk + "attn_kv_a_norm.weight")
        shared = self.rotated(kv[:, None, rank:], layer).expand(-1, self.heads, -1)
        k = torch.cat([torch.einsum("tr,hrp->thp", latent, w[blk + "attn_k_b.weight"]), shared], -1)
        v = torch.einsum("tr,hvr->thv", latent, w[blk + "attn_v_b.weight"])
        q = torch.cat([q[..., :plain], self.rotated(q[..., plain:], layer)], -1)
        q = q * self.growth(tokens)[:, None, None]
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.scale
        seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        out = torch.einsum("hqk,khd->qhd", torch.softmax(scores.masked_fill(~seen, -math.inf), -1), v)
        return out.reshape(tokens, -1) @ w[blk + "attn_output.weight"].T


class Cohere2(Reference):
    HALVES = False

    def window(self, layer):
        return self.m["attention.sliding_window"] if layer % 4 != 3 else 0

    def rotated(self, x, layer):
        return super().rotated(x, layer) if self.window(layer) else x

    def norm(self, x, name):
        return layer_norm(x, self.w[name], 0.0, self.eps)

    def forward(self, ids):
        x = self.embed(ids)
        for i in range(self.layers):
            blk = f"blk.{i}."
            h = self.norm(x, blk + "attn_norm.weight")
            x = x + self.attention(blk, h, i) + self.feed_forward(blk, h)
        return self.logits(self.norm(x, "output_norm.weight")) * self.m["logit_scale"]


class StarCoder2(Qwen2):
    def norm(self, x, name):
        return layer_norm(x, self.w[name], self.w[name.replace("weight", "bias")], self.eps)

    def feed_forward(self, blk, x):
        up = gelu_tanh(x @ self.w[blk + "ffn_up.weight"].T + self.w[blk + "ffn_up.bias"])
        return up @ self.w[blk + "ffn_down.weight"].T + self.w[blk + "ffn_down.bias"]


class Mistral3(Llama):
    def rotated(self, x, layer):
        stretch = 0.1 * math.log(self.m["rope.scaling.factor"])
        multiplier = self.m["rope.scaling.yarn_log_multiplier"]
        return self.yarn(x, rounded=True, magnitude=(1 + stretch) / (1 + multiplier * stretch))


class Deci(Llama):
    def __init__(self, model):
        counts = {key: model.metadata[key] for key in ("attention.head_count", "attention.head_count_kv")}
        model.metadata.update({key: each[0] for key, each in counts.items()})
        super().__init__(model)
        model.metadata.update(counts)
        self.counts = list(zip(*counts.values()))

    def attention(self, blk, x, layer):
        self.heads, self.kv_heads = self.counts[layer]
        if self.kv_heads == 0:
            return x @ self.w[blk + "attn_output.weight"].T
        return super().attention(blk, x, layer)

    def forward(self, ids):
        x = self.embed(ids)
        for i, (heads, _) in enumerate(self.counts):
            blk = f"blk.{i}."
            if heads > 0:
                x = x + self.attention(blk, self.norm(x, blk + "attn_norm.weight"), i)
            if self.m["feed_forward_length"][i] > 0:
                x = x + self.feed_forward(blk, self.norm(x, blk + "ffn_norm.weight"))
        return self.logits(self.norm(x, "output_norm.weight"))


class MuseGlimmer(Reference):
    HALVES = False
    norm_last = True
    qk_norm = "heads"

    def window(self, layer):
        return self.m["attention.sliding_window"] if self.m["attention.sliding_window_pattern"][layer] else 0

    def rotated(self, x, layer):
        return super().rotated(x, layer) if self.window(layer) else x

    def norm(self, x, name):
        return rms_norm(x, self.w[name], 1e-8 if "post" in name else self.eps)

    def embed(self, ids):
        return rms_norm(super().embed(ids), torch.ones(()), self.eps)

    def logits(self, x):
        cap = self.m["final_logit_softcapping"]
        return cap * torch.tanh(super().logits(x) * self.m["logit_scale"] / cap)


class Hybrid(Experts):
    """Layers with a state, written as the recurrence over tokens, next to attention or in its place."""

    qk_norm = None
    tiled = False

    def __init__(self, model):
        metadata = dict(model.metadata)
        kv_heads = metadata.get("attention.head_count_kv", 0)
        model.metadata.update({"attention.head_count": metadata["attention.head_count"] or 1,
                               "attention.head_count_kv": max(kv_heads) if isinstance(kv_heads, list) else kv_heads})
        super().__init__(model)
        model.metadata = self.m = metadata
        self.embedding_scale = self.m.get("embedding_scale", 1.0)
        self.residual_scale = self.m.get("residual_scale", 1.0)
        self.scale = self.m.get("attention.scale", self.scale)

    def convolved(self, name, x):
        """Of each channel over the rows up to its own."""
        weight = self.w[name + ".weight"]  # (channels, taps)
        taps = weight.shape[1]
        padded = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
        out = sum(padded[j:j + x.shape[0]] * weight[:, j] for j in range(taps))
        return out + self.w.get(name + ".bias", 0.0)

    def gated_delta(self, blk, x):
        m, w, tokens = self.m, self.w, x.shape[0]
        dim, k_heads, heads = m["ssm.state_size"], m["ssm.group_count"], m["ssm.time_step_rank"]
        each = heads // k_heads
        qkv = silu(self.convolved(blk + "ssm_conv1d", x @ w[blk + "attn_qkv.weight"].T))
        q, k, v = qkv.split([k_heads * dim, k_heads * dim, heads * dim], -1)
        if blk + "ssm_ba.weight" in w:
            beta, alpha = (x @ w[blk + "ssm_ba.weight"].T).view(tokens, k_heads, 2, each).unbind(2)
            beta, alpha = beta.reshape(tokens, heads), alpha.reshape(tokens, heads)
        else:
            beta, alpha = x @ w[blk + "ssm_beta.weight"].T, x @ w[blk + "ssm_alpha.weight"].T
        decay = torch.exp(w[blk + "ssm_a"] * torch.nn.functional.softplus(alpha + w[blk + "ssm_dt.bias"]))
        beta = torch.sigmoid(beta)
        unit = lambda y: y / torch.sqrt(y.pow(2).sum(-1, keepdim=True) + 1e-6)
        q, k = unit(q.view(tokens, k_heads, dim)) / math.sqrt(dim), unit(k.view(tokens, k_heads, dim))
        spread = (lambda y: y.repeat(1, each, 1)) if self.tiled else (lambda y: y.repeat_interleave(each, 1))
        q, k, v = spread(q), spread(k), v.view(tokens, heads, dim)
        state, out = x.new_zeros(heads, dim, dim), []
        for t in range(tokens):
            state = state * decay[t][:, None, None]
            change = (v[t] - torch.einsum("hkv,hk->hv", state, k[t])) * beta[t][:, None]
            state = state + k[t][:, :, None] * change[:, None, :]
            out.append(torch.einsum("hkv,hk->hv", state, q[t]))
        normed = rms_norm(torch.stack(out), w[blk + "ssm_norm.weight"], self.eps).reshape(tokens, -1)
        return (normed * silu(x @ w[blk + "attn_gate.weight"].T)) @ w[blk + "ssm_out.weight"].T

    def mamba2(self, blk, x):
        m, w, tokens = self.m, self.w, x.shape[0]
        inner, d_state, heads, groups = (m["ssm." + key] for key in (
            "inner_size", "state_size", "time_step_rank", "group_count"))
        z, xbc, dt = (x @ w[blk + "ssm_in.weight"].T).split([inner, inner + 2 * groups * d_state, heads], -1)
        xbc = silu(self.convolved(blk + "ssm_conv1d", xbc))
        values, b, c = xbc.split([inner, groups * d_state, groups * d_state], -1)
        values = values.view(tokens, heads, -1)
        b, c = (part.view(tokens, groups, d_state).repeat_interleave(heads // groups, 1) for part in (b, c))
        dt = torch.nn.functional.softplus(dt + w[blk + "ssm_dt.bias"])
        a, skip = w[blk + "ssm_a"].flatten(), w[blk + "ssm_d"].flatten()
        state, out = x.new_zeros(heads, values.shape[-1], d_state), []
        for t in range(tokens):
            state = state * torch.exp(dt[t] * a)[:, None, None] + torch.einsum(
                "h,hp,hn->hpn", dt[t], values[t], b[t])
            out.append(torch.einsum("hpn,hn->hp", state, c[t]) + skip[:, None] * values[t])
        y = torch.stack(out).reshape(tokens, inner) * silu(z)
        if blk + "ssm_norm.weight" in w:
            y = rms_norm(y.view(tokens, groups, -1), w[blk + "ssm_norm.weight"], self.eps).reshape(tokens, inner)
        return y @ w[blk + "ssm_out.weight"].T

    def mamba(self, blk, x):
        m, w, tokens = self.m, self.w, x.shape[0]
        d_state, rank = m["ssm.state_size"], m["ssm.time_step_rank"]
        values, z = (x @ w[blk + "ssm_in.weight"].T).chunk(2, -1)
        values = silu(self.convolved(blk + "ssm_conv1d", values))
        dt, b, c = (values @ w[blk + "ssm_x.weight"].T).split([rank, d_state, d_state], -1)
        if blk + "ssm_dt_norm.weight" in w:
            dt, b, c = (self.norm(part, f"{blk}ssm_{n}_norm.weight") for part, n in ((dt, "dt"), (b, "b"), (c, "c")))
        dt = torch.nn.functional.softplus(dt @ w[blk + "ssm_dt.weight"].T + w[blk + "ssm_dt.bias"])
        state, out = x.new_zeros(values.shape[1], d_state), []
        for t in range(tokens):
            state = state * torch.exp(dt[t][:, None] * w[blk + "ssm_a"]) + (dt[t] * values[t])[:, None] * b[t]
            out.append(state @ c[t] + w[blk + "ssm_d"] * values[t])
        return (torch.stack(out) * silu(z)) @ w[blk + "ssm_out.weight"].T

    def short_conv(self, blk, x):
        b, c, values = (x @ self.w[blk + "shortconv.in_proj.weight"].T).chunk(3, -1)
        return (c * self.convolved(blk + "shortconv.conv", b * values)) @ self.w[blk + "shortconv.out_proj.weight"].T

    def has_state(self, blk):
        return blk + "ssm_conv1d.weight" in self.w or blk + "shortconv.conv.weight" in self.w

    def with_state(self, blk, x):
        if blk + "shortconv.conv.weight" in self.w:
            return self.short_conv(blk, x)
        if blk + "ssm_x.weight" in self.w:
            return self.mamba(blk, x)
        return self.mamba2(blk, x) if blk + "ssm_in.weight" in self.w else self.gated_delta(blk, x)

    def layer(self, x, i):
        blk = f"blk.{i}."
        h = self.norm(x, blk + "attn_norm.weight")
        added = torch.zeros_like(x)
        if self.has_state(blk):
            added = added + self.with_state(blk, h)
        if blk + "attn_q.weight" in self.w:
            added = added + self.attention(blk, h, i)
        x = x + self.residual_scale * added
        norms = [n for n in (f"{blk}{self.ffn_norm}.weight", blk + self.ffn_norm) if n in self.w]
        if norms:
            h = self.norm(x, norms[0])
            x = x + self.residual_scale * self.feed_forward(blk, h)
        return x

    def hidden(self, ids):
        x = self.embed(ids)
        for i in range(self.layers):
            x = self.layer(x, i)
        return self.norm(x, "output_norm.weight" if "output_norm.weight" in self.w else "token_embd_norm.weight")

    def forward(self, ids):
        return self.logits(self.hidden(ids)) / self.m.get("logit_scale", 1.0)


class NemotronH(Hybrid):
    """A layer is one part; feed-forwards and experts have no gate."""

    ffn_norm = "none"

    def shares(self, logits):
        return torch.sigmoid(logits)

    def rotated(self, x, layer):
        return x

    def mlp(self, up, down, x):
        return (x @ up.T).clamp(min=0).square() @ down.T

    def with_state(self, blk, x):
        if blk + "ssm_in.weight" in self.w:
            return self.mamba2(blk, x)
        if blk + "ffn_up.weight" in self.w:
            return self.mlp(self.w[blk + "ffn_up.weight"], self.w[blk + "ffn_down.weight"], x)
        shares = self.shares(x @ self.w[blk + "ffn_gate_inp.weight"].T)
        chosen = (shares + self.w[blk + "exp_probs_b.bias"]).topk(self.m["expert_used_count"], -1).indices
        shares = shares.gather(-1, chosen)
        shares = shares / shares.sum(-1, keepdim=True) * self.m["expert_weights_scale"]
        out = self.mlp(self.w[blk + "ffn_up_shexp.weight"], self.w[blk + "ffn_down_shexp.weight"], x)
        for t in range(x.shape[0]):
            for share, e in zip(shares[t], chosen[t]):
                up, down = (self.w[f"{blk}ffn_{n}_exps.weight"][e] for n in ("up", "down"))
                out[t] += share * self.mlp(up, down, x[t])
        return out

    def has_state(self, blk):
        return blk + "attn_q.weight" not in self.w


class QwenHybrid(Hybrid):
    """attn_q has of each head the query, then the gate of what attention returns."""

    qk_norm = "heads"
    ffn_norm = "post_attention_norm"

    def __init__(self, model):
        super().__init__(model)
        self.tiled = model.architecture != "qwen3next"

    def attention(self, blk, x, layer):
        full = self.w[blk + "attn_q.weight"]
        q, gate = full.view(self.heads, 2, self.head_dim, -1).unbind(1)
        self.w[blk + "attn_q.weight"] = q.flatten(0, 1)
        self.w[blk + "attn_gate.weight"] = gate.flatten(0, 1)
        out = super().attention(blk, x, layer)
        self.w[blk + "attn_q.weight"] = full
        del self.w[blk + "attn_gate.weight"]
        return out


class KimiLinear(DeepSeek2):
    """Kimi Team 2025 (Kimi Linear), equations 1 to 9: decays of their own for each value of a key."""

    def __init__(self, model):
        metadata = dict(model.metadata)
        model.metadata.update({"attention.head_count_kv": 1})
        super().__init__(model)
        model.metadata = self.m = metadata

    def rotated(self, x, layer):
        return x  # no positions

    def delta_attention(self, blk, x):
        w, tokens, heads, dim = self.w, x.shape[0], self.heads, self.m["kda.head_dim"]

        def convolved(part):
            values, weight = x @ w[f"{blk}attn_{part}.weight"].T, w[f"{blk}ssm_conv1d_{part}.weight"][:, 0]
            taps = weight.shape[1]
            padded = torch.cat([x.new_zeros(taps - 1, values.shape[1]), values])
            return silu(sum(padded[j:j + tokens] * weight[:, j] for j in range(taps))).view(tokens, heads, dim)

        q, k, v = (convolved(part) for part in "qkv")
        unit = lambda y: y / torch.sqrt(y.pow(2).sum(-1, keepdim=True) + 1e-6)
        q, k = unit(q) / math.sqrt(dim), unit(k)
        f = (x @ w[blk + "ssm_f_a.weight"].T) @ w[blk + "ssm_f_b.weight"].T + w[blk + "ssm_dt.bias"]
        decay = torch.exp(w[blk + "ssm_a"].flatten()[:, None] * torch.nn.functional.softplus(f).view(tokens, heads, dim))
        beta = torch.sigmoid(x @ w[blk + "ssm_beta.weight"].T)
        state, out = x.new_zeros(heads, dim, dim), []
        for t in range(tokens):
            state = state * decay[t][:, :, None]
            change = (v[t] - torch.einsum("hkv,hk->hv", state, k[t])) * beta[t][:, None]
            state = state + k[t][:, :, None] * change[:, None, :]
            out.append(torch.einsum("hkv,hk->hv", state, q[t]))
        normed = rms_norm(torch.stack(out), w[blk + "ssm_norm.weight"], self.eps).reshape(tokens, -1)
        gate = (x @ w[blk + "ssm_g_a.weight"].T) @ w[blk + "ssm_g_b.weight"].T
        return (normed * torch.sigmoid(gate)) @ w[blk + "attn_output.weight"].T

    def attention(self, blk, x, layer):
        if blk + "ssm_beta.weight" in self.w:
            return self.delta_attention(blk, x)
        return super().attention(blk, x, layer)


class MiniMax01(Experts):
    """MiniMax 2025 (MiniMax-01): the normed row takes the residual stream's place."""

    def lightning(self, blk, x, layer):
        w, tokens = self.w, x.shape[0]
        qkv = silu(x @ w[blk + "attn_qkv.weight"].T).view(tokens, self.heads, 3, self.head_dim)
        q, k, v = qkv.unbind(2)
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.heads + 1, dtype=torch.float64) / self.heads)
        decay = torch.exp(-slopes * (1 - layer / (self.layers - 1) + 1e-5))
        state, out = x.new_zeros(self.heads, self.head_dim, self.head_dim), []
        for t in range(tokens):
            state = state * decay[:, None, None] + k[t][:, :, None] * v[t][:, None, :]
            out.append(torch.einsum("hkv,hk->hv", state, q[t]))
        normed = self.norm(torch.stack(out).view(tokens, -1), blk + "attn_norm_2.weight")
        gate = torch.sigmoid(x @ w[blk + "attn_gate.weight"].T)
        return (normed * gate) @ w[blk + "attn_output.weight"].T

    def layer(self, x, i):
        blk = f"blk.{i}."
        h = self.norm(x, blk + "attn_norm.weight")
        mixed = self.lightning(blk, h, i) if self.m["attention.recurrent_layers"][i] else self.attention(blk, h, i)
        h = self.norm(self.m["residual_scale"] * h + mixed, blk + "ffn_norm.weight")
        return self.m["residual_scale"] * h + self.feed_forward(blk, h)


class Rwkv7(Reference):
    """Peng et al. 2025 (RWKV-7), section 4 and appendix; with Qwen2's norms and feed-forward ARWKV-7."""

    def __init__(self, model):
        metadata = dict(model.metadata)
        model.metadata.update({"attention.head_count": 1, "attention.head_count_kv": 1})
        super().__init__(model)
        model.metadata = self.m = metadata
        self.first_v = None

    def norm(self, x, name):
        bias = name.replace(".weight", ".bias")
        return layer_norm(x, self.w[name], self.w[bias], self.eps) if bias in self.w else super().norm(x, name)

    def before(self, x):
        return torch.cat([torch.zeros_like(x[:1]), x[:-1]])

    def time_mix(self, blk, x, layer):
        w, tokens, dim = self.w, x.shape[0], self.m["wkv.head_size"]
        heads = x.shape[1] // dim
        mix = lambda name: w[f"{blk}time_mix_{name}.weight"]
        rows = [x + (self.before(x) - x) * mu for mu in mix("lerp_fused").view(-1, x.shape[1])]
        pair = lambda row, letter, act=lambda y: y: act(row @ mix(letter + "1").T) @ mix(letter + "2").T
        r, k, v = rows[0] @ mix("receptance").T, rows[2] @ mix("key").T, rows[3] @ mix("value").T
        decay = torch.exp(-math.exp(-0.5) * torch.sigmoid(mix("w0") + pair(rows[1], "w", torch.tanh)))
        rate = torch.sigmoid(mix("a0") + pair(rows[4], "a"))
        if layer == 0:
            self.first_v = v
        else:
            v = v + (self.first_v - v) * torch.sigmoid(mix("v0") + pair(rows[3], "v"))
        split = lambda y: y.view(tokens, heads, dim)
        erased = torch.nn.functional.normalize(split(k * mix("k_k")), dim=-1, eps=1e-12)
        k = k * (1 + (rate - 1) * mix("k_a"))
        r, k, v, decay, rate = (split(y) for y in (r, k, v, decay, rate))
        state, out = x.new_zeros(heads, dim, dim), []  # (value, key), as in the paper
        for t in range(tokens):
            removal = torch.einsum("hi,hj->hij", -erased[t], erased[t] * rate[t])
            state = state * decay[t][:, None, :] + state @ removal + v[t][:, :, None] * k[t][:, None, :]
            out.append(torch.einsum("hvk,hk->hv", state, r[t]))
        y = torch.stack(out)
        if blk + "time_mix_ln.weight" in w:
            y = layer_norm(y, split_vector(mix("ln"), dim), split_vector(w[blk + "time_mix_ln.bias"], dim), 64e-5)
        y = y + (r * k * split_vector(mix("r_k"), dim)).sum(-1, keepdim=True) * v
        y = y.reshape(tokens, -1)
        if blk + "time_mix_g1.weight" in w:
            y = y * (torch.sigmoid(rows[5] @ mix("g1").T) @ mix("g2").T)
        return y @ mix("output").T

    def channel_mix(self, blk, x):
        mixed = x + (self.before(x) - x) * self.w[blk + "channel_mix_lerp_k.weight"]
        return torch.relu(mixed @ self.w[blk + "channel_mix_key.weight"].T) ** 2 @ (
            self.w[blk + "channel_mix_value.weight"].T)

    def layer(self, x, i):
        blk = f"blk.{i}."
        x = x + self.time_mix(blk, self.norm(x, blk + "attn_norm.weight"), i)
        if blk + "channel_mix_key.weight" in self.w:
            return x + self.channel_mix(blk, self.norm(x, blk + "attn_norm_2.weight"))
        return x + self.feed_forward(blk, self.norm(x, blk + "ffn_norm.weight"))

    def embed(self, ids):
        x = super().embed(ids)
        return self.norm(x, "token_embd_norm.weight") if "token_embd_norm.weight" in self.w else x


def split_vector(vector, dim):
    return vector.view(-1, dim)


class Jamba(Hybrid):
    shares_sum_to_1 = False

    def rotated(self, x, layer):
        return x


class GraniteHybrid(Hybrid):
    HALVES = False

    def rotated(self, x, layer):
        return super().rotated(x, layer) if self.m.get("rope.scaling.finetuned", True) else x


class Plamo2(Hybrid):
    def __init__(self, model):
        heads = model.metadata["attention.head_count"]
        model.metadata["attention.head_count"] = max(heads)
        super().__init__(model)
        self.m["attention.head_count"] = heads

    def qkv(self, blk, x):
        sizes = [self.heads * self.head_dim] + 2 * [self.kv_heads * self.head_dim]
        q, k, v = (x @ self.w[blk + "attn_qkv.weight"].T).split(sizes, -1)
        normed = lambda y, name: rms_norm(y.view(x.shape[0], -1, self.head_dim), self.w[blk + name], self.eps)
        return normed(q, "attn_q_norm.weight"), normed(k, "attn_k_norm.weight"), v

    def with_state(self, blk, x):
        m, w, tokens = self.m, self.w, x.shape[0]
        heads, d_state = m["ssm.time_step_rank"], m["ssm.state_size"]
        z, values = (x @ w[blk + "ssm_in.weight"].T).view(tokens, heads, 2, -1).unbind(2)
        values = silu(self.convolved(blk + "ssm_conv1d", values.reshape(tokens, -1)))
        b, c, dt = (values @ w[blk + "ssm_x.weight"].T).split([d_state, d_state, w[blk + "ssm_dt_norm"].shape[0]], -1)
        b, c, dt = (self.norm(part, f"{blk}ssm_{n}_norm") for part, n in ((b, "b"), (c, "c"), (dt, "dt")))
        dt = torch.nn.functional.softplus(dt @ w[blk + "ssm_dt.weight"].T + w[blk + "ssm_dt.bias"])
        values = values.view(tokens, heads, -1)
        state, out = x.new_zeros(heads, values.shape[-1], d_state), []
        for t in range(tokens):
            state = state * torch.exp(dt[t] * w[blk + "ssm_a"])[:, None, None] + torch.einsum(
                "h,hp,n->hpn", dt[t], values[t], b[t])
            out.append(state @ c[t] + w[blk + "ssm_d"][:, None] * values[t])
        return (torch.stack(out) * silu(z)).reshape(tokens, -1) @ w[blk + "ssm_out.weight"].T

    def forward(self, ids):
        x = self.embed(ids)
        for i in range(self.layers):
            blk = f"blk.{i}."
            h = self.norm(x, blk + "attn_norm.weight")
            added = self.with_state(blk, h) if self.has_state(blk) else self.attention(blk, h, i)
            x = x + self.norm(added, blk + "post_attention_norm")
            gate, up = (self.norm(x, blk + "ffn_norm.weight") @ self.w[blk + "ffn_up.weight"].T).chunk(2, -1)
            x = x + self.norm((silu(gate) * up) @ self.w[blk + "ffn_down.weight"].T, blk + "post_ffw_norm")
        return self.logits(self.norm(x, "output_norm.weight"))


class Lfm2(Hybrid):
    qk_norm = "heads"

    def shares(self, logits):
        return torch.sigmoid(logits)


FAMILIES = {
    "llama": Llama, "qwen2": Qwen2, "qwen3": Qwen3, "gemma": Gemma, "gemma2": Gemma2, "gemma3": Gemma3,
    "gemma3n": Gemma3n, "gemma4": Gemma4,
    "phi3": Phi3, "granite": Granite, "smollm3": SmolLm3, "olmo2": Olmo2, "qwen3moe": Qwen3Moe, "olmoe": Olmoe,
    "granitemoe": GraniteMoe, "gpt-oss": GptOss, "glm4": Glm4, "glm4moe": Glm4Moe, "qwen2moe": Qwen2Moe,
    "ernie4_5": Llama, "ernie4_5-moe": Ernie45Moe, "seed_oss": SeedOss, "exaone4": Exaone4,
    "hunyuan-dense": Hunyuan, "internlm2": Llama, "minimax-m2": MiniMaxM2, "deepseek2": DeepSeek2,
    "mistral4": DeepSeek2, "cohere2": Cohere2, "starcoder2": StarCoder2, "mistral3": Mistral3, "deci": Deci,
    "muse-glimmer": MuseGlimmer, "qwen35": QwenHybrid, "qwen35moe": QwenHybrid, "qwen3next": QwenHybrid,
    "mamba": Hybrid, "mamba2": Hybrid, "jamba": Jamba, "falcon-h1": Hybrid, "granitehybrid": GraniteHybrid,
    "kimi-linear": KimiLinear, "minimax-01": MiniMax01, "rwkv7": Rwkv7, "arwkv7": Rwkv7, "plamo2": Plamo2, "lfm2": Lfm2, "lfm2moe": Lfm2, "nemotron_h": NemotronH, "nemotron_h_moe": NemotronH,
}


def reference(model: TinyModel) -> Reference:
    if model.architecture == "llama" and "expert_count" in model.metadata:
        return Mixtral(model)
    return FAMILIES[model.architecture](model)
