"""Each number that a sweep prints, in its summary, its confirmation and its estimate, computed here by other means."""

import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rlvr_dir import stats
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.digest import installed
from rlvr_dir.markdown import duration
from rlvr_dir.problems.data import preflight_of
from rlvr_dir.records import RecordConfig, RecordStore, fingerprint
from rlvr_dir.report.markdown import table
from rlvr_dir.report.sweep import CompleteTrial, TrainingSummary, against
from rlvr_dir.results.forwards import Answer
from rlvr_dir.results.settings import settings_of
from rlvr_dir.sweep.confirm import confirm
from rlvr_dir.sweep.decoding import DecodingObjective
from rlvr_dir.sweep.estimate import estimate
from rlvr_dir.sweep.lists import Cost
from rlvr_dir.sweep.outcome import Places
from rlvr_dir.sweep.points import listed_points
from rlvr_dir.sweep.run import open_sweep, pace, status
from rlvr_dir.sweep.training import folder_of, seeds_of
from rlvr_dir.train.folder import TrainingFolder, write_json
from tests.records.made import made as made_rollout
from tests.records.made import resume
from tests.results.made import made
from tests.sweep.made import TRAINING, sweep

TASKS, SAMPLES, LIMIT = ("tiny_easy", "tiny_medium"), 4, 30
PAIR = {"base": "tiny/base", "rl": "tiny/rl"}
VETO = Decoding(mode="veto", tau=-0.3)
SHARE = {"base": 0.2, "rl": 0.5, "veto": 0.45, "reject": 0.5, "replace": 0.55, "extrapolate": 0.65}


def drawn(decoding, task, ids, seed=0, seconds=0.0):
    """A result of a decoding whose problems, lengths and shares differ."""
    random = np.random.default_rng([*map(ord, decoding.label()), *map(ord, task), seed])
    shape = len(ids), SAMPLES
    chance = np.clip(SHARE[decoding.mode] + random.normal(0, 0.2, (len(ids), 1)), 0.02, 0.98)
    right, tokens = random.random(shape) < chance, random.integers(10, 40, shape)
    replaced = random.binomial(tokens, 0.1) * decoding.gated
    return made(
        decoding, right, task=task, problem_ids=tuple(ids),
        sampling=Sampling(samples=SAMPLES, max_tokens=40, seed=seed), n_tokens=tokens,
        n_replaced=replaced, n_changed=random.binomial(replaced, 0.6), seconds=seconds,
        votes=np.where(right, 0, random.integers(1, 3, shape)),
        provenance={"engine": {"pair": PAIR, "backend": "vllm", "vllm": "0.32.0", "device": "cpu"}, "grader": "plain"},
    )  # fmt: skip


def run(folder, **changes):
    """A sweep all of whose points and references are complete, and its results by task and label."""
    how = {"sampling": {"samples": SAMPLES, "max_tokens": 40}, "limit": LIMIT, "tasks": list(TASKS), **changes}
    spec = sweep(**how)
    begun = open_sweep(spec, Places.under(folder, track=False), lambda text: None)
    begun.folder.make()
    return spec, begun


def complete(spec, begun):
    found = {}
    entries = begun.objective.entries(listed_points(spec))
    for i, entry in enumerate(sorted(entries, key=lambda entry: (entry.point is not None, entry.number))):
        ids = [str(k) for k in range(LIMIT)]
        results = [drawn(entry.item[0], task, ids, seconds=1.5 + i) for task in TASKS]
        for result in results:
            result.write(begun.folder.results)
        begun.complete(entry, results)
        found |= {(one.task, one.decoding.label()): one for one in results}
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    spec, begun = run(tmp_path_factory.mktemp("sweep"), equal_forwards=True)
    found = complete(spec, begun)
    summary = begun.summary()
    summary.write(begun.folder.path)
    return SimpleNamespace(
        spec=spec, begun=begun, found=found, summary=summary,
        text=(begun.folder.path / "summary.md").read_text(),
        plain=json.loads((begun.folder.path / "summary.json").read_text()),
    )  # fmt: skip


def mean_of(found, label, of=lambda one: one.correct.mean()):
    return np.mean([of(found[task, label]) for task in TASKS])


