"""Evaluations from Python with the real transformers engine: order, noise keys, names, chat templates, refusals."""

import json
import pickle
import shutil
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from lm_eval.utils import make_table

from rlvr_dir.config import Decoding, Sampling, with_controls
from rlvr_dir.decode import Request
from rlvr_dir.decode.types import EngineLost
from rlvr_dir.errors import UserError
from rlvr_dir.evals import loop
from rlvr_dir.evals.traces import rollouts
from rlvr_dir.lm_eval_model.lm import RlvrDirLM
from rlvr_dir.problems import preflight
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.problems.task import BoxedAnswers, Response, info_of, process_results
from rlvr_dir.records import RecordStore
from rlvr_dir.report.viewer import answer_of
from tests.evals.asked import asked, evaluate
from tests.facts import ROBUST, refuses, states
from tests.records.made import stored

SAMPLING = Sampling(samples=4, max_tokens=12, seed=5)
REPLACE = Decoding(mode="replace", tau=-0.2)


@pytest.fixture(scope="module")
def results(engine, data_dir):
    return evaluate(
        engine, [Decoding(mode="rl"), REPLACE], ["amc", "aime24"], SAMPLING, limit=3, data_dir=data_dir, progress=False
    )


def test_results_come_decoding_by_decoding(results):
    assert [(r.task, r.decoding.mode) for r in results] == [
        ("amc", "rl"), ("aime24", "rl"), ("amc", "replace"), ("aime24", "replace"),
    ]  # fmt: skip
    for result in results:
        assert result.correct.shape == (3, 4)
        assert result.problem_ids == tuple(f"{result.task}-{i}" for i in range(3))
        assert result.n_tokens.max() <= 12
        assert result.sampling == SAMPLING
        assert set(result.metrics()) >= {"avg@4", "avg@4_se", "avg@4_se_sampling", "pass@2", "pass@4", "mean_tokens"}
        assert result.provenance["engine"]["backend"] == "transformers"
        assert result.provenance["grader"] == ROBUST
    assert results[0].n_replaced.sum() == 0
    assert results[2].n_replaced.sum() > 0


class Watched:
    """An engine that keeps which decodings were asked for, in that order."""

    def __init__(self, engine):
        self._engine, self.asked = engine, []

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, requests, *, progress=False):
        self.asked += [request.decoding for request in requests]
        return self._engine.generate(requests, progress=progress)


def test_each_decoding_is_run_before_its_controls_and_listed_as_it_was_asked_for(engine, data_dir):
    watched, decodings = Watched(engine), with_controls([REPLACE])
    results = evaluate(watched, decodings, ["amc"], SAMPLING.replace(samples=1), limit=1, data_dir=data_dir)
    assert [result.decoding for result in results] == list(decodings)
    assert [decoding.mode for decoding in decodings] == ["base", "rl", "veto", "reject", "replace"]
    assert [decoding.mode for decoding in watched.asked] == ["base", "rl", "replace", "reject", "veto"]


class Lost(Watched):
    """An engine that is lost after so many responses, time and again."""

    def __init__(self, engine, after):
        super().__init__(engine)
        self.after, self.closed = iter(after), 0

    def generate(self, requests, *, progress=False):
        most = next(self.after, len(requests))
        yield from islice(super().generate(requests, progress=progress), most)
        if most < len(requests):
            raise EngineLost("it is gone")

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("after", [(3,), (0, 2), (1, 0, 1, 0, 2)], ids=str)
def test_a_lost_engine_is_announced_and_started_again(engine, data_dir, tmp_path, capfd, after):
    lost = Lost(engine, after)
    decodings = ["rl", "base"]
    results = evaluate(lost, decodings, ["amc"], SAMPLING, limit=2, data_dir=data_dir, records=tmp_path)
    assert lost.closed == len(after)
    assert capfd.readouterr().err.count("it is gone") == len(after)
    undisturbed = evaluate(engine, decodings, ["amc"], SAMPLING, limit=2, data_dir=data_dir)
    for one, other in zip(results, undisturbed, strict=True):
        assert (one.n_tokens == other.n_tokens).all()
    assert all(len(keys) == len(set(keys)) == 8 for keys in stored(tmp_path).values())


