"""Each number that tables of trainings print, computed here from the results of their seeds by other means.

Two bases at one place, methods with three, two and one seeds, two benchmarks; Ours of the first base lacks nothing,
PPL was scored on one benchmark alone.
"""

import numpy as np
import pytest

from rlvr_dir import stats
from rlvr_dir.config import Decoding
from rlvr_dir.report.build import build
from tests.report.held import ends, number, rows_of
from tests.report.made import result

TASKS = {"aime24": ("AIME24", 30), "amc": ("AMC", 83)}
SAMPLES = 4
TRAININGS = {  # by base and method: seeds, and the share that is right
    ("v1", "DAPO"): ((0, 1, 2), 0.35), ("v1", "PPL"): ((0, 1), 0.4), ("v1", "Ours"): ((0, 1, 2), 0.55),
    ("v2", "DAPO"): ((0,), 0.3), ("v2", "Ours"): ((3,), 0.6),
}  # fmt: skip
BASES = {"v1": 0.1, "v2": 0.2}
LACKS = {("v1", "PPL", "amc")}


def right(share, problems, *key):
    """(problems, samples) of 0 and 1 around a share, of problems that differ."""
    random = np.random.default_rng([sum(map(ord, str(each))) for each in key])
    chance = np.clip(share + random.normal(0, 0.15, (problems, 1)), 0.02, 0.98)
    return random.random((problems, SAMPLES)) < chance


@pytest.fixture(scope="module")
def store():
    """What was right, by base, method, seed (None: of the base itself) and benchmark."""
    found = {}
    for (base, method), (seeds, share) in TRAININGS.items():
        for i, seed in enumerate(seeds):
            for task, (_, problems) in TASKS.items():
                if (base, method, task) not in LACKS:
                    key = base, method, seed, task
                    found[key] = right(share + 0.04 * i, problems, *key)
    for base, share in BASES.items():
        for task, (_, problems) in TASKS.items():
            found[base, None, None, task] = right(share, problems, base, task)
    return found


@pytest.fixture(scope="module")
def made(store):
    results = []
    for (base, method, seed, task), correct in store.items():
        place = f"runs/{base}/{method}/seed-{seed}/rl"
        about = {"named": True, "name": method, "folder": place, "seed": seed, "checkpoint": "last"}
        one = result(
            Decoding(mode="base" if method is None else "rl"), task=task, problems=len(correct), samples=SAMPLES,
            pair={"base": "org/b", "rl": place if method else "x"}, weights={"base": base},
            settings=f"{base} {method} {seed}", **({"training": about} if method else {}),
        )  # fmt: skip
        results.append(one.replace(correct=correct))
    return build(results)


@pytest.fixture(scope="module")
def sheets(made):
    return {section.name: rows_of(section) for section in made.sections}


def runs(store, base, method, task):
    """The scores by seed of a method; those of a base stand for every seed of `method`, a tuple of them."""
    if isinstance(method, tuple):
        return dict.fromkeys(method, store[base, None, None, task].astype(float))
    return {seed: one.astype(float) for (b, m, seed, t), one in store.items() if (b, m, t) == (base, method, task)}


def of_rows(rows):
    """The rows of the table of methods by base and method: the base's name stands in its first row alone."""
    found, model = {}, ""
    for row in rows:
        model = row["Model"] or model
        found[model.split("(")[1].rstrip(")"), row["Method"].split(" (")[0]] = row
    return found


def column(row, start):
    return next(name for name in row if name.startswith(start) and ":" not in name)


def test_every_score_is_the_mean_over_its_seeds_with_its_own_interval(store, sheets):
    rows = of_rows(sheets["trained"])
    assert rows.keys() == {*TRAININGS, *((base, "Base") for base in BASES)}
    for (base, method), row in rows.items():
        scores = {}
        for task, (title, _) in TASKS.items():
            seeds = [None] if method == "Base" else TRAININGS[base, method][0]
            name, passes = column(row, f"{title} Avg@4"), column(row, f"{title} Pass@2")
            if (base, method, task) in LACKS:
                assert {row[name], row[passes]} == {"–"}
                continue
            every = [store[base, None if method == "Base" else method, seed, task] for seed in seeds]
            scores[task] = np.mean([one.mean() for one in every])
            hits = [one.sum(axis=1) for one in every]  # Pass@2 of 4: one less the pairs that are both wrong
            passed = np.mean([1 - (4 - hit) * (3 - hit) / 12 for hit in hits])
            assert number(row, passes) == pytest.approx(100 * passed)
            if method == "Base":
                low, high = stats.score_interval(every[0])
            else:
                one = stats.score_over_runs([runs(store, base, method, task)])
                low, high = one.low, one.high
            assert ends(row, name) == pytest.approx([100 * low, 100 * scores[task], 100 * high])
            if method in ("PPL", "Ours"):
                mean, low, high = difference(store, base, method, "DAPO", [task])
                assert row[f"{name}: beside"].lstrip("'") == f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
            else:
                assert not row[f"{name}: beside"]
        average = column(row, "Average Avg@4")
        if len(scores) < 2 or method == "Base":
            assert row[average] == "–"
            continue
        one = stats.score_over_runs([runs(store, base, method, task) for task in TASKS])
        assert ends(row, average) == pytest.approx([100 * one.low, 100 * np.mean([*scores.values()]), 100 * one.high])
        if method == "Ours":
            mean, low, high = difference(store, base, "Ours", "DAPO", TASKS)
            assert row[f"{average}: beside"].lstrip("'") == f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
    labels = {row["Method"] for row in sheets["trained"]}
    assert {"DAPO (3 seeds)", "PPL (2 seeds)", "Ours (3 seeds)", "DAPO", "Ours"} < labels


