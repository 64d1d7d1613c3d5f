"""The training loop both models share: batches, schedule, checkpoints.

Schedule: warm up, hold, decay (WSD). Because the rate is held until the decay begins, a run can be cut short at
any time and still end annealed: put a file `decay-now` beside the checkpoint, or give a clock time to finish by.
"""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from optim import make_optimizers

BLOCK = 2048  # tokens of running text that are shuffled as one
GROUP = 64    # blocks whose windows are mixed among the group's steps


@dataclass(frozen=True)
class Plan:
    epochs: float
    lr: float
    warmup_steps: int = 60
    decay_part: float = 0.3     # of all steps
    final_lr: float = 0.05      # of the peak
    length: int = 256           # window while the rate is held
    decay_length: int = 512     # ... in the decay's first part
    long_part: float = 0.35     # the decay's last part has windows of a whole block
    blocks_per_step: int = 8    # 16384 tokens
    micro_tokens: int = 4096    # what one backward pass takes
    seed: int = 1

    @property
    def tokens_per_step(self) -> int:
        return BLOCK * self.blocks_per_step

    @property
    def steps_per_group(self) -> int:
        return GROUP // self.blocks_per_step


class Batches:
    """Every epoch visits every block once; a block is cut into windows of the length asked for. What a step gets
    depends only on seed, step and length, so a resumed run continues as an uninterrupted one."""

    def __init__(self, stream: np.ndarray, plan: Plan):
        self.stream = stream
        self.seed = plan.seed
        self.steps_per_group = plan.steps_per_group
        self.steps_per_epoch = (len(stream) - 1 - BLOCK) // BLOCK // GROUP * self.steps_per_group

    def step(self, step: int, length: int) -> np.ndarray:
        """(windows, length + 1) token ids; the last column is only predicted."""
        epoch, in_epoch = divmod(step, self.steps_per_epoch)
        group, in_group = divmod(in_epoch, self.steps_per_group)
        rng = np.random.default_rng((self.seed, epoch))
        offset = int(rng.integers(BLOCK))
        blocks = rng.permutation((len(self.stream) - 1 - offset) // BLOCK)[group * GROUP:(group + 1) * GROUP]
        starts = (offset + blocks[:, None] * BLOCK + np.arange(0, BLOCK, length)).ravel()
        np.random.default_rng((self.seed, epoch, group)).shuffle(starts)
        per_step = len(starts) // self.steps_per_group
        mine = starts[in_group * per_step:(in_group + 1) * per_step]
        return self.stream[mine[:, None] + np.arange(length + 1)].astype(np.int64)


class Schedule:
    """Where in warm-up, hold and decay a step lies. `decay_from` is fixed when the decay begins."""

    def __init__(self, plan: Plan, total_steps: int, finish_by: float | None):
        self.plan = plan
        self.total = total_steps
        self.decay_steps = max(1, round(total_steps * plan.decay_part))
        self.finish_by = finish_by
        self.decay_from = None
        self.decay_began = 0.0

    def begin_step(self, step: int, seconds_per_step: float, decay_now: bool) -> None:
        if self.decay_from is not None or step % self.plan.steps_per_group != 0:
            return
        # Late steps read longer windows and take about a quarter longer.
        late = (self.finish_by is not None and seconds_per_step > 0 and
                time.time() + 1.25 * seconds_per_step * self.decay_steps >= self.finish_by)
        if decay_now or late or step >= self.total - self.decay_steps:
            self.decay_from = step
            self.decay_began = time.time()

    def decayed(self, step: int) -> float:
        """0 before the decay, 1 at its end; ahead of the step count when the clock is."""
        if self.decay_from is None:
            return 0.0
        by_steps = (step - self.decay_from) / self.decay_steps
        if self.finish_by is None:
            return by_steps
        return max(by_steps, (time.time() - self.decay_began) / max(1.0, self.finish_by - self.decay_began))

    def rate(self, step: int) -> float:
        warm = min(1.0, (step + 1) / self.plan.warmup_steps)
        return warm * (1 - (1 - self.plan.final_lr) * min(1.0, self.decayed(step)))

    def length(self, step: int) -> int:
        decayed = self.decayed(step - step % self.plan.steps_per_group)
        if self.decay_from is None:
            return self.plan.length
        return BLOCK if decayed >= 1 - self.plan.long_part else self.plan.decay_length


def train(model, loss_of, stream, plan: Plan, folder: Path, device: str, evaluate, finish_by=None, compile=True):
    """Trains `model` in place. loss_of(tokens) -> mean loss of one micro-batch (windows, length + 1).
    Resumes from folder/checkpoint.pt where there is one. Returns the run's log."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = Batches(stream, plan)
    total = round(plan.epochs * batches.steps_per_epoch)
    optimizers = make_optimizers(model, plan.lr)
    schedule = Schedule(plan, total, finish_by)
    log = {"tokens_per_epoch": len(stream), "tokens": 0, "seconds": 0.0, "train": [], "heldout": []}
    step, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        step, log, schedule.decay_from = saved["step"], json.loads(saved["log"]), saved["decay_from"]
        schedule.decay_began = time.time()
        print(f"resumed at step {step}", flush=True)

    def save():
        state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step,
                 "log": json.dumps(log), "decay_from": schedule.decay_from}
        torch.save(state, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)
        (folder / "log.json").write_text(json.dumps(log))

    # Windows of different length are different shapes, each compiled once.
    compiled = torch.compile(loss_of, dynamic=False) if compile else loss_of
    pace, saved_at, losses = 0.0, time.time(), []
    print(f"{total} steps of {plan.tokens_per_step} tokens, {plan.epochs} epochs", flush=True)
    while True:
        began = time.time()
        schedule.begin_step(step, pace, (folder / "decay-now").exists())
        if schedule.decayed(step) >= 1:
            break
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = plan.lr * schedule.rate(step)
        tokens = torch.from_numpy(batches.step(step, schedule.length(step))).to(device)
        micro = max(1, plan.micro_tokens // (tokens.shape[1] - 1))
        model.train()
        total_loss = 0.0
        for part in tokens.split(micro):
            with torch.autocast(device, torch.bfloat16):
                loss = compiled(part) * (len(part) / len(tokens))
            loss.backward()
            total_loss += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        step += 1
        took = time.time() - began
        pace = took if pace == 0 or step < 5 else 0.95 * pace + 0.05 * took
        log["tokens"] += tokens.shape[0] * (tokens.shape[1] - 1)
        log["seconds"] += took
        losses.append(total_loss)
        if not math.isfinite(total_loss):
            raise RuntimeError(f"step {step}: loss {total_loss}")
        if step % 10 == 0:
            log["train"].append((step, log["tokens"], sum(losses) / len(losses), schedule.rate(step)))
            print(f"step {step}/{total}  loss {sum(losses) / len(losses):.3f}  lr x{schedule.rate(step):.2f}  window "
                  f"{tokens.shape[1] - 1}  {log['tokens'] / len(stream):.2f} epochs  "
                  f"{plan.tokens_per_step / pace:.0f} tokens/s", flush=True)
            losses = []
        if step % 100 == 0:
            model.eval()
            log["heldout"].append((step, log["tokens"], evaluate()))
            print(f"step {step}: held-out {log['heldout'][-1][2]}", flush=True)
        if time.time() - saved_at > 180:
            save()
            saved_at = time.time()
    model.eval()
    log["heldout"].append((step, log["tokens"], evaluate()))
    save()
    return log
