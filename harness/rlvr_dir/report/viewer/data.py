"""Collect the viewer's data as JSON: problems, their answers, and one column of numbers per statistic.

Columns are `TYPE:BASE64` of little-endian arrays (`u1`, `u4`, `i2` thousandths, `f4`). Criteria of a trace are exact
float32, so a threshold set in the page flags exactly the tokens that the engine flags. Everything else is rounded,
including delta log p that was stored without a trace.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlvr_dir.config import Decoding
from rlvr_dir.decode.trace import Trace
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import UserError
from rlvr_dir.records import Record, Replay, Row, judge_name
from rlvr_dir.records.replay import OWN, PROPOSED
from rlvr_dir.records.row import UNKNOWN
from rlvr_dir.report.viewer.token_texts import TokenTexts
from rlvr_dir.results.tokenizers import decoded

MEASURED = ("entropy_base", "entropy_rl", "kl_rl_base", "kl_base_rl", "kl", "logp_base", "logp_rl")
RANKS = ("rank_base", "rank_rl")
# The origin of a replay's token, as `analyse credit` names it: RL in base's responses, base in RL's.
_REPLACE, _SET_TO_BASE = (
    digest_of(rule.model_dump(mode="json"))
    for rule in (
        Decoding(mode="replace", criterion="always"),
        Decoding(mode="resample", primary="rl", criterion="always"),
    )
)
JUDGES = ("robust", "plain")  # the order in which stored verdicts are shown


@dataclass(frozen=True)
class ViewedResponse:
    """Hold one response to a problem, and what is known of it."""

    label: str
    rollout: Row
    decoding: Decoding | None = None
    verdict: str | None = None  # "correct", "wrong", …
    gold: str | None = None
    replays: Sequence[Replay] = ()  # with one of its tokens changed, by the judge of `verdict`


def answer_of(
    record: Record, problem: str, sample: int = 0, label: str | None = None, task: str | None = None
) -> ViewedResponse:
    """Return a stored response, with its stored verdict if that is for the same text.

    The verdict uses the answers of `task`, by default the record's own.

    Raises:
        UserError: The record does not contain it.
    """
    key = (full_name(record, problem), sample)
    if key not in record:
        names, missing = problems_of(record), f"is not in the record {record.name}"
        if key[0] in names:
            samples = sorted(number for name, number in record.response_keys if name == key[0])
            accepted = ", ".join(map(str, samples))
            raise UserError(f"of problem {problem!r} {missing}", argument="sample", value=sample, accepted=accepted)
        first = ", ".join(names[:5]) or "none"
        raise UserError(missing, argument="problem", value=problem, hint=f"Its problems begin with: {first}.")
    judges = (judge_name(judge, task or record.task, record.task) for judge in JUDGES)
    verdicts = (record.latest_verdicts(judge).get(key) for judge in judges)
    verdict = next((stored for stored in verdicts if stored is not None), None)
    gold, row = verdict.gold if verdict else None, record.rows[key].load()
    replays = [
        replay
        for replay in record.replays.values()
        if (replay.problem, replay.sample, replay.response) == (*key, row.digest)
    ]
    return ViewedResponse(
        label or (record.config.decoding.label() if record.config else record.record_hash[:8]),
        row,
        record.config.decoding if record.config else None,
        verdict.kind if verdict else None,
        gold if isinstance(gold, str) or gold is None else " or ".join(gold),
        [replay for replay in replays if verdict is not None and replay.judge in (None, verdict.judge)],
    )


def full_name(record: Record, problem: str) -> str:
    """Return `problem` as the record names it; the name of its task may be left out."""
    return problem if (problem in problems_of(record)) else f"{record.task}/{problem}"


def problems_of(record: Record) -> list[str]:
    """Return the problems in a record, in its order."""
    return list(dict.fromkeys(problem for problem, _ in record.response_keys))


def common_problems(records: Sequence[Record], sample: int = 0) -> list[str]:
    """Return the problems for which every record contains this sample, in the order of the first."""
    problem_sets = [{problem for problem, number in record.response_keys if number == sample} for record in records]
    return [
        problem for problem in problems_of(records[0]) if all(problem in problem_set for problem_set in problem_sets)
    ]


def changed_first(records: Sequence[Record], sample: int = 0) -> list[str]:
    """Return the problems in all records, beginning with those in which a token of this response changed."""
    changed = {
        problem
        for record in records
        for (problem, number), row in record.rows.items()
        if number == sample and row.n_changed
    }
    return sorted(common_problems(records, sample), key=lambda problem: problem not in changed)


def stored_answers(
    records: Sequence[Record], problems: Iterable[str], sample: int = 0, task: str | None = None
) -> dict[str, list[ViewedResponse]]:
    """Return the answers to each problem, one per record. The records have different decodings.

    Their verdicts use the answers of `task`, by default the records' own.

    Raises:
        UserError: A record does not contain a problem.
    """
    labels = _labels(records)
    return {
        full_name(records[0], problem): [
            answer_of(record, problem, sample, label, task) for record, label in zip(records, labels, strict=True)
        ]
        for problem in problems
    }


def _labels(records: Sequence[Record]) -> list[str]:
    """Return the decodings' labels; equal ones with the first digits of the record's hash."""
    labels = [record.config.decoding.label() if record.config else record.record_hash[:8] for record in records]
    return [
        f"{label} ({record.record_hash[:4]})" if labels.count(label) > 1 else label
        for label, record in zip(labels, records, strict=True)
    ]


def viewer_data(problems: Mapping[str, Sequence[ViewedResponse]], tokenizer: Any = None) -> dict[str, Any]:
    """Collect the page's data from answers by problem.

    `tokenizer` is the pair's. Without one, responses are plain text and the prompt is left out.
    """
    texts = TokenTexts(tokenizer)
    responses = [
        {
            "id": problem,
            **_question(answers, tokenizer),
            "answers": [_answer(answer, texts) for answer in answers],
        }
        for problem, answers in problems.items()
    ]
    return {
        "problems": responses,
        "pieces": texts.texts,
        "ids": texts.ids,
        "tokenizer": tokenizer is not None,
    }


def _question(answers: Sequence[ViewedResponse], tokenizer: Any) -> dict[str, Any]:
    gold = next((answer.gold for answer in answers if answer.gold is not None), None)
    ids = answers[0].rollout.prompt_token_ids if answers else ()
    return {"gold": gold, "prompt": decoded(tokenizer, ids) if tokenizer is not None and ids else None}


def _answer(answer: ViewedResponse, token_texts: TokenTexts) -> dict[str, Any]:
    rollout, decoding = answer.rollout, answer.decoding
    gate = None
    if decoding is not None and decoding.gated:
        gate = {"criterion": decoding.criterion, "tau": decoding.tau, "gamma": decoding.gamma}
    data: dict[str, Any] = {
        "label": answer.label,
        "sample": rollout.sample,
        "finish": rollout.finish_reason,
        "verdict": answer.verdict,
        "gate": gate,
        "primary": decoding.primary if decoding is not None else None,
        "generated": rollout.n_tokens,
        "n_replaced": rollout.n_replaced,
        "n_changed": rollout.n_changed,
    }
    if not token_texts.has_tokenizer:  # flags belong to tokens, and the text of each token is unknown
        return data | {"words": True, "token": _column(token_texts.words(rollout.text), "u4")}
    data |= {
        "words": False,
        "token": _column(token_texts.response(rollout.token_ids), "u4"),
        "replaced": _column(rollout.replaced, "u1"),
        "changed": _column(rollout.changed, "u1"),
        "delta_logp": _column(rollout.delta_logp, "f4"),
        "delta_logp_written": _column(rollout.delta_logp_written, "f4"),
        "proposed": _column(_proposed(rollout, token_texts), "u4"),
    }
    if answer.replays:
        data["credit"] = _credit(answer, token_texts)
    return data | _traced(rollout.trace, token_texts)


def _proposed(rollout: Row, token_texts: TokenTexts) -> np.ndarray:
    """Return the piece of each proposed token; if it is not known, a piece that is not a token."""
    proposed = rollout.proposed
    proposed_texts = token_texts.alone(np.maximum(proposed, 0))
    unknown = proposed == UNKNOWN
    return np.where(unknown, token_texts.place(UNKNOWN, "?"), proposed_texts) if unknown.any() else proposed_texts


def _credit(answer: ViewedResponse, token_texts: TokenTexts) -> list[dict[str, Any]]:
    """Group replays by the position of the changed token, by who sampled another one, and by which one, in order.

    `draws` counts the replays and `right` the right ones; both are 0 if the token did not change.
    """
    tokens = answer.rollout.token_ids
    own, other = ("RL", "base") if answer.decoding is not None and answer.decoding.primary == "rl" else ("base", "RL")
    model_names = {OWN: own, PROPOSED: "the proposed one", _REPLACE: other, _SET_TO_BASE: other}
    by_token: dict[tuple[int, str, int], dict[str, Any]] = {}
    for replay in answer.replays:
        if replay.right is None and replay.token != tokens[replay.at]:  # sampled, but not replayed yet
            continue
        key, [token] = (
            (replay.at, model_names.get(replay.by, "the rule's target"), replay.token),
            token_texts.alone(np.array([replay.token])),
        )
        row = {"at": replay.at, "who": key[1], "own": replay.by == OWN, "token": int(token), "draws": 0, "right": 0}
        row = by_token.setdefault(key, row)
        row["draws"] += replay.right is not None
        row["right"] += bool(replay.right)
    return [by_token[key] for key in sorted(by_token)]


def _traced(table: np.ndarray | None, token_texts: TokenTexts) -> dict[str, Any]:
    if table is None:
        return {}
    trace = Trace(table)
    data: dict[str, Any] = {"top": trace.top}
    data |= {name: _column(trace.fact(name), "f4") for name in MEASURED}
    data |= {name: _column(trace.fact(name), "u4") for name in RANKS}
    for model in ("base", "rl") if trace.top else ():
        ids, logp = trace.likeliest(model)
        data[f"top_{model}"] = _column(token_texts.alone(ids), "u4")
        data[f"top_{model}_logp"] = _column(np.rint(np.maximum(logp, -32.0) * 1000), "i2")
    return data


def _column(values: np.ndarray, kind: str) -> str:
    return f"{kind}:{b64encode(np.ascontiguousarray(values).astype(f'<{kind}').tobytes()).decode()}"