def difference(store, base, method, minus, tasks):
    """Mean, low and high of a difference in points; the mean is of the seeds' means, by benchmark."""
    pairs = [pair(store, base, method, minus, task) for task in tasks]
    found = stats.difference_over_runs(pairs)
    by_hand = [np.mean([x.mean() for x in a.values()]) - np.mean([x.mean() for x in b.values()]) for a, b in pairs]
    assert found.mean == pytest.approx(np.mean(by_hand))
    return 100 * found.mean, 100 * found.low, 100 * found.high


def pair(store, base, method, minus, task):
    other = TRAININGS[base, method][0] if minus == "Base" else minus
    return runs(store, base, method, task), runs(store, base, other, task)


def test_differences_to_the_base_and_to_dapo_are_one_family(store, sheets):
    wanted = []
    for (base, method), (seeds, _) in TRAININGS.items():
        for minus in ("Base", "DAPO") if method != "DAPO" else ("Base",):
            wanted += [(base, method, minus, task, len(seeds)) for task in TASKS if (base, method, task) not in LACKS]
    found = {}
    for base, method, minus, task, _ in wanted:
        found[base, method, minus, task] = stats.difference_over_runs([pair(store, base, method, minus, task)])
    p = {key: one.p for key, one in found.items()}
    corrected, most = {}, 0.0
    for rank, key in enumerate(sorted(p, key=p.__getitem__)):
        most = max(most, min(1.0, p[key] * (len(p) - rank)))
        corrected[key] = most
    rows = sheets["trained-differences"]
    assert len(rows) == len(wanted)
    left = dict.fromkeys(wanted)
    title = {name: task for task, (name, _) in TASKS.items()}
    for row in rows:  # the base is not named in a row: the first that is left is meant
        told = row["Training"], row["minus"], title[row["Benchmark"]]
        key = next(each for each in left if each[1:4] == told)
        del left[key]
        key, seeds = key[:4], key[4]
        mean, low, high = difference(store, *key[:3], [key[3]])
        assert ends(row, "Difference") == pytest.approx([low, mean, high])
        assert number(row, "Seeds") == seeds
        assert number(row, "p") == pytest.approx(p[key])
        assert number(row, "p (Holm)") == pytest.approx(corrected[key])
    assert not left


def test_the_sentences_are_of_all_benchmarks_and_all_seeds(store, made):
    said = [text for chapter in made.chapters if chapter.title == "Trained models" for text in chapter.paragraphs]
    for base, method, minus, words in (
        ("v1", "Ours", "DAPO", "against DAPO (mean over AIME24, AMC, 3 seeds, 95 %, p "),
        ("v2", "Ours", "DAPO", "against DAPO (mean over AIME24, AMC, "),
        ("v1", "DAPO", "Base", "against the base b (v1) (mean over AIME24, AMC, 3 seeds, 95 %, p "),
        ("v2", "DAPO", "Base", "against the base b (v2) (mean over AIME24, AMC, of these two models, 95 %, p "),
    ):
        mean, low, high = difference(store, base, method, minus, TASKS)
        start = f"{method} changes accuracy by {mean:+.1f} points [{low:+.1f}, {high:+.1f}] {words}"
        [one] = [text for text in said if text.startswith(start)]
        found = stats.difference_over_runs([pair(store, base, method, minus, task) for task in TASKS])
        assert one.endswith(f"p {stats.p_value(found.p, found.at_most)}).")


@pytest.mark.parametrize("alike", [True, False])
def test_seeds_of_unlike_numbers_of_samples_have_no_number_of_samples_and_pass_of_the_fewest(alike):
    results = []
    for method, share, counts in (("DAPO", 0.4, (4, 8)), ("Ours", 0.6, (8, 8) if alike else (4, 8))):
        for seed, samples in enumerate(counts):
            about = {"named": True, "name": method, "folder": method, "seed": seed, "checkpoint": "last"}
            how = {"pair": {"base": "b", "rl": f"{method}/seed-{seed}"}, "settings": f"{method}{seed}"}
            results.append(result(Decoding(), share, problems=30, samples=samples, training=about, **how))
    rows = {s.name: rows_of(s) for s in build(results).sections}["trained"]
    for row, mine in zip(rows, (results[:2], results[2:]), strict=True):
        assert number(row, "AIME24 Avg") == pytest.approx(100 * np.mean([one.avg for one in mine]))
        assert number(row, "AIME24 Pass@2") == pytest.approx(100 * np.mean([one.pass_at(2) for one in mine]))
        assert ("@8" in row.get("AIME24 Avg: beside", "")) == (mine[0].samples == 8)
