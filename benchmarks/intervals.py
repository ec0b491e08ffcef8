"""Measure the coverage of printed intervals and the false claims of p values, on simulated benchmarks.

Each cell of the tables draws `runs` benchmarks of one kind and counts how often a 95 % interval covers the true value
(coverage), or how often a test at 5 % claims a difference although there is none (false claims). The numbers come from
the functions of `rlvr_dir.stats` that tables and reports use.

A problem has a probability p of being solved, from one of four distributions; the other setting has the probability q.
A share of the two settings' samples has common noise: both are right or wrong by the same draw, as with one seed.
"""

import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from benchmarks import families
from benchmarks.laws import LAWS, Random, chances, expected, holds, pair_of, within
from benchmarks.script import run
from rlvr_dir import stats
from rlvr_dir.errors import unknown
from rlvr_dir.markdown import markdown_table

SIZES = ((12, 8), (30, 1), (30, 32), (83, 16), (272, 4))  # problems, samples
SHARED = (0.0, 0.8)


def bench_statistics(
    *, runs: int = 2000, seed: int = 0, only: str | None = None, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Simulate every cell; shares are fractions, `runs` each, so that 0.95 has a standard error of 0.005 at 2,000.

    Args:
        only: names of `SIMULATIONS`, with commas; they draw what they draw among all. None is all of them.

    Returns:
        Rows of plain values, by the names of `SIMULATIONS`.
    """
    wanted = only.split(",") if only else [*SIMULATIONS]
    if wrong := [name for name in wanted if name not in SIMULATIONS]:
        raise unknown("only", wrong[0], SIMULATIONS)
    found: dict[str, Any] = {"runs": runs, "seed": seed, "machine": platform.machine(), "date": str(date.today())}
    for at, (name, simulate) in enumerate(SIMULATIONS.items()):
        if name not in wanted:
            continue
        rows = []
        for row in simulate(np.random.default_rng([seed, at]), runs):
            rows.append(row)
            say(f"{name}: {' '.join(_cell(*each) for each in row.items())}")
        found[name] = rows
    return found


def _gained(p: np.ndarray, random: Random) -> np.ndarray:
    """Return probabilities that are better on average, by an amount that differs from problem to problem."""
    return np.where(random.random(p.shape) < 0.25, p + (1 - p) * 0.3, p)


def _score_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate Avg@k and its interval over problems, and the t interval that it replaces."""
    for law in LAWS:
        truth = expected(law)
        for n, k in SIZES:
            covered, by_t, width = 0, 0, 0.0
            for _ in range(runs):
                correct = random.random((n, k)) < chances(law, (n,), random)[:, None]
                interval = stats.score_interval(correct)
                by_t += holds(stats.t_interval(float(correct.mean()), stats.standard_error(correct), n), truth)
                covered += holds(interval, truth)
                width += interval[1] - interval[0]
            yield {
                "law": law, "problems": n, "samples": k, "coverage": covered / runs, "of t": by_t / runs,
                "width": width / runs,
            }  # fmt: skip


def _difference_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Count how often a paired difference's interval covers the true value, and false claims if there is no
    difference."""
    for law in LAWS:
        many = chances(law, (400_000,), random)
        truth = float((_gained(many, random) - many).mean())
        for n, k in SIZES:
            for shared in SHARED:
                covered, none, false = 0, 0, 0
                for _ in range(runs):
                    p = chances(law, (n,), random)
                    a, b = pair_of(p, _gained(p, random), k, shared, random)
                    d = stats.paired_difference(b, a)
                    covered += holds((d.low, d.high), truth)
                    a, b = pair_of(p, p, k, shared, random)
                    d = stats.paired_difference(b, a)
                    none += holds((d.low, d.high), 0.0)
                    false += d.p < 0.05
                yield {
                    "law": law, "problems": n, "samples": k, "shared": shared, "coverage": covered / runs,
                    "coverage of 0": none / runs, "false claims": false / runs,
                }  # fmt: skip


EFFECTS: dict[str, Callable[[np.ndarray, Random], np.ndarray]] = {  # the other setting's effect on the probabilities
    "no effect": lambda p, random: p,
    "25 % gain 0.3 of the rest": _gained,
    "10 % gain 30 points": lambda p, random: np.where(random.random(p.shape) < 0.10, np.clip(p + 0.3, 0, 1), p),
    "5 % gain 60 points": lambda p, random: np.where(random.random(p.shape) < 0.05, np.clip(p + 0.6, 0, 1), p),
    "5 % lose 50, others gain 2.6": lambda p, random: np.clip(
        p + np.where(random.random(p.shape) < 0.05, -0.5, 0.026), 0, 1
    ),
}


def _effect_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate effects on few problems: coverage over problems, by t alone, and for the same problems; claims."""
    for name, effect in EFFECTS.items():
        for law in ("middle, 40 %", "easy, 95 %"):
            many = chances(law, (400_000,), random)
            truth = float((effect(many, random) - many).mean())
            for n, k in ((30, 32), (60, 8), (240, 8)):
                hold, width = {"coverage": 0, "of t": 0, "sampling only": 0, "claims": 0}, 0.0
                for _ in range(runs):
                    p = chances(law, (n,), random)
                    q = effect(p, random)
                    a, b = pair_of(p, q, k, 0.9, random)
                    d = stats.paired_difference(b, a)
                    each = (b * 1.0 - a).mean(axis=1)
                    hold["coverage"] += holds((d.low, d.high), truth)
                    hold["of t"] += holds(stats.t_interval(d.mean, stats.standard_error(each), n), truth)
                    hold["sampling only"] += holds(d.sampling, float((q - p).mean()))
                    hold["claims"] += d.p < 0.05
                    width += d.high - d.low
                shares = {key: count / runs for key, count in hold.items()}
                yield {"effect": name, "law": law, "problems": n, "samples": k, **shares, "width": width / runs}


def _family_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate many settings minus one reference without differences, so any claim after Holm's correction is false."""
    for settings in (5, 20):
        for n, k in ((30, 8), (83, 4)):
            false = 0
            for _ in range(runs):
                p = chances("middle, 40 %", (n,), random)
                u, v = random.random((n, k)), random.random((settings, n, k))
                same = random.random(v.shape) < 0.8
                drawn = np.where(same, u, v) < p[:, None]
                ids = tuple(range(n))
                reference = stats.Scores("rl", "t", ids, np.asarray(u < p[:, None], dtype=float))
                others = [stats.Scores(str(i), "t", ids, x.astype(float)) for i, x in enumerate(drawn)]
                false += any(row.holm_p < 0.05 for row in stats.corrected((each, reference) for each in others))
            yield {"settings": settings, "problems": n, "samples": k, "false claims": false / runs}


def _choice_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate the best of several settings with no gain, confirmed with new seeds on the same problems, and on
    others."""
    for settings in (10, 40):
        for where in ("the same problems", "other problems"):
            n, k, means, covered, false = 60, 8, 0.0, 0, 0
            for _ in range(runs):
                p = chances("middle, 40 %", (2 * n,), random)
                luck = random.normal(0, 0.5, size=(settings, 2 * n))  # of a setting with a problem, 0 in the mean
                q = np.clip(p + p * (1 - p) * luck, 0, 1)
                chosen, other = slice(0, n), slice(n, 2 * n)
                at = chosen if where == "the same problems" else other
                first = (random.random((settings, n, k)) < q[:, chosen, None]).mean(axis=(1, 2))
                best = int(first.argmax())
                a, b = pair_of(p[at], q[best, at], k, 0.8, random)
                d = stats.paired_difference(b, a)
                means += d.mean
                covered += holds((d.low, d.high), 0.0)
                false += d.p < 0.05 and d.mean > 0
            yield {
                "settings": settings, "confirmed on": where, "mean, points": 100 * means / runs,
                "coverage": covered / runs, "false gains": false / runs,
            }  # fmt: skip


def _power_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate the number of problems that `problems_needed` returns for a pilot, and how often the gain is then
    found."""
    for shared in SHARED:
        p = chances("middle, 40 %", (240,), random)
        a, b = pair_of(p, np.clip(p + 0.04, 0, 1), 16, shared, random)
        spread = stats.paired_spread(b, a)
        gain = float(np.mean(np.clip(p + 0.04, 0, 1) - p))
        n = stats.problems_needed(gain, spread, 8)
        hits = 0
        for _ in range(runs):
            p = chances("middle, 40 %", (n,), random)
            a, b = pair_of(p, np.clip(p + 0.04, 0, 1), 8, shared, random)
            d = stats.paired_difference(b, a)
            hits += d.low > 0
        yield {"shared": shared, "gain, points": 100 * gain, "problems asked for": n, "found": hits / runs}


def _share_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate a share of tokens, such as the replacement ratio, and the ratio of two generations' shares."""
    for law, (a, b) in {"6 %": (2.0, 30.0), "1 %, few problems": (0.5, 49.5)}.items():
        for n in (6, 12, 30, 83):
            hold = {"coverage": 0, "of the bootstrap": 0, "ratio of two": 0}
            for _ in range(runs):
                p, q = random.beta(a, b, size=n), random.beta(a, b, size=n)
                tokens, others = random.integers(50, 400, size=(2, n))
                hits = random.binomial(tokens, p)
                one = stats.token_share(hits, tokens)
                hold["coverage"] += within(one, a / (a + b))
                drawn = random.multinomial(n, np.full(n, 1 / n), size=1000)
                low, high = np.quantile((drawn @ hits) / (drawn @ tokens), [0.025, 0.975])
                hold["of the bootstrap"] += low <= a / (a + b) <= high
                theirs = random.binomial(others, (p + q) / 2)  # partly due to the same problems
                hold["ratio of two"] += within(stats.share_ratio((hits, tokens), (theirs, others)), 1.0)
            yield {"law": law, "problems": n, **{name: count / runs for name, count in hold.items()}}


def _seed_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate two equally good methods with several seeds each, and their base: for other problems and seeds."""
    for problems, benchmarks, seeds, k in ((60, 1, 2, 8), (60, 2, 2, 8), (30, 1, 3, 32), (60, 2, 3, 8), (30, 1, 5, 32)):
        for spread in (0.0, 0.05):  # effect of the seed on all problems together; twice as much on each problem alone
            hold = dict.fromkeys(
                ("score", "difference", "paired by problem alone", "trained - base", "false claims"), 0
            )
            for _ in range(runs):
                lucks = random.normal(0, spread, (2, 1, seeds))
                tables = []  # of a benchmark: two methods and the base, by seed
                for _ in range(benchmarks):
                    p = chances("middle, 40 %", (problems, 1), random)
                    base = (random.random((problems, k)) < p).astype(float)
                    sides = [dict.fromkeys(range(seeds), base)]
                    for common in lucks:
                        luck = common + random.normal(0, 2 * spread, (problems, seeds))
                        q = np.clip(p + 4 * p * (1 - p) * luck, 0, 1)
                        x = (random.random((problems, seeds, k)) < q[..., None]).astype(float)
                        sides.insert(0, {seed: x[:, seed] for seed in range(seeds)})
                    tables.append(sides)
                found = stats.score_over_runs([one for one, *_ in tables])
                hold["score"] += holds((found.low, found.high), 0.4)
                d = stats.difference_over_runs([(one, other) for one, other, _ in tables])
                hold["difference"] += holds((d.low, d.high), 0.0)
                hold["false claims"] += d.p < 0.05
                gain = stats.difference_over_runs([(one, base) for one, _, base in tables])
                hold["trained - base"] += holds((gain.low, gain.high), 0.0)
                means = [[np.mean(list(side.values()), axis=(0, 2)) for side in sides[:2]] for sides in tables]
                alone = stats.mean_difference([one - other for one, other in means], seeds * k)
                hold["paired by problem alone"] += holds((alone.low, alone.high), 0.0)
            shares = {name: count / runs for name, count in hold.items()}
            size = f"{benchmarks} x {problems}"
            yield {"problems": size, "samples": k, "seeds": seeds, "spread of seeds": spread, **shares}


def _unequal_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate trainings with different numbers of seeds, whose seeds differ by 3 points, and no gain."""
    for ones, others in ((1, 1), (1, 3), (3, 1), (2, 5), (3, 3)):
        covered, false, width = 0, 0, 0.0
        for _ in range(runs):
            p = random.beta(2, 2, (60, 1))
            sides = [
                {seed: (random.random((60, 8)) < np.clip(p + random.normal(0, 0.03), 0, 1)) * 1.0 for seed in range(n)}
                for n in (ones, others)
            ]
            d = stats.difference_over_runs([(sides[0], sides[1])])
            covered, false, width = covered + holds((d.low, d.high), 0.0), false + (d.p < 0.05), width + d.high - d.low
        yield {
            "seeds": f"{ones} against {others}", "coverage": covered / runs, "false claims": false / runs,
            "width": width / runs,
        }  # fmt: skip


def _single_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate one training against one, without a gain: for these two models, and for other seeds."""
    for spread in (0.03, 0.06):
        for n in (60, 240):
            names = (
                "these two models",
                "other seeds, before",
                "false claims",
                "1 other of 3 seeds",
                "3 others of 3 seeds",
            )
            hold: dict[str, float] = dict.fromkeys(names, 0.0)
            width: dict[str, float] = dict.fromkeys(("width before", "width, 1 other", "width, 3 others"), 0.0)
            for _ in range(runs):
                p = random.beta(2, 2, (n, 1))
                q = [np.clip(p + random.normal(0, spread), 0, 1) for _ in range(11)]
                runs_of = [(random.random((n, 8)) < chance) * 1.0 for chance in q]
                others = [
                    stats.RunScores("o", "t", (0, 1, 2), np.array([x.mean() for x in runs_of[at : at + 3]]))
                    for at in (2, 5, 8)
                ]
                pair = [stats.RunScores("a", "t", (0,), np.array([x.mean()]), runs={0: x}) for x in runs_of[:2]]
                for name, more in (("before", others[:0]), ("1 other", others[:1]), ("3 others", others)):
                    known = [replace(side, seed_spread=stats.seed_spread(more)) for side in pair]
                    d = known[0].minus(known[1])
                    key = "other seeds, before" if name == "before" else f"{name} of 3 seeds"
                    hold[key] += holds((d.low, d.high), 0.0)
                    width["width before" if name == "before" else f"width, {name}"] += d.high - d.low
                    if name == "before":
                        hold["these two models"] += holds((d.low, d.high), float(_expected_gap(q[0], q[1], p)))
                        hold["false claims"] += d.p < 0.05
            shares = {name: count / runs for name, count in {**hold, **width}.items()}
            yield {"seeds differ by": f"{100 * spread:.0f} points", "problems": n, "samples": 8, **shares}


def _expected_gap(first: np.ndarray, other: np.ndarray, p: np.ndarray) -> float:
    """Return the gap of two models over all problems of the distribution; each model adds a number to each
    probability."""
    shifts = [float(np.median(q - p)) for q in (first, other)]
    law = np.random.default_rng(0).beta(2, 2, 20_000)
    return float(np.mean(np.clip(law + shifts[0], 0, 1) - np.clip(law + shifts[1], 0, 1)))


def _empty_tail_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate the ratio of two shares of tokens if few problems have a token in the smaller: coverage of its
    bounds."""
    for n in (12, 30):
        for share, in_problems in ((1e-5, 5.0), (1e-4, 0.3), (5e-4, 0.3), (5e-4, 0.05), (2e-3, 0.05)):
            for ratio in (1, 3, 10, 30):
                bounded = covered = held = 0
                for _ in range(runs):
                    tokens = 8 * random.integers(50, 400, size=(2, n))
                    means = (share * ratio, share)
                    p = [random.beta(in_problems, in_problems * (1 / mean - 1), n) for mean in means]
                    hits = [random.binomial(length, chance) for length, chance in zip(tokens, p, strict=True)]
                    more, less = sorted((0, 1), key=lambda side: -hits[side].sum() / tokens[side].sum())
                    truth = float(ratio if more == 0 else 1 / ratio)
                    found = stats.share_ratio((hits[more], tokens[more]), (hits[less], tokens[less]))
                    assert found.low is not None
                    holds = found.low <= truth <= (found.high or np.inf)
                    covered, bounded = covered + holds, bounded + (found.high is None)
                    held += holds and found.high is None
                yield {
                    "smaller share": f"{100 * share:g} %", "of a": str(in_problems), "ratio": ratio, "problems": n,
                    "coverage": covered / runs, "bounded below alone": bounded / runs,
                    "coverage of these": held / bounded if bounded else float("nan"),
                }  # fmt: skip


def _growing_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate shares of tokens that grow with the length of a response, so that few long problems dominate the pooled
    share."""

    def drawn(n: int, spread: float, slope: float) -> tuple[np.ndarray, np.ndarray]:
        z = random.standard_normal(n)
        tokens = np.round(8 * np.maximum(5.0, np.exp(5 + spread * z))).astype(int)
        odds = np.exp(-4 + slope * spread * z + 0.5 * random.standard_normal(n))
        return random.binomial(tokens, odds / (1 + odds)), tokens

    for spread, slope in ((0.7, 0.0), (0.7, 1.0), (1.0, 0.5)):
        hits, tokens = drawn(2_000_000, spread, slope)
        truths = {stats.token_share: hits.sum() / tokens.sum(), stats.problem_share: (hits / tokens).mean()}
        for n in (12, 30, 60, 240):
            samples = [drawn(n, spread, slope) for _ in range(runs)]
            pooled, by_problem = (
                sum(within(share(*sample), truth) for sample in samples) / runs for share, truth in truths.items()
            )
            yield {
                "log-sd of lengths": str(spread), "slope": str(slope), "problems": n, "pooled": pooled,
                "mean over problems": by_problem,
            }  # fmt: skip


def _crossing_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate k*: how often there is one for a model and itself, and how often it is not too early if there is one."""
    for law in LAWS:
        for n, k in ((30, 32), (272, 8)):
            named = 0
            for _ in range(runs // 4):
                p = chances(law, (n, 1), random)
                named += stats.crossing(random.random((n, k)) < p, random.random((n, k)) < p).k is not None
            yield {"law": law, "problems": n, "samples": k, "k* named for one model twice": named / (runs // 4)}


def _average_rows(random: Random, runs: int) -> Iterator[dict[str, Any]]:
    """Simulate an average over benchmarks: the interval from theirs, and the one from their standard errors."""
    for laws in (
        ("middle, 40 %",) * 2,
        ("easy, 95 %",) * 3,
        ("few solved, 3 %",) * 3,
        ("hard, 3 %", "middle, 40 %", "hard, 3 %"),
    ):
        truth, covered, by_errors = float(np.mean([expected(law) for law in laws])), 0, 0
        for _ in range(runs):
            sets = [
                random.random((n, 8)) < chances(law, (n,), random)[:, None]
                for law, n in zip(laws, (30, 30, 83), strict=False)
            ]
            parts = [(float(x.mean()), *stats.score_interval(x)) for x in sets]
            covered += holds(stats.mean_interval(parts), truth)
            errors = [stats.standard_error(x) for x in sets]
            mean, error = float(np.mean([p[0] for p in parts])), float(np.hypot.reduce(errors)) / len(errors)
            degrees = stats.satterthwaite([(e, len(x) - 1) for e, x in zip(errors, sets, strict=True)])
            by_errors += holds(stats.t_interval(mean, error, degrees + 1), truth)
        yield {"benchmarks": " + ".join(laws), "coverage": covered / runs, "of standard errors": by_errors / runs}


TITLES = {
    "scores": "Avg@k: share of 95 % intervals over problems that hold the truth",
    "differences": "Paired differences: coverage where there is a gain, and where there is none; false claims at 5 %",
    "families": "Holm's correction: tables with any false claim, all settings against one reference",
    "effects": "Differences that few problems carry: coverage over problems and for these very problems; claims at 5 %",
    "seeds": "Trainings, over seeds and problems: coverage, of two methods and a base that are as good as each other",
    "unequal": "Trainings of unequal numbers of seeds, no gain: 60 problems x 8, seeds differ by 3 points",
    "related": "Differences where problems come in families: coverage as if they were independent, and over families",
    "related scores": "Avg@k where problems come in families: coverage as if they were independent, and over families",
    "related shares": "Shares of tokens where problems come in families: coverage as if independent, and over families",
    "related trainings": "Trainings of three seeds a side where problems come in families: coverage before and after",
    "single": "One training against one, no gain: coverage for these two models, and for other seeds",
    "empty tails": "The ratio of two shares of tokens, the smaller near empty (Beta(a, b) over problems): coverage",
    "growing": "Shares of tokens that grow with a response's length (slope of log odds in log length): coverage",
    "crossings": "k*, the first k at which base is above RL, of a model and itself",
    "choices": "The best of settings that gain nothing, confirmed with new seeds",
    "averages": "An average over benchmarks of 30, 30 and 83 problems x 8: coverage",
    "powers": "The problems asked for from a pilot of 240 x 16, to find a gain with 80 % chance",
    "shares": "A share of tokens, and the ratio of two: coverage of intervals over problems",
}


def tables(found: dict[str, Any]) -> str:
    """Write what `bench_statistics` found as Markdown tables, shares in percent."""
    lines: list[str] = []
    for name, title in TITLES.items():
        if name not in found:
            continue
        rows = found[name]
        cells = [[_cell(key, value) for key, value in row.items()] for row in rows]
        words = [isinstance(value, str) for value in rows[0].values()]
        lines += [f"{title}.", "", markdown_table(list(rows[0]), cells, words), ""]
    return "\n".join(lines).rstrip()


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float) or name in ("shared", "spread of seeds", "shared in a family"):
        return str(value)
    return f"{value:+.2f}" if name.endswith("points") else f"{100 * value:.1f}"


SIMULATIONS: dict[str, Callable[[Random, int], Iterator[dict[str, Any]]]] = {
    "scores": _score_rows,
    "differences": _difference_rows,
    "families": _family_rows,
    "choices": _choice_rows,
    "powers": _power_rows,
    "shares": _share_rows,
    "seeds": _seed_rows,
    "averages": _average_rows,
    "effects": _effect_rows,
    "unequal": _unequal_rows,
    "related": families.difference_rows,
    "growing": _growing_rows,
    "crossings": _crossing_rows,
    "related scores": families.score_rows,
    "related shares": families.share_rows,
    "related trainings": families.training_rows,
    "single": _single_rows,
    "empty tails": _empty_tail_rows,
}

if __name__ == "__main__":
    run(bench_statistics, tables)
