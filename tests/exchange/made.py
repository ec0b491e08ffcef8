"""Records and results without an engine, of several decodings of one pair, graded; and files of other programs."""

import numpy as np

from harness.evals.data import find_benchmark
from harness.evals.from_records import grade_again, result_of_record
from harness.records import RecordStore, Row
from harness.spec import Decoding, Sampling
from tests.records.made import config

TASK = "tiny_easy"
HUB = {"base": "Qwen/Qwen2.5-32B", "rl": "BytedTsinghua-SIA/DAPO-Qwen-32B"}
MODES = (
    Decoding(mode="base"),
    Decoding(mode="rl"),
    Decoding(mode="replace", tau=-0.3),
    Decoding(mode="extrapolate", tau=-0.3, gamma=0.1),
)


def rollout(problem, gold, sample, decoding):
    """Two of three answers are right; lengths, flags and how it ends vary with the key."""
    rng = np.random.default_rng([sample, *problem.encode()])
    n = int(rng.integers(2, 30))
    replaced = (rng.random(n) < 0.3) & decoding.gated
    return Row.make(
        problem,
        sample,
        prompt=f"Q {problem}",
        prompt_token_ids=(5, 6, 7),
        token_ids=rng.integers(0, 300, n),
        text=rf"naïve 数 so it is \boxed{{{gold if rng.random() < 0.66 else 'x'}}}." if n % 5 else "\u2028 no box",
        finish_reason=("stop", "length")[n % 2],
        replaced=replaced,
        changed=replaced & (rng.random(n) < 0.5),
        delta_logp=rng.normal(size=n).astype(np.float32),
    )


def results(folder, modes=MODES, problems=4, samples=3, about=HUB, **sampling):
    """Results from records in `folder`, graded and finished."""
    store, benchmark = RecordStore(folder), find_benchmark(TASK)
    rows = {f"{TASK}/{row['id']}": row["answer"] for row in benchmark.problems[:problems]}
    found = []
    for decoding in modes:
        how = config(decoding=decoding, sampling=Sampling(max_tokens=64, **sampling), data=benchmark.data)
        with store.open(how, TASK, list(rows), samples, about={**about}) as record:
            record.add(*(rollout(problem, rows[problem], k, decoding) for problem, k in record.missing()))
            record.finish()
        snapshot = store.read(how.hash(), TASK)
        grade_again(snapshot)
        found.append(result_of_record(snapshot))
    return found
