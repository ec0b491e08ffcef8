"""Test which of several checkpoints wrote given tokens, by a sequential test that is valid whenever it is stopped.

A hypothesis is a checkpoint with a setting of the sampler. It is ruled out once the mean likelihood of the others is
1,000 times its own. If the hypothesis is true, this happens with a probability of at most 1/1,000, however long the
texts are (Ville's inequality).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

import numpy as np

from rlvr_dir.policy.given import FLOOR, Setting

ERROR = 1e-3
TEMPERATURES, TOP_P = (0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5), (0.7, 0.8, 0.9, 0.95, 1.0)  # other settings, compared
MOST = 200_000  # the largest number of tokens used
CLEAR = 0.1  # at most this ratio of the winner's share of tokens outside its nucleus to the others' least share


@dataclass(frozen=True)
class Verdict:
    """Hold who wrote the tokens.

    `kind` is one of four. `wrote`: `name` wrote them, at the claimed setting. `neither`: no candidate wrote them at
    that setting; `name` and `setting` are the most likely of all that were compared. `precision`: `name` at the claimed
    setting is the most likely, but the tokens outside its own nucleus ruled it out or are too many. `undecided`: those
    in `left` are not ruled out.

    `own` is the share of tokens outside the nucleus of `name`. `others` is the least share outside the nucleus of
    another candidate. `tokens` is how many tokens were needed, or how many there are.
    """

    kind: Literal["wrote", "neither", "precision", "undecided"]
    name: str
    setting: Setting
    tokens: int
    own: float
    others: float
    left: tuple[str, ...] = ()


def ruled_out(logs: np.ndarray) -> np.ndarray:
    """Return after how many tokens each hypothesis is ruled out, 0 if it never is.

    Args:
        logs: (hypotheses, tokens) log-likelihood of each token.
    """
    sums = logs.cumsum(axis=1, dtype=float)
    top = sums.max(axis=0)
    likelihood = np.exp(sums - top)
    others = np.maximum(likelihood.sum(axis=0) - likelihood, 0) / (len(logs) - 1)
    with np.errstate(divide="ignore"):
        out = np.log(others) + top - sums >= -log(ERROR)
    return np.where(out.any(axis=1), out.argmax(axis=1) + 1, 0)


def who_wrote(models: Mapping[str, np.ndarray], settings: Sequence[Setting], claimed: Setting) -> Verdict:
    """Return which candidate wrote the tokens, if one did at the claimed setting.

    Args:
        models: For each name, (tokens, settings) log-likelihoods as `policy.given.likelihoods` returns them.
        settings: The temperature and top-p of each column. They include `claimed`, and its temperature with top-p 1.
        claimed: The setting at which the tokens are said to be sampled.
    """
    names, at = [*models], settings.index(claimed)
    logs = np.stack([models[name][:MOST].T for name in names])  # (names, settings, tokens)
    whole = logs[:, settings.index((claimed[0] or 1.0, 1.0))]
    outside = (logs[:, at] - whole < log(FLOOR) / 2).mean(axis=1)  # tokens whose likelihood is only the floor
    total, n = logs.sum(axis=2, dtype=float), logs.shape[2]
    every = ruled_out(logs.reshape(-1, n)).reshape(total.shape)[:, at]
    alone = ruled_out(logs[:, at])
    left = [name for name, tokens in zip(names, alone, strict=True) if not tokens]
    setting, which, needed = claimed, int(total[:, at].argmax()), n
    if every.all() or not left:
        which, best = np.unravel_index(total.argmax(), total.shape)
        kind, setting = "precision" if best == at else "neither", settings[best]
        needed = int((every if every.all() else alone).max())
    elif len(left) > 1:
        kind = "undecided"
    else:
        which, needed = names.index(left[0]), int(alone.max())
        kind = "precision" if outside[which] > CLEAR * np.delete(outside, which).min() else "wrote"
    others = float(np.delete(outside, which).min())
    return Verdict(kind, names[which], setting, needed, float(outside[which]), others, tuple(left))


def settings_of(claimed: Setting) -> tuple[Setting, ...]:
    """Return the settings to compare: the claimed one, each other temperature or top-p, untruncated, and greedy."""
    heat, top_p = claimed
    others = [(t, top_p) for t in TEMPERATURES] + [(heat, p) for p in TOP_P] + [(t, 1.0) for t in TEMPERATURES]
    return tuple(sorted({claimed, (heat or 1.0, 1.0), *others, (0.0, 1.0)}))
