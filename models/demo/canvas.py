"""Trains tales-canvas, which denoises a canvas in place of writing from left to right (docs/diffusion.md), and writes its file.

    venv/bin/python canvas.py --corpus FOLDER --minutes 12 --out tales-canvas.gguf

It starts from tales-draft and keeps that model's shift, as Dream does with its own: the row before a masked token predicts it. A row
of the corpus is masked at a rate drawn evenly from 0 to 1, and the loss is the cross entropy of its masked tokens, each row's mean
counting the same. Source: Nie et al. 2025 (LLaDA) section 2; Ye et al. 2025 (Dream) for the start. The tokenizer's <unk>, which byte
fallback never needs, is the mask.
"""

import argparse
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import corpus
import export
import gguf_file as gguf
import tokenizer
from model import Llama

HERE = Path(__file__).resolve().parent
START = HERE / "tales-draft.gguf"
ROW = 96        # tokens of a training row
BATCH = 24      # rows of a step
RATE = 1.5e-3
WARMUP = 30     # steps
HELD_OUT = 64   # rows that are kept for measuring


def corpus_rows(metadata: dict, folder: Path, count: int) -> np.ndarray:
    """Rows of running text, each after BOS, in the encoding of the file."""
    encoder = tokenizer.MergeTokenizer(*(metadata["tokenizer.ggml." + key] for key in ("tokens", "scores", "token_type")))
    tales = [tale for tale in corpus.read_tales(folder, "train") if corpus.is_prose(tale)]
    ids = []
    for i in np.random.default_rng(1).permutation(len(tales)):
        ids += encoder.encode(tales[i][:4000])
        if len(ids) >= count * ROW:
            break
    rows = np.array(ids[:len(ids) // ROW * ROW], dtype=np.int64).reshape(-1, ROW)[:count].copy()
    rows[:, 0] = metadata["tokenizer.ggml.bos_token_id"]
    return rows


def masked_loss(model: Llama, rows: torch.Tensor, mask: int, rng: torch.Generator) -> torch.Tensor:
    """Of every row's masked tokens, at a rate of its own; at least the last token is masked."""
    rate = torch.rand(len(rows), 1, generator=rng)
    hidden = torch.rand(rows.shape, generator=rng) < rate
    hidden[:, 0] = False
    hidden[:, -1] = True
    with torch.autocast("cpu", torch.bfloat16):
        x = model(torch.where(hidden, mask, rows))[:, :-1]
        at = hidden[:, 1:]
        logits = F.linear(x[at], model.token_embd.weight)
    loss = F.cross_entropy(logits.float(), rows[:, 1:][at], reduction="none")
    share = 1 / at.sum(1, keepdim=True).expand_as(at)[at]
    return (loss * share).sum() / len(rows)


def train(model: Llama, rows: np.ndarray, mask: int, minutes: float) -> int:
    """Linear decay by the clock. Returns the number of steps."""
    rng, order = torch.Generator().manual_seed(1), np.random.default_rng(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    begin, step, shown = time.monotonic(), 0, 0.0
    while (left := 1 - (time.monotonic() - begin) / (60 * minutes)) > 0:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARMUP) * max(left, 0.02)
        batch = torch.from_numpy(rows[order.integers(len(rows), size=BATCH)])
        loss = masked_loss(model, batch, mask, rng)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        shown = loss.item() if step == 1 else 0.98 * shown + 0.02 * loss.item()
        if step % 50 == 0:
            print(f"step {step}: loss {shown:.3f}, {time.monotonic() - begin:.0f} s", flush=True)
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--rows", type=int, default=12000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    with torch.no_grad():
        start = export.load(START)
    model = Llama(replace(start.shape, causal=False))
    model.load_state_dict(start.state_dict())
    metadata = gguf.Reader(START).metadata
    mask = metadata["tokenizer.ggml.unknown_token_id"]
    rows = corpus_rows(metadata, args.corpus, args.rows)
    print(f"{len(rows)} rows of {ROW} tokens", flush=True)
    steps = train(model.train(), rows[HELD_OUT:], mask, args.minutes)
    model.eval()
    with torch.no_grad():
        loss = masked_loss(model, torch.from_numpy(rows[:HELD_OUT]), mask, torch.Generator().manual_seed(7))
    print(f"{steps} steps of {BATCH * ROW} tokens, held-out loss {float(loss):.3f} nats ({math.exp(float(loss)):.1f})")
    export.export_canvas(model, START, mask, args.out)


if __name__ == "__main__":
    main()
