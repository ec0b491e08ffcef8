"""What is exported comes back as it was; what others wrote is compared, and what it lacks is named, never made up."""

import json

import numpy as np
import pytest

from harness import stats
from harness.errors import UserError
from harness.evals.compare import compare
from harness.evals.from_records import result_of_record
from harness.evals.places import read_results
from harness.evals.settings import Setting, settings_of
from harness.exchange.export import export
from harness.exchange.imported import import_foreign, read_foreign
from harness.exchange.material import Target
from harness.exchange.official import read_official
from harness.records import RecordStore
from harness.spec import Decoding
from tests.commands import refused, run
from tests.exchange.fixture_official import FOLDER, notebook, write
from tests.exchange.foreign import ZSTANDARD, eee_rows, inspect_log, lm_eval_rows, write_eval, write_lm_eval
from tests.exchange.made import HUB, results

BASE, RL = Decoding(mode="base"), Decoding(mode="rl")
MODELS = {"base": "org/its-base", "rl": "org/its-rl"}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return results(tmp_path_factory.mktemp("records"))


def put(path, data):
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("form", ["eee", "inspect", "lm-eval"])
def test_what_is_exported_comes_back(found, tmp_path, form):
    """Texts, verdicts, counts, replaced tokens, endings, sampling, decoding: all that the format can carry."""
    for i, one in enumerate(found):
        written = export([one], form, tmp_path / f"{form}{i}", Target()).files
        [file] = [path for path in written if "samples" in path.name or form == "inspect"]
        told = import_foreign(tmp_path / "store", [file], base=HUB["base"], rl=HUB["rl"])
        snapshot = RecordStore(tmp_path / "store").one(told["record"])
        again = result_of_record(snapshot, grader="official")
        assert again.decoding == one.decoding
        assert again.sampling == one.sampling
        assert again.problem_ids == one.problem_ids
        assert again.pair == one.pair
        for name in ("correct", "n_tokens", "n_replaced", "n_changed", "truncated", "no_box", "votes"):
            assert (getattr(again, name) == getattr(one, name)).all(), name
        assert again.metrics() == pytest.approx(one.metrics())
        assert told["lacks"] == ["token_ids", "delta_logp"]
        theirs = RecordStore(one.provenance["records"]).one(one.provenance["record"])
        for mine, other in zip(snapshot, theirs, strict=True):
            assert (mine.key, mine.text, mine.finish_reason) == (other.key, other.text, other.finish_reason)
            assert (mine.replaced == other.replaced).all()
            assert (mine.changed == other.changed).all()
        agreed = told["agreement"]["robust-3"]
        assert agreed == {**agreed, "only official": 0, "only robust-3": 0}


def test_published_runs_of_base_and_rl_are_compared_by_their_verdicts_and_by_ours(tmp_path):
    store = tmp_path / "store"
    base = write_lm_eval(tmp_path / "samples_gsm8k_2026-05-01T00-00-00.jsonl", lm_eval_rows((1, 0, 0, 0, 1, 0)))
    rl = write_lm_eval(tmp_path / "samples_gsm8k_2026-05-02T00-00-00.jsonl", lm_eval_rows((1, 1, 1, 1, 1, 0)))
    words = ["--base", "org/its-base", "--rl", "org/its-rl", "--store", str(store)]
    for file, mode in ((base, "base"), (rl, "rl")):
        done = run("records", "import", file, "-d", mode, *words)
        told = json.loads(done.stdout)
        assert told["judge"] == "exact_match/strict-match"
        assert told["lacks"] == ["max_tokens", "n_tokens", "truncated", "token_ids", "delta_logp"]
    assert ", 6 problems, 6 responses  graded" in run("records", "list", "--store", store).stdout, "not 0 tokens"
    for grader in ("official", "robust"):
        found = read_results([store], grader=grader)
        [row] = compare(settings_of(found))
        assert (row.result.decoding.mode, row.reference.decoding.mode) == ("rl", "base")
        assert row.difference.mean == pytest.approx(3 / 6)
        assert found[0].sampling.greedy
        assert "mean_tokens" not in found[0].metrics()
    assert (
        import_foreign(store, [base], decoding=BASE, metric="/flexible-extract")["scores"]["official"]["avg@1"] == 1.0
    )


def test_other_judges_never_meet(tmp_path):
    """Two scorers of others are two graders, though both verdicts are called official."""
    base = write_lm_eval(tmp_path / "samples_gsm8k_1.jsonl", lm_eval_rows((1, 0)))
    rl = write_lm_eval(tmp_path / "samples_gsm8k_2.jsonl", lm_eval_rows((1, 1)))
    import_foreign(tmp_path / "store", [base], decoding=BASE, **MODELS)
    import_foreign(tmp_path / "store", [rl], decoding=RL, metric="exact_match/flexible-extract", **MODELS)
    with pytest.raises(UserError, match="differ in grader"):
        compare(settings_of(read_results([tmp_path / "store"], grader="official")))
    assert len(compare(settings_of(read_results([tmp_path / "store"])))) == 1


