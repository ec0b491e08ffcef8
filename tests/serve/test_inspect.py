"""The real Inspect asks the server, with the task of `examples/inspect`, and scores what `rlvr-dir eval` scores."""

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")


from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Sampling
from rlvr_dir.evals import evaluate
from rlvr_dir.records import RecordStore
from tests.serve.real_inspect import HOUSE, needs_inspect, read_log, run

pytestmark = [pytest.mark.vllm, needs_inspect, pytest.mark.whole(reason="Inspect's environment")]
RULE = Decoding(mode="replace", tau=-0.1)


def asked(server, folder, data, sampling, limit):
    """Return the log of Inspect's evaluation of the rule through the server."""
    options = {
        "data": data, "model": "openai-api/rlvr/tiny:replace;tau=-0.1", "limit": limit, "epochs": sampling.samples,
        "temperature": sampling.temperature, "top-p": sampling.top_p, "max-tokens": sampling.max_tokens,
        "seed": sampling.seed, "log-dir": folder,
    }  # fmt: skip
    words = [word for name, value in options.items() if name != "data" for word in (f"--{name}", value)]
    task = HOUSE / "examples" / "inspect" / "benchmark.py"
    environment = {"RLVR_BASE_URL": server.url, "RLVR_API_KEY": "none"}
    run("eval", task.relative_to(HOUSE), "-T", f"data={data}", *words, **environment)
    [log] = folder.glob("*.eval")
    return log


def evaluated(folder, task, sampling, limit, **more):
    """Return our own result of the rule, and its record."""
    engine = EngineSpec(backend="transformers")
    spec = EvalSpec(tasks=(task,), decodings=(RULE,), sampling=sampling, limit=limit, engine=engine, **more)
    [ours] = evaluate(spec, records=folder)
    return ours, RecordStore(folder).record(ours.provenance["record"])


def same_texts(log, record):
    """Tell whether both have the same texts for the same problem and sample."""
    theirs = {(sample["key"][0], sample["key"][1] - 1): sample["text"] for sample in log["samples"]}
    ours = {(each.problem.rpartition("/")[2], each.sample): each.text for each in record}
    return theirs == ours


def test_it_scores_each_sample_as_our_own_evaluation_does(server, tmp_path):
    """Sampled at temperature 1: the task names problem and sample, so the noise is that of `rlvr-dir eval`."""
    sampling, limit = Sampling(samples=3, seed=3, max_tokens=500), 20
    ours, record = evaluated(tmp_path / "records", "tiny_medium", sampling, limit)
    path = asked(server, tmp_path / "logs", "tiny_medium", sampling, limit)
    log = read_log(path)
    assert (log["status"], log["task"], len(log["samples"])) == ("success", "tiny_medium", 60)
    assert not any(sample["error"] for sample in log["samples"])
    assert same_texts(log, record)
    rights = {tuple(sample["key"]): sample["right"] == ["C"] for sample in log["samples"]}
    theirs = [[rights[problem, epoch + 1] for epoch in range(3)] for problem in ours.problem_ids]
    assert (np.array(theirs) == ours.correct).all()
    assert log["scores"]["last_box"]["accuracy"] == pytest.approx(ours.avg)
    assert 0 < ours.avg < 1
