"""Writes tests/golden/tales.json and tales-draft.json: the greedy text of a correct engine.

    python goldens.py [--out FOLDER]

Reads the GGUF files beside it and computes in double precision with numpy alone: no PyTorch, none of the training
code but the tokenizer's merging. For each prompt: its token ids (BOS first), 128 greedy token ids, the natural
logarithm of each one's probability, and its margin, the logit's lead over the second best; where the margin is
small, an engine with other rounding may rightly differ. An end of tale does not stop the row.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np

import gguf_file
from tokenizer import MergeTokenizer

HERE = Path(__file__).resolve().parent
NUM_TOKENS = 128
PROMPTS = [
    "Once upon a time there was a little fox who lived at the edge of a great forest.",
    "The Three Wishes\n\nThere was once a poor woodcutter",
    "\"Who is there?\" cried the old woman. \"It is only I,\" said",
    "The king had a daughter, and",
]


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x) + eps) * weight


class Network:
    """One sequence, one token at a time, with its keys and values kept."""

    def __init__(self, file: gguf_file.Reader):
        m = file.metadata
        self.w = {name: x.astype(np.float64) for name, x in file.tensors.items()}
        self.layers = m["llama.block_count"]
        self.heads = m["llama.attention.head_count"]
        self.kv_heads = m["llama.attention.head_count_kv"]
        self.head_dim = m["llama.rope.dimension_count"]
        self.eps = m["llama.attention.layer_norm_rms_epsilon"]
        self.frequency = m["llama.rope.freq_base"] ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        self.keys = [[] for _ in range(self.layers)]
        self.values = [[] for _ in range(self.layers)]

    def rotate(self, x: np.ndarray, position: int) -> np.ndarray:
        """x (heads, head_dim), neighbouring pairs turned by the position's angle."""
        cos, sin = np.cos(position * self.frequency), np.sin(position * self.frequency)
        a, b = x[:, 0::2], x[:, 1::2]
        return np.stack((a * cos - b * sin, a * sin + b * cos), axis=-1).reshape(x.shape)

    def attention(self, i: int, h: np.ndarray) -> np.ndarray:
        w, position = self.w, len(self.keys[i])
        q = self.rotate((w[f"blk.{i}.attn_q.weight"] @ h).reshape(self.heads, -1), position)
        k = self.rotate((w[f"blk.{i}.attn_k.weight"] @ h).reshape(self.kv_heads, -1), position)
        self.keys[i].append(k)
        self.values[i].append((w[f"blk.{i}.attn_v.weight"] @ h).reshape(self.kv_heads, -1))
        keys, values = np.stack(self.keys[i]), np.stack(self.values[i])
        out = []
        for head in range(self.heads):
            kv = head // (self.heads // self.kv_heads)
            scores = keys[:, kv] @ q[head] / np.sqrt(self.head_dim)
            chances = np.exp(scores - scores.max())
            out.append(chances @ values[:, kv] / chances.sum())
        return w[f"blk.{i}.attn_output.weight"] @ np.concatenate(out)

    def logits(self, token: int) -> np.ndarray:
        """Of the token after this one."""
        w = self.w
        x = w["token_embd.weight"][token]
        for i in range(self.layers):
            x = x + self.attention(i, rms_norm(x, w[f"blk.{i}.attn_norm.weight"], self.eps))
            h = rms_norm(x, w[f"blk.{i}.ffn_norm.weight"], self.eps)
            gate = w[f"blk.{i}.ffn_gate.weight"] @ h
            up = w[f"blk.{i}.ffn_up.weight"] @ h
            x = x + w[f"blk.{i}.ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * up)
        return w["token_embd.weight"] @ rms_norm(x, w["output_norm.weight"], self.eps)


def golden(file: gguf_file.Reader, tokenizer: MergeTokenizer, prompt: str) -> dict:
    network = Network(file)
    prompt_ids = [file.metadata["tokenizer.ggml.bos_token_id"], *tokenizer.encode(prompt)]
    for token in prompt_ids:
        logits = network.logits(token)
    ids, logprobs, margins = [], [], []
    for _ in range(NUM_TOKENS):
        best = int(logits.argmax())
        top = logits[best]
        second = np.delete(logits, best).max()
        ids.append(best)
        logprobs.append(round(float(-np.log(np.exp(logits - top).sum())), 6))
        margins.append(round(float(top - second), 6))
        logits = network.logits(best)
    return {"prompt": prompt, "prompt_ids": prompt_ids, "ids": ids, "logprobs": logprobs, "margins": margins,
            "text": tokenizer.decode(ids)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent.parent / "tests" / "golden")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("tales", "tales-draft"):
        file = gguf_file.Reader(HERE / f"{name}.gguf")
        tokenizer = MergeTokenizer(file.metadata["tokenizer.ggml.tokens"], file.metadata["tokenizer.ggml.scores"],
                                   file.metadata["tokenizer.ggml.token_type"])
        goldens = [golden(file, tokenizer, prompt) for prompt in PROMPTS]
        text = json.dumps({"model": f"{name}.gguf", "greedy": goldens}, indent=1)
        # Rows of numbers on one line each.
        text = re.sub(r"\[\s+([^\[\]{}\"]*?)\s+\]", lambda row: "[" + re.sub(r"\s+", " ", row[1]) + "]", text)
        (args.out / f"{name}.json").write_text(text + "\n")
        print(f"{name}: smallest margin {min(min(g['margins']) for g in goldens):.4f}")


if __name__ == "__main__":
    main()