def test_a_log_of_inspect_is_read_as_json_and_as_the_zip_it_writes(tmp_path):
    log = inspect_log()
    run = read_foreign(put(tmp_path / "log.json", log))
    assert read_foreign(write_eval(tmp_path / "old.eval", log)) == run
    assert read_foreign(ZSTANDARD) == run
    data = bytearray(ZSTANDARD.read_bytes())
    data[data.index(b"samples/") + 40] ^= 1
    (tmp_path / "bad.eval").write_bytes(data)
    with pytest.raises(UserError, match=r"bad\.eval cannot be unpacked"):
        read_foreign(tmp_path / "bad.eval")
    assert (run.task, run.model, run.judge) == ("aime2025", "org/its-rl", "match")
    assert run.sampling == {"temperature": 0.6, "top_p": 0.95, "max_tokens": 4096}
    assert [each.text for each in run.responses[:2]] == ["hm\nso \\boxed{1}", "hm\nso \\boxed{77}"]
    told = import_foreign(tmp_path / "store", [ZSTANDARD], decoding=RL)
    assert told["lacks"] == ["seed", "token_ids", "delta_logp"]
    [result] = read_results([tmp_path / "store"], grader="official")
    assert (result.correct == [[1, 0], [1, 1]]).all()
    assert result.metrics()["mean_tokens"] == 12


def test_claims_about_pass_at_k_are_checked_on_imported_runs(tmp_path):
    """RL is ahead with one sample, base with four: k* is 2, as `stats.crossing` has it; lengths are not needed."""
    rows = {"base": ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)), "rl": ((1, 1, 1, 1), (0, 0, 0, 0), (0, 0, 0, 0))}
    for mode, correct in rows.items():
        file = put(tmp_path / f"{mode}.json", inspect_log(correct))
        import_foreign(tmp_path / "store", [file], decoding=Decoding(mode=mode), **MODELS)
    words = ["compare", str(tmp_path / "store"), "--grader", "official", "--crossing"]
    done = run(*words)
    assert "- aime2025, base and rl: Pass@k of base is first above RL's at k = 2 (" in done.stdout
    single = [write_lm_eval(tmp_path / f"samples_gsm8k_{i}.jsonl", lm_eval_rows((1, i, 0))) for i in (0, 1)]
    for file, mode in zip(single, ("base", "rl"), strict=True):
        import_foreign(tmp_path / "single", [file], decoding=Decoding(mode=mode), **MODELS)
    said = refused("compare", tmp_path / "single", "--crossing")
    assert "a crossing needs RL compared with its base, with two samples" in said


def test_files_are_further_samples_of_one_run(tmp_path):
    files = [
        put(tmp_path / f"{i}.json", inspect_log(correct))
        for i, correct in enumerate([((1, 0), (1, 1)), ((0, 0), (1, 0))])
    ]
    import_foreign(tmp_path / "store", files, decoding=RL)
    [result] = read_results([tmp_path / "store"], grader="official")
    assert (result.correct == [[1, 0, 0, 0], [1, 1, 1, 0]]).all()
    other = put(tmp_path / "other.json", inspect_log(target="5"))
    with pytest.raises(UserError, match=r"other\.json has other problems than .*0\.json"):
        import_foreign(tmp_path / "store", [files[0], other], decoding=RL)
    other = put(tmp_path / "other.json", {**inspect_log(), "eval": {"task": "aime2024", "model": "org/its-rl"}})
    with pytest.raises(UserError, match="differs in its task"):
        import_foreign(tmp_path / "store", [files[0], other], decoding=RL)