def winner_of(found):
    points = {label for _, label in found if label.startswith(("replace", "extrapolate"))}
    return max(points, key=lambda label: mean_of(found, label))


def paired(one, other, comparisons=1):
    """The difference of two results in points, its interval and p."""
    d = one.correct.mean(axis=1) - other.correct.mean(axis=1)
    found = stats.paired_difference(one.correct, other.correct, comparisons=comparisons)
    assert found.mean == pytest.approx(d.mean())
    return found


def pairs_of(found):
    """What is compared: RL with base, all others with RL, and each with its control; by task and label."""
    labels = list(dict.fromkeys(label for _, label in found))
    rows = [("rl", "base"), *((label, "rl") for label in labels if label not in ("base", "rl"))]
    for label in labels:
        decoding = found[TASKS[0], label].decoding
        if decoding.control() != decoding and decoding.mode in ("replace", "reject", "extrapolate"):
            rows.append((label, decoding.control().label()))
    return [(task, *row) for task in TASKS for row in rows]


def corrected(found):
    rows = pairs_of(found)
    p = {row: paired(found[row[0], row[1]], found[row[0], row[2]], len(rows)) for row in rows}
    most, held = 0.0, {}
    for rank, row in enumerate(sorted(p, key=lambda row: p[row].p)):
        most = max(most, min(1.0, p[row].p * (len(p) - rank)))
        held[row] = p[row], most
    return held


def test_the_sentence_has_the_best_point_and_each_of_its_leads(swept):
    [said], best, rows = swept.summary.verdicts, winner_of(swept.found), corrected(swept.found)
    score = mean_of(swept.found, best)
    assert said.startswith(f"tiny: best of 4 on these problems: {best}, avg_at_4 {100 * score:.2f}; ")
    control = swept.found[TASKS[0], best].decoding.control().label()
    names = {"rl": "rl", control: "its γ=0 control" if control.startswith("replace") else "its reject"}
    part = f"({LIMIT} of 240 problems)"
    for (task, label, minus), (d, holm_p) in rows.items():
        if label == best:
            words = (
                f"{100 * d.mean:+.1f} points on {task} {part} against {names[minus]} "
                f"(95 % {stats.Estimate(d.mean, d.low, d.high).interval(1, sign=True)}, "
                f"p {stats.p_value(d.p, d.at_most)}, Holm over {len(rows)}: {stats.p_value(holm_p, d.at_most)})"
            )
            assert words in said
    assert said.count(" against ") == 2 * len(TASKS)
    assert said in swept.text


def score_of(one):
    """Avg with its 95 % interval, as a person reads it."""
    low, high = stats.score_interval(one.correct)
    return f"{one.benchmark} {100 * one.correct.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def test_a_line_of_progress_has_the_point_the_best_so_far_and_the_time_left(tmp_path):
    spec, begun = run(tmp_path, limit=6)
    entries = begun.objective.entries(listed_points(spec))
    lines, found = [], {}

    def line(entry):
        lines.append(begun.progress_line(entry, 30.0 / (len(lines) + 1)))

    begun.on_complete = line
    for number, entry in enumerate(entries):
        found[number] = [drawn(entry.item[0], task, list("012345")) for task in TASKS]
        for result in found[number]:
            result.write(begun.folder.results)
        begun.complete(entry, found[number])
    best = None
    for number, said in enumerate(lines):
        results = found[number]
        if entries[number].point is not None and (best is None or mean_avg(results) > mean_avg(found[best])):
            best = number
        words = [f"{number + 1}/10", f"tiny: {results[0].label}", *map(score_of, results)]
        if best is not None:
            words.append(f"best so far: {found[best][0].label} {score_of(found[best][0])}")
        if left := 9 - number:
            words.append(f"about {duration(30.0 / (number + 1) * left)} left")
        assert said == "  |  ".join(words)
    assert status(begun.folder, spec).splitlines() == [
        "small: 2 values of tau × 2 values of gamma = 4 points; 4 complete; references: 6 complete",
        f"best so far: {found[best][0].label} {score_of(found[best][0])}",
    ]


