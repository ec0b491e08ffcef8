"""Each number that a report prints, held to the results that it was made from, computed here by other means.

One small store: two benchmarks, one of them with a second seed; base, RL, replacements with their controls,
extrapolations, the gate on RL. Means are numpy's, intervals and p the statistics' own on arrays that are put together
here; what is read is the CSV that a user reads.
"""

import re
from itertools import combinations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rlvr_dir import stats
from rlvr_dir.config import Decoding
from rlvr_dir.report.build import build
from rlvr_dir.report.difference_figures import extrapolates
from rlvr_dir.results.compare import comparisons
from rlvr_dir.results.settings import settings_of
from tests.facts import states
from tests.report.held import number, rows_of
from tests.report.made import result

WAYS = (
    Decoding(mode="base"),
    Decoding(mode="rl"),
    *(Decoding(mode=mode, tau=tau) for tau in (-0.5, -0.3, -0.1) for mode in ("veto", "reject", "replace")),
    *(Decoding(mode="extrapolate", tau=tau, gamma=gamma) for tau in (-0.3, -0.1) for gamma in (0.05, 0.1)),
    *(Decoding(mode=mode, tau=0.2, criterion="kl") for mode in ("veto", "reject", "replace")),
    Decoding(mode="replace", tau=-0.2, primary="rl"),
    Decoding(mode="extrapolate", tau=-0.2, gamma=0.1, primary="rl"),
)
TASKS = {"aime24": ("AIME24", (0, 1)), "amc": ("AMC", (0,))}  # benchmark, its title, its seeds


def made(i, decoding, task, seed):
    """A result whose problems differ, and whose tokens, replaced and changed ones differ from response to response."""
    one = result(decoding, 0.2 + 0.045 * i, task=task, problems=30 if task == "aime24" else 83, samples=4, seed=seed)
    random = np.random.default_rng([i, seed, len(task)])
    tokens = random.integers(20, 90, one.correct.shape)
    replaced = random.binomial(tokens, 0.02 + 0.01 * i) * decoding.gated
    right = random.random(one.correct.shape) < np.clip(random.beta(1 + i / 3, 3, (len(tokens), 1)), 0.02, 0.98)
    more = {name: random.random(right.shape) < share for name, share in (("truncated", 0.1), ("no_box", 0.2))}
    more["votes"] = np.where(right, 0, random.integers(1, 3, right.shape))
    return one.replace(
        correct=right, n_tokens=tokens, n_replaced=replaced, n_changed=random.binomial(replaced, 0.6), **more
    )


@pytest.fixture(scope="module")
def store():
    return {
        (task, seed, decoding.label()): made(i, decoding, task, seed)
        for task, (_, seeds) in TASKS.items()
        for seed in seeds
        for i, decoding in enumerate(WAYS)
    }


@pytest.fixture(scope="module")
def report(store):
    return build(list(store.values()))


@pytest.fixture(scope="module")
def sheets(report):
    """The rows of every CSV, by its name."""
    return {one.name: rows_of(one) for one in report.sections}


def table(store, task, label, name="correct"):
    """(problems, samples of all seeds)"""
    return np.hstack([getattr(store[task, seed, label], name) for seed in TASKS[task][1]]).astype(float)


def is_a_score(row, name, correct):
    """The cell of Avg@n: 100 times the mean, and the interval of the score."""
    low, high = stats.score_interval(correct)
    assert number(row, name) == pytest.approx(100 * correct.mean())
    assert (number(row, f"{name}: low"), number(row, f"{name}: high")) == pytest.approx((100 * low, 100 * high))
    assert low < correct.mean() < high


def is_pass(row, name, correct, k):
    subsets = [np.mean([problem[list(s)].any() for s in combinations(range(problem.size), k)]) for problem in correct]
    assert number(row, name) == pytest.approx(100 * np.mean(subsets))


