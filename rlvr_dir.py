"""rlvr-dir from Python: evaluate a pair, compare results, and read responses and tokens as pandas frames.

    from rlvr_dir import EvalSpec, compare, evaluate, responses, tokens

    results = evaluate(EvalSpec(tasks=("tiny_easy",), decodings=("base", "rl")), records="runs/records")
    compare(results)                                          # a row a comparison, paired by problem
    responses(results).groupby("setting")["correct"].mean()   # a row a response
    tokens("runs/records").nsmallest(20, "delta_logp")        # a row a token

Importing this module imports nothing else: each name loads what it needs when it is used (docs/python.md). The code is
in the package `harness` beside this file.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas

    from harness import __version__
    from harness.evals import EvalResult, evaluate, read_results, tasks_dir
    from harness.spec import EvalSpec

__all__ = [
    "EvalResult",
    "EvalSpec",
    "__version__",
    "compare",
    "evaluate",
    "read_results",
    "responses",
    "tasks_dir",
    "tokens",
]

_HERE = os.path.dirname(os.path.abspath(__file__))
_HOMES = {
    "EvalResult": "harness.evals",
    "EvalSpec": "harness.spec",
    "__version__": "harness",
    "evaluate": "harness.evals",
    "read_results": "harness.evals",
    "tasks_dir": "harness.evals",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _check_harness()
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def responses(results: "str | Path | Sequence[EvalResult]") -> "pandas.DataFrame":
    """Return a row a response, with the columns of `harness.evals.frame`.

    Args:
        results: of `evaluate` or `read_results`, or the place of some: a result file, a folder of them, of records, of
            a sweep or of a training.

    Raises:
        UserError: there are no results at that place.
    """
    _check_harness()
    from harness.evals import frame, read_results

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
        `units` (problems), `samples` and `seeds`. Differences are fractions.

    Raises:
        UserError: there is nothing to compare.
    """
    _check_harness()
    import pandas

    from harness.evals import read_results
    from harness.evals.compare import compare as comparisons
    from harness.evals.settings import settings_of

    known = read_results([results]) if isinstance(results, str | os.PathLike) else results
    return pandas.DataFrame([row.facts() for row in comparisons(settings_of(known), against, across)])


def tokens(place: "str | Path", tokenizer: Any = None) -> "pandas.DataFrame":
    """Return a row a token of the responses that a record, or every record of a folder, holds.

    Args:
        place: a record's folder (`runs/records/HASH/TASK`), a store of records, or a folder with a store in `records`.
        tokenizer: what the tokens' texts are made with: a folder or hub id, `records` for the local folders that the
            records name, or a tokenizer. By default the tiny pair's for its records, and for others that of the RL
            model where it lies below the current folder.

    Returns:
        The columns `record`, `decoding`, `problem`, `sample`, `position` (0 is the first generated token), `token` (its
        id), `text` (missing without a tokenizer), `delta_logp` (log pi_RL - log pi_base of the token that was
        proposed), `flagged` (the criterion held), `changed` (another token was drawn than the proposed one) and, where
        a record holds traces, a column for each of `harness.policy.trace.FACTS` and of the likeliest tokens
        (`base_id_0`, `base_logp_0`, `rl_id_0`, `rl_logp_0`, ...).

    Raises:
        UserError: there is no record, or the tokenizer cannot be read.
        DamagedError: a record cannot be read.
    """
    _check_harness()
    from harness.evals.frames import stored_records, token_frame
    from harness.evals.tokenizers import tokenizers

    records = stored_records(place)
    named = isinstance(tokenizer, str | os.PathLike)
    load = tokenizers(str(tokenizer) if named else None)
    return token_frame((record, load([record]) if named or tokenizer is None else tokenizer) for record in records)


def _check_harness() -> None:
    """Refuse to go on with a package `harness` of somebody else's.

    Raises:
        ImportError: another `harness` comes before ours on the path.
    """
    from importlib.util import find_spec

    spec = find_spec("harness")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if os.path.join(_HERE, "harness") not in [os.path.realpath(place) for place in places] + places:
        found = places[0] if places else "none"
        raise ImportError(
            f"rlvr_dir needs its package 'harness' in {_HERE}, and Python finds {found} first; accepted: run it where "
            "no other package 'harness' comes before it on the path"
        )


def main() -> None:
    """Run the command `rlvr-dir`, whatever package `harness` there may be where it is run."""
    try:
        _check_harness()
    except ImportError:
        sys.path.insert(0, _HERE)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_HERE, os.environ.get("PYTHONPATH")]))
    from harness.cli import main as run

    run()


if __name__ == "__main__":
    main()