def test_what_is_only_scored_is_not_expected_to_take_as_long_as_what_was_decoded():
    """It said hours, of a rest that was held."""
    decoded = [0.0, 600.0, 1200.0]
    assert pace(decoded) == 600.0
    assert pace([*decoded, *(1200.0 + 0.5 * i for i in range(1, 9))]) == 0.5
    assert pace([0.0, 1.0, 2.0, 602.0]) == 602.0 / 3


def test_the_time_left_of_a_search_counts_what_it_may_still_propose(tmp_path):
    _, begun = run(tmp_path, method="tpe", run_cap=5, batch=1)
    lines = []
    begun.on_complete = lambda entry: lines.append(begun.progress_line(entry, 30.0 / (len(lines) + 1)))
    begun.study.open()
    next(begun.study.batches())
    entries = begun.todo()
    references = [entry for entry in entries if entry.point is None]
    for entry in references:
        begun.complete(entry, [drawn(entry.item[0], task, list("012345")) for task in TASKS])
    left = 1 + 4  # the point, and four that are not proposed yet
    assert lines[-1].startswith(f"{len(references)}/{len(references) + left}  |  ")
    assert lines[-1].endswith(f"  |  about {30 / len(references) * left:.0f} s left")


def mean_avg(results):
    return np.mean([one.correct.mean() for one in results])


def test_metrics_of_a_point_are_means_over_its_benchmarks(swept):
    entries = {entry["label"]: entry for entry in swept.plain["entries"]}
    assert list(entries)[:2] == ["base", "rl"]
    assert len(entries) == 2 + 4 + 4
    for label, entry in entries.items():
        wanted = {
            "avg_at_4": lambda one: one.correct.mean(),
            "pass_at_2": lambda one: np.mean(1 - (4 - (n := one.correct.sum(axis=1))) * (3 - n) / 12),
            "replacement_ratio": lambda one: one.n_replaced.sum() / one.n_tokens.sum(),
            "changed_ratio": lambda one: one.n_changed.sum() / one.n_tokens.sum(),
            "mean_tokens": lambda one: one.n_tokens.mean(),
        }
        for name, of in wanted.items():
            assert entry["metrics"][name] == pytest.approx(mean_of(swept.found, label, of)), name
        for name, of in (("avg_at_4_se", "standard_error"), ("avg_at_4_se_sampling", "sampling_error")):
            errors = [getattr(swept.found[task, label], of) for task in TASKS]
            assert entry["metrics"][name] == pytest.approx(np.sqrt(np.square(errors).sum()) / 2)
    best = next(entry for entry in entries.values() if entry["label"] == winner_of(swept.found))
    assert (swept.plain["best"], swept.plain["states"]) == ([best["trial"]], {"complete": 4, "failed": 0})


def test_tokens_and_speed_are_of_all_results(swept):
    every = list(swept.found.values())
    tokens = sum(one.n_tokens.sum() for one in every)
    assert f"6 references; 4 samples per problem, {tokens:,} tokens; vllm 0.32.0 on cpu" in swept.text
    assert swept.plain["tokens_per_second"] == pytest.approx(tokens / sum(one.seconds for one in every))
    for task in TASKS:
        means = [one.n_tokens.mean() for one in every if one.task == task]
        assert swept.plain["mean_tokens"]["tiny"][task] == pytest.approx(np.mean(means))


def test_the_summary_has_each_table_of_the_report_and_draws_the_rest(swept):
    sections = [*swept.summary.report.front, *(one for c in swept.summary.report.chapters for one in c.sections)]
    assert {bool(one.svg) for one in sections} == {True, False}
    for section in sections:
        assert (table(section) in swept.text) is not bool(section.svg)
        assert (f"![{section.name}]({section.name}.svg)" in swept.text) is bool(section.svg)


def test_tables_of_two_engines_carry_a_warning(swept):
    first, *others = swept.summary.entries
    results = [one.replace(provenance={**one.provenance, "engine": {"backend": "another"}}) for one in first.results]
    mixed = replace(swept.summary, entries=[replace(first, results=tuple(results)), *others])
    warning = "WARNING: 2 different engine settings are in these tables"
    assert [warning in one.summary_lines() for one in (swept.summary, mixed)] == [False, True]