def test_an_engine_that_is_lost_again_and_again_ends_the_command(engine, data_dir, tmp_path):
    lost = Lost(engine, (2, 0, 0, 0))
    with pytest.raises(EngineLost):
        evaluate(lost, ["rl"], ["amc"], SAMPLING, limit=2, data_dir=data_dir, records=tmp_path)
    assert lost.closed == loop.MOST_LOSSES - 1
    assert sum(map(len, stored(tmp_path).values())) == 2
    evaluate(engine, ["rl"], ["amc"], SAMPLING, limit=2, data_dir=data_dir, records=tmp_path)
    assert all(len(keys) == len(set(keys)) == 8 for keys in stored(tmp_path).values())


def test_each_cell_is_the_rollout_of_its_problem_and_sample(engine, results):
    result = results[3]
    prompt = "What is {i}+{i}?\nPlease reason step by step, and put your final answer within \\boxed{{}}."
    requests = [
        Request(
            prompt=engine.chat_prompt([{"role": "user", "content": prompt.format(i=i)}]),
            problem=f"aime24/aime24-{i}",
            sample=j,
            decoding=REPLACE,
            sampling=SAMPLING,
        )
        for i in range(3)
        for j in range(4)
    ]
    for rollout in engine.generate(reversed(requests)):
        i, j = int(rollout.request.problem.rsplit("-", 1)[1]), rollout.request.sample
        assert (result.n_tokens[i, j], result.n_replaced[i, j]) == (rollout.n_tokens, rollout.n_replaced)