def majority(votes):
    """The chance that the commonest answer is the right one, 0, where equally common ones are drawn from."""
    most = max(map(votes.count, votes))
    first = {vote for vote in votes if votes.count(vote) == most}
    return (0 in first) / len(first)


def share(store, task, label, name):
    """The share of tokens in percent, a mean over problems, with its interval."""
    hits, tokens = (table(store, task, label, each).sum(axis=1) for each in (name, "n_tokens"))
    one = stats.problem_share(hits, tokens)
    assert one.value == pytest.approx(np.mean([h / n for h, n in zip(hits, tokens, strict=True) if n]))
    return tuple(100 * each for each in (one.low, one.value, one.high))


def paired(store, task, label, minus):
    """Mean, low, high and p of a difference, in points."""
    one, other = (table(store, task, each) for each in (label, minus))
    found = stats.paired_difference(one, other)
    d = one.mean(axis=1) - other.mean(axis=1)
    assert found.mean == pytest.approx(d.mean())
    assert found.low <= scipy_stats.ttest_1samp(d, 0).confidence_interval().low + 1e-9  # never shorter than t's
    return 100 * found.mean, 100 * found.low, 100 * found.high, found.p


def sampling_alone(one, other):
    """The ends of a difference in points for other samples of the same problems."""
    ends = stats.paired_difference(one, other).sampling
    d = 100 * (one.mean() - other.mean())
    wide = 196 * np.sqrt(sum((each.var(axis=1, ddof=1) / each.shape[1]).sum() for each in (one, other))) / len(one)
    assert 0.95 * wide < min(d - 100 * ends[0], 100 * ends[1] - d)  # by t of few samples somewhat wider
    assert max(d - 100 * ends[0], 100 * ends[1] - d) < 1.6 * wide
    return 100 * ends[0], 100 * ends[1]


def expected_pairs():
    """What is compared: RL with base, all others with RL, each with its control."""
    control = {
        **{f"replace {way}": f"reject {way}" for way in ("τ-0.5", "τ-0.3", "τ-0.1", "τ0.2 kl")},
        **{f"reject {way}": f"veto {way}" for way in ("τ-0.5", "τ-0.3", "τ-0.1", "τ0.2 kl")},
        **{f"extrapolate τ{tau} γ{gamma}": f"replace τ{tau}" for tau in ("-0.3", "-0.1") for gamma in ("0.05", "0.1")},
        "extrapolate τ-0.2 γ0.1 on rl": "replace τ-0.2 on rl",
    }  # fmt: skip
    labels = [decoding.label() for decoding in WAYS]
    rows = [("rl", "base"), *((label, "rl") for label in labels[2:]), *control.items()]
    return [(task, *row) for task in TASKS for row in rows]


def holm(p):
    """By hand, from the least."""
    order, most, found = sorted(range(len(p)), key=lambda i: p[i]), 0.0, [0.0] * len(p)
    for rank, i in enumerate(order):
        most = max(most, min(1.0, p[i] * (len(p) - rank)))
        found[i] = most
    return found


def test_every_interval_of_every_sheet_holds_its_number(sheets):
    """Low, number and high in this order, and no low that is the high."""
    seen = 0
    for name, rows in sheets.items():
        for row in rows:
            for column in row:
                if column.endswith(": low") and row[column]:
                    low, value, high = (
                        number(row, column.removesuffix(": low") + end) for end in (": low", "", ": high")
                    )
                    assert low <= value <= high, (name, column)
                    assert low < high, (name, column)
                    seen += 1
            if {"low", "high"} <= row.keys() and row["low"]:
                middle = next(row[each] for each in ("difference", "avg", "value") if each in row)
                assert number(row, "low") < float(middle) < number(row, "high"), name
                seen += 1
    assert seen > 200