def test_what_is_not_told_keeps_no_one_from_being_compared(tmp_path):
    """A source that does not say how it was drawn meets one that does; two that say otherwise do not."""
    import_foreign(
        tmp_path / "store", [write_lm_eval(tmp_path / "x_samples.jsonl", eee_rows())], decoding=BASE, **MODELS
    )
    log = {**inspect_log(), "samples": []}
    for row in eee_rows((True, True)):
        log["samples"].append(
            {**inspect_log()["samples"][0], "id": row["sample_id"], "target": row["input"]["reference"][0]}
        )
    log["eval"] = {**log["eval"], "task": "math"}
    import_foreign(tmp_path / "store", [put(tmp_path / "log.json", log)], decoding=RL, **MODELS)
    [row] = compare(settings_of(read_results([tmp_path / "store"])))
    assert row.result.first.lacks != row.reference.first.lacks


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lm_eval_rows(resps=[[[-1.5, False]]]), "has no texts in resps"),
        (lm_eval_rows(resps=[]), "has no texts in resps"),
        (lm_eval_rows(target=None), "gold.*None"),
        (lm_eval_rows(doc_id=[1]), r"problem=\[1\]"),
        (lm_eval_rows(doc_id=7), "has sample 0 of problem '7' twice"),
        ([*lm_eval_rows(), {"doc_id": 9}], "line 7 is no line of a known form"),
        (eee_rows(interaction_type="agentic"), "interaction_type single_turn"),
        (eee_rows(output={"raw": ["a", "b"]}), "one text in output.raw"),
        (eee_rows(evaluation={"score": 1}), "correct='None' is refused"),
        (eee_rows(token_usage={"output_tokens": 10**12}), "n_tokens=1000000000000"),
        (eee_rows(metadata={"n_tokens": "3", "replaced_at": "1 3"}), "replaced has position 3 of 3 tokens"),
        (eee_rows(metadata={"n_tokens": "3", "replaced_at": "-1"}), "replaced.*'-1'"),
        (eee_rows(metadata={"replaced_at": "0"}), "position 0 of 0 tokens"),
        ([1], "line 1 is no object"),
        ([], "is empty"),
        ({**inspect_log(), "samples": []}, "has no samples"),
        ({**inspect_log(), "samples": inspect_log()["samples"][:3]}, "2 responses to problem '1' and 1 to '2'"),
        (inspect_log(output={"choices": []}, error={"message": "x"}), "has no response: it ended in an error"),
        (inspect_log(epoch=-1), "sample=-1"),
        (inspect_log(epoch=10**12), "sample=1000000000000"),
        (inspect_log(target={"a": 1}), "gold"),
        ({"some": "thing"}, "is no log of Inspect; accepted: a samples file of lm-eval"),
    ],
)
def test_a_file_or_a_log_that_is_refused_is_one_sentence(tmp_path, content, sentence):
    lines = isinstance(content, list)
    file = (write_lm_eval if lines else put)(tmp_path / f"x.json{'l' * lines}", content)
    with pytest.raises(UserError, match=sentence):
        import_foreign(tmp_path / "store", [file], decoding=RL, task="x")
    assert not (tmp_path / "store").exists()


def test_what_is_asked_must_fit_the_file(found, tmp_path):
    file = write_lm_eval(tmp_path / "some.jsonl", lm_eval_rows())
    for how, sentence in (
        ({"decoding": RL}, "does not say which benchmark it is; give --task"),
        ({"task": "x"}, "does not say how it was decoded; give --decoding base"),
        (
            {"task": "x", "decoding": RL, "metric": "f1"},
            "metric='f1' is not 0 or 1 for every single response; .*exact_match",
        ),
        ({"task": "x", "decoding": RL, "metric": "/no"}, "metric='/no' is not known; accepted: /strict-match"),
        ({"task": "../x", "decoding": RL}, "task='../x' is refused"),
    ):
        with pytest.raises(UserError, match=sentence):
            import_foreign(tmp_path / "store", [file], **how)
    written = export(found[2:3], "inspect", tmp_path, Target()).files[0]
    with pytest.raises(UserError, match=r"is not how .* says it was decoded: 'replace τ-0.3'"):
        import_foreign(tmp_path / "store", [written], decoding=RL)


def test_a_zip_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.exchange.inspect_log.MOST_BYTES", 1000)
    with pytest.raises(UserError, match="unpacks to more than 1,000 bytes"):
        read_foreign(write_eval(tmp_path / "log.eval", inspect_log()))
    with pytest.raises(UserError, match="unpacks to more than 1,000 bytes"):
        read_foreign(ZSTANDARD)
    (tmp_path / "bad.eval").write_bytes(b"PK\x03\x04" + bytes(50))
    with pytest.raises(UserError, match="cannot be unpacked"):
        read_foreign(tmp_path / "bad.eval")


@pytest.mark.parametrize("apart", [False, True])
def test_greedy_responses_to_a_problem_count_once(tmp_path, apart):
    """Four epochs at temperature 0 were four samples of a sampling that nobody told."""
    log = inspect_log(((1,), (0,)) if apart else ((1, 1, 1, 1), (0, 0, 0, 0)))
    log["eval"]["model_generate_config"]["temperature"] = 0
    files = [put(tmp_path / "log.json", log)]
    if apart:
        files.append(put(tmp_path / "again.json", {**log, "plan": {"config": {"seed": 7}}}))
    told = import_foreign(tmp_path / "store", files, decoding=RL)
    [result] = read_results([tmp_path / "store"], grader="official")
    assert (result.samples, result.sampling.greedy, result.avg) == (1, True, 0.5)
    assert "responses to each problem are equal, as temperature 0 has it: they count once" in told["remarks"][-1]
    log["eval"]["model_generate_config"]["temperature"] = 0.6
    told = import_foreign(tmp_path / "warm", [put(tmp_path / "log.json", log)], decoding=RL)
    assert any("then import one" in remark for remark in told["remarks"]) is not apart


