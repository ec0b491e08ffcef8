"""Problems that come in families: three copies of a problem say as much as one, in every row of every group."""

import numpy as np
import pandas
import pytest
import torch
from scipy.stats import bernoulli

from rlvr_dir.audit import interventions, outcomes, tokens
from rlvr_dir.audit.interventions import SHARES, WAYS, name_of, point_frame
from rlvr_dir.audit.tokens import traced_tokens
from rlvr_dir.config import Decoding
from tests.audit.made import VOCABULARY, responses, row

PROBLEMS, SAMPLES, COPIES = 24, 8, 3
POINTS = [(name_of(way), share, way.replace(tau=share)) for way in WAYS for share in SHARES]


def drawn(decoding, share, seed):
    """Verdicts of a decoding, and what else a row of it has; problems differ in how hard they are."""
    hard = [[share * problem / PROBLEMS] for problem in range(1, PROBLEMS + 1)]
    correct = bernoulli.rvs(hard, size=(PROBLEMS, SAMPLES), random_state=seed)
    answered = correct | np.tile(np.arange(PROBLEMS)[:, None] % 3 > 0, (1, SAMPLES))
    changed = bernoulli.rvs(0.4, size=correct.shape, random_state=seed + 200)
    return responses(decoding, correct, no_box=1 - answered, tokens=10 + changed, changed=changed, replaced=2 * changed)


def copied(frame, named):
    """Three copies of each problem, each of them the problem of another name; `named` says whose copy it is."""
    copies = [frame.assign(problem=frame.problem + f"-{copy}") for copy in range(COPIES)]
    family = {"family": frame.problem} if named else {}
    return pandas.concat([copy.assign(**family) for copy in copies], ignore_index=True)


def check(claims, once, named, alone):
    """Rows of copies with families are those of single problems; taken for problems of their own they are narrower."""
    narrower = 0
    for claim in claims:
        one, three, careless = (claim.estimate(frame) for frame in (once, named, alone))
        for end in ("value", "low", "high"):
            assert getattr(three, end) == pytest.approx(getattr(one, end), nan_ok=True), (claim.name, end)
        if one.low is not None and one.high is not None and careless.low is not None and careless.high is not None:
            narrower += careless.high - careless.low < 0.8 * (one.high - one.low)
    assert narrower >= 2 / 3 * len(claims)  # some end at a share or a k that was asked


def test_outcomes():
    once = pandas.concat([drawn("base", 0.4, 1), drawn("rl", 0.9, 2), drawn("rank 1", 0.8, 3)], ignore_index=True)
    check([*outcomes.CLAIMS, outcomes.rank_claim(1, False)], once, copied(once, True), copied(once, False))


def test_where_base_overtakes_beyond_chance():
    """Take 10 problems: RL is right on 8 always and on 2 never, base every other time."""
    base, rl = np.tile([1, 0], (10, 4)), np.repeat([[1], [0]], [8, 2], axis=0) * np.ones((1, 8), int)
    once = pandas.concat([responses("base", base), responses("rl", rl)], ignore_index=True)
    claim = next(claim for claim in outcomes.CLAIMS if claim.name == "outcomes/crossing")
    assert [claim.estimate(frame).value for frame in (once, copied(once, True), copied(once, False))] == [None, None, 3]


def test_interventions():
    alone = {"base": 0.3, "rl": 0.8}
    frames = {Decoding(mode=model): drawn(model, share, at) for at, (model, share) in enumerate(alone.items())}
    frames |= {decoding: drawn("x", 0.3 + 7 * share, at + 9) for at, (_, share, decoding) in enumerate(POINTS)}
    once, named, careless = (
        point_frame(POINTS, {decoding: of(frame) for decoding, frame in frames.items()})
        for of in (lambda frame: frame, lambda frame: copied(frame, True), lambda frame: copied(frame, False))
    )
    check(interventions.CLAIMS, once, named, careless)


def traced(names):
    """Answers of both models to problems of these names, which differ in how far RL is from base."""
    made = {"rl": [], "base": []}
    for owner, rows in made.items():
        for problem in range(PROBLEMS):
            random = torch.Generator().manual_seed(problem)
            base = 2 * torch.randn(40, VOCABULARY, generator=random)
            rl = base + 0.15 * problem * torch.randn(40, VOCABULARY, generator=random)
            proposed = torch.multinomial((rl if owner == "rl" else base).softmax(-1), 1, generator=random)[:, 0]
            rows += [row(f"{problem}{name}", 0, base, rl, proposed)[0] for name in names]
    return made


def test_tokens():
    copies = traced([f"-{copy}" for copy in range(COPIES)])
    families = {row.problem: row.problem.partition("-")[0] for row in copies["rl"]}
    # A ratio of tails adds half a position to each, whatever there is of them.
    claims = [claim for claim in tokens.CLAIMS if "/tail/" not in claim.name]
    check(claims, traced_tokens(traced([""])), traced_tokens(copies, families), traced_tokens(copies))
