"""Each number of `eval`'s table, of equal forwards, of frames and of MLflow's runs, computed here by other means."""

import math
import re
from itertools import combinations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rlvr_dir import stats
from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.markdown import interval
from rlvr_dir.results.compare import compare, problems_needed
from rlvr_dir.results.compare import markdown as compare_markdown
from rlvr_dir.results.forwards import answers_of, crossings, equal_forwards, markdown
from rlvr_dir.results.frames import frame
from rlvr_dir.results.result import LmEvalResult, read_result
from rlvr_dir.results.settings import settings_of
from rlvr_dir.results.show import score, table, tables
from rlvr_dir.tracking.describe import description, metrics_of
from tests.facts import refuses, states
from tests.results.made import made

BASE, RL = Decoding(mode="base"), Decoding(mode="rl")
VETO, REJECT, REPLACE = (Decoding(mode=mode, tau=-0.3) for mode in ("veto", "reject", "replace"))
EXTRA = Decoding(mode="extrapolate", tau=-0.3, gamma=0.1)
SHARE = {"base": 0.25, "rl": 0.5, "veto": 0.45, "reject": 0.5, "replace": 0.55, "extrapolate": 0.7}
LONG = {"base": 30, "rl": 45, "veto": 35, "reject": 37, "replace": 40, "extrapolate": 50}
PROBLEMS, SAMPLES, MOST = 40, 4, 60


def result(decoding, seed=0, samples=SAMPLES, **how):
    """A result whose problems, votes and lengths differ; what is as long as it may be is cut."""
    random = np.random.default_rng([*map(ord, decoding.label()), seed])
    shape = PROBLEMS, samples
    chance = np.clip(SHARE[decoding.mode] + random.normal(0, 0.25, (PROBLEMS, 1)), 0.02, 0.98)
    right = random.random(shape) < chance
    tokens = np.minimum(random.poisson(LONG[decoding.mode], shape), MOST)
    replaced = random.binomial(tokens, 0.1) * decoding.gated
    about = {
        "n_tokens": tokens, "n_replaced": replaced, "n_changed": random.binomial(replaced, 0.6), "seconds": 3.0 + seed,
        "truncated": tokens > 50, "no_box": random.random(shape) < 0.1, "ungraded": random.random(shape) < 0.03,
        "votes": np.where(right, 0, random.integers(1, 3, shape)), "sampling": Sampling(samples=samples, seed=seed),
        "provenance": {"engine": {"pair": {"base": "org/b", "rl": "org/r"}}, "grader": "plain"}, "task": "made",
    }  # fmt: skip
    return made(decoding, right, **{**about, **how})


WAYS = (BASE, RL, VETO, REJECT, REPLACE, EXTRA)


def pass_at(right, k):
    return np.mean([[row[list(some)].any() for some in combinations(range(row.size), k)] for row in right])


def majority(one, k):
    """(problems,): the mean over all choices of k samples, a tie being shared by the answers that are in it."""
    found = []
    for votes in np.where(one.correct, 0, one.votes):
        each = []
        for some in combinations(votes.tolist(), k):
            most = max(map(some.count, some))
            first = {vote for vote in some if some.count(vote) == most}
            each.append((0 in first) / len(first))
        found.append(np.mean(each))
    return np.array(found)


