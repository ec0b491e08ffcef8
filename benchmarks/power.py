"""Compute which gains the paper's benchmarks can detect, before anything is decoded.

The variance of one sample's verdict comes from the paper's own Avg@32 and Pass@16: exactly one Beta distribution of a
problem's probability has both. The rest is assumed: how much of the noise two settings share, and how much the gain
differs from problem to problem.
"""

from collections.abc import Callable
from math import exp
from typing import Any

from scipy import optimize
from scipy.special import betaln

from benchmarks.script import run
from rlvr_dir.markdown import markdown_table
from rlvr_dir.report.paper import numbers
from rlvr_dir.stats import Spread, detectable_gain, power, problems_needed

BENCHMARKS = {"AIME24": ("aime24",), "AIME24 and 25": ("aime24", "aime25"), "AMC": ("amc",), "Minerva": ("minerva",)}
GAINS = (0.01, 0.02, 0.03)


def variance(avg: float, pass_at_16: float) -> float:
    """Return the mean of p (1 - p) over problems, by the Beta distribution of p with these averages (fractions).

    A Beta distribution of mean m and weight s has E (1 - p)^16 = B(m s, (1 - m) s + 16) / B(m s, (1 - m) s).
    """

    def missed(s: float) -> float:
        a, b = avg * s, (1 - avg) * s
        return float(betaln(a, b + 16) - betaln(a, b))

    target = optimize.root_scalar(lambda s: exp(missed(s)) - (1 - pass_at_16), bracket=(1e-6, 1e4))
    return avg * (1 - avg) * target.root / (target.root + 1)


def bench_power(
    *, samples: int = 32, model: str = "qwen2.5-math-7b", method: str = "dapo", shared: float = 0.0,
    differs: float = 0.1, say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Return what each benchmark of the paper can detect.

    Args:
        shared: Which part of the noise the two settings share (0.8 for decodings of one seed on the tiny pair).
        differs: The standard deviation of the gain over problems, as a fraction.
    """
    printed = numbers()
    known = printed["main"][model][method] | {"minerva": printed["minerva"][model][method]}
    found: dict[str, Any] = {}
    for name, tasks in BENCHMARKS.items():
        problems = sum(printed["protocol"]["problems"][task] for task in tasks)
        noise = sum(variance(*(value / 100 for value in known[task])) for task in tasks) / len(tasks)
        spread = Spread(between=differs**2, within=2 * noise * (1 - shared))
        found[name] = {
            "problems": problems,
            "detectable": detectable_gain(spread, problems, samples),
            "chances": [power(gain, spread, problems, samples) for gain in GAINS],
            "needed": problems_needed(0.02, spread, samples),
        }
    say(f"{samples} samples, {model} {method}, {shared:.0%} of the noise shared, gains differ by {differs:.1%}")
    return found


def table(found: dict[str, Any]) -> str:
    """Write gains in points and chances in percent."""
    head = ["", "problems", "gain found with 80 %", *(f"+{100 * gain:.0f} found" for gain in GAINS), "problems for +2"]
    rows = []
    for name, row in found.items():
        chances = [f"{100 * chance:.0f} %" for chance in row["chances"]]
        rows.append([name, str(row["problems"]), f"{100 * row['detectable']:.1f}", *chances, f"{row['needed']:,}"])
    return markdown_table(head, rows)


if __name__ == "__main__":
    run(bench_power, table)
