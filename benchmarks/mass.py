"""Measure the coverage of the audit's intervals for shares of a total and parts of a gain.

Each problem has tokens whose divergences are lognormal, cut at ln 2 as Jensen-Shannon's are, and larger at the
beginning of a response. Problems differ in length and in how far the two models differ. For the gain, each problem has
its own probabilities of an answer, and of a right answer. With families, the problems of one share all of that except
their lengths.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.laws import families
from benchmarks.script import run
from rlvr_dir import stats
from rlvr_dir.markdown import markdown_table

# Problems, and how many of them a family has.
SIZES = ((30, ""), (240, ""))
IN_FAMILIES = ((60, "5 each"), (240, "5 each"), (240, "1 to 12"))
SAMPLES = 8  # responses per problem for its gain
TOKENS, SPREAD, APART = 120, 2.5, 0.5  # of a problem on average; of the logarithm of a divergence, by token and problem
Random = np.random.Generator


def tokens_of(labels: np.ndarray, random: Random) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw divergences, the number of each token's problem, and whether it is in the first tenth: (tokens,) each."""
    lengths = 10 + random.poisson(TOKENS * random.gamma(4, 0.25, labels.size))
    index = np.repeat(np.arange(labels.size), lengths)
    place = np.concatenate([np.arange(length) / length for length in lengths])
    apart = random.standard_normal(labels.max() + 1)[labels]
    level = -4 + APART * apart[index] + 1.0 * (place < 0.1)
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


def measured(labels: np.ndarray, random: Random) -> tuple[dict[str, stats.Estimate], dict[str, stats.Estimate]]:
    """Return one estimate of every kind, of freshly drawn problems with these families: over them, over problems."""
    tokens, chances = tokens_of(labels, random), chances_of(int(labels.max()) + 1, random)[:, :, labels]
    base, rl = drawn(chances, random)
    between = base[1] + 0.7 * (rl[1] - base[1]) + 0.1 * random.standard_normal(labels.max() + 1)[labels]
    return estimates(tokens, base, rl, between, labels), estimates(tokens, base, rl, between, None)


def estimates(
    tokens: tuple[np.ndarray, np.ndarray, np.ndarray],
    base: np.ndarray,
    rl: np.ndarray,
    between: np.ndarray,
    labels: np.ndarray | None,
) -> dict[str, stats.Estimate]:
    """Return the numbers of some draws; with labels their intervals are over families, as in the audit."""
    values, index, first = tokens
    index = index if labels is None else labels[index]
    named = None if labels is None else labels.tolist()
    counts = np.bincount(index, values)
    more, better = stats.gain_parts((base[0], base[1]), (rl[0], rl[1]), named)
    return {
        "share of JS in the first tenth": stats.mass_share(np.bincount(index, values * first), counts),
        "least share with half of JS": stats.least_share(values, index, 0.5),
        "least share with 90 % of JS": stats.least_share(values, index, 0.9),
        "share of positions above 0.1": stats.token_share(np.bincount(index, values > 0.1), np.bincount(index)),
        "JS a token": stats.token_mean(counts, np.bincount(index)),
        "gain: more answers": more,
        "gain: more right ones": better,
        "share of a gain": stats.share_of_gain(between, base[1], rl[1], SAMPLES, named),
    }


def bench_mass(
    *, runs: int = 1000, seed: int = 0, in_families: bool = False, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Simulate `runs` audits of each size: by kind of number, the share of its intervals that cover the true value.

    For problems `in_families`, both for intervals over these and for those over problems.
    """
    random = np.random.default_rng(seed)
    truth = {name: float(estimate.value or 0) for name, estimate in measured(np.arange(20_000), random)[0].items()}
    truth["share of a gain"] = 0.7
    return {"runs": runs, "rows": [*_rows(truth, IN_FAMILIES if in_families else SIZES, runs, random, say)]}


def _rows(
    truth: dict[str, float], cells: Sequence[tuple[int, str]], runs: int, random: Random, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    for problems, sizes in cells:
        held = {name: np.zeros(2) for name in truth}
        for _ in range(runs):
            labels = families(problems, sizes, random) if sizes else np.arange(problems)
            for at, found in enumerate(measured(labels, random)):
                for name, estimate in found.items():
                    low, high = estimate.low, estimate.high
                    held[name][at] += low is not None and high is not None and low <= truth[name] <= high
        for name, counts in held.items():
            coverage, alone = (counts / runs).tolist()
            row = {"number": name, "problems": problems, "families": sizes, "truth": truth[name], "coverage": coverage}
            yield row | ({"over problems": alone} if sizes else {})
            say(f"{name}, {problems} problems, families {sizes or 'none'}: {100 * coverage:.1f}")


def table(found: dict[str, Any]) -> str:
    """Write it as a Markdown table, coverage in percent."""
    coverage = [name for name in ("coverage", "over problems") if name in found["rows"][0]]
    rows = [
        [row["number"], str(row["problems"]), *filter(None, [row["families"]]), f"{row['truth']:.4f}"]
        + [f"{100 * row[name]:.1f}" for name in coverage]
        for row in found["rows"]
    ]
    head = ["number", "problems", *(["families"] if len(coverage) > 1 else []), "truth", *coverage]
    return markdown_table(head, rows, [name in ("number", "families") for name in head])


if __name__ == "__main__":
    run(bench_mass, table)
