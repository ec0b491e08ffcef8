"""Evaluations from Python with the real transformers engine: order, noise keys, names, chat templates, refusals."""

import json

import numpy as np
import pytest

from harness.decode import Request
from harness.errors import UserError
from harness.evals import EvalResult, evaluate, preflight
from harness.evals.lm import CACHE_REFUSAL, RlvrDirLM
from harness.evals.run import result_of
from harness.spec import Decoding, Sampling

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
        assert result.provenance["grader"] == "plain"
        assert result.seconds > 0
    assert results[0].n_replaced.sum() == 0
    assert results[2].n_replaced.sum() > 0
    assert 0 < results[2].replacement_ratio < 1


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


def test_json_round_trip(results):
    again = EvalResult.from_json(results[2].to_json())
    assert again.metrics() == results[2].metrics()
    assert (again.decoding, again.problem_ids, again.provenance) == (
        results[2].decoding, results[2].problem_ids, json.loads(json.dumps(results[2].provenance)),
    )  # fmt: skip
    assert results[0].minus(results[2]).n == 3
    with pytest.raises(UserError, match="differ in their problems"):
        results[0].minus(results[1])


def run(lm, data_dir, tasks, *, metadata=None, chat=True, limit=2, **arguments):
    """lm-eval's own Python API, with our tasks."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    from harness.evals import tasks_dir

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


def test_through_lm_evals_own_evaluator(engine, data_dir, caplog):
    lm = RlvrDirLM(engine=engine, decoding=REPLACE, progress=False)
    output = run(
        lm, data_dir, ["rlvr_math"], metadata={"repeats": 3}, gen_kwargs="max_gen_toks=16,temperature=2.0,top_p=1"
    )
    per_task = output["results"]
    for task in ("aime24", "aime25", "amc", "minerva"):
        numbers = per_task[task]
        result = result_of(task, REPLACE, Sampling(samples=3), output["samples"][task])
        for name, value in result.metrics().items():
            if "_se" not in name:
                assert numbers[f"{name},boxed"] == pytest.approx(value), name
        assert "avg@32,boxed" not in numbers
        texts = {text for entry in output["samples"][task] for text in entry["resps"][0]}
        assert len(texts) == 6  # 2 problems x 3 samples, all different
    means = [per_task[task]["mean_tokens,boxed"] for task in ("aime24", "aime25", "amc", "minerva")]
    assert output["groups"]["rlvr_math"]["mean_tokens,boxed"] == pytest.approx(np.mean(means))
    assert output["groups"]["rlvr_math"]["avg@3,boxed"] == 0.0
    info = output["config"]["rlvr_dir"]
    assert info["totals"]["responses"] == 24
    assert info["chat"] == "lm-eval"
    assert output["samples"]["amc"][0]["arguments"][0][1]["temperature"] == 2.0
    assert not [record for record in caplog.records if "No aggregation function" in record.getMessage()]
    json.dumps(output, default=str)


def test_the_groups_average_counts_each_benchmark_once():
    """Sizes 30 and 83 must not weigh: the mean of means, by lm-eval's own group on our declaration of it."""
    from lm_eval.config.group import AggMetricConfig

    from harness.evals.scoring import GROUP_METRICS

    configs = [AggMetricConfig(**metric) for metric in GROUP_METRICS]
    assert all(not config.weight_by_size and config.aggregation == "mean" for config in configs)
    assert {"avg@8", "avg@32", "pass@16"} <= {config.metric for config in configs}


def prompts_of(engine, data_dir, *, chat, template):
    seen = []

    class Spy:
        def __getattr__(self, name):
            return getattr(engine, name)

        def generate(self, requests, **options):
            requests = list(requests)
            seen.extend(request.prompt for request in requests)
            return engine.generate(requests, **options)

    lm = RlvrDirLM(engine=Spy(), chat=chat, progress=False)
    run(lm, data_dir, ["amc"], metadata={"samples": 1}, chat=template, gen_kwargs={"max_gen_toks": 2})
    return seen, lm.get_model_info()["rlvr_dir"]["chat"]


def test_the_chat_template_is_applied_exactly_once(engine, data_dir):
    ours, said = prompts_of(engine, data_dir, chat="auto", template=False)
    theirs, said_theirs = prompts_of(engine, data_dir, chat="auto", template=True)
    raw, said_raw = prompts_of(engine, data_dir, chat="off", template=False)
    assert ours == theirs
    assert ours[0] == engine.chat_prompt([{"role": "user", "content": raw[0]}])
    assert raw[0] == "What is 0+0?\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert (said, said_theirs, said_raw) == ("rlvr_dir", "lm-eval", "off")


