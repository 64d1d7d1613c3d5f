"""Trains the draft to predict the target's tokens, from the corpus's text and from the target's own tales."""

import numpy as np
import torch
import torch.nn.functional as F

import trainer
from generate import generate
from model import Llama

SAMPLE_ROWS, SAMPLE_PROMPT, SAMPLE_TOKENS = 256, 32, 224
ARGMAX_WEIGHT = 0.5  # beside the KL, a little cross entropy on the target's first choice, which greedy drafting needs


def own_tales(target, stream: np.ndarray, batches: int, device: str) -> np.ndarray:
    """What the target writes on from random places of the corpus, at temperature 0.8."""
    rng = np.random.default_rng(3)
    generator = torch.Generator(device).manual_seed(3)
    rows = []
    for batch in range(batches):
        starts = rng.integers(len(stream) - SAMPLE_PROMPT, size=SAMPLE_ROWS)
        prompts = torch.from_numpy(stream[starts[:, None] + np.arange(SAMPLE_PROMPT)].astype(np.int64)).to(device)
        with torch.autocast(device, torch.bfloat16):
            rows.append(generate(target, prompts, SAMPLE_TOKENS, 0.8, generator).cpu().numpy().astype(np.uint16))
        print(f"the target's own tales: {batch + 1} of {batches} batches", flush=True)
    return np.concatenate(rows).ravel()


def start_from_target(draft: Llama, target: Llama) -> None:
    """The draft begins with every tensor of the target's that has its shape (embedding, output norm, the first
    layers' attention) and with the FFN neurons of the target's that weigh most."""
    theirs = target.state_dict()
    mine = draft.state_dict()
    start = {name: theirs[name] if name in theirs and theirs[name].shape == p.shape else p for name, p in mine.items()}
    for i in range(len(draft.layers)):
        gate, up, down = (theirs[f"layers.{i}.ffn_{part}.weight"] for part in ("gate", "up", "down"))
        most = (gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)).topk(draft.shape.ffn).indices.sort().values
        start |= {f"layers.{i}.ffn_gate.weight": gate[most], f"layers.{i}.ffn_up.weight": up[most],
                  f"layers.{i}.ffn_down.weight": down[:, most]}
    draft.load_state_dict(start)


def distill(run, target: Llama, draft: Llama, quick_heldout) -> None:
    stream = np.load(run.work / "train.npy")
    samples_file = run.work / "samples.npy"
    if not samples_file.exists():
        np.save(samples_file, own_tales(target, stream, run.preset.sample_batches, run.device))
    stream = np.concatenate((stream, np.load(samples_file)))
    start_from_target(draft, target)
    target.requires_grad_(False)

    def loss_of(tokens):
        tokens = tokens[:, :-1]
        wanted = target.logits(tokens).flatten(0, 1).float()
        got = F.log_softmax(draft.logits(tokens).flatten(0, 1).float(), dim=-1)
        chances = torch.softmax(wanted, dim=-1)
        divergence = (chances * (torch.log_softmax(wanted, dim=-1) - got)).sum(-1).mean()
        return divergence + ARGMAX_WEIGHT * F.nll_loss(got, wanted.argmax(-1))

    trainer.train(draft, loss_of, stream, run.preset.draft_plan, run.work / "draft", run.device,
                  quick_heldout, run.finish_by, run.compile)
