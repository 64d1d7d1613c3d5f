"""Trains chained heads that draft for tales, and writes tales-medusa.gguf (docs/speculation.md, "Heads").

    venv/bin/python heads.py --corpus FOLDER --work FOLDER

They learn the target's distribution at temperature 0.8 on tales that the target wrote itself and on the corpus, each place
from the row of the place before, which is what drafting does. The target stays as it is: its rows are computed once.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import corpus
import export
import gguf_file as gguf
import tokenizer
from generate import generate
from model import RmsNorm

HERE = Path(__file__).resolve().parent
TARGET = HERE / "tales.gguf"
TEMPERATURE = 0.8
ROW = 256      # tokens of a training row
PROMPT = 24    # of them from the corpus, in the target's own tales
PLACES = 3     # drafts in a row that are trained
PLACE_WEIGHT = 0.8  # of each place's loss, relative to the one before
BATCH = 12     # rows of a step
HELD_OUT = 24  # rows of the target's own tales that are kept for measuring


class ChainedHead(nn.Module):
    def __init__(self, width: int, blocks: int, output: torch.Tensor, output_norm: torch.Tensor, eps: float):
        super().__init__()
        self.embedding_norm = RmsNorm(width, eps)
        self.hidden_norm = RmsNorm(width, eps)
        self.output_norm = RmsNorm(width, eps)
        self.pair = nn.Linear(2 * width, width, bias=False)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.output = nn.Linear(width, len(output), bias=False)
        with torch.no_grad():
            nn.init.normal_(self.pair.weight, std=0.5 * (2 * width) ** -0.5)
            for block in self.blocks:
                nn.init.normal_(block.weight, std=0.6 * width ** -0.5)
                block.bias.zero_()
            self.output.weight.copy_(output)
            self.output_norm.weight.copy_(output_norm)

    def forward(self, embedding, hidden):
        """(.., width) twice -> the rows that the next place continues, and logits of the draft tokens."""
        x = self.pair(torch.cat((self.embedding_norm(embedding), self.hidden_norm(hidden)), -1))
        for block in self.blocks:
            x = x + F.silu(block(x))
        hidden = self.output_norm(x)
        return hidden, self.output(hidden)

    def gguf_tensors(self) -> dict:
        names = {}
        for name, p in self.named_parameters():
            part = name.split(".")
            name = f"block.{part[1]}.{part[2]}" if part[0] == "blocks" else name
            names["head.0." + name] = p.detach().float().numpy()
        return names


def corpus_rows(folder: Path, count: int, bos: int) -> np.ndarray:
    """Rows of the corpus, in the encoding of the target's file."""
    metadata = gguf.Reader(TARGET).metadata
    encoder = tokenizer.MergeTokenizer(*(metadata["tokenizer.ggml." + key] for key in ("tokens", "scores", "token_type")))
    tales = [tale for tale in corpus.read_tales(folder, "train") if corpus.is_prose(tale)]
    ids = []
    for i in np.random.default_rng(1).permutation(len(tales)):
        ids += encoder.encode(tales[i][:4000])
        if len(ids) >= count * ROW:
            break
    rows = np.array(ids[:len(ids) // ROW * ROW], dtype=np.int64).reshape(-1, ROW)[:count].copy()
    rows[:, 0] = bos
    return rows


def own_rows(target, prompts: np.ndarray, count: int) -> np.ndarray:
    """What the target writes on from beginnings of rows, at the temperature of the training; every fourth batch nearly
    greedily."""
    rng, generator = np.random.default_rng(3), torch.Generator().manual_seed(3)
    rows = []
    for batch in range(-(-count // 256)):
        begin = torch.from_numpy(prompts[rng.integers(len(prompts), size=256), :PROMPT])
        temperature = 0.15 if batch % 4 == 3 else TEMPERATURE
        with torch.autocast("cpu", torch.bfloat16):
            rows.append(generate(target, begin, ROW - PROMPT, temperature, generator).numpy())
        print(f"the target's own tales: {256 * (batch + 1)} rows", flush=True)
    return np.concatenate(rows)[:count]


class Rows:
    """Rows of tokens with the target's hidden rows, and the logarithm of the sum of its chances."""

    def __init__(self, target, tokens: np.ndarray):
        self.tokens = torch.from_numpy(tokens)
        hidden, sums = [], []
        with torch.no_grad():
            for part in self.tokens.split(16):
                h = target(part)
                hidden.append(h.half())
                sums.append(torch.logsumexp(F.linear(h, target.token_embd.weight) / TEMPERATURE, -1))
        self.hidden, self.sums = torch.cat(hidden), torch.cat(sums)


def places(head, rows: Rows, index: torch.Tensor, embedding: torch.Tensor):
    """Logits of each place, for the positions that have all places after them."""
    length = ROW - PLACES - 1
    tokens, hidden = rows.tokens[index], rows.hidden[index, :length].float()
    for place in range(1, PLACES + 1):
        hidden, logits = head(F.embedding(tokens[:, place:place + length], embedding), hidden)
        yield place, logits


def loss_of(head, rows: Rows, index: torch.Tensor, embedding: torch.Tensor, draft_tokens: torch.Tensor):
    """Cross entropy with the target's chances of the draft tokens; the other tokens cannot be drafted."""
    length, loss = ROW - PLACES - 1, 0
    wanted = F.linear(rows.hidden[index].float(), embedding[draft_tokens]) / TEMPERATURE
    chances = torch.exp(wanted - rows.sums[index][..., None])
    for place, logits in places(head, rows, index, embedding):
        got = F.log_softmax(logits / TEMPERATURE, -1)
        loss = loss - PLACE_WEIGHT ** (place - 1) * (chances[:, place:place + length] * got).sum(-1).mean()
    return loss


@torch.no_grad()
def acceptance(head, rows: Rows, index: torch.Tensor, embedding: torch.Tensor, draft_tokens: torch.Tensor):
    """Per place, how often a draft is the token drawn with the same noise, given that those before it were; and how
    often the first choices are equal."""
    length, generator = ROW - PLACES - 1, torch.Generator().manual_seed(5)
    wanted = F.linear(rows.hidden[index].float(), embedding)
    noise = -torch.log(-torch.log(torch.rand(wanted.shape, generator=generator).clamp_min(1e-9)))
    drawn, first = (wanted / TEMPERATURE + noise).argmax(-1), wanted.argmax(-1)
    out = []
    for place, logits in places(head, rows, index, embedding):
        here = slice(place, place + length)
        draft = draft_tokens[(logits / TEMPERATURE + noise[:, here][..., draft_tokens]).argmax(-1)]
        out.append(((draft == drawn[:, here]).float().mean().item(),
                    (draft_tokens[logits.argmax(-1)] == first[:, here]).float().mean().item()))
    return out


def train(head, rows: Rows, own: int, embedding, draft_tokens, steps: int, peak: float, minutes: float) -> None:
    optimizer = torch.optim.AdamW(head.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    generator, began = torch.Generator().manual_seed(7), time.time()
    held_out = torch.arange(HELD_OUT) * (own // HELD_OUT)
    kept = torch.ones(len(rows.tokens), dtype=torch.bool)
    kept[held_out] = False
    kept = torch.nonzero(kept)[:, 0]
    for step in range(steps):
        done = max(step / steps, (time.time() - began) / 60 / minutes)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1, (step + 1) / 30) * (1 - 0.97 * done)
        index = kept[torch.randint(len(kept), (BATCH,), generator=generator)]
        loss = loss_of(head, rows, index, embedding, draft_tokens)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: {time.time() - began:.0f} s, loss {loss.item():.3f}", flush=True)
    for place, (drawn, first) in enumerate(acceptance(head, rows, held_out, embedding, draft_tokens)):
        print(f"place {place}: {drawn:.3f} right when drawn at {TEMPERATURE}, {first:.3f} greedily")


def write(head, shape, draft_tokens: torch.Tensor, blocks: int, path: Path) -> None:
    gguf.write(path, {
        "general.architecture": (gguf.STRING, "medusa"),
        "general.name": (gguf.STRING, path.stem),
        "general.description": (gguf.STRING, "Heads that draft for tales, distilled from it."),
        "general.license": (gguf.STRING, "apache-2.0"),
        "general.file_type": (gguf.UINT32, export.FILE_TYPES["q8_0"]),
        "general.alignment": (gguf.UINT32, gguf.ALIGNMENT),
        "medusa.head_count": (gguf.UINT32, 1),
        "medusa.block_count": (gguf.UINT32, blocks),
        "medusa.embedding_length": (gguf.UINT32, shape.width),
        "medusa.vocab_size": (gguf.UINT32, shape.vocab),
        "medusa.target.name": (gguf.STRING, TARGET.stem),
        "medusa.chained": (gguf.BOOL, True),
        "medusa.draft_tokens": (gguf.ARRAY, (gguf.INT32, draft_tokens.tolist())),
    }, head.gguf_tensors(), "q8_0")
    print(f"{path.name}: {path.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of tales-train.txt[.zst]")
    parser.add_argument("--work", type=Path, required=True, help="folder for the rows and the like")
    parser.add_argument("--draft-tokens", type=int, default=1280, help="the most frequent ones; the others are never drafted")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--own", type=int, default=768, help="rows that the target writes itself")
    parser.add_argument("--others", type=int, default=700, help="rows of the corpus")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--minutes", type=float, default=14, help="end the training by then, annealed")
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--out", type=Path, default=HERE / "tales-medusa.gguf")
    run = parser.parse_args()
    run.work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    target = export.load(TARGET).requires_grad_(False)
    embedding = target.token_embd.weight
    file = run.work / "rows.npy"
    if not file.exists():
        others = corpus_rows(run.corpus, run.others, bos=1)
        np.save(file, np.concatenate((own_rows(target, others, run.own), others)))
    rows = Rows(target, np.load(file))
    counts = torch.bincount(rows.tokens[:run.own].ravel(), minlength=target.shape.vocab)
    counts = counts + 0.3 * torch.bincount(rows.tokens.ravel(), minlength=target.shape.vocab)
    draft_tokens = torch.argsort(-counts, stable=True)[:run.draft_tokens].sort().values
    print(f"{run.draft_tokens} tokens are {counts[draft_tokens].sum() / counts.sum():.3f} of the text")
    head = ChainedHead(target.shape.width, run.blocks, embedding[draft_tokens], target.output_norm.weight,
                       target.shape.norm_eps)
    train(head, rows, run.own, embedding, draft_tokens, run.steps, run.rate, run.minutes)
    write(head, target.shape, draft_tokens, run.blocks, run.out)


if __name__ == "__main__":
    main()
