"""Measures the exported pair and writes its model card: README.md and loss.png."""

import json
import math
import platform
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
import torch

import corpus
import evaluate
import export
import tokenizer
import trainer
from generate import generate
from presets import PRESETS

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of a backend)

SAMPLE_PROMPTS = [
    "Once upon a time",
    "The Fox and the Princess\n\nThere was once a princess who",
    "\"Good morning, Peter Rabbit,\" said",
    "The old king had three sons, and the youngest",
]
SAMPLE_TOKENS = 260


def measure(run, here: Path) -> dict:
    sp = tokenizer.load(run.work / "tokenizer.model")
    target = export.load(here / "tales.gguf").to(run.device)
    draft = export.load(here / "tales-draft.gguf").to(run.device)
    heldout = corpus.read_tales(run.corpus, "heldout")
    num_bytes = sum(len(tale.encode("utf-8")) for tale in heldout)
    stream = np.load(run.work / "heldout.npy")
    result = evaluate.measure_pair(target, draft, stream, sp.bos_id(), num_bytes, run.device)
    trigram = evaluate.Trigram(np.load(run.work / "train.npy"), tokenizer.VOCAB_SIZE)
    result["bits_per_byte"]["trigram"] = trigram.nats(stream, sp.bos_id()) / math.log(2) / num_bytes
    result["heldout_bytes"] = num_bytes
    (run.work / "results.json").write_text(json.dumps(result, indent=1))
    return result


def write_samples(run, here: Path) -> list[str]:
    """Each prompt's first continuation, as it came."""
    sp = tokenizer.load(run.work / "tokenizer.model")
    target = export.load(here / "tales.gguf").to(run.device)
    texts = []
    for seed, prompt in enumerate(SAMPLE_PROMPTS):
        generator = torch.Generator(run.device).manual_seed(seed)
        ids = torch.tensor([[sp.bos_id(), *sp.encode(prompt)]], device=run.device)
        out = generate(target, ids, SAMPLE_TOKENS, 0.8, generator)[0].tolist()[1:]
        if sp.eos_id() in out:
            out = out[:out.index(sp.eos_id())]
        texts.append(sp.decode(out))
    return texts


def plot(run, path: Path) -> None:
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for axis, name in zip(axes, ("target", "draft")):
        log = json.loads((run.work / name / "log.json").read_text())
        label = "training" if name == "target" else "training (distillation loss)"
        axis.plot([t / 1e6 for _, t, _, _ in log["train"]], [loss for _, _, loss, _ in log["train"]], label=label, lw=1)
        axis.plot([t / 1e6 for _, t, _ in log["heldout"]], [loss for _, _, loss in log["heldout"]], "o-", ms=3,
                  label="held-out, windows of 512")
        axis.set(title={"target": "tales", "draft": "tales-draft"}[name], xlabel="million tokens",
                 ylabel="nats a token")
        axis.set_ylim(top=6)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90, metadata={"Software": None})


def describe_run(run, name: str, plan: trainer.Plan) -> str:
    log = json.loads((run.work / name / "log.json").read_text())
    steps, tokens = log["heldout"][-1][:2]
    epochs = tokens / log["tokens_per_epoch"]
    text = (f"{steps} steps of {plan.tokens_per_step} tokens, {tokens / 1e6:.1f} M tokens, {epochs:.2f} epochs, "
            f"{log['seconds'] / 60:.0f} minutes")
    if epochs < 0.98 * plan.epochs:
        text += f" (cut short by the clock, {plan.epochs} epochs were planned)"
    return text


def shape_row(file: str, here: Path, s) -> str:
    embedding = s.vocab * s.width
    return (f"| `{file}` | {s.width} | {s.layers} | {s.ffn} | {s.heads} / {s.kv_heads} x {s.head_dim} | "
            f"{s.num_params() / 1e6:.2f} M + {embedding / 1e6:.2f} M | "
            f"{(here / f'{file}.gguf').stat().st_size / 1e6:.1f} MB |")


def write(run, here: Path) -> None:
    r = measure(run, here)
    samples = write_samples(run, here)
    plot(run, here / "loss.png")
    p = run.preset
    bits = r["bits_per_byte"]
    device = torch.cuda.get_device_name() if run.device == "cuda" else f"CPU ({platform.machine()}, bfloat16 autocast)"
    position_rows = "\n".join(
        f"| {low} to {high - 1} | {nats:.3f} |"
        for (low, high), nats in zip(zip(evaluate.POSITIONS, evaluate.POSITIONS[1:]), r["nats_by_position"]))
    shown = "\n\n".join("> " + text.replace("\n", "\n> ") for text in samples)
    tales = corpus.read_tales(run.corpus, "train")
    kept = [tale for tale in tales if corpus.is_prose(tale)]
    facts = {
        "shape_rows": "\n".join((shape_row("tales", here, p.target),
                                 shape_row("tales-draft", here, p.draft))),
        "target_type": p.target_type.upper(), "draft_type": p.draft_type.upper(),
        "preset": next(k for k, v in PRESETS.items() if v == p),
        "device": device, "target_run": describe_run(run, "target", p.target_plan), "draft_run": describe_run(run, "draft", p.draft_plan),
        "kept": len(kept), "tales": len(tales), "megabytes": sum(map(len, kept)) / 1e6,
        "tokens_m": len(np.load(run.work / "train.npy")) / 1e6, "target_lr": p.target_plan.lr,
        "draft_lr": p.draft_plan.lr, "bpb_target": bits["target"], "bpb_draft": bits["draft"],
        "bpb_trigram": bits["trigram"], "npt_target": r["nats_per_token"]["target"],
        "npt_draft": r["nats_per_token"]["draft"], "heldout_bytes": r["heldout_bytes"], "tokens": r["tokens"],
        "agreement": r["agreement"], "overlap": r["overlap"], "top1": r["top1"], "position_rows": position_rows,
        "samples": shown, "sample_batches": p.sample_batches,
        "decay_length": p.target_plan.decay_length, "length": p.target_plan.length,
        "long_part": p.target_plan.long_part,
    }
    card = (here / "card.md.in").read_text().format(**facts)
    card = "\n".join(textwrap.fill(line, 120, subsequent_indent="  ") if line.startswith("- ") else line
                     for line in card.split("\n"))
    (here / "README.md").write_text(card)
    print(json.dumps(r, indent=1))