def test_the_differences_are_those_of_the_results_and_holm_is_over_all_of_them(store, sheets):
    pairs = expected_pairs()
    wanted = {pair: paired(store, *pair) for pair in pairs}
    corrected = dict(zip(pairs, holm([wanted[pair][3] for pair in pairs]), strict=True))
    title = {task: name for task, (name, _) in TASKS.items()}
    keys = {(title[task], label, minus): (task, label, minus) for task, label, minus in pairs}
    for sheet, whole in (("differences", True), ("main-differences", False)):
        rows = sheets[sheet]
        found = [keys[row["Benchmark"], row["Decoding"], row["minus"]] for row in rows]
        assert sorted(found) == sorted(pairs) if whole else set(found) < set(pairs)
        for pair, row in zip(found, rows, strict=True):
            mean, low, high, p = wanted[pair]
            assert number(row, "Difference") == pytest.approx(mean)
            assert (number(row, "Difference: low"), number(row, "Difference: high")) == pytest.approx((low, high))
            assert number(row, "p") == pytest.approx(p)
            assert number(row, "p (Holm)") == pytest.approx(corrected[pair])
            ends = sampling_alone(*(table(store, pair[0], label) for label in pair[1:]))
            assert row["Sampling only"].lstrip("'") == "[{:+.1f}, {:+.1f}]".format(*ends)
    drawn = sheets["differences-drawn"]  # extrapolations minus RL, and minus their own gate
    assert len(drawn) == 2 * 5 * len(TASKS)
    for row in drawn:
        pair = row["task"], row["decoding"], row["minus"]
        assert row["kind"] == ("against rl" if pair[2] == "rl" else "against control")
        ends = [number(row, name) for name in ("difference", "low", "high", "p", "p_holm")]
        assert ends == pytest.approx([*wanted[pair], corrected[pair]])


def test_both_steps_are_drawn_against_the_changed_share_of_what_is_compared(store, sheets):
    for task in TASKS:
        rows = sheets[f"veto-{task}"]
        labels = {("Δ log p", tau): f"τ{tau}" for tau in ("-0.5", "-0.3", "-0.1")} | {("KL", "0.2"): "τ0.2 kl"}
        steps = ("replace minus reject", "reject minus veto")
        drawn = [(row["step"], row["line"], row["tau"].lstrip("'")) for row in rows]
        assert sorted(drawn) == sorted((step, *key) for step in steps for key in labels)
        for row in rows:
            words, (first, second) = labels[row["line"], row["tau"].lstrip("'")], row["step"].split(" minus ")
            ends = paired(store, task, f"{first} {words}", f"{second} {words}")
            assert [number(row, name) for name in ("difference", "low", "high", "p")] == pytest.approx(ends)
            for name, mode in (("", first), ("minus_", second)):
                label = f"{mode} {words}"
                assert number(row, f"{name}avg") == pytest.approx(100 * table(store, task, label).mean())
                assert number(row, f"{name}changed_percent") == pytest.approx(share(store, task, label, "n_changed")[1])


def test_every_result_is_listed_as_it_is(store, sheets):
    rows = {(row["Benchmark"], row["Seed"], row["Decoding"]): row for row in sheets["results"]}
    assert len(rows) == len(store)
    for (task, seed, label), one in store.items():
        row = rows[TASKS[task][0], str(seed), label]
        right = one.correct.astype(float)
        is_a_score(row, "Avg@4", right)
        is_pass(row, "Pass@2", right, 2)
        p, k = right.mean(axis=1), right.shape[1]
        sampling = np.sqrt((p * (1 - p) * k / (k - 1) / k).sum()) / len(p)
        assert number(row, "s.e. sampling") == pytest.approx(100 * sampling)
        for name, column in (("n_replaced", "Flagged"), ("n_changed", "Changed")):
            if one.decoding.gated:
                assert number(row, column) == pytest.approx(100 * getattr(one, name).sum() / one.n_tokens.sum())
        assert number(row, "Tokens") == pytest.approx(one.n_tokens.mean())
        assert number(row, "Cut") == pytest.approx(100 * one.truncated.mean())
        assert number(row, "No box") == pytest.approx(100 * one.no_box.mean())
        assert number(row, "Maj@4") == pytest.approx(100 * np.mean([majority(each) for each in one.votes.tolist()]))


