"""Results without an engine, of any pair, decoding and accuracy; and a report of them."""

import numpy as np

from harness.evals import EvalResult
from harness.report.build import build
from harness.spec import Decoding, Sampling

DAPO = {"base": "Qwen/Qwen2.5-32B", "rl": "BytedTsinghua-SIA/DAPO-Qwen-32B"}
TAUS, GAMMAS = (-0.5, -0.3), (0.05, 0.1)
GRID = (
    Decoding(mode="base"),
    Decoding(mode="rl"),
    *(Decoding(mode="replace", tau=tau) for tau in TAUS),
    *(Decoding(mode="extrapolate", tau=tau, gamma=gamma) for tau in TAUS for gamma in GAMMAS),
    Decoding(mode="replace", tau=-0.2, primary="rl"),
    Decoding(mode="extrapolate", tau=-0.2, gamma=0.1, primary="rl"),
)


def result(
    decoding, share=0.5, *, task="aime24", problems=6, samples=4, seed=0, pair=None, ids=None, name="", **provenance
):
    """Each problem has its own difficulty around `share`; of nine tokens one is replaced where there is a gate."""
    random = np.random.default_rng([seed, problems, samples])
    correct = random.random((problems, samples)) < np.linspace(share / 2, min(1.0, share * 1.5), problems)[:, None]
    zero = np.zeros((problems, samples), int)
    return EvalResult(
        task=task,
        decoding=decoding,
        sampling=Sampling(samples=samples, seed=seed),
        problem_ids=ids or tuple(f"p{i}" for i in range(problems)),
        values={"correct": correct},
        n_tokens=zero + 9,
        n_replaced=zero + int(decoding.gated),
        n_changed=zero,
        truncated=zero,
        no_box=zero,
        ungraded=zero,
        votes=zero,
        provenance={
            "settings": "aa" * 8,
            "record": f"{'aa' * 8}/{task}",
            "engine": {"backend": "vllm", "vllm": "0.32.0", "pair": pair or DAPO},
            "data": "0123456789abcdef",
            "grader": "plain",
            "argv": ["/somewhere/bin/rlvr-dir", "eval", "--tasks", task],
            **provenance,
        },
        name=name,
    )


def theirs(task, decoding, metric="f1", **provenance):
    """A result of a task of lm-eval's, of three problems with two samples, of which less is better."""
    counts = np.full((3, 2), 9)
    return EvalResult(
        task=task, decoding=decoding, sampling=Sampling(samples=2), problem_ids=("p0", "p1", "p2"), n_tokens=counts,
        n_replaced=counts * 0, n_changed=counts * 0, truncated=counts * 0, values={metric: [[0.0], [0.5], [1.0]]},
        scores={metric: 0.5, f"{metric}_stderr": 0.1}, lower_is_better=(metric,), provenance=provenance,
    )  # fmt: skip


def grid(**how):
    """The whole grid: base low, RL and the gated ones higher and higher."""
    return [result(decoding, 0.2 + 0.04 * i, **how) for i, decoding in enumerate(GRID)]


def report(**how):
    """A report of the grid on two benchmarks."""
    return build([*grid(**how), *grid(task="amc", **how)])


def tokens(words):
    """Token statistics as `rlvr-dir analyse tokens` writes them, whose tokens are `words`."""
    known = {"value": 0.25, "low": 0.2, "high": 0.3}
    unknown = {"value": None, "low": None, "high": None}

    def histogram(low, high):
        counted = {
            "tokens": 100,
            "zeros": 1,
            "near_zero": 50,
            "below": 0,
            "above": 0,
            "nan": 0,
            "counts": [0, 60, 40, 0],
        }
        return {"low": low, "high": high, "bins": 4, "near": 1e-3, "counted": counted}

    magnitudes = ("entropy_base", "entropy_rl", "kl", "kl_rl_base", "kl_base_rl")
    histograms = {"delta_logp": histogram(-2, 2), **{name: histogram(0, 4) for name in magnitudes}}
    listed = [{"id": i, "token": word, "count": 9.0 - i / 2} for i, word in enumerate(words)]
    bins = [{"tokens": 10 * (i % 2), "p_base": known if i % 2 else unknown, "p_rl": known} for i in range(11)]
    return {
        "kind": "tokens",
        "pair": DAPO,
        "tasks": ["aime24"],
        "sampling": {"samples": 4, "temperature": 1.0, "top_p": 0.7},
        "generations": {who: {"problems": 6, "tokens": 100, "histograms": histograms} for who in ("base", "rl")},
        "tails": [
            {"fact": fact, "side": side, "edge": 0.1, "more": "rl", "base": base, "rl": known, "ratio": base}
            for fact, side, base in (("delta_logp", "below", known), ("kl", "above", unknown))
        ],
        "by_delta": {"edges": [-4, -2, -1, -0.5, -0.1, 0.1, 0.5, 1, 2, 4], "base": bins, "rl": bins},
        "gradient": {
            "edges": [i / 10 for i in range(11)],
            **{who: [{"tokens": known, "mass": known}] * 10 for who in ("base", "rl")},
        },
        "selected": {
            "ratio": 0.08,
            "positions": 100,
            "criteria": [
                {"criterion": name, "tau": -0.1, "positions": 8, "picked": listed, "placed": listed}
                for name in ("entropy_base", "kl", "delta_logp")
            ],
        },
        "likelier": [{**one, "delta_logp": 1.0, "p_base": 0.1, "p_rl": 0.3} for one in listed],
    }  # fmt: skip
