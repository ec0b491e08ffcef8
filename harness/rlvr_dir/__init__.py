"""rlvr-dir from Python: evaluate a pair, compare results, and read responses and tokens as pandas frames.

    from rlvr_dir import EvalSpec, audit, compare, evaluate, responses, tokens

    results = evaluate(EvalSpec(tasks=("tiny_easy",), decodings=("base", "rl")), records="runs/records")
    compare(results)                                          # a row a comparison, paired by problem
    responses(results).groupby("setting")["correct"].mean()   # a row a response
    tokens("runs/records").nsmallest(20, "delta_logp")        # a row a token
    audit("my-base", "my-rl", tasks="mine.jsonl")             # a row a published claim

Importing it imports nothing else, for Python's start-up hook passes through here in every process: each name loads what
it needs when it is used (docs/python.md).
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas

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
    "tasks_dir",
    "tokens",
]

__version__ = "0.1.0"

_HOMES = {
    "EvalResult": "rlvr_dir.results",
    "EvalSpec": "rlvr_dir.config",
    "evaluate": "rlvr_dir.evals",
    "read_results": "rlvr_dir.results",
    "tasks_dir": "rlvr_dir.problems",
}


def __getattr__(name: str) -> Any:
    if name == "audit":  # the room, which can be called
        return import_module("rlvr_dir.audit")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def responses(results: "str | Path | Sequence[EvalResult]") -> "pandas.DataFrame":
    """Return a row a response, with the columns of `rlvr_dir.results.frame`.

    Args:
        results: of `evaluate` or `read_results`, or the place of some: a result file, a folder of them, of records, of
            a sweep or of a training.

    Raises:
        UserError: there are no results at that place.
    """
    from rlvr_dir.results import frame, read_results

    return frame(read_results([results]) if isinstance(results, str | os.PathLike) else results)


def compare(
    results: "str | Path | Sequence[EvalResult]", against: str | None = None, across: "Sequence[str]" = ()
) -> "pandas.DataFrame":
    """Compare results as `rlvr-dir compare` does: paired by problem, p values corrected over all rows by Holm's method.

    Args:
        results: as of `responses`.
        against: the reference: a label, a mode, a name, or the beginning of a result's hash. None compares RL with
            base, all else with RL, and each extrapolation with its control.
        across: what the two of a comparison may differ in, of what must be alike else (`grader`, `problems`, ...).

    Returns:
        A row a comparison: `task`, `label`, `minus` (the reference's label), the difference `mean` with its 95 %
        interval `low` to `high` over problems and `sampling` (the same over samples of these problems), `p`, `holm_p`,
        `units` (problems; `families`, where they come in such), `samples` and `seeds`. Differences are fractions.

    Raises:
        UserError: there is nothing to compare.
    """
    import pandas

    from rlvr_dir.results import read_results
    from rlvr_dir.results.compare import compare as comparisons
    from rlvr_dir.results.settings import settings_of

    loaded = read_results([results]) if isinstance(results, str | os.PathLike) else results
    return pandas.DataFrame([row.facts() for row in comparisons(settings_of(loaded), against, across)])


def tokens(place: "str | Path", tokenizer: Any = None) -> "pandas.DataFrame":
    """Return a row a token of the responses that a record, or every record of a folder, holds.

    Args:
        place: a record's folder (`runs/records/HASH/TASK`), a store of records, or a folder with a store in `records`.
        tokenizer: what the tokens' texts are made with: a folder or hub id, `records` for the local folders that the
            records name, or a tokenizer. By default the tiny pair's for its records, and for others that of the RL
            model where it lies below the current folder.

    Returns:
        The columns `record`, `decoding`, `problem`, `sample`, `position` (0 is the first generated token); of the token
        that was written `token` (its id), `text` (missing without a tokenizer) and `delta_logp_written` (log pi_RL -
        log pi_base); of the token that was proposed `proposed` (its id), `proposed_text` and `delta_logp`, which differ
        from the former where the token `changed`; and `flagged` (the criterion held). Records of earlier versions do
        not have what was proposed at changed tokens, so it is missing. If a record has traces, there is a column for
        each of `rlvr_dir.policy.trace.FACTS` and of the most likely tokens (`base_id_0`, `base_logp_0`, `rl_id_0`,
        `rl_logp_0`, ...).

    Raises:
        UserError: there is no record, or the tokenizer cannot be read.
        DamagedError: a record cannot be read.
    """
    from rlvr_dir.results.frames import stored_records, token_frame
    from rlvr_dir.results.tokenizers import tokenizers

    records = stored_records(place)
    named = isinstance(tokenizer, str | os.PathLike)
    load = tokenizers(str(tokenizer) if named else None)
    return token_frame((record, load([record]) if named or tokenizer is None else tokenizer) for record in records)