def test_the_scores_are_of_all_seeds_and_the_average_is_of_the_benchmarks(store, sheets):
    rows, name = sheets["main-scores"], {"Base": "base", "RL": "rl"}
    assert len(rows) == 2 + 6  # base, RL, the best of each kind among more than six: four on base, two on RL
    for row in rows:
        label = name.get(row["Method"], row["Method"].removesuffix(" †"))
        means = []
        for task, (title, seeds) in TASKS.items():
            right = table(store, task, label)
            column = f"{title} Avg" if len({len(seeds) for _, seeds in TASKS.values()}) > 1 else f"{title} Avg@4"
            column = next(each for each in row if each.startswith(column) and ":" not in each)
            is_a_score(row, column, right)
            is_pass(row, next(each for each in row if each.startswith(f"{title} Pass")), right, 2)
            means.append(right.mean())
        average = next(each for each in row if each.startswith("Average Avg") and ":" not in each)
        assert number(row, average) == pytest.approx(100 * np.mean(means))
        ends = stats.mean_interval(
            [(table(store, t, label).mean(), *stats.score_interval(table(store, t, label))) for t in TASKS]
        )
        assert [number(row, f"{average}: {end}") for end in ("low", "high")] == pytest.approx([100 * e for e in ends])
    for mode, primary in (
        ("replace", "base"),
        ("extrapolate", "base"),
        ("veto", "base"),
        ("reject", "base"),
        ("replace", "rl"),
    ):
        kind = [each.label() for each in WAYS if (each.mode, each.primary) == (mode, primary)]
        best = max(kind, key=lambda label: sum(table(store, task, label).mean() for task in TASKS))
        assert f"{best} †" in [row["Method"] for row in rows]


def test_what_was_picked_is_the_best_and_has_holms_p(store, sheets):
    pairs = expected_pairs()
    corrected = dict(zip(pairs, holm([paired(store, *pair)[3] for pair in pairs]), strict=True))
    rows = sheets["picked"]
    assert len(rows) == 2 * len(TASKS)
    for row in rows:
        task = next(task for task, (title, _) in TASKS.items() if title == row["Benchmark"])
        mode = {"replacement": "replace", "extrapolation": "extrapolate"}[row["Best of"].split()[-1]]
        among = [decoding.label() for decoding in WAYS if decoding.mode == mode]
        assert row["Best of"].split()[0] == str(len(among))
        best = max(among, key=lambda label: table(store, task, label).mean())
        assert row["Decoding"] == best
        is_a_score(row, "Score", table(store, task, best))
        mean, low, high, _ = paired(store, task, best, "rl")
        assert [number(row, f"minus RL{end}") for end in ("", ": low", ": high")] == pytest.approx([mean, low, high])
        p = stats.p_value(
            corrected[task, best, "rl"], stats.paired_difference(*(table(store, task, x) for x in (best, "rl"))).at_most
        )
        assert row["minus RL: beside"] == f"p {p}"
        for name, column in (("n_replaced", "Flagged"), ("n_changed", "Changed")):
            low, value, high = share(store, task, best, name)
            assert [number(row, f"{column}{end}") for end in (": low", "", ": high")] == pytest.approx(
                [low, value, high]
            )
            hits, tokens = (table(store, task, best, each).sum() for each in (name, "n_tokens"))
            assert row[f"{column}: beside"] == f"pooled {100 * hits / tokens:.1f} %"