def test_comparisons_in_the_json_are_those_of_the_results(swept):
    rows = corrected(swept.found)
    told = {(row["task"], row["label"], row["minus"]): row for row in swept.plain["comparisons"]}
    assert told.keys() == rows.keys()
    for key, (d, holm_p) in rows.items():
        row = told[key]
        numbers = [row[name] for name in ("mean", "low", "high", "p", "holm_p")]
        assert numbers == pytest.approx([d.mean, d.low, d.high, d.p, holm_p])


def test_equal_forwards_in_the_json_cost_tokens_times_models_times_votes(swept):
    assert {lot["task"] for lot in swept.plain["equal_forwards"]} == {*TASKS}
    for lot in swept.plain["equal_forwards"]:
        assert len(lot["answers"]) == 10 * 3
        settings = {
            one.label: one for one in settings_of(swept.found[key] for key in swept.found if key[0] == lot["task"])
        }
        for answer in lot["answers"]:
            one = swept.found[lot["task"], answer["label"]]
            models = 1 if one.decoding.mode in ("base", "rl") else 2
            assert answer["models"] == models
            assert answer["forwards"] == pytest.approx(models * answer["votes"] * one.n_tokens.mean())
            values = Answer(settings[answer["label"]], answer["votes"]).values
            low, high = stats.score_interval(values)
            assert [answer[name] for name in ("accuracy", "low", "high")] == pytest.approx([values.mean(), low, high])
    assert "## Equal forwards" in swept.text