def rows_of(text, title=""):
    lines = [line for line in text[text.index(title) :].split("\n\n")[0].splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [split[0], *split[2:]]


def errors(one):
    p = one.correct.mean(axis=1)
    k = one.samples
    over_problems = p.std(ddof=1) / math.sqrt(len(p))
    return over_problems, math.sqrt((p * (1 - p) / (k - 1)).sum()) / len(p)


def test_the_table_of_results_has_each_results_own_numbers():
    results = [result(way) for way in WAYS]
    [head, *rows] = rows_of(table(results))
    assert len(rows) == len(results)
    for one, cells in zip(results, rows, strict=True):
        row = dict(zip(head, cells, strict=True))
        over_problems, sampling = errors(one)
        assert row["decoding"] == one.decoding.label()
        assert row["Avg@4 ± s.e."] == f"{100 * one.correct.mean():.2f} ± {100 * over_problems:.2f}"
        assert row["s.e. sampling"] == f"{100 * sampling:.2f}"
        assert row["Pass@2"] == f"{100 * pass_at(one.correct, 2):.2f}"
        assert row["Maj@4"] == f"{100 * majority(one, 4).mean():.2f}"
        total = one.n_tokens.sum()
        assert row["flagged"] == f"{100 * one.n_replaced.sum() / total:.1f} %"
        assert row["changed"] == f"{100 * one.n_changed.sum() / total:.1f} %"
        assert row["tokens"] == f"{one.n_tokens.mean():.0f}"
        assert (row["cut"], row["no box"]) == (
            f"{100 * one.truncated.mean():.1f} %",
            f"{100 * one.no_box.mean():.1f} %",
        )
        assert row["ungraded"] == str(one.ungraded.sum())
        assert score(one) == f"Avg@4 {row['Avg@4 ± s.e.']}"
    few = result(RL, samples=2)
    [head, first, second] = rows_of(table([results[1], few]))
    assert "Avg@4 ± s.e." in head
    assert "Pass@2" in head
    assert first[1] == "rl"
    assert second[1] == "rl (2 samples)"
    assert second[2].startswith(f"{100 * few.correct.mean():.2f} ±")


def test_tasks_of_lm_evals_keep_its_scores_and_have_their_own_shares():
    def other(way, f1):
        ours = result(way)
        fields = ("task", "decoding", "sampling", "problem_ids", "n_tokens", "n_replaced", "n_changed", "truncated")
        scores = {"f1": f1, "f1_stderr": f1 / 10, "ppl/none": 7 * f1, "ppl_stderr/none": f1 / 3}
        return LmEvalResult(
            scores=scores, lower_is_better=("ppl/none",), **{name: getattr(ours, name) for name in fields}
        )

    results = [other(RL, 0.4321), other(REPLACE, 0.6543)]
    [head, *rows] = rows_of(tables(results))
    assert len(rows) == 4
    for cells, (one, name) in zip(rows, [(one, name) for one in results for name in ("f1", "ppl/none")], strict=True):
        row = dict(zip(head, cells, strict=True))
        stderr = one.scores["f1_stderr" if name == "f1" else "ppl_stderr/none"]
        assert (row["decoding"], row["metric"]) == (one.label, name)
        assert row["lm-eval's score ± s.e."] == f"{one.scores[name]:.4f} ± {stderr:.4f}"
        assert row["better"] == ("lower" if name == "ppl/none" else "")
        assert row["flagged"] == f"{100 * one.n_replaced.sum() / one.n_tokens.sum():.1f} %"
        assert row["changed"] == f"{100 * one.n_changed.sum() / one.n_tokens.sum():.1f} %"
        assert row["cut"] == f"{100 * one.truncated.mean():.1f} %"


@pytest.fixture(scope="module")
def priced():
    """The lot of five ways, two of them of one model; and its results by label, with both seeds of each."""
    results = [result(way, seed) for way in WAYS for seed in (0, 1)]
    settings = settings_of(results)
    [lot] = equal_forwards(settings)
    by = {one.label: [each for each in results if each.decoding == one.decoding] for one in settings}
    return lot, by, markdown([lot])


def models(label):
    return 1 if label in ("base", "rl") else 2


def accuracies(seeds, votes):
    """(problems, samples) of an answer; of a majority the mean of the seeds, each of which votes by itself."""
    if votes == 1:
        return np.hstack([one.correct for one in seeds]).astype(float)
    return np.mean([majority(one, votes) for one in seeds], axis=0)[:, None]


def test_the_table_of_equal_forwards_has_cost_and_accuracy_of_each_answer(priced):
    lot, by, text = priced
    for setting in lot.settings:
        for answer in answers_of(setting):
            assert answer.values == pytest.approx(accuracies(by[setting.label], answer.votes), abs=1e-9)
    [head, *rows] = rows_of(text, "| made")
    assert head == ["made", "models", "forwards", "one sample", "majority of 2", "majority of 4"]
    assert {row[0] for row in rows} == by.keys()
    for row in rows:
        seeds = by[row[0]]
        assert row[1] == str(models(row[0]))
        assert row[2] == f"{models(row[0]) * np.mean([one.n_tokens.mean() for one in seeds]):.1f}"
        for cell, votes in zip(row[3:], (1, 2, 4), strict=True):
            values = accuracies(seeds, votes)
            between = stats.Estimate(0, *stats.score_interval(values)).interval(1)
            assert cell == f"{100 * values.mean():.1f} {between}"


def test_a_verdict_has_the_numbers_of_the_best_of_each_side(priced):
    lot, by, text = priced
    cost = {label: models(label) * np.mean([one.n_tokens.mean() for one in seeds]) for label, seeds in by.items()}
    p = [verdict.difference.p for verdict in lot.verdicts]
    order, most, holm = sorted(range(len(p)), key=p.__getitem__), 0.0, {}
    for rank, i in enumerate(order):
        most = max(most, min(1.0, p[i] * (len(p) - rank)))
        holm[i] = most
    assert [verdict.votes for verdict in lot.verdicts] == [1, 2]  # for four votes one model has no samples
    for i, verdict in enumerate(lot.verdicts):
        several = [(label, verdict.votes) for label in by if models(label) > 1]
        single = [(label, votes) for label in ("base", "rl") for votes in (1, 2, 4)]
        met = {}
        for label, votes in several:
            affordable = {b: max((v for a, v in single if a == b and v * cost[a] <= votes * cost[label]), default=0)
                          for b in ("base", "rl")}  # fmt: skip
            met[label, votes] = [(a, v) for a, v in single if v in (1, affordable[a])]
        contrasts = [(one, other) for one, others in met.items() for other in others]
        assert verdict.difference.contrasts == len(contrasts)
        means = {answer: accuracies(by[answer[0]], answer[1]).mean() for answer in (*met, *single)}
        best = max(met, key=lambda one: min(means[one] - means[other] for other in met[one]))
        baseline = max(met[best], key=means.__getitem__)
        d, mean = verdict.difference, means[best] - means[baseline]
        assert d.mean == pytest.approx(mean)
        wide = accuracies(by[best[0]], best[1]).mean(axis=1) - accuracies(by[baseline[0]], baseline[1]).mean(axis=1)
        plain = scipy_stats.ttest_1samp(wide, 0).confidence_interval()
        assert d.low <= plain.low + 1e-9
        sides = " against ".join(
            f"{label}{f', majority of {votes}' if votes > 1 else ''} {100 * means[label, votes]:.1f} "
            f"({votes * cost[label]:.0f} forwards an answer)"
            for label, votes in (best, baseline)
        )
        assert f": {sides}; simultaneous" in verdict.sentence
        assert verdict.sentence.startswith(f"made, {best[1] * cost[best[0]]:.0f} forwards an answer: ")
        if "inconclusive" in verdict.sentence:
            assert f"({100 * mean:+.1f} points)" in verdict.sentence
        else:
            assert f"by {100 * abs(mean):.1f} points" in verdict.sentence
        between = stats.Estimate(0, d.low, d.high).interval(1, sign=True)
        assert f"interval {between} over {len(contrasts)} differences, p {holm[i]:.3g} (Holm)" in verdict.sentence
        assert verdict.sentence in text
        plain = verdict.to_dict()
        assert [plain[name] for name in ("mean", "low", "high", "p", "holm_p")] == pytest.approx(
            [mean, d.low, d.high, d.p, holm[i]]
        )
        assert plain["forwards"] == pytest.approx([votes * cost[label] for label, votes in (best, baseline)])
        assert (plain["votes"], plain["starved"]) == (verdict.votes, False)
    base, rl = (accuracies(by[label], 1) for label in ("base", "rl"))
    found = stats.crossing(base, rl)
    assert lot.to_dict()["crossing"] == {"k": found.k, "estimate": found.estimate, "n": 2 * SAMPLES}
    assert lot.to_dict()["task"] == "made"


def test_an_inconclusive_and_a_starved_verdict_say_the_mean():
    close = equal_forwards(settings_of([result(RL), result(VETO)]))[0].verdicts[0]
    rl, veto = result(RL), result(VETO)
    others = {1: rl.correct.mean(), 2: majority(rl, 2).mean(), 4: majority(rl, 4).mean()}
    cost = 2 * veto.n_tokens.mean() / rl.n_tokens.mean()
    mean = veto.correct.mean() - max(others[1], others[max(v for v in others if v <= cost)])
    assert f"inconclusive whether decoding with two models beats the best one-model baseline ({100 * mean:+.1f} points)" in close.sentence  # noqa: E501  # fmt: skip
    long = result(REPLACE)
    long = long.replace(n_tokens=long.n_tokens * 20, truncated=long.truncated & False)
    few = equal_forwards(settings_of([rl, long]))[0].verdicts[0]
    assert few.starved
    mean = long.correct.mean() - max(others.values())
    said = f"one model has samples for {4 * rl.n_tokens.mean():.0f} an answer at most"
    assert said in few.sentence
    assert f"is not known ({100 * mean:+.1f} points)" in few.sentence


def test_budgets_lengths_and_what_is_cut_are_of_all_responses(priced):
    _, by, text = priced
    every = np.sort(np.concatenate([one.n_tokens.ravel() for seeds in by.values() for one in seeds]))
    budgets = sorted({int(every[math.ceil(share * (len(every) - 1))]) for share in (0.1, 0.25, 0.5, 0.75, 0.9, 1)})
    [head, *rows] = rows_of(text, "| answered rightly within")
    assert head[1:] == [f"{budget} tokens" for budget in budgets]
    for row in rows:
        for cell, budget in zip(row[1:], budgets, strict=True):
            inside = [one.correct & (one.n_tokens <= budget) for one in by[row[0]]]
            assert cell == f"{100 * np.mean(inside):.1f}"
    [head, *rows] = rows_of(text, "| decoding ")
    wide = {(label, name): np.hstack([getattr(one, name) for one in seeds]).astype(float)
            for label, seeds in by.items() for name in ("n_tokens", "truncated")}  # fmt: skip
    tokens = [stats.paired_difference(*(wide[label, "n_tokens"].mean(axis=1) for label in row[:2])) for row in rows]
    cut = [stats.paired_difference(*(wide[label, "truncated"] for label in row[:2])) for row in rows]
    p = [one.p for one in (*tokens, *cut)]
    most, holm = 0.0, {}
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        most = max(most, min(1.0, p[i] * (len(p) - rank)))
        holm[i] = most
    assert [row[:2] for row in rows] == [
        ["rl", "base"], ["veto τ-0.3", "rl"], ["reject τ-0.3", "rl"], ["replace τ-0.3", "rl"],
        ["extrapolate τ-0.3 γ0.1", "rl"],
        ["reject τ-0.3", "veto τ-0.3"], ["replace τ-0.3", "reject τ-0.3"], ["extrapolate τ-0.3 γ0.1", "replace τ-0.3"],
    ]  # fmt: skip
    for i, (row, length, ended) in enumerate(zip(rows, tokens, cut, strict=True)):
        one, other = (np.mean([each.n_tokens.mean() for each in by[label]]) for label in row[:2])
        assert row[2] == f"{one - other:+.1f}"
        assert row[3] == stats.Estimate(0, length.low, length.high).interval(1, sign=True, unit=1)
        one, other = (np.mean([each.truncated.mean() for each in by[label]]) for label in row[:2])
        assert row[5] == f"{100 * (one - other):+.1f}"
        assert row[6] == stats.Estimate(0, ended.low, ended.high).interval(1, sign=True)
        assert [row[4], row[7]] == [f"{holm[i]:.3g}", f"{holm[len(rows) + i]:.3g}"]


def test_a_frame_has_every_response_as_it_is():
    results = [result(way, seed) for way in (RL, EXTRA) for seed in (0, 1)]
    rows, at = frame(results).to_dict("records"), 0
    assert len(rows) == 4 * PROBLEMS * SAMPLES
    names = {
        "correct": "correct", "tokens": "n_tokens", "replaced": "n_replaced", "changed": "n_changed",
        "truncated": "truncated", "no_box": "no_box", "ungraded": "ungraded",
    }  # fmt: skip
    for one in results:
        for i in range(PROBLEMS):
            for k in range(SAMPLES):
                row, at = rows[at], at + 1
                assert (row["problem"], row["sample"], row["seed"]) == (f"p{i}", k, one.sampling.seed)
                assert {name: row[name] for name in names} == {n: getattr(one, t)[i, k] for n, t in names.items()}
        assert (row["decoding"], row["setting"], row["base"], row["rl"]) == (one.label, one.label, "org/b", "org/r")
        gate = (-0.3, 0.1, "delta_logp") if one.decoding.gated else (None, None, None)
        assert [None if row[n] != row[n] else row[n] for n in ("tau", "gamma", "criterion")] == list(gate)
        assert (row["top_p"], row["temperature"], row["config_hash"]) == (0.7, 1.0, one.config_hash)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_of_mlflow_has_the_results_numbers_in_percent(way):
    one, (over_problems, sampling) = result(way), errors(result(way))
    tokens = one.n_tokens.sum()
    wanted = {
        "avg_at_4": one.correct.mean(), "avg_at_4_se": over_problems, "avg_at_4_se_sampling": sampling,
        "pass_at_2": pass_at(one.correct, 2), "pass_at_4": one.correct.any(axis=1).mean(),
        "maj_at_4": majority(one, 4).mean(), "truncated_share": one.truncated.mean(), "no_box_share": one.no_box.mean(),
    }  # fmt: skip
    wanted["changed_ratio"] = one.n_changed.sum() / tokens
    if way.mode != "rl":
        wanted["replacement_ratio"] = one.n_replaced.sum() / tokens
    found = metrics_of(one)
    assert {name: found[name] for name in wanted} == {name: round(100 * x, 2) for name, x in wanted.items()}
    assert found["mean_tokens"] == round(one.n_tokens.mean(), 1)
    assert found["tokens_per_second"] == round(tokens / 3.0, 1)
    assert not [name for name in found if way.mode == "rl" and name.startswith("replace")]
    said = (
        f"**Avg@4 {100 * wanted['avg_at_4']:.2f} ± {100 * over_problems:.2f} %** (s.e. over 40 problems; "
        f"± {100 * sampling:.2f} from sampling alone), Pass@2 {100 * wanted['pass_at_2']:.2f} %"
    )
    if way.gated:
        said += f", {100 * wanted['replacement_ratio']:.2f} % of tokens replaced"
        said += f", {100 * wanted['changed_ratio']:.2f} % changed"
    assert description(one).startswith(f"{said}.\n\n")
    assert "on made: 40 problems × 4 samples, temperature 1, top-p 0.7, at most" in description(one)


def test_seeds_are_one_setting_whatever_records_they_are_of_and_one_seed_twice_is_two():
    """Each seed's record has settings of its own; of one seed decoded twice in other ways both stay apart."""

    def of(seed, settings):
        one = result(REPLACE, seed)
        return one.replace(provenance={**one.provenance, "settings": settings})

    several = [of(seed, f"record {seed}") for seed in (0, 1, 2)]
    [one] = settings_of(several)
    assert (one.seeds, one.samples, one.avg) == ((0, 1, 2), 12, np.mean([each.correct for each in several]))
    share = one.share("n_changed")
    changed, tokens = (sum(getattr(x, name).sum(axis=1) for x in several) for name in ("n_changed", "n_tokens"))
    assert share.value == pytest.approx(np.mean(changed / tokens))
    assert one.pooled("n_changed") == pytest.approx(changed.sum() / tokens.sum())
    assert (one.replacement_ratio, one.changed_ratio) == (one.share("n_replaced").value, share.value)
    twice = [of(seed, settings) for seed in (0, 1) for settings in ("a", "b")]
    assert [each.seeds for each in settings_of(twice)] == [(0, 1), (0, 1)]


def test_a_crossing_is_of_base_above_rl_and_of_no_other_pair():
    """Base solves each problem once in four samples, RL half of the problems always."""
    base = result(BASE).replace(correct=np.arange(SAMPLES) == np.zeros((PROBLEMS, 1)))
    rl = result(RL).replace(correct=np.repeat(np.arange(PROBLEMS)[:, None] < PROBLEMS // 2, SAMPLES, axis=1))
    found = stats.crossing(base.correct, rl.correct)
    assert (found.estimate, found.n) == (3, SAMPLES)  # of three samples 75 % hold the right one, and RL has 50 %
    said = crossings(compare(settings_of([base, rl, result(REPLACE)])))
    assert said.startswith("- made, base and rl: Pass@k of base is ")
    assert said.count("\n") == 0
    where = f"above RL's at k = {found.k}, " if found.k else f"not found above RL's at any k up to {SAMPLES}; "
    assert where in said
    assert "the estimate is first above at k = 3" in said
    [lot] = equal_forwards(settings_of([base, rl, result(REPLACE)]))
    assert lot.to_dict()["crossing"] == {"k": found.k, "estimate": 3, "n": SAMPLES}
    assert said.partition(": ")[2] in markdown([lot])


def in_families(n):
    return tuple(f"family {i // 4}" for i in range(n))


def test_a_result_with_families_is_read_as_it_was_written_and_one_without_is_as_ever(tmp_path):
    plain = result(RL)
    named = plain.replace(families=in_families(PROBLEMS))
    again = read_result(named.write(tmp_path))
    assert (again.families, again.config_hash) == (named.families, named.config_hash)
    assert again.standard_error == stats.standard_error(named.correct, named.families) != plain.standard_error
    assert again.only(["p5", "p0"]).families == ("family 1", "family 0")
    assert '"families"' not in plain.to_json()
    assert read_result(plain.write(tmp_path)).config_hash == plain.config_hash != named.config_hash
    with refuses("families", "2", "40"):
        plain.replace(families=("a", "b"))


def test_tables_of_a_benchmark_with_families_have_its_numbers_over_these_and_say_so():
    ways = [result(way).replace(families=in_families(PROBLEMS)) for way in (BASE, RL, REPLACE, VETO)]
    own, rows = [*in_families(PROBLEMS)], compare(settings_of(ways))
    printed = compare_markdown(rows)
    for row in rows:
        a, b = (side.values for side in (row.result, row.reference))
        d = stats.paired_difference(a, b, comparisons=len(rows), families=own)
        assert (row.difference, row.difference.over) == (d, "10 families")
        assert f"{100 * d.mean:+.2f} | {interval(d.low, d.high, 2, sign=True)}" in re.sub(" +", " ", printed)
        assert row.to_dict()["families"] == 10
    assert printed.count("| made (over 10 families)") == len(rows)
    assert "Few families" not in printed
    [setting] = [one for one in settings_of(ways) if one.decoding == REPLACE]
    assert setting.interval == stats.score_interval(setting.values, families=own)
    counts = (setting.all(name).sum(axis=1) for name in ("n_replaced", "n_tokens"))
    assert setting.share("n_replaced") == stats.problem_share(*counts, own)
    error = 100 * stats.standard_error(setting.values, own)
    assert f"{100 * setting.avg:.2f} ± {error:.2f}" in table(ways)
    assert "(over 10 families)" in table(ways)
    assert "(s.e. over 10 families;" in description(ways[0])
    assert states(problems_needed(rows, 0.05), "families: made.")
    first, *others = ways
    old = [first.replace(families=None), *others]  # of before the file named them
    assert [row.difference for row in compare(settings_of(old))] == [row.difference for row in rows]


def test_equal_forwards_and_crossings_are_over_families_too():
    ways = [result(way, samples=8).replace(families=in_families(PROBLEMS)) for way in (BASE, RL, EXTRA)]
    own, settings = [*in_families(PROBLEMS)], settings_of(ways)
    [group] = equal_forwards(settings)
    for verdict in group.verdicts:
        ones, others = ([answer.values for answer in side] for side in (verdict.ones, verdict.others))
        assert verdict.difference.low <= verdict.difference.high
        if len(ones) == len(others) == 1:
            assert verdict.difference == stats.best_difference(ones, others, families=own)
    base, rl = (next(one for one in settings if one.decoding == way) for way in (BASE, RL))
    assert group.crossing == stats.crossing(base.values, rl.values, families=own)
    for answer in answers_of(rl):
        low, high = stats.score_interval(answer.values, families=own)
        assert (answer.to_dict()["low"], answer.to_dict()["high"]) == (low, high)
        assert interval(low, high) in markdown([group])


def test_a_row_where_nothing_differs_says_what_it_leaves_open():
    ways = [made(way, np.eye(30, 4, dtype=int)) for way in (BASE, RL)]
    assert states(compare_markdown(compare(settings_of(ways))), "11.6 % (30 problems)")
    six = [way.replace(families=tuple(str(i // 5) for i in range(30))) for way in ways]
    printed = compare_markdown(compare(settings_of(six)))
    assert states(printed, "45.9 % (6 families)")
    assert "Few families: aime24 (over 6 families). There 95 % intervals cover" in printed
    changed = np.eye(30, 4, dtype=int)
    changed[9, 2] = 1
    printed = compare_markdown(compare(settings_of([ways[0], made(RL, changed)])))
    assert "(30 problems)" not in printed