@pytest.mark.parametrize("start", ["changed", "ratio", "changed-on-rl", "ratio-on-rl"])
def test_the_curves_are_of_shares_and_scores_of_the_results(store, sheets, start):
    primary = "rl" if start.endswith("rl") else "base"
    controls = ("veto", "reject")
    lines = {"": "Δ log p", "veto": "Δ log p, veto", "reject": "Δ log p, reject", "kl": "KL"}
    for task in TASKS:
        if f"{start}-{task}" not in sheets:
            assert primary == "rl"
            continue
        rows = {(row["line"], row["tau"].lstrip("'")): row for row in sheets[f"{start}-{task}"]}
        wanted = {("base", ""): "base", ("rl", ""): "rl"}
        for decoding in WAYS:
            if decoding.primary == primary and decoding.gated:
                kind = "kl" if decoding.criterion == "kl" else decoding.mode if decoding.mode in controls else ""
                if primary == "rl":
                    more = f", γ = {decoding.gamma:g}" if decoding.gamma else ""
                    wanted[f"Δ log p{more} on RL", f"{decoding.tau}"] = decoding.label()
                elif decoding.mode == "replace" or (decoding.mode in controls and kind in controls):
                    wanted[lines[kind], f"{decoding.tau}"] = decoding.label()
        assert rows.keys() == wanted.keys()
        for key, label in wanted.items():
            row, right = rows[key], table(store, task, label)
            low, high = stats.score_interval(right)
            ends = [number(row, name) for name in ("avg", "low", "high")]
            assert ends == pytest.approx([100 * right.mean(), 100 * low, 100 * high])
            for name in ("changed", "replaced") if label not in ("base", "rl") else ():
                ends = [number(row, f"{name}_{end}") for end in ("low", "percent", "high")]
                assert ends == pytest.approx(share(store, task, label, f"n_{name}"))
            for name in ("changed", "replaced") if label in ("base", "rl") else ():
                assert [number(row, f"{name}_{end}") for end in ("low", "percent", "high")] == [0, 0, 0]


def test_what_a_page_prints_are_the_numbers_of_its_sheets_with_so_many_decimals(report):
    sections, seen = {one.name: one for one in report.sections}, 0
    for name in ("main-scores", "grid-aime24", "grid-amc", "picked", "differences", "main-differences"):
        for row in sections[name].cells:
            for column, cell in zip(sections[name].columns, row, strict=True):
                if cell.value is None:
                    continue
                if column.title in ("p", "p (Holm)"):
                    assert cell.text.removeprefix("≤ ") == stats.p_value(cell.value), (name, column)
                    continue
                plus = "+" if column.title in ("Difference", "minus RL") else ""
                assert cell.text.removesuffix(" %") == f"{cell.value:{plus}.1f}", (name, column)
                if cell.interval is not None:
                    low, high = cell.interval
                    assert f"[{low:{plus}.1f}, {high:{plus}.1f}]" in cell.small, (name, column)
                seen += 1
    assert seen > 100


def test_only_what_lies_beyond_rl_is_drawn_as_an_extrapolation():
    """Between base and RL (gamma below 0) the control is gamma = 0 as well."""
    ways = [*WAYS[:2], *(Decoding(mode="extrapolate", tau=-0.3, gamma=gamma) for gamma in (-0.5, 0.0, 0.1))]
    rows = comparisons(settings_of([result(way, 0.2 + 0.1 * i) for i, way in enumerate(ways)]))
    controlled = [(row.result.label, row.reference.label) for row in rows if row.reference.label == "replace τ-0.3"]
    assert controlled == [(f"extrapolate τ-0.3 γ{gamma}", "replace τ-0.3") for gamma in (-0.5, 0.1)]
    assert [row.result.label for row in rows if extrapolates(row)] == ["extrapolate τ-0.3 γ0.1"]


