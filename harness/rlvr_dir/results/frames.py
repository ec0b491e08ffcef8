"""Return results as one long pandas frame with a row per response or token, for other plots, statistics and SQL.

    from rlvr_dir.results import frame, read_results

    responses = frame(read_results(["runs/demo"]))
    responses.groupby(["task", "setting"])["correct"].mean()           # Avg@n, as `rlvr-dir compare` has it
    responses.to_sql("responses", "sqlite:///responses.db")

`rlvr-dir table runs/demo --csv responses.csv` writes the same.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_dir.errors import UserError
from rlvr_dir.policy.trace import FACTS, TOP_FACTS, known
from rlvr_dir.records import Record, RecordStore
from rlvr_dir.records.record import in_order
from rlvr_dir.records.row import UNKNOWN
from rlvr_dir.records.store import is_record
from rlvr_dir.results.result import COUNTS, FLAGS, EvalResult
from rlvr_dir.results.settings import settings_of
from rlvr_dir.results.tokenizers import decoded

if TYPE_CHECKING:
    import pandas


def frame(results: Sequence[EvalResult]) -> "pandas.DataFrame":
    """Return the responses of results, in their order.

    The columns are: the label of its setting in comparisons (`setting`; missing if another result of the same seed has
    more samples and is used instead), the request (`task`, `name`, `base`, `rl`, `decoding`, `mode`, `primary`,
    `criterion`, `tau`, `gamma`, `top_p`, `temperature`, `max_tokens`, `seed`), the grading (`grader`, `data`), whether
    it is a part (`partial`), the result's `config_hash`, then `problem` and its `family`, `sample`, `correct`,
    `tokens`, `replaced` and `changed` (of them), `truncated`, `no_box`, `ungraded`. Values that a result does not
    contain are missing.
    """
    import pandas

    labels = {_request_key(result): setting.label for setting in settings_of(results) for result in setting.results}
    parts = [pandas.DataFrame({"setting": labels.get(_request_key(result)), **_columns(result)}) for result in results]
    return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()


def _request_key(result: EvalResult) -> tuple[object, ...]:
    """Return what distinguishes a result from all others."""
    return result.config_hash, result.pair, result.name, result.samples


def _columns(result: EvalResult) -> dict[str, Any]:
    """Return by column one value, or one value per response, problem by problem."""
    decoding, sampling, samples = result.decoding, result.sampling, result.samples
    base, rl = result.pair
    tables = {name.removeprefix("n_"): getattr(result, name) for name in (*COUNTS, *FLAGS)}
    return {
        "task": result.task,
        "name": result.name or None,
        "base": base,
        "rl": rl,
        "decoding": decoding.label(),
        "mode": decoding.mode,
        "primary": decoding.primary,
        "decider": decoding.decider,
        "criterion": decoding.criterion or None,
        "tau": decoding.tau,
        "gamma": decoding.gamma if decoding.gated or decoding.gamma else None,
        "top_p": sampling.top_p,
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "grader": result.provenance.get("grader"),
        "data": result.provenance.get("data"),
        "partial": result.partial,
        "config_hash": result.config_hash,
        "problem": np.repeat(result.problem_ids, samples),
        "family": np.repeat(result.families, samples) if result.families else None,
        "sample": np.tile(np.arange(samples), len(result.problem_ids)),
        "correct": result.correct.ravel(),
        **{name: None if table is None else table.ravel() for name, table in tables.items()},
    }


def stored_records(place: str | Path) -> list[Record]:
    """Read the record at a place, or all records of the store at a place or in its `records`.

    Raises:
        UserError: There is none.
        DamagedError: One cannot be read.
    """
    folder = Path(place).expanduser()
    if is_record(folder):
        return [Record(folder.resolve()).read()]
    stores = [RecordStore(folder), RecordStore(folder / "records")]
    store = next((store for store in stores if store.names()), None)
    if store is None:
        raise UserError(
            "has no records", argument="place", value=str(place), accepted="a record's folder, or a folder of records"
        )
    return [store.read(*name) for name in store.names()]


def token_frame(records: Iterable[tuple[Record, Any]]) -> "pandas.DataFrame":
    """Return the tokens of records, each with its tokenizer, or None; see `rlvr_dir.results.tokenizers`."""
    import pandas

    parts = [_tokens(record, tokenizer) for record, tokenizer in records if record.rows]
    if not parts:
        return pandas.DataFrame(columns=[*_LABELS, *_COUNTED, "text", "proposed_text"])
    for name in _LABELS:  # as categories, because a text per token would need most of the memory
        categories = list(dict.fromkeys(value for part in parts for value in part[name].unique()))
        for part in parts:
            part[name] = pandas.Categorical(part[name], categories=categories)
    return pandas.concat(parts, ignore_index=True)


_LABELS = ("record", "task", "decoding", "problem")
_COUNTED = (
    "sample", "position", "token", "delta_logp_written", "proposed", "delta_logp", "flagged", "changed",
)  # fmt: skip


def _tokens(record: Record, tokenizer: Any) -> "pandas.DataFrame":
    """Return the tokens of a record, response by response."""
    import pandas

    rows = [record.rows[key].load() for key in in_order(record.rows)]
    sizes = [row.n_tokens for row in rows]
    ids = np.concatenate([np.asarray(row.token_ids, np.int64) for row in rows])
    proposed = np.concatenate([row.proposed for row in rows])
    width = max((row.trace_columns for row in rows if known(row.trace_columns)), default=0)
    names = [*FACTS, *(f"{fact}_{rank}" for rank in range(width // len(TOP_FACTS)) for fact in TOP_FACTS)]
    table = np.full((len(ids), width), np.nan, np.float32)
    for row, start in zip(rows, np.cumsum([0, *sizes]), strict=False):
        if (trace := row.trace) is not None:
            table[start : start + row.n_tokens, : trace.shape[1]] = trace
    return pandas.DataFrame(
        {
            "record": record.name,
            "task": record.task,
            "decoding": record.config.decoding.label() if record.config else None,
            "problem": np.repeat([row.problem.partition("/")[2] for row in rows], sizes),
            "sample": np.repeat([row.sample for row in rows], sizes),
            "position": np.concatenate([np.arange(size) for size in sizes]),
            "token": ids,
            "text": _texts(tokenizer, ids),
            "delta_logp_written": np.concatenate([row.delta_logp_written for row in rows]),
            "proposed": pandas.Series(proposed, dtype="Int64").mask(proposed == UNKNOWN),
            "proposed_text": _texts(tokenizer, proposed),
            "delta_logp": np.concatenate([row.delta_logp for row in rows]),
            "flagged": np.concatenate([row.replaced for row in rows]),
            "changed": np.concatenate([row.changed for row in rows]),
            **{name: column for name, column in zip(names, table.T, strict=False) if name != "proposed"},
        }
    )


def _texts(tokenizer: Any, ids: np.ndarray) -> np.ndarray:
    """Return the text of each token alone, (tokens,) objects; None without a tokenizer or a known token."""
    distinct, which = np.unique(ids, return_inverse=True)
    texts = [None if tokenizer is None or i == UNKNOWN else decoded(tokenizer, [i]) for i in distinct.tolist()]
    return np.array(texts, object)[which.ravel()]
