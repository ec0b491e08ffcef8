"""Logits, rules and steps for the tests of this room."""

import itertools
from contextlib import nullcontext
from math import inf

import torch

from benchmarks.decision import as_on_a_gpu
from rlvr_dir.policy.algorithm import decide
from rlvr_dir.policy.combine import Combination
from rlvr_dir.policy.gates import Threshold, gate_of, gates
from rlvr_dir.policy.noise import GATE, PROPOSE, REDRAW, REWRITE
from rlvr_dir.policy.rule import Rule, Rules
from rlvr_dir.policy.step import Requests

PATHS = {"as on a CPU": nullcontext, "as on a GPU": as_on_a_gpu}
ALONE = [None, *gates()]
TAUS = {"delta_logp": (-1.0, -0.2, 0.1), "random": (0.1, 0.6)}  # all other criteria: (0.05, 0.5, 1.2)
VETO, BASE, RL, COIN = ({"decider": decider} for decider in ("gate", "base", "rl", 0.7))
MODES = [  # (primary, gamma, who decides)
    ("base", 0.0, {}), ("base", 0.7, {}), ("base", -0.4, {}), ("rl", 0.0, {}), ("rl", 0.3, {}),
    ("rl", -1.0, {}), ("base", -1.0, VETO), ("rl", -1.0, VETO), ("base", 0.0, VETO), ("rl", 0.4, VETO),
    ("base", -1.0, RL), ("base", -1.0, BASE), ("base", 0.0, BASE), ("base", 0.0, RL), ("base", 0.4, RL),
    ("rl", 0.0, BASE), ("rl", 0.0, RL), ("rl", -1.0, BASE), ("base", -1.0, COIN), ("rl", 0.0, COIN),
]  # fmt: skip


def logits(n, vocab, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(n, vocab, generator=generator) * scale
    return base, base + torch.randn(n, vocab, generator=generator)


def gate(name, tau=None, **fields):
    """A gate by its name; None for none."""
    return None if name is None else gate_of({"criterion": name, **({} if tau is None else {"tau": tau}), **fields})


def rule(name, primary="base", tau=None, gamma=0.0, temperature=1.0, top_p=1.0, **others):
    """A rule; top_p 0 is greedy."""
    sides = {name: others.pop(name) for name in ("side", "sign") if name in others}
    return Rule(gate(name, tau, **sides), primary, gamma, top_p or 1.0, not top_p, temperature, **others)


def every_rule():
    for name in ALONE:
        needs_tau = name is not None and issubclass(gates()[name], Threshold)
        for tau in TAUS.get(name, (0.05, 0.5, 1.2) if needs_tau else (None,)):
            for (primary, gamma, redraw), top_p, temperature in itertools.product(
                MODES, (0.0, 0.4, 0.7, 1.0), (1.0, 0.6)
            ):
                if (not top_p and temperature != 1) or (redraw and name in (None, "coupling")):
                    continue
                turn = hash((tau, gamma, top_p))
                since, until = ((0, inf), (0, 4), (3, inf))[turn % 3]
                sides = {}
                if needs_tau:
                    sides = {"side": (None, "below", "above")[hash(top_p) % 3]}
                    sides["sign"] = (None, None, "negative", "positive")[hash((gamma, temperature, tau)) % 4]
                yield rule(
                    name,
                    primary,
                    tau,
                    gamma,
                    temperature,
                    top_p,
                    since=since,
                    until=until,
                    **redraw,
                    **sides,
                )


def requests(n, seed=0, start=100):
    """Steps of n responses that have written 0 to 8 tokens, each with a key of its own."""
    keys = torch.randint(-(2**62), 2**62, (n,), generator=torch.Generator().manual_seed(seed))
    starts = torch.full((n,), start)
    return Requests(keys, starts + torch.arange(n) % 9, starts)


def decided(base, rl, rules, where=None, vocab=None):
    """The decision of some rules, each row's own, or one for all of them."""
    rules = rules if isinstance(rules, list) else [rules] * len(base)
    where = where or requests(len(rules))
    return decide({"base": base, "rl": rl}, Rules.compile(rules), where, Combination(vocab))


def numbers(where):
    """The uniform numbers of each row: its proposal's, its redraw's, its gate's, and of what is written after that."""
    return list(zip(*(where.noise(stream).tolist() for stream in (PROPOSE, REDRAW, GATE, REWRITE)), strict=True))


def taken(where, index):
    """Where some rows stand."""
    return Requests(where.keys[index], where.positions[index], where.starts[index])