def run(lm, data_dir, tasks, *, metadata=None, chat=True, limit=2, **arguments):
    """lm-eval's own Python API, with our tasks."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    from rlvr_dir.problems import tasks_dir

    manager = TaskManager(
        include_path=str(tasks_dir()), include_defaults=False, metadata={"data_dir": data_dir, **(metadata or {})}
    )
    return simple_evaluate(
        model=lm,
        tasks=tasks,
        task_manager=manager,
        limit=limit,
        bootstrap_iters=0,
        apply_chat_template=chat,
        **arguments,
    )


def test_through_lm_evals_own_evaluator(engine, data_dir):
    lm = RlvrDirLM(engine=engine, decoding=REPLACE, progress=False)
    output = run(
        lm, data_dir, ["rlvr_math"], metadata={"repeats": 3}, gen_kwargs="max_gen_toks=16,temperature=2.0,top_p=1"
    )
    means = [output["results"][task]["mean_tokens,boxed"] for task in ("aime24", "aime25", "amc", "minerva")]
    assert output["groups"]["rlvr_math"]["mean_tokens,boxed"] == pytest.approx(np.mean(means))
    info = output["config"]["rlvr_dir"]
    assert info["totals"]["responses"] == 24
    rows = [[cell.strip() for cell in line.split("|")[5:7]] for line in make_table(output).splitlines()[2:]]
    arrows = {metric: {arrow for name, arrow in rows if name == metric} for metric, _ in rows}
    assert {metric for metric, arrow in arrows.items() if arrow == {"↑"}} == {"avg@3", "pass@2", "maj@3"}
    assert all(arrow == {""} for metric, arrow in arrows.items() if "@" not in metric)


def test_sampling_among_the_model_arguments_gives_the_responses_of_gen_kwargs(engine, data_dir):
    given = {"max_tokens": 16, "temperature": 2.0, "top_p": 1}
    by_model = RlvrDirLM(engine=engine, decoding=REPLACE, progress=False, **given)
    by_task = RlvrDirLM(engine=engine, decoding=REPLACE, progress=False)
    run(by_model, data_dir, ["amc"], metadata={"repeats": 3})
    run(by_task, data_dir, ["amc"], metadata={"repeats": 3}, gen_kwargs="max_gen_toks=16,temperature=2.0,top_p=1")
    [(one, other)] = zip(by_model.done, by_task.done, strict=True)
    assert one.job.config == other.job.config
    assert {key: row.token_ids for key, row in one.responses.items()} == {
        key: row.token_ids for key, row in other.responses.items()
    }
    greedy = RlvrDirLM(engine=engine, progress=False, temperature=0, max_tokens=8)
    run(greedy, data_dir, ["amc"], metadata={"temperature": 0})  # as the stock command hands a task model arguments
    assert (greedy.done[0].job.sampling.samples, greedy.done[0].job.sampling.greedy) == (1, True)


@pytest.mark.parametrize(
    ("model", "asked", "words"),
    [
        ({}, {"use_cache": "CACHE"}, "use_cache"),
        ({}, {"metadata": {"repeats": 2}, "gen_kwargs": {"do_sample": False}}, "repeats=2"),
        ({}, {"metadata": {"repeats": "many"}}, "repeats=many"),
        ({"chat": "off"}, {}, "contradicts"),
        ({"samples": 5}, {"metadata": {"repeats": 2}}, "samples=5 but amc draws 2"),
    ],
)
def test_refusals_of_the_adapter(engine, data_dir, tmp_path, model, asked, words):
    asked = {name: str(tmp_path / "cache") if value == "CACHE" else value for name, value in asked.items()}
    lm = RlvrDirLM(engine=engine, progress=False, **model)
    with pytest.raises(UserError, match=words):
        run(lm, data_dir, ["amc"], **asked)
    with pytest.raises(UserError, match="generate_until"):
        lm.loglikelihood([])


def test_two_problems_of_one_id_are_refused_before_decoding(engine):
    from lm_eval.api.instance import Instance

    docs = [{"id": key, "problem": f"{key}+1?", "answer": "2"} for key in ("a", "b", "a")]
    asked = [
        Instance("generate_until", doc, (doc["problem"], {"max_gen_toks": 4}), i, metadata=("mine", i, 1))
        for i, doc in enumerate(docs)
    ]
    with refuses("problem", "mine/a"):
        RlvrDirLM(engine=engine).generate_until(asked)


@pytest.mark.parametrize(
    ("tasks", "changes", "names"),
    [
        (["aime24"], {"data_dir": "."}, "RLVR_DIR_DATA"),
        (["rlvr"], {}, "rlvr_math"),
        (["amc"], {"decodings": ["rl", "rl"]}, "rl"),
        (["amc"], {"grader": "robst"}, "robust"),
        (["minerva_r1zero"], {}, "minerva_r1zero_answers"),
        (["aime24", "rlvr_math"], {}, "aime24"),
    ],
)
def test_nothing_is_opened_before_tasks_and_data_are_good(data_dir, tasks, changes, names):
    """No engine is there to be used."""
    with pytest.raises(UserError) as caught:
        evaluate(None, tasks=tasks, sampling=SAMPLING, **{"decodings": ["rl"], "data_dir": data_dir, **changes})
    assert states(caught.value, names)
    assert list(preflight(["rlvr_math"], data_dir)) == ["aime24", "aime25", "amc", "minerva"]


def test_minervas_other_answers_are_a_task_that_shares_its_responses(engine, data_dir, tmp_path):
    """The tiny r1zero file here says that every answer is what the model said first."""

    folder = tmp_path / "data"
    shutil.copytree(data_dir, folder)
    rows = [{"id": f"minerva-{i}", "answers": ["1", "2e3"]} for i in range(272)]
    (folder / "minerva_r1zero_answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert find_benchmark("minerva_r1zero", str(folder)).golds["minerva-7"] == ("1", r"2 \times 10^{3}")
    decoded = []

    class Answers:
        """The engine, every response saying that it is 1."""

        def __getattr__(self, name):
            return getattr(engine, name)

        def generate(self, requests, **options):

            for rollout in engine.generate(requests, **options):
                decoded.append(rollout.request.problem)
                yield replace(rollout, text=r"\boxed{1}")

    def run(*tasks, **more):
        return evaluate(
            Answers(), [Decoding()], tasks, Sampling(samples=2, max_tokens=2), limit=2, data_dir=str(folder),
            progress=False, **more,
        )  # fmt: skip

    records = {"records": tmp_path / "records"}
    minerva, other, _ = run("minerva", "minerva_r1zero", "amc", **records)
    assert (len(decoded), {problem.split("/")[0] for problem in decoded}) == (8, {"minerva", "amc"})
    assert (minerva.avg, minerva.maj) == (0.0, 0.0)
    assert (other.avg, other.maj, other.task) == (1.0, 1.0, "minerva_r1zero")
    assert other.provenance["record"] == minerva.provenance["record"]
    assert other.provenance["data"] != minerva.provenance["data"]
    [alone] = run("minerva_r1zero")
    assert (len(decoded), alone.config_hash) == (12, other.config_hash)
    assert alone.metrics() == other.metrics()
    store = RecordStore(tmp_path / "records")
    judges = {name[1]: store.read(*name).judges for name in store.names()}
    assert judges == {"amc": [ROBUST], "minerva": [ROBUST, f"{ROBUST}+minerva_r1zero"]}
    spec = asked([Decoding()], ["minerva_r1zero"], Sampling(samples=2, max_tokens=2), limit=2, data_dir=str(folder))
    [job] = loop.jobs_of(spec, engine)
    record = job.read(store)
    assert {row.key for row in rollouts(job, store.folder)} == {*record.rows}
    assert answer_of(record, "minerva-0").verdict == "wrong"
    assert answer_of(record, "minerva-0", task="minerva_r1zero").verdict == "correct"


def test_a_grader_that_fails_is_told_when_every_response_is_safe(engine, data_dir, tmp_path, monkeypatch):
    def broken(items, grader):
        raise OSError("no grader today")

    asked = (engine, [Decoding()], ["amc"], Sampling(samples=2, max_tokens=4))
    how = {"limit": 2, "data_dir": data_dir, "records": tmp_path}
    with monkeypatch.context() as patched:
        patched.setattr(loop, "grade_many", broken)
        with pytest.raises(OSError, match="no grader today"):
            evaluate(*asked, **how)
    monkeypatch.setattr(engine, "generate", None)  # nothing is decoded again
    assert evaluate(*asked, **how)[0].correct.shape == (2, 2)


def response_of(text, tokens=10, replaced=1, changed=1, finish="stop"):
    info = {"n_tokens": tokens, "n_replaced": replaced, "n_changed": changed, "finish_reason": finish}
    return Response(text, info)


def scored(rows, golds):
    docs = [{"id": str(i), "answer": gold} for i, gold in enumerate(golds)]
    answers = BoxedAnswers().apply(rows, docs)
    return docs, answers, [process_results(doc, [row]) for doc, row in zip(docs, answers, strict=True)]


def test_a_problem_from_text_to_numbers():
    rows = [
        [
            response_of(r"\boxed{7}", tokens=10, replaced=1),
            response_of(r"\boxed{8}", tokens=30, replaced=9, changed=3),
            response_of("no idea", tokens=20, replaced=0, changed=0, finish="length"),
            response_of(r"\boxed{07}, for", tokens=40, replaced=0, changed=0, finish="length"),
        ]
    ]
    docs, answers, [metrics] = scored(rows, ["7"])
    assert answers == [["7", "8", "", "07"]]
    assert (metrics["avg@4"], metrics["pass@2"], metrics["pass@4"]) == (0.5, pytest.approx(5 / 6), 1.0)
    assert metrics["replacement_ratio"] == (10, 100)
    assert metrics["changed_ratio"] == (4, 100)
    assert metrics["replacement_ratio_per_response"] == (pytest.approx(0.4), 4)
    assert (metrics["mean_tokens"], metrics["truncated_share"], metrics["no_box_share"]) == (25, 0.5, 0.25)
    assert metrics["ungraded_share"] == 0
    assert [sample["verdict"] for sample in docs[0]["samples"]] == ["correct", "wrong", "truncated", "correct"]
    assert docs[0]["samples"][1] == {
        "verdict": "wrong", "answer": "8", "grader": ROBUST,
        "n_tokens": 30, "n_replaced": 9, "n_changed": 3, "finish_reason": "stop",
    }  # fmt: skip
    json.dumps(docs)


def test_of_several_answers_any_one_counts():
    docs = [{"id": "0", "answer": ["8", "9"]}]
    rows = [[response_of(r"\boxed{7}"), response_of(r"\boxed{9}"), response_of(r"\boxed{9.0}"), response_of("none")]]
    [answers] = BoxedAnswers().apply(rows, docs)
    assert process_results(dict(docs[0]), [answers])["avg@4"] == 0.5


def test_facts_survive_pickle_and_are_absent_after_string_work():
    text = response_of("abc ")
    assert info_of(pickle.loads(pickle.dumps(text))) == info_of(text)
    assert info_of(text.strip()) == {}
    assert json.dumps(text) == '"abc "'