def test_refusals_of_the_adapter(engine, data_dir, tmp_path):
    lm = RlvrDirLM(engine=engine, progress=False)
    with pytest.raises(UserError, match="use_cache is refused"):
        run(lm, data_dir, ["amc"], use_cache=str(tmp_path / "cache"))
    assert "\n" not in CACHE_REFUSAL
    with pytest.raises(UserError, match="do_sample=False"):
        run(lm, data_dir, ["amc"], metadata={"repeats": 1}, gen_kwargs={"do_sample": False})
    with pytest.raises(UserError, match="repeats='many'"):
        run(lm, data_dir, ["amc"], metadata={"repeats": "many"})
    with pytest.raises(UserError, match="contradicts"):
        run(RlvrDirLM(engine=engine, chat="off"), data_dir, ["amc"])
    with pytest.raises(UserError, match="samples=5 but amc draws 2"):
        run(RlvrDirLM(engine=engine, samples=5), data_dir, ["amc"], metadata={"repeats": 2})
    with pytest.raises(UserError, match="generate_until"):
        lm.loglikelihood([])


def test_nothing_is_opened_before_tasks_and_data_are_good(tmp_path, data_dir):
    def never():
        raise AssertionError("the engine was opened")

    with pytest.raises(UserError, match="RLVR_DIR_DATA"):
        evaluate(never, [Decoding()], ["aime24"], SAMPLING, data_dir=str(tmp_path))
    with pytest.raises(UserError, match="did you mean 'rlvr_math'"):
        evaluate(never, [Decoding()], ["rlvr"], SAMPLING, data_dir=data_dir)
    with pytest.raises(UserError, match="asks for aime24 twice"):
        preflight(["aime24", "rlvr_math"], data_dir)
    assert list(preflight(["rlvr_math"], data_dir)) == ["aime24", "aime25", "amc", "minerva"]


def test_a_factory_is_closed_and_an_engine_is_not(engine, data_dir):
    closed = []

    class Borrowed:
        def __getattr__(self, name):
            return getattr(engine, name)

        def close(self):
            closed.append(True)

    arguments = ([Decoding()], ["aime24"], Sampling(samples=1, max_tokens=2))
    evaluate(Borrowed(), *arguments, limit=1, data_dir=data_dir, progress=False)
    assert not closed
    evaluate(Borrowed, *arguments, limit=1, data_dir=data_dir, progress=False)
    assert closed


def test_a_result_is_complete_or_none():
    sample = {
        "verdict": "wrong",
        "answer": "1",
        "n_tokens": 1,
        "n_replaced": 0,
        "n_changed": 0,
        "finish_reason": "stop",
    }
    logged = [{"doc_id": i, "doc": {"id": i, "samples": [sample] * (4 - i)}} for i in range(2)]
    with pytest.raises(UserError, match="has 3 of 4 samples"):
        result_of("amc", Decoding(), Sampling(samples=4), logged)
    assert result_of("amc", Decoding(), Sampling(samples=4), logged[:1]).n_tokens.sum() == 4


def test_the_tiny_pair_does_its_own_tasks():
    """RL beats base on the embedded pair, through the paper's prompt and the whole chain."""
    from harness.spec import EngineSpec
    from harness.tiny import tiny_pair

    base, rl = evaluate(
        tiny_pair(),
        [Decoding(mode="base"), Decoding(mode="rl")],
        ["tiny_easy"],
        Sampling(samples=2, max_tokens=200),
        limit=40,
        engine_spec=EngineSpec(backend="transformers", dtype="float32"),
        progress=False,
    )
    assert rl.minus(base).low > 0
    assert rl.avg > 0.8
    assert not base.ungraded.any()


def test_the_tiny_pair_says_that_it_cannot_do_aime(data_dir, capsys):
    lm = RlvrDirLM(backend="transformers", progress=False)
    run(lm, data_dir, ["aime24"], metadata={"repeats": 1}, limit=1, gen_kwargs={"max_gen_toks": 4})
    lm.close()
    said = capsys.readouterr().err.splitlines()
    assert "rlvr_dir: no pair named; using the tiny pair that ships with rlvr-dir" in said
    [line] = [line for line in said if "cannot do aime24" in line]
    assert "only checks the pipeline" in line