def test_the_grid_has_each_score_its_interval_and_its_difference_to_its_control(store, sheets):
    for task in TASKS:
        rows = {row["Threshold τ"]: row for row in sheets[f"grid-{task}"]}
        kinds = {"Base without the flagged token (veto)": "veto τ{}", "Replace with π_RL (γ = 0)": "replace τ{}"}
        kinds["The same where RL's draw rejects it (reject)"] = "reject τ{}"
        kinds |= {f"Extrapolate, γ = {gamma}": f"extrapolate τ{{}} γ{gamma}" for gamma in ("0.05", "0.1")}
        assert rows.keys() == {"replaced", "changed", *kinds}
        for tau in ("-0.3", "-0.1"):
            column = f"'{tau}"
            for head, words in kinds.items():
                row, label = rows[head], words.format(tau)
                right = table(store, task, label)
                low, high = stats.score_interval(right)
                ends = [number(row, f"{column}{end}") for end in (": low", "", ": high")]
                assert ends == pytest.approx([100 * low, 100 * right.mean(), 100 * high])
                if head.startswith("Base"):
                    continue
                minus = {"replace": "reject", "reject": "veto"}.get(label.split()[0], "replace") + f" τ{tau}"
                mean, low, high, _ = paired(store, task, label, minus)
                written = stats.Estimate(mean / 100, low / 100, high / 100).text(1, sign=True)
                assert row[f"{column}: beside"].lstrip("'").startswith(written)
            for name in ("replaced", "changed"):
                ratio = share(store, task, f"replace τ{tau}", f"n_{name}")[1]
                assert rows[name][column] == f"{ratio:.1f} %"


def test_the_first_lines_have_what_rls_tokens_add_and_its_gain(store, report):
    pairs = expected_pairs()
    corrected = dict(zip(pairs, holm([paired(store, *pair)[3] for pair in pairs]), strict=True))

    def facts(*pair):
        """The difference with its interval, and its corrected p, as they are printed."""
        mean, low, high, _ = paired(store, *pair)
        at_most = stats.paired_difference(*(table(store, pair[0], each) for each in pair[1:])).at_most
        return f"{mean:+.1f} points [{low:+.1f}, {high:+.1f}]", f"p {stats.p_value(corrected[pair], at_most)}"

    def line(*words):
        [found] = [line for line in report.opening if all(word in line for word in words)]
        return found

    rejected = [pair for pair in pairs if pair[2].startswith("reject")]
    text = " ".join([report.headline, *report.opening])
    for task, (title, _) in TASKS.items():
        states(line("RL gains"), title, *facts(task, "rl", "base"))
        over = [pair for pair in rejected if pair[0] == task]
        best = max(over, key=lambda pair: table(store, *pair[:2]).mean())
        as_good = [pair for pair in over if pair == best or paired(store, *pair[:2], best[1])[2] >= 0]
        fewest = min(as_good, key=lambda pair: share(store, *pair[:2], "n_replaced")[1])
        states(line("replace − reject"), title, *facts(*fewest))
        states(line("reject − veto"), title, *facts(task, fewest[2], fewest[2].replace("reject", "veto")))
        changed = share(store, *fewest[:2], "n_changed")[1]
        scores = [100 * table(store, task, each).mean() for each in ("base", fewest[1], "rl")]
        states(text, f"{changed:.1f} %", *(f"{score:.1f} %" for score in scores))
        states(line("fewest tokens"), f"{fewest[1]} on {title}")


def test_the_first_line_counts_and_compares_the_replacements_of_one_pair(store):
    """Those of another pair were among them, and one of those could be named as the fewest of this one's."""
    ways = [Decoding(mode=mode) for mode in ("base", "rl")]
    ways += [Decoding(mode=mode, tau=tau) for tau in (-0.3, -0.1) for mode in ("veto", "reject", "replace")]
    results = []
    for share, count, pair in ((0.6, 5, {"base": "b", "rl": "good"}), (0.58, 1, {"base": "b", "rl": "other"})):
        for i, way in enumerate(ways):
            one = result(way, share if i else 0.2, problems=30, samples=16, pair=pair)
            results.append(one.replace(n_tokens=one.n_tokens * 10, n_replaced=one.n_replaced * count))
    [line] = [line for line in build(results).opening if "fewest tokens" in line]
    states(line, "replace τ-0.3 on AIME24 with good", "replace τ-0.3 on AIME24 with other")
    drawn = {section.name: section.frame for section in build(results).sections if section.name.startswith("veto-")}
    assert {name: [*data["avg"].round()] for name, data in drawn.items()} == {
        "veto-0-aime24": [56.0] * 4, "veto-1-aime24": [54.0] * 4,
    }, "each pair's steps are its own"  # fmt: skip


