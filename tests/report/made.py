"""Results without an engine, of any pair, decoding and accuracy; and a report of them."""

from functools import cache

import numpy as np

from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.config import Decoding, Sampling
from rlvr_dir.report.build import build
from rlvr_dir.results.result import LmEvalResult
from rlvr_dir.stats import Estimate
from tests.results.made import made

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
    about = {
        "settings": "aa" * 8, "record": f"{'aa' * 8}/{task}", "data": "0123456789abcdef", "grader": "plain",
        "engine": {"backend": "vllm", "vllm": "0.32.0", "pair": pair or DAPO},
        "argv": ["/somewhere/bin/rlvr-dir", "eval", "--tasks", task],
    }  # fmt: skip
    how = {"problem_ids": ids} if ids else {}
    how |= {"task": task, "sampling": Sampling(samples=samples, seed=seed), "votes": 0 * correct, "name": name}
    return made(decoding, correct, provenance={**about, **provenance}, **how)


def lm_eval_result(task, decoding, metric="f1", **provenance):
    """A result of a task of lm-eval's, of three problems with two samples, of which less is better."""
    counts = np.full((3, 2), 9)
    return LmEvalResult(
        task=task, decoding=decoding, sampling=Sampling(samples=2), problem_ids=("p0", "p1", "p2"), n_tokens=counts,
        n_replaced=counts * 0, n_changed=counts * 0, truncated=counts * 0,
        scores={metric: 0.5, f"{metric}_stderr": 0.1}, lower_is_better=(metric,), provenance=provenance,
    )  # fmt: skip


def grid(**how):
    """The whole grid: base low, RL and the gated ones higher and higher."""
    return [result(decoding, 0.2 + 0.04 * i, **how) for i, decoding in enumerate(GRID)]


@cache
def report():
    """A report of the grid on two benchmarks, made once."""
    return build([*grid(), *grid(task="amc")])


def tokens(words):
    """Token statistics as `rlvr-dir audit` writes them, whose tokens are `words`."""
    known = Estimate(0.25, 0.2, 0.3)
    both = [{"generation": who} for who in ("base", "rl")]
    facts = ("delta_logp", "entropy_base", "entropy_rl", "kl", "kl_rl_base", "kl_base_rl")
    listed = [{"rank": i, "id": i, "token": word, "count": 9.0 - i / 2} for i, word in enumerate(words)]
    tables = {
        "generations": [{**who, "problems": 6, "tokens": 100, "near_zero": 50} for who in both],
        "histograms": [
            {**who, "fact": fact, "from": start, "to": start + 1.0, "tokens": count}
            for who in both for fact in facts for start, count in ((0.0, 60), (1.0, 40))
        ],
        "by_delta": [
            {**who, "delta_logp": f"{i}", "tokens": 10 * (i % 2), **columns(p_base=known, p_rl=known)}
            for who in both for i in range(11)
        ],
        "gradient": [
            {**who, "p_from": i / 10, "p_to": (i + 1) / 10, **columns(tokens=known, mass=known)}
            for who in both for i in range(10)
        ],
        "selected": [
            {"criterion": name, "tau": -0.1, "positions": 8, "kind": kind, **one}
            for name in ("entropy_base", "kl", "delta_logp") for kind in ("picked", "placed") for one in listed
        ],
        "likelier": [{**one, "delta_logp": 1.0, "p_base": 0.1, "p_rl": 0.3} for one in listed],
    }  # fmt: skip
    about = {"pair": DAPO, "tasks": ["aime24"], "sampling": {"samples": 4}, "positions": 100, "least": 5}
    return Analysis(kind="tokens", context=about, tables={name: tuple(rows) for name, rows in tables.items()})


ABOUT = {"pair": {"base": "a", "rl": "b"}, "tasks": ["tiny_easy"], "sampling": {"samples": 2}}
KNOWN = Estimate(0.5, 0.4, 0.6)


def gated():
    """What `rlvr-dir analyse gated` writes of one decoding."""
    label, names = (
        {"label": "replace τ-0.1"},
        ("share", "changed", "other", "entropy_base_redrawn", "entropy_base_kept"),
    )
    share = {**columns(share=KNOWN), "tokens": 10}
    tables = {
        "decodings": [{**label, "problems": 3, **columns(**dict.fromkeys(names, KNOWN)), "runs_1": 1, "runs_2": 2}],
        "positions": [{**label, "by": by, "from": i, **share} for by in ("by_token", "by_tenth") for i in range(3)],
        "after": [
            {**label, "under": who, "after": i, **columns(p=KNOWN), "tokens": 9, "p_of_all_kept": 0.5}
            for who in ("base", "RL") for i in (1, 2)
        ],
    }  # fmt: skip
    return Analysis(kind="gated", context=ABOUT, tables={name: tuple(rows) for name, rows in tables.items()})
