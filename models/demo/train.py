"""Trains, exports and describes the bundled model pair: `tales` and its draft `tales-draft`.

    python train.py --corpus FOLDER --work FOLDER [--preset small-cpu|gpu] [stage ...]

Stages, all in this order if none is named: tokenizer, target, draft, export, card. Each leaves its result in the
work folder and picks up there, so a run that was stopped is started again with the same command. The device is a
GPU where there is one. To end training early and still get an annealed model, put a file `decay-now` into
WORK/target or WORK/draft, or give --finish-by HH:MM (local time).
"""

import argparse
import datetime
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import card
import corpus
import tokenizer
import trainer
from distill import distill
from export import export
from model import Llama
from presets import PRESETS

HERE = Path(__file__).resolve().parent


def stage_tokenizer(run) -> None:
    """Trains the tokenizer and encodes both splits."""
    tales = [tale for tale in corpus.read_tales(run.corpus, "train") if corpus.is_prose(tale)]
    heldout = corpus.read_tales(run.corpus, "heldout")
    tokenizer.train(tales, run.work / "tokenizer.model")
    sp = tokenizer.load(run.work / "tokenizer.model")
    for split, text in (("train", tales), ("heldout", heldout)):
        np.save(run.work / f"{split}.npy", corpus.token_stream(sp, text))
    own = tokenizer.MergeTokenizer(*tokenizer.vocabulary(sp))
    paragraphs = [line for tale in heldout for line in tale.split("\n") if line][:2000:10]
    same = sum(own.encode(p) == sp.encode(p) and own.decode(own.encode(p)) == p for p in paragraphs)
    print(f"{same} of {len(paragraphs)} held-out paragraphs encode alike in both tokenizers and decode to themselves")
    if same != len(paragraphs):
        raise SystemExit("the tokenizers differ")


def quick_heldout(run, model):
    """Mean loss (nats a token) over 48 held-out windows of 512, for the curve while training."""
    stream = np.load(run.work / "heldout.npy")
    starts = np.linspace(0, len(stream) - 514, 48).astype(int)
    tokens = torch.from_numpy(stream[starts[:, None] + np.arange(513)].astype(np.int64)).to(run.device)

    @torch.no_grad()
    def evaluate() -> float:
        losses = [F.cross_entropy(model.logits(t[:, :-1]).flatten(0, 1).float(), t[:, 1:].flatten()).item()
                  for t in tokens.split(8)]
        return sum(losses) / len(losses)

    return evaluate


def stage_target(run) -> None:
    torch.manual_seed(run.preset.target_plan.seed)
    model = Llama(run.preset.target).to(run.device)
    print(f"target: {run.preset.target.num_params()} parameters and the embedding, on {run.device}")

    def loss_of(tokens):
        return F.cross_entropy(model.logits(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())

    trainer.train(model, loss_of, np.load(run.work / "train.npy"), run.preset.target_plan, run.work / "target",
                  run.device, quick_heldout(run, model), run.finish_by, run.compile)
    torch.save(model.state_dict(), run.work / "target.pt")


def load_weights(run, name: str) -> Llama:
    """A model as its stage left it, or as the last checkpoint of a stage still running has it."""
    model = Llama(getattr(run.preset, name)).to(run.device)
    done = run.work / f"{name}.pt"
    if done.exists():
        model.load_state_dict(torch.load(done, map_location=run.device, weights_only=True))
    else:
        checkpoint = torch.load(run.work / name / "checkpoint.pt", map_location=run.device, weights_only=True)
        print(f"{name}: unfinished, as of step {checkpoint['step']}")
        model.load_state_dict(checkpoint["model"])
    return model.eval()


def stage_draft(run) -> None:
    torch.manual_seed(run.preset.draft_plan.seed)
    draft = Llama(run.preset.draft).to(run.device)
    print(f"draft: {run.preset.draft.num_params()} parameters and the embedding, on {run.device}")
    distill(run, load_weights(run, "target"), draft, quick_heldout(run, draft))
    torch.save(draft.state_dict(), run.work / "draft.pt")


def stage_export(run) -> None:
    sp = tokenizer.load(run.work / "tokenizer.model")
    for name, file, description in (
            ("target", "tales", "Writes fairy tales; trained from scratch on public-domain tales."),
            ("draft", "tales-draft", "The draft of tales: the same tokenizer, distilled from it.")):
        if not (run.work / f"{name}.pt").exists() and not (run.work / name / "checkpoint.pt").exists():
            print(f"{name}: not trained yet")
            continue
        path = HERE / f"{file}.gguf"
        export(load_weights(run, name), sp, file, description, getattr(run.preset, f"{name}_type"), path)
        print(f"{path.name}: {path.stat().st_size} bytes")


def stage_card(run) -> None:
    card.write(run, HERE)


def finish_time(text: str) -> float:
    """The next time the clock shows HH:MM, as seconds since 1970."""
    hour, minute = map(int, text.split(":"))
    now = datetime.datetime.now()
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (at if at > now else at + datetime.timedelta(days=1)).timestamp()


STAGES = {"tokenizer": stage_tokenizer, "target": stage_target, "draft": stage_draft, "export": stage_export,
          "card": stage_card}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="stage", help=", ".join(STAGES))
    parser.add_argument("--corpus", type=Path, required=True, help="folder of tales-train.txt[.zst] and its held-out")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and the like")
    parser.add_argument("--preset", choices=PRESETS, help="small-cpu, or gpu where there is one")
    parser.add_argument("--finish-by", metavar="HH:MM", help="end the training stage by then, annealed")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="do without torch.compile")
    run = parser.parse_args()
    run.device = "cuda" if torch.cuda.is_available() else "cpu"
    run.preset = PRESETS[run.preset or ("gpu" if run.device == "cuda" else "small-cpu")]
    run.finish_by = finish_time(run.finish_by) if run.finish_by else None
    run.work.mkdir(parents=True, exist_ok=True)
    for stage in run.stages or STAGES:
        began = time.time()
        STAGES[stage](run)
        print(f"{stage}: {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