def test_a_heat_map_prints_each_score_in_its_cell_and_rls_above(store, report, sheets):
    figures = {section.name: section.svg for section in report.sections}
    for task in TASKS:
        rows = {(number(row, "tau"), number(row, "gamma")): number(row, "avg") for row in sheets[f"heat-{task}"]}
        wanted = {
            (decoding.tau, decoding.gamma): 100 * table(store, task, decoding.label()).mean()
            for decoding in WAYS
            if decoding.mode in ("replace", "extrapolate") and decoding.primary == "base" and decoding.criterion != "kl"
        }
        assert rows == pytest.approx(wanted)
        texts = re.findall("<text[^>]*>([^<]*)</text>", figures[f"heat-{task}"])
        assert {f"{value:.1f}" for value in wanted.values()} <= {*texts}
        assert any(text.endswith(f", rl {100 * table(store, task, 'rl').mean():.1f}") for text in texts)


def test_each_problem_has_its_own_accuracy_at_each_share(store, sheets):
    for task in TASKS:
        rows = sheets[f"problems-{task}"]
        first = store[task, 0, "base"]
        assert {row["problem"] for row in rows} == {*first.problem_ids}
        steps = sorted(("replace τ-0.5", "replace τ-0.3", "replace τ-0.1"), key=lambda x: share(store, task, x, "n_replaced")[1])  # noqa: E501  # fmt: skip
        ratios = [f"{share(store, task, label, 'n_replaced')[1]:.2g} %" for label in steps]
        columns = [f"replaced_{i} {name}" for i, name in enumerate(("base", *ratios, "RL"))]
        for row in rows:
            assert [*row][2:] == columns
            i = first.problem_ids.index(row["problem"])
            for column, label in zip(columns, ("base", *steps, "rl"), strict=True):
                assert number(row, column) == pytest.approx(table(store, task, label)[i].mean())


def test_a_grid_of_another_criterion_than_the_papers_is_drawn_where_it_is_the_only_one(store):
    ways = [
        Decoding(mode="extrapolate" if gamma else "replace", tau=tau, gamma=gamma, criterion="kl")
        for tau in (0.1, 0.2)
        for gamma in (0.0, 0.1)
    ]
    results = [made(i, way, "aime24", 0) for i, way in enumerate([Decoding(mode="rl"), *ways])]
    shown = {section.name: rows_of(section) for section in build(results).sections}
    grid, heat = shown["grid-aime24"], shown["heat-aime24"]
    best = [max(results[1:], key=lambda one: (bool(one.decoding.gamma) == gated, one.avg)) for gated in (False, True)]
    assert [row["Best of"] for row in shown["picked"]] == ["2 of replacement", "2 of extrapolation"]
    assert [row["Decoding"] for row in shown["picked"]] == [one.decoding.label() for one in best]
    assert [number(row, "Score") for row in shown["picked"]] == pytest.approx([100 * one.avg for one in best])
    by = {(one.decoding.tau, one.decoding.gamma): 100 * one.correct.mean() for one in results[1:]}
    assert {(number(row, "tau"), number(row, "gamma")): number(row, "avg") for row in heat} == pytest.approx(by)
    for row in grid:
        if row["Threshold τ"] not in ("replaced", "changed"):
            gamma = 0.1 if row["Threshold τ"].startswith("Extra") else 0.0
            assert [number(row, "0.1"), number(row, "0.2")] == pytest.approx([by[0.1, gamma], by[0.2, gamma]])


