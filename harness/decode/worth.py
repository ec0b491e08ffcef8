"""Work out what drafts are worth: how long a step of a pair takes on a GPU with and without them, by arithmetic.

A forward of one model reads its weights once, or is bound by arithmetic where many positions are read; each row's keys
and values are read once for all of its positions. So drafts pay where rows are few and contexts long, and lose where a
full batch of short rows is bound by arithmetic already. None of it has been measured on a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.decode.memory import GIB, VLLM_OWN, ModelShape, vllm_bytes

# Tokens a row and step, by drafts a step, that `auto` counts on: put lower than what a model of 135M has from its own
# text alone, 1.52, 1.67 and 1.77 (reports/performance.md), since larger ones may repeat themselves less.
ASSUMED = {2: 1.33, 4: 1.41, 8: 1.45}
_BANDWIDTH, _ARITHMETIC = 0.83, 0.61  # shares of what is printed on the card that programs reach
_LAUNCHES = 3e-4  # seconds a forward, whatever its size
_STEP = 1.2e-3  # of the scheduler, the sampler and the decision
_READ = 20  # bytes a logit that a decision reads and writes
_WIDTH = 2  # bytes of a weight, and of a number of the cache


@dataclass(frozen=True)
class Card:
    """Describe a GPU by what its maker prints."""

    gib: float
    terabytes: float  # read a second
    teraflops: float  # in bfloat16, without sparsity


CARDS = {
    "A100": Card(80, 2.04, 312),
    "H100": Card(80, 3.35, 989),
    "H200": Card(141, 4.8, 989),
    "B200": Card(180, 8.0, 2250),
}


@dataclass(frozen=True)
class Worth:
    """Work it out for a pair on some GPUs that share each layer."""

    models: Sequence[ModelShape]
    card: Card
    gpus: int = 1

    def rows(self, context: int, most: int) -> int:
        """Return how many rows of so many tokens the cache holds, `most` at most."""
        return min(most, int(self.tokens // context))

    @property
    def tokens(self) -> float:
        """Return how many tokens the cache holds, in what weights leave to it."""
        weights, a_token = (vllm_bytes(self.models, self.models, _WIDTH, tokens, self.gpus) for tokens in (0, 1))
        room = 0.9 * self.card.gib * GIB - VLLM_OWN - weights
        return max(0.0, room) / (a_token - weights)

    def seconds(self, rows: int, context: int, drafts: int = 0) -> float:
        """Return how long a step of all rows takes, each reading one position and its drafts."""
        bandwidth = self.gpus * _BANDWIDTH * 1e12 * self.card.terabytes
        arithmetic = self.gpus * _ARITHMETIC * 1e12 * self.card.teraflops
        positions = rows * (1 + drafts)
        total = _STEP
        for model in self.models:
            weights = max(_WIDTH / bandwidth, 2 * positions / arithmetic) * model.parameters
            attention = 4 * positions * context * model.layers * model.heads * model.head_dim / arithmetic
            cache = rows * context * _WIDTH * model.kv / bandwidth
            total += weights + max(attention, cache) + _LAUNCHES
        return total + positions * self.models[0].vocab * _READ / bandwidth

    def gain(self, rows: int, context: int, drafts: int, accepted: float) -> float:
        """Return how many times as fast rows are with drafts, of which a step keeps `accepted` - 1 a row."""
        return accepted * self.seconds(rows, context) / self.seconds(rows, context, drafts)

    def schedule(self, most: int, longest: int) -> list[tuple[int, int, int]]:
        """Return the best number of drafts by the number of rows that run: (from, to, drafts), from 1 to `most`.

        Rows are taken to be half as long as the cache, or the models, allow so many to be: half-way to their ends.
        """
        found: list[tuple[int, int, int]] = []
        cached = self.tokens
        for rows in range(1, most + 1):
            context = max(1, int(min(longest, cached / rows) / 2))
            worth = {drafts: self.gain(rows, context, drafts, tokens) for drafts, tokens in ASSUMED.items()}
            best = max(worth, key=worth.__getitem__)
            drafts = best if worth[best] > 1 else 0
            if found and found[-1][2] == drafts:
                found[-1] = (found[-1][0], rows, drafts)
            else:
                found.append((rows, rows, drafts))
        return found