def log_in(folder, correct):
    folder.mkdir(exist_ok=True)
    return put(folder / "log.json", inspect_log(correct))


def test_files_of_one_name_in_other_folders_are_other_records(tmp_path):
    """The name alone stood for a file: a second lot was then taken for the first, its verdicts beside those texts."""
    a, b = log_in(tmp_path / "a", ((1, 1), (1, 1))), log_in(tmp_path / "b", ((0, 1), (0, 0)))
    c = log_in(tmp_path / "c", ((0, 0), (0, 0)))
    first, second = (import_foreign(tmp_path / "store", each, decoding=RL) for each in ([a, b], [c, b]))
    assert first["record"] != second["record"]
    assert [each["scores"]["robust-3"]["avg@4"] for each in (first, second)] == [0.625, 0.125]
    with pytest.raises(UserError, match=r"a/log\.json is given twice"):
        import_foreign(tmp_path / "store", [a, b, a], decoding=RL)


def test_import_gives_the_notebooks_plain_means_and_our_verdicts_beside_theirs(tmp_path):
    found = import_foreign(tmp_path / "store", [write(tmp_path)])
    theirs, plain = found["scores"]["official"], notebook()
    assert theirs["avg@4"] == plain["accs"] == 0.5
    assert found["counts"]["mean_tokens"] == plain["lengths"]
    assert found["counts"]["replacement_ratio_per_response"] == plain["resample_rates"]
    assert found["counts"]["replacement_ratio"] == 8 / 55
    assert found["counts"]["changed_ratio"] == 4 / 55  # only the odd positions became another token
    assert found["agreement"]["plain"] == {"both": 4, "neither": 3, "only official": 0, "only plain": 1}
    assert found["scores"]["plain"]["avg@4"] == 5 / 8
    assert theirs["avg@4_se_seeds"] == 0.0  # two of four right under either seed
    assert theirs["pass@2"] == stats.pass_at_k([[1, 0, 1, 1], [0, 1, 0, 0]], 2)
    [result] = read_results([tmp_path / "store"], grader="official")
    assert result.sampling_error == 0.0 < stats.sampling_error(result.correct), "a seed's samples share noise"
    one = Setting.of([result])
    assert np.isnan(one.minus(one).sampling).all()


def test_an_import_keeps_settings_keys_and_seeds_and_is_the_same_twice(tmp_path):
    run, store = write(tmp_path), RecordStore(tmp_path / "store")
    name = import_foreign(store.folder, [run], graders=())["record"]
    record = store.one(name)
    source = record.config.source
    expected = {"folder": FOLDER, "dataset": "aime24", "w0": -0.05, "criterion": "neg_logp", "tau": -0.3, "n": 2}
    assert expected.items() <= source.items()
    rollouts = {one.key: one for one in record}
    assert rollouts["aime24/1", 3].text == "no box"  # seed 1, second response
    assert np.flatnonzero(rollouts["aime24/1", 1].replaced).tolist() == [0, 1, 2]
    assert np.flatnonzero(rollouts["aime24/1", 1].changed).tolist() == [1]
    assert import_foreign(store.folder, [run], graders=())["record"] == name
    assert store.one(name).digest() == record.digest()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p: p[0].pop("accs"), "accs is missing"),
        (lambda p: p[0]["accs"].pop(), "different lengths"),
        (lambda p: p.pop(), "other problems"),
        (lambda p: p[0].update(gt="69"), "other problems"),
        (lambda p: [p[0][name].pop() for name in p[0] if isinstance(p[0][name], list)], "does not have 2 responses"),
        (lambda p: p[0]["resample_rates"].__setitem__(0, 0.9), "tells a ratio of 0.9"),
        (
            lambda p: p[0]["resample_infos"][0].__setitem__("70", {"original": 7, "resampled": 8}),
            "flags position 70 of 5",
        ),
    ],
)
def test_official_files_that_contradict_themselves_are_refused(tmp_path, change, sentence):
    path = write(tmp_path) / "seed1.json"
    problems = json.loads(path.read_text())
    change(problems)
    path.write_text(json.dumps(problems))
    with pytest.raises(UserError, match=sentence):
        read_official(path.parent)


def test_official_folders_that_are_none_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no seed<number>\.json"):
        read_official(tmp_path)
    renamed = write(tmp_path).rename(tmp_path / "renamed")
    for how, sentence in (({}, "which benchmark"), ({"task": "aime24"}, "how it was decoded")):
        with pytest.raises(UserError, match=sentence):
            import_foreign(tmp_path / "store", [renamed], **how)
    run = read_official(renamed, task="aime24")
    assert {(each.problem, each.gold) for each in run.responses} == {("0", ("68",)), ("1", ("204",))}