def test_on_rl_each_strength_stands_over_its_difference_to_the_gate_alone(store, sheets):
    for task in TASKS:
        rows = {row["Threshold τ"]: row for row in sheets[f"on-rl-{task}"]}
        labels = {
            "The gate alone (γ = 0)": "replace τ-0.2 on rl",
            "Extrapolate, γ = 0.1": "extrapolate τ-0.2 γ0.1 on rl",
        }
        for head, label in labels.items():
            for column, each in (("'-0.2", label), ("RL itself", "rl")):
                right = table(store, task, each)
                low, high = stats.score_interval(right)
                ends = [number(rows[head], f"{column}{end}") for end in (": low", "", ": high")]
                assert ends == pytest.approx([100 * low, 100 * right.mean(), 100 * high])
        mean, low, high, _ = paired(store, task, labels["Extrapolate, γ = 0.1"], labels["The gate alone (γ = 0)"])
        below = rows["γ = 0.1 minus the gate alone"]["'-0.2"].lstrip("'")
        assert below.startswith(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] p ")
        for name in ("replaced", "changed"):
            ratio = share(store, task, labels["Extrapolate, γ = 0.1"], f"n_{name}")[1]
            gate = share(store, task, labels["The gate alone (γ = 0)"], f"n_{name}")[1]
            assert rows[name]["'-0.2"] in (f"{ratio:.1f} %", f"{gate:.1f} %")
            assert rows[name]["RL itself"] == "0.0 %"


def test_settings_of_unlike_numbers_of_samples_say_how_many_they_have():
    """Pass@k is at half of the fewest; of two samples at one of them, which is Avg."""
    few, many = Decoding(mode="base"), Decoding(mode="rl")
    results = [result(few, 0.3, problems=30, samples=2), result(many, 0.6, problems=30, samples=8)]
    shown = {section.name: rows_of(section) for section in build(results).sections}
    by = {"Base": results[0], "RL": results[1], "base": results[0], "rl": results[1]}
    for row in shown["main-scores"]:
        one = by[row["Method"]]
        assert number(row, "AIME24 Avg") == pytest.approx(100 * one.correct.mean())
        assert row["AIME24 Avg: beside"] == f"'@{one.samples}"
        assert number(row, "AIME24 Pass@1") == pytest.approx(100 * one.correct.mean())
    assert len(shown["results"]) == len(shown["main-scores"]) == 2
    for row in shown["results"]:
        k = (one := by[row["Decoding"]]).samples // 2
        assert row["Pass: beside"] == f"'@{k}"
        is_pass(row, "Pass", one.correct.astype(float), k)
    alike = [result(way, 0.5, problems=30, samples=2) for way in (few, many)]
    for row, one in zip({s.name: rows_of(s) for s in build(alike).sections}["results"], alike, strict=True):
        is_pass(row, "Pass@1", one.correct.astype(float), 1)


@pytest.mark.parametrize("gammas", [(-1.0, -0.5, 0.0, 1.0), (-0.5, 0.0, 0.5)])
def test_strengths_from_base_to_beyond_rl_have_their_scores(gammas):
    ways = [Decoding(mode="extrapolate" if g else "replace", criterion="always", gamma=g) for g in gammas]
    results = [made(i, way, "aime24", 0) for i, way in enumerate([Decoding(mode="base"), Decoding(mode="rl"), *ways])]
    rows = {s.name: rows_of(s) for s in build(results).sections}["gamma-aime24"]
    for row, one in zip(rows, [*results[2:], *results[:2]], strict=True):
        low, high = stats.score_interval(one.correct)
        ends = [number(row, name) for name in ("low", "avg", "high")]
        assert ends == pytest.approx([100 * low, 100 * one.correct.mean(), 100 * high])
        assert row["gamma"].lstrip("'") == (f"{one.decoding.gamma}" if one.decoding.everywhere else "")
