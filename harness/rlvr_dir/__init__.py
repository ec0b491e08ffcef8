"""Use rlvr-dir from Python: evaluate a pair, compare results, and read responses and tokens as pandas frames.

    from rlvr_dir import EvalSpec, audit, compare, evaluate, responses, tokens

    results = evaluate(EvalSpec(tasks=("tiny_easy",), decodings=("base", "rl")), records="runs/records")
    compare(results)                                          # a row per comparison, paired by problem
    responses(results).groupby("setting")["correct"].mean()   # a row per response
    tokens("runs/records").nsmallest(20, "delta_logp")        # a row per token
    audit("my-base", "my-rl", tasks="mine.jsonl")             # a row per published claim
    score({"base": "my-base", "rl": "my-rl"}, "texts.jsonl").frame()  # a row per token of texts that exist already

Importing it imports nothing else, because Python's start-up hook imports it in every process. Each name is loaded when
it is used (docs/python.md).
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas

    from rlvr_dir.analysis.score import score
    from rlvr_dir.audit.run import audit
    from rlvr_dir.config import EvalSpec
    from rlvr_dir.evals import evaluate
    from rlvr_dir.problems import tasks_dir
    from rlvr_dir.results import EvalResult, read_results

__all__ = [
    "EvalResult",
    "EvalSpec",
    "__version__",
    "audit",
    "compare",
    "evaluate",
    "read_results",
    "responses",
    "score",
    "tasks_dir",
    "tokens",
]

__version__ = "0.1.0"

_HOMES = {
    "EvalResult": "rlvr_dir.results",
    "EvalSpec": "rlvr_dir.config",
    "evaluate": "rlvr_dir.evals",
    "read_results": "rlvr_dir.results",
    "score": "rlvr_dir.analysis.score",
    "tasks_dir": "rlvr_dir.problems",
}


def __getattr__(name: str) -> Any:
    if name == "audit":  # the package, which can also be called
        return import_module("rlvr_dir.audit")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def responses(results: "str | Path | Sequence[EvalResult]") -> "pandas.DataFrame":
    """Return one row per response, with the columns of `rlvr_dir.results.frame`.

    Args:
        results: Those of `evaluate` or `read_results`, or the place of some: a result file, a folder of them, of
            records, of a sweep or of a training.

    Raises:
        UserError: There are no results at that place.
    """
    from rlvr_dir.results import frame, read_results

    return frame(read_results([results]) if isinstance(results, str | os.PathLike) else results)


def compare(
    results: "str | Path | Sequence[EvalResult]", against: str | None = None, across: "Sequence[str]" = ()
) -> "pandas.DataFrame":
    """Compare results like `rlvr-dir compare`: paired by problem, with p values corrected over all rows by Holm's
    method.

    Args:
        results: As for `responses`.
        against: The reference: a label, a mode, a name, or the first digits of a result's hash. None compares RL with
            base, all others with RL, and each decoding with its controls.
        across: Properties in which the two of a comparison may differ, although they usually must match (`grader`,
            `problems`, ...).

    Returns:
        One row per comparison: `task`, `label`, `minus` (the reference's label), the difference `mean` with its 95 %
            interval `low` to `high` over problems and `sampling` (the same over samples of these problems), `p`,
            `holm_p`, `units` (problems, or `families` if there are any), `samples` and `seeds`. Differences are
            fractions.

    Raises:
        UserError: There is nothing to compare.
    """
    import pandas

    from rlvr_dir.results import read_results
    from rlvr_dir.results.compare import compare as comparisons
    from rlvr_dir.results.settings import settings_of

    loaded = read_results([results]) if isinstance(results, str | os.PathLike) else results
    return pandas.DataFrame([row.to_dict() for row in comparisons(settings_of(loaded), against, across)])


def tokens(place: "str | Path", tokenizer: Any = None) -> "pandas.DataFrame":
    """Return one row per token of the responses in a record, or in every record of a folder.

    Args:
        place: A record's folder (`runs/records/HASH/TASK`), a store of records, or a folder with a store in `records`.
        tokenizer: The source of the tokens' texts: a folder or hub id, `records` for the local folders that the records
            name, or a tokenizer. By default it is the tiny pair's for its records, and for others that of the RL model
            if it is below the current folder.

    Returns:
        The columns `record`, `decoding`, `problem`, `sample`, `position` (0 is the first generated token); for the
            written token `token` (its id), `text` (missing without a tokenizer) and `delta_logp_written` (log pi_RL -
            log pi_base); for the proposed token `proposed` (its id), `proposed_text` and `delta_logp`, which differ
            from the former if the token `changed`; and `flagged` (the criterion held). Records of earlier versions do
            not contain the proposed tokens of changed ones, so these are missing. If a record has traces, there is a
            column for each of `rlvr_dir.policy.trace.FACTS` and of the most likely tokens (`base_id_0`, `base_logp_0`,
            `rl_id_0`, `rl_logp_0`, ...).

    Raises:
        UserError: There is no record, or the tokenizer cannot be read.
        DamagedError: A record cannot be read.
    """
    from rlvr_dir.results.frames import stored_records, token_frame
    from rlvr_dir.results.tokenizers import tokenizers

    records = stored_records(place)
    named = isinstance(tokenizer, str | os.PathLike)
    load = tokenizers(str(tokenizer) if named else None)
    return token_frame((record, load([record]) if named or tokenizer is None else tokenizer) for record in records)
