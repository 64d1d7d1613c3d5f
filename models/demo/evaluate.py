"""What the card reports: held-out loss, agreement of the pair, and an n-gram model to compare with."""

import math

import numpy as np
import torch
import torch.nn.functional as F

WINDOW, STRIDE = 2048, 1024
POSITIONS = (0, 256, 512, 1024, 2048)


def windows_of(tale: np.ndarray):
    """Windows over one tale and how many of each one's predictions are already scored."""
    start, scored = 0, 0
    while True:
        window = tale[start:start + WINDOW + 1]
        yield window, scored - start
        scored = start + len(window) - 1
        if scored >= len(tale) - 1:
            return
        start += STRIDE


def split_tales(stream: np.ndarray, bos: int) -> list[np.ndarray]:
    return np.split(stream, np.flatnonzero(stream == bos)[1:])


@torch.no_grad()
def measure_pair(target, draft, stream: np.ndarray, bos: int, num_bytes: int, device: str) -> dict:
    """Both models, teacher-forced over whole held-out tales; a prediction sees 1024 to 2048 tokens of its tale,
    or all there are before it."""
    nats = {"target": 0.0, "draft": 0.0}
    count = agreed = overlap = right = 0
    by_position = np.zeros((len(POSITIONS) - 1, 2))
    for tale in split_tales(stream, bos):
        for window, skip in windows_of(tale):
            tokens = torch.from_numpy(window.astype(np.int64)).to(device)
            truth = tokens[1:]
            lt = F.log_softmax(target.logits(tokens[None, :-1])[0].float(), dim=-1)
            ld = F.log_softmax(draft.logits(tokens[None, :-1])[0].float(), dim=-1)
            nt = F.nll_loss(lt, truth, reduction="none")
            nats["target"] += nt[skip:].sum().item()
            nats["draft"] += F.nll_loss(ld, truth, reduction="none")[skip:].sum().item()
            top = lt.argmax(-1)
            agreed += (top == ld.argmax(-1))[skip:].sum().item()
            right += (top == truth)[skip:].sum().item()
            overlap += torch.minimum(lt, ld).exp().sum(-1)[skip:].sum().item()
            count += len(truth) - skip
            for i, (low, high) in enumerate(zip(POSITIONS, POSITIONS[1:])):
                by_position[i] += (nt[max(low, skip):high].sum().item(), len(nt[max(low, skip):high]))
    bits = {name: n / math.log(2) / num_bytes for name, n in nats.items()}
    return {"bits_per_byte": bits, "nats_per_token": {name: n / count for name, n in nats.items()},
            "tokens": count, "top1": right / count, "agreement": agreed / count, "overlap": overlap / count,
            "nats_by_position": [n / c for n, c in by_position]}


class Trigram:
    """Interpolated absolute discounting over tokens: each order gives 3/4 of a count to the next lower one."""

    DISCOUNT = 0.75

    def __init__(self, stream: np.ndarray, vocab: int):
        self.vocab = vocab
        ids = stream.astype(np.int64)
        self.unigram = (np.bincount(ids, minlength=vocab) + 0.5) / (len(ids) + 0.5 * vocab)
        self.orders = [self.table(ids[:-1], ids[1:]), self.table(ids[:-2] * vocab + ids[1:-1], ids[2:])]

    def table(self, history: np.ndarray, after: np.ndarray):
        grams, counts = np.unique(history * self.vocab + after, return_counts=True)
        seen, first, kinds = np.unique(grams // self.vocab, return_index=True, return_counts=True)
        return grams, counts, seen, kinds, np.add.reduceat(counts, first)

    def nats(self, stream: np.ndarray, bos: int) -> float:
        """Over all tokens but each tale's BOS; the histories of a tale's first tokens reach before it."""
        ids = stream.astype(np.int64)
        p = self.unigram[ids]
        for order, (grams, counts, seen, kinds, totals) in enumerate(self.orders, start=1):
            history = ids[:-1] if order == 1 else ids[:-2] * self.vocab + ids[1:-1]
            gram = history * self.vocab + ids[order:]
            at = np.minimum(np.searchsorted(grams, gram), len(grams) - 1)
            count = np.where(grams[at] == gram, counts[at], 0)
            at = np.minimum(np.searchsorted(seen, history), len(seen) - 1)
            known = seen[at] == history
            total, kind = np.where(known, totals[at], 1), np.where(known, kinds[at], 0)
            lower = p[order:]
            mixed = (np.maximum(count - self.DISCOUNT, 0) + self.DISCOUNT * kind * lower) / total
            p = np.concatenate((p[:order], np.where(known, mixed, lower)))
        return float(-np.log(p[ids != bos]).sum())