def cells(text, title):
    """The rows of a Markdown table by the cells of its head; the table stands under its title."""
    lines = text[text.index(title) :].split("\n\n")[1].splitlines()
    split = [[cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [dict(zip(split[0], row, strict=True)) for row in split[2:]]


def test_a_matched_ratio_has_what_was_wanted_promised_and_reached(tmp_path):
    ratios = (0.05, 0.2)
    changes = {"decode": {"mode": "replace"}, "parameters": {"decode.tau": {"ratio": list(ratios)}}}
    spec, begun = run(tmp_path, **changes)
    rows = [
        {"criterion": "delta_logp", "tau": tau, "wanted": wanted, "expected": promised}
        for tau, wanted, promised in ((-0.4, 0.05, 0.0512), (-0.15, 0.2, 0.1987))
    ]
    begun.folder.matched.write_text(json.dumps({"tiny": rows}))
    found = complete(spec, begun)
    summary = begun.summary()
    assert [row["wanted"] for row in summary.plain()["matched"]] == list(ratios)
    shown = cells(summary.text(), "Matched ratios")
    for row, told, printed in zip(rows, summary.plain()["matched"], shown, strict=True):
        mine = [found[task, f"replace τ{row['tau']}"] for task in TASKS]
        reached = sum(one.n_replaced.sum() for one in mine) / sum(one.n_tokens.sum() for one in mine)
        assert [told[name] for name in ("tau", "wanted", "expected")] == [row[n] for n in ("tau", "wanted", "expected")]
        assert told["reached"] == pytest.approx(reached)
        assert printed["τ"] == f"{row['tau']:g}"
        shares = [row["wanted"], row["expected"], reached]
        assert [printed[name] for name in ("wanted", "expected", "reached")] == [f"{100 * x:.2f} %" for x in shares]
        miss = reached - row["wanted"]
        assert printed["miss, points"] == f"{100 * miss:+.1f}"
        assert printed["miss"] == f"{100 * miss / row['wanted']:+.0f} %"


def test_the_confirmation_has_the_new_differences_beside_the_old_ones(swept, monkeypatch):
    """The engine's part is made up: what it would decode is asked for with the problems that it is asked for."""
    again, asked_ids = {}, {}

    def evaluate(spec, **_):
        found = []
        for task in spec.tasks:
            ids = spec.part.select([str(i) for i in range(240)])[: spec.limit]
            asked_ids[task] = ids
            for decoding in spec.decodings:
                one = drawn(decoding, task, ids, seed=spec.sampling.seed)
                again.setdefault((task, decoding.label()), []).append(one)
                found.append(one)
        return found

    monkeypatch.setattr("rlvr_dir.evals.evaluate", evaluate)
    monkeypatch.setattr(DecodingObjective, "_open", lambda self, pair: None)
    text = confirm(swept.begun, [5, 6], limit=20)
    best, rows = winner_of(swept.found), {}
    control = swept.found[TASKS[0], best].decoding.control().label()
    assert {*asked_ids} == {*TASKS}
    assert all(ids == [str(i) for i in range(LIMIT, LIMIT + 20)] for ids in asked_ids.values())
    for task in TASKS:
        for minus in ("rl", control):
            one, other = (np.hstack([x.correct for x in again[task, label]]) for label in (best, minus))
            assert one.shape == (20, 2 * SAMPLES)
            rows[task, minus] = stats.paired_difference(one, other, comparisons=2 * len(TASKS))
    held, most = {}, 0.0
    for rank, key in enumerate(sorted(rows, key=lambda key: rows[key].p)):
        most = max(most, min(1.0, rows[key].p * (len(rows) - rank)))
        held[key] = most
    plain = json.loads((swept.begun.folder.path / "confirm.json").read_text())
    shown = cells((swept.begun.folder.path / "confirm.md").read_text(), "Confirmation of sweep")
    assert [(row["task"], row["minus"]) for row in plain] == list(rows)
    for told, printed, (key, d) in zip(plain, shown, rows.items(), strict=True):
        before = paired(*(swept.found[key[0], label] for label in (best, key[1]))).mean
        numbers = [told[name] for name in ("mean", "low", "high", "p", "holm_p", "before")]
        assert numbers == pytest.approx([d.mean, d.low, d.high, d.p, held[key], before])
        assert (told["winner"], told["problems"], told["seeds"]) == (best, "20 others", [[5, 6], [5, 6]])
        assert (printed["winner of the sweep"], printed["minus"]) == (best, key[1])
        assert printed["in the sweep"] == f"{100 * before:+.1f}"
        assert printed["anew"] == stats.Estimate(d.mean, d.low, d.high).text(1, sign=True)
        assert printed["p"] == stats.p_value(d.p, d.at_most)
        assert printed["p (Holm)"] == stats.p_value(held[key], d.at_most)
        assert printed["anew"] in text


def test_what_the_records_hold_is_counted_where_it_would_be_decoded_alike(tmp_path):
    """Only the sweep's own problems and samples, of these weights, by the versions that are here."""
    spec = sweep()
    [benchmark], (base, rl, veto) = preflight_of(spec).values(), (Decoding(mode="base"), Decoding(mode="rl"), VETO)
    names = [f"tiny_easy/{key}" for key in [*benchmark.golds][:5]]
    weights = {role: fingerprint(*model) for role, model in resolve("tiny").models.items()}
    here = {"backend": "transformers", **installed("torch", "transformers")}
    alike, lengths = {"weights": weights, "data": benchmark.data, "sampling": spec.sampling.per_response}, []
    for changes in (
        {"decoding": base}, {"decoding": rl}, {"decoding": rl, "engine": {**here, "torch": "0.1"}},
        {"decoding": veto, "engine": {**here, "transformers": "0.1"}}, {"decoding": veto, "data": "another"},
        {"decoding": veto, "weights": {"base": "weights:a", "rl": "weights:b"}},
    ):  # fmt: skip
        config = RecordConfig(**{**alike, "engine": here, **changes})
        with RecordStore(tmp_path / "records").open(config, "tiny_easy", names, 3) as record:
            resume(record)
    lengths = [len(made_rollout(name, sample).token_ids) for name in names[:3] for sample in range(2)]
    earlier = tmp_path / "sweeps" / "earlier"
    earlier.mkdir(parents=True)
    (earlier / "summary.json").write_text(json.dumps({"tokens_per_second": 12.5, "mean_tokens": {"tiny": {}}}))
    found = estimate(spec, tmp_path, tmp_path / "records")
    assert [(row.responses, row.cached) for row in found.rows] == [(6, 6), (6, 6), *[(6, 0)] * 8]
    assert (found.mean, found.speed.tokens_per_second, found.missing) == (np.mean(lengths), 12.5, 48)
    assert found.total.tokens == round(48 * np.mean(lengths))


def test_a_search_is_estimated_with_the_most_controls_that_a_point_may_have(tmp_path):
    """gamma 0 is a replacement, whose controls are reject and veto; beyond it the replacement comes as well."""
    spec = sweep(
        method="tpe", run_cap=3, parameters={"decode.tau": {"values": [-0.3]}, "decode.gamma": {"min": 0, "max": 1}}
    )
    rows = estimate(spec, tmp_path, tmp_path / "records").rows
    proposed = [row.label for row in rows if row.label in ("to be proposed", "its control")]
    assert proposed == ["to be proposed", "its control", "its control", "its control"] * 3


def seed(number, right, samples=8):
    """A seed's validation: how many samples of each problem were right."""
    scores = {
        "tiny_easy": {"avg": sum(right) / len(right) / samples, "pass": 0.5, "tokens": 20.0, "samples": samples,
                      "problems": len(right), "right": {str(i): n for i, n in enumerate(right)}}
    }  # fmt: skip
    return SimpleNamespace(seed=number, scores=scores, outcome={"seconds": 40.0 + number, "machine": f"{number % 2}"})


def test_a_sweep_of_trainings_is_counted_and_summed_up_from_its_files(tmp_path):
    tasks, problems = ["tiny_easy", "tiny_medium"], 6
    train = {**TRAINING["train"], "validation": {**TRAINING["train"]["validation"], "tasks": tasks}}
    spec = sweep(kind="train", train=train)
    begun = open_sweep(spec, Places.under(tmp_path, track=False), lambda text: None)
    begun.folder.make()
    store, seeds, random = begun.objective.store, spec.seeds, np.random.default_rng(2)
    entries = begun.objective.entries(listed_points(spec))
    fresh = begun.objective.estimate()
    assert (fresh.total.jobs, fresh.total.responses, fresh.total.tokens) == (6, 6 * 3 * 16, 6 * 3 * 16 * 40)
    assert "11,520 tokens" in fresh.text(rows=False)
    right = {}  # samples of 2, by point, seed and benchmark
    for number, entry in enumerate(entries):
        for seed in seeds if number else seeds[:1]:
            scores = {}
            for task in tasks:
                counts = right[number, seed, task] = random.binomial(2, (0.2, 0.7, 0.4)[number], problems)
                scores[task] = {
                    "avg": counts.mean() / 2, "pass": (counts > 0).mean(), "samples": 2, "problems": problems,
                    "tokens": 20.0 + number + seed, "truncated": (number + seed) / 8,
                    "right": {str(i): int(count) for i, count in enumerate(counts)},
                }  # fmt: skip
            folder = TrainingFolder(folder_of(entry.item, store)).seed(seed)
            folder.path.mkdir(parents=True)
            about = {"accuracy": [0.1], "length": [20.0], "seconds": 60.0 + 120 * seed, "machine": "one"}
            write_json(folder.done, {"scores": scores, **about})
    estimate = begun.objective.estimate()
    mean = (60 + 2 * (60 + 180)) / 5  # seconds of a seed
    assert estimate.total == Cost(jobs=1, responses=3 * 16, thresholds=0, tokens=3 * 16 * 40)
    text = estimate.text()
    assert text.startswith("2 values of alpha = 2 points; with plain DAPO 3 trainings × 2 seeds\n")
    assert f"seeds done: 5; to be trained: 1, {duration(mean)} of steps ({duration(mean)} a seed, as measured)" in text
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:] == [
        ["DAPO", "3", "48", "1/2"],
        ["low_prob α0.2", "3", "48", "2/2"],
        ["low_prob α2", "3", "48", "2/2"],
    ]
    begun.look()
    assert seeds_of(spec.plain_dapo, store) is None
    assert begun.summary().reference is None
    again = TrainingFolder(folder_of(spec.plain_dapo, store)).seed(1)
    again.path.mkdir()
    shutil.copy(TrainingFolder(folder_of(spec.plain_dapo, store)).seed(0).done, again.done)
    right |= {(0, 1, task): right[0, 0, task] for task in tasks}
    begun.look()
    for number, entry in enumerate(entries):
        trial = begun.trials[entry]
        assert trial.metrics["avg_at_2"] == pytest.approx(
            np.mean([right[number, seed, task] for seed in seeds for task in tasks]) / 2
        )
        assert trial.metrics["truncated_share"] == pytest.approx((number + (0.5 if number else 0)) / 8)
        assert trial.results[1].scores["tiny_easy"]["tokens"] == pytest.approx(20 + number + bool(number))
    summary = begun.summary()
    assert (summary.reference.label, summary.best[0].label) == ("DAPO", "low_prob α0.2")
    [said], best = summary.verdicts, np.mean([right[1, seed, task] for seed in seeds for task in tasks]) / 2
    assert said.startswith(f"Best of 2 on these seeds and problems: low_prob α0.2, avg_at_2 {100 * best:.2f}; ")
    assert "; 10 min of steps; one; " in "; ".join(summary.summary_lines()) + "; "
    assert [row.difference.mean for row in summary.comparisons] == pytest.approx(
        [
            np.mean([right[number, seed, task] - right[0, seed, task] for seed in seeds]) / 2
            for number in (1, 2) for task in tasks
        ]
    )  # fmt: skip


def test_a_sweep_of_trainings_prints_differences_by_problem_and_seed():
    random = np.random.default_rng(1)
    right = {name: random.binomial(8, share, (3, 12)) for name, share in (("DAPO", 0.3), ("a", 0.6), ("b", 0.4))}
    entries = [
        CompleteTrial(
            "t", i, {} if i else None, name, tuple(seed(k, row.tolist()) for k, row in enumerate(rows)),
            {"avg_at_8": rows.mean() / 8},
        )
        for i, (name, rows) in enumerate(right.items())
    ]  # fmt: skip
    summary = TrainingSummary(
        spec=SimpleNamespace(name="t", size=lambda: "2 points", metric=SimpleNamespace(name="avg_at_8"), pairs=["t"]),
        entries=entries, reference=entries[0], comparisons=against(entries[0], entries), best=[entries[1]],
        states={"complete": 2}, base={"tiny_easy": {"avg": 0.1}}, samples=8, seeds=range(3), training="3 steps",
    )  # fmt: skip

    def tables(name):
        """Of each seed, (problems, samples) of 0 and 1."""
        return {k: (np.arange(8) < row[:, None]).astype(float) for k, row in enumerate(right[name])}

    rows = {name: stats.difference_over_runs([(tables(name), tables("DAPO"))]) for name in ("a", "b")}
    [figure] = summary.figures()
    for name, row in zip(("a", "b"), figure.frame.to_dict("records"), strict=True):
        d = rows[name]
        assert d.mean == pytest.approx((right[name] - right["DAPO"]).mean() / 8)
        assert (row["training"], row["benchmark"]) == (name, "tiny_easy")
        assert [row[end] for end in ("low", "difference", "high")] == pytest.approx(
            [100 * each for each in (d.low, d.mean, d.high)]
        )
    p = sorted((d.p, name) for name, d in rows.items())
    holm = {p[0][1]: min(1.0, 2 * p[0][0]), p[1][1]: min(1.0, max(2 * p[0][0], p[1][0]))}
    d, [said] = rows["a"], summary.verdicts
    assert said.startswith(
        f"Best of 2 on these seeds and problems: a, avg_at_8 {100 * right['a'].mean() / 8:.2f}; {100 * d.mean:+.1f} "
        f"points on tiny_easy against plain DAPO (95 % {stats.Estimate(d.mean, d.low, d.high).interval(1, sign=True)}, "
        f"p {stats.p_value(d.p, d.at_most)}, Holm over 2: {stats.p_value(holm['a'], d.at_most)})."
    )
    lines = summary.summary_lines()
    assert lines[:4] == ["and plain DAPO, 3 seeds each", "3 steps", "6 min of steps", "2 different machines"]
    told = summary.plain()
    assert (told["seeds"], told["base"]) == ([0, 1, 2], {"tiny_easy": {"avg": 0.1}})
    for name, counts in right.items():
        for k, row in enumerate(counts):
            assert told["by_seed"][name][str(k)]["tiny_easy"]["avg"] == pytest.approx(row.mean() / 8)
