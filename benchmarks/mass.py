"""Measures how often the audit's intervals hold the truth, for shares of a mass and parts of a gain.

Each problem has tokens whose divergences are lognormal, cut at ln 2 as Jensen-Shannon's are, and larger where a
response begins; problems differ in length and in how far the two models are apart. Of the gain each problem has
chances of its own to be answered, and of an answer to be right.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.script import run
from rlvr_dir import stats
from rlvr_dir.markdown import markdown_table

SIZES = (30, 240)  # problems
SAMPLES = 8  # responses of a problem, of which its gain is made
TOKENS, SPREAD, APART = 120, 2.5, 0.5  # of a problem on average; of the logarithm of a divergence, by token and problem
Random = np.random.Generator


def tokens_of(problems: int, random: Random) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw divergences, the number of each token's problem, and whether it is in the first tenth: (tokens,) each."""
    lengths = 10 + random.poisson(TOKENS * random.gamma(4, 0.25, problems))
    index = np.repeat(np.arange(problems), lengths)
    place = np.concatenate([np.arange(length) / length for length in lengths])
    level = -4 + APART * random.standard_normal(problems)[index] + 1.0 * (place < 0.1)
    values = np.minimum(np.exp(level + SPREAD * random.standard_normal(index.size)), np.log(2))
    return values, index, place < 0.1


def chances_of(problems: int, random: Random) -> np.ndarray:
    """Draw the chances that a response is answered, and that an answer is right, of base and RL: (2, 2, problems)."""
    right = random.beta(0.8, 1.2, problems)
    better = right ** random.uniform(0.2, 1, problems)
    return np.array([[random.beta(3, 2, problems), right], [random.beta(9, 1, problems), better]])


def drawn(chances: np.ndarray, random: Random) -> np.ndarray:
    """Draw the shares of samples that are answered, and that are right: (2, 2, problems)."""
    answered = random.binomial(SAMPLES, chances[:, 0])
    return np.stack([answered, random.binomial(answered, chances[:, 1])], axis=1) / SAMPLES


def measured(problems: int, random: Random) -> dict[str, stats.Estimate]:
    """Return one estimate of every kind, of freshly drawn problems."""
    values, index, first = tokens_of(problems, random)
    counts = np.bincount(index, values)
    base, rl = drawn(chances_of(problems, random), random)
    more, better = stats.gain_parts((base[0], base[1]), (rl[0], rl[1]))
    between = base[1] + 0.7 * (rl[1] - base[1]) + 0.1 * random.standard_normal(problems)
    return {
        "share of JS in the first tenth": stats.mass_share(np.bincount(index, values * first), counts),
        "least share with half of JS": stats.least_share(values, index, 0.5),
        "least share with 90 % of JS": stats.least_share(values, index, 0.9),
        "share of positions above 0.1": stats.token_share(np.bincount(index, values > 0.1), np.bincount(index)),
        "JS a token": stats.token_mean(counts, np.bincount(index)),
        "gain: more answers": more,
        "gain: more right ones": better,
        "share of a gain": stats.share_of_gain(between, base[1], rl[1], SAMPLES),
    }


def bench_mass(*, runs: int = 1000, seed: int = 0, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Simulate `runs` audits of either size: by kind of number the share of its intervals that hold the truth."""
    random = np.random.default_rng(seed)
    truth = {name: float(estimate.value or 0) for name, estimate in measured(20_000, random).items()}
    truth["share of a gain"] = 0.7
    return {"runs": runs, "rows": [*_rows(truth, runs, random, say)]}


def _rows(truth: dict[str, float], runs: int, random: Random, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    for problems in SIZES:
        held = dict.fromkeys(truth, 0)
        for _ in range(runs):
            for name, estimate in measured(problems, random).items():
                low, high = estimate.low, estimate.high
                held[name] += low is not None and high is not None and low <= truth[name] <= high
        for name, count in held.items():
            yield {"number": name, "problems": problems, "truth": truth[name], "coverage": count / runs}
            say(f"{name}, {problems} problems: {100 * count / runs:.1f}")


def table(found: dict[str, Any]) -> str:
    """Write it as a Markdown table, coverage in percent."""
    rows = [
        [row["number"], str(row["problems"]), f"{row['truth']:.4f}", f"{100 * row['coverage']:.1f}"]
        for row in found["rows"]
    ]
    return markdown_table(["number", "problems", "truth", "coverage"], rows, [True, False, False, False])


if __name__ == "__main__":
    run(bench_mass, table)
