"""Draws whose points are beside the steps of a cumulative mass: what is off by one place gives another token."""

from dataclasses import replace

import torch

from benchmarks.fused import DecisionBatch, Outcome, sorted_masses
from rlvr_dir.policy.noise import MULTIPLY_1, MULTIPLY_2, PROPOSE, REDRAW, STEP


def at_the_steps(batch: DecisionBatch, got: Outcome) -> DecisionBatch:
    """Give the rows new keys that put each draw's point just before or just after a step of the cumulative mass.

    Every second row's proposal is meant, the others' redraw. The steps are those of the kernels' own masses; one that
    is off by more than some hundred of 2^60 gives another token.
    """
    rows = range(len(batch.rows))
    policies = torch.arange(len(rows), device=got.mass.device) % 2
    mass = got.mass[torch.arange(len(rows), device=got.mass.device), policies]
    _, upto, nucleus = sorted_masses(mass, [row.top_p for row in batch.rows])
    keys = []
    for i in rows:
        whole, steps = nucleus[i], upto[i].unique()
        steps = steps[steps <= whole].tolist()
        step = steps[(i // 4) % len(steps)] if i % 3 else whole  # the nucleus' end, every third time
        bits = min(-(-step * 2**53 // whole), 2**53)  # the least u whose point is not before the step
        bits = bits - 1 if i // 2 % 2 or bits == 2**53 else bits
        keys.append(_key_of(bits, int(batch.positions[i]), (PROPOSE, REDRAW)[i % 2]))
    return replace(batch, keys=torch.tensor(keys, device=batch.keys.device))


def _key_of(bits: int, position: int, stream: int) -> int:
    """Return the key whose noise at this position is bits / 2^53, which exists as splitmix64 is a bijection."""
    value = bits << 11
    for added in (stream, position):
        value ^= (value >> 31) ^ (value >> 62)
        value = value * pow(MULTIPLY_2, -1, 2**64) % 2**64
        value ^= (value >> 27) ^ (value >> 54)
        value = value * pow(MULTIPLY_1, -1, 2**64) % 2**64
        value ^= (value >> 30) ^ (value >> 60)
        value = (value - STEP - added) % 2**64
    return value - 2**64 if value >= 2**63 else value
