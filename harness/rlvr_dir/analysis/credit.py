"""Measure whether single tokens matter: change one, keep all other randomness, and compare the verdicts.

found = credit_statistics(EvalSpec(tasks=("tiny_medium",), decodings=("replace,tau=-0.1",)), "runs/records")

A rule's gate flags tokens in the proposing model's own responses. A flagged token is resampled from the rule's target,
and the proposing model continues with the response's own noise. The *effect* of the token is the new verdict minus the
old one.

Three changes serve as comparisons. The first resamples a match: a token of the same problem, verdict, depth and strata
that the gate does not flag. The second is the veto: it resamples the flagged position from the proposing model itself,
without the flagged token. The third makes the same change as the rule, with fresh noise after it. With `undo` the
responses are the rule's own, and a token that the rule changed is set back to the proposed one. docs/credit.md defines
the estimates.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_dir.analysis.records import description_of, drawn_alike, once
from rlvr_dir.analysis.result import Analysis, Frame, columns
from rlvr_dir.config import Decoding, EvalSpec
from rlvr_dir.decode.trace import Trace
from rlvr_dir.decode.trace import columns as columns_of
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import UserError
from rlvr_dir.evals.jobs import Job, jobs_of
from rlvr_dir.evals.loop import opened, run_jobs
from rlvr_dir.evals.replays import Change, judge_of, replay, undone
from rlvr_dir.evals.traces import trace_of
from rlvr_dir.policy.trace import known
from rlvr_dir.progress import phase, say, showing
from rlvr_dir.records import Record, RecordStore
from rlvr_dir.stats import Estimate, token_difference, token_mean, token_share

TENTHS = 10  # parts of a response: the depth of a token
EDGES = (0.0, 0.01, 0.1, 0.5, 1.0, 2.0)  # nats: where the strata of base's entropy and of |delta log p| begin
STRATA = {"entropy_base": "entropy", "delta_logp": "size", "abs_delta_logp": "size"}  # strata that a gate decides
FLAGGED, MATCHED, OWN = "flagged", "matched", "own"


def credit_statistics(
    spec: EvalSpec,
    records: str | Path,
    *,
    tokens: int = 8,
    noises: int = 2,
    undo: bool = False,
    seed: int = 0,
    dry_run: bool = False,
    progress: bool = True,
) -> Analysis | None:
    """Change single tokens of responses and replay the rest. Cached responses and replays are not generated again.

    Args:
        spec: The pair, the tasks, the sampling settings and the rules, which are its decodings.
        records: The store of responses and replays.
        tokens: Flagged tokens to draw for each problem and rule.
        noises: Replays of each changed token with fresh noise, in addition to the one with the response's own.
        undo: Whether to set tokens back in the rules' own responses.
        seed: The seed for drawing tokens.
        dry_run: Only print what is still to generate and its cost. No analysis is returned.
        progress: Whether to show progress.

    Raises:
        UserError: No decoding of `spec` has a gate, a gate reads values that traces do not have, a task has no gold
            answers, or `evaluate` refuses the spec.
    """
    rules = tuple(decoding for decoding in spec.decodings if decoding.gated)
    if not rules:
        raise UserError(
            "has no gate",
            argument="decodings",
            value=", ".join(decoding.label() for decoding in spec.decodings),
            accepted="at least one gated decoding (`replace` or `extrapolate`), such as `replace,tau=-0.1`",
        )
    for rule in () if undo else rules:
        assert rule.gate is not None
        Trace(np.zeros((1, columns_of(0)), dtype=np.float32)).value(rule.gate)  # raises before anything is decoded
    generators = {rule: rule if undo else Decoding(mode=rule.primary) for rule in rules}
    store = RecordStore(records)
    to_decode = spec.model_copy(update={"decodings": tuple(dict.fromkeys(generators.values()))})
    with showing(progress), opened(spec) as engine:
        jobs = drawn_alike(jobs_of(to_decode, engine, trace=0, store=store))
        if len(once(jobs)) < len(jobs):
            raise UserError(
                "names two benchmarks that share their responses and differ only in the correct answers",
                argument="tasks",
                value=", ".join(to_decode.tasks),
                accepted="one of the two",
            )
        for job in jobs:
            judge_of(job)
        if dry_run and (missing := sum(_missing(job, store) for job in jobs)):
            problems = sum(len({request.problem for request in job.requests}) for job in jobs)
            say(
                f"{missing:,} responses are to be decoded first, of at most {jobs[0].sampling.max_tokens:,} tokens "
                f"each; then at most {problems * tokens * len(rules) * (3 + noises):,} replays; a dry run after "
                "`rlvr-dir eval` tells more"
            )
            return None
        for _ in () if dry_run else run_jobs(engine, jobs, store, progress=progress):
            pass
        parts = []
        with phase("choosing tokens"):
            for job in jobs:
                record = store.read(*job.record.split("/"))
                own_rules = [rule for rule in rules if generators[rule] == job.decoding]
                parts += [(job, chosen(job, record, rule, tokens, noises, undo, seed)) for rule in own_rules]
        labels = {label for _, part in parts for label in part["label"]}
        for rule in rules:
            if rule.label() not in labels:
                say(f"{rule.label()} flags no token of these responses, and is left out")
        parts = [(job, part) for job, part in parts if len(part)]
        if not parts:
            raise UserError(
                f"flags no token in the responses to {', '.join(to_decode.tasks)}",
                argument="decodings",
                value=rules[0].label(),
                accepted="a threshold that some tokens exceed",
            )
        say(price(parts, store, noises))
        if dry_run:
            return None
        for job in jobs:
            changes = [change for of, part in parts if of is job for change in changes_of(part)]
            replay(job, list(dict.fromkeys(changes)), engine, store, progress=progress)
        info = engine.info()
    with showing(progress), phase("estimating"):
        measured = [_measured(job, part, store, noises) for job, part in parts]
        context = {**description_of(jobs, info["pair"]), "tokens": tokens, "noises": noises, "undo": undo, "seed": seed}
        return Analysis(kind="credit", context=context, tables=tables(measured, noises))


def _missing(job: Job, store: RecordStore) -> int:
    """Count the responses of a job that are not in the store with their traces."""
    rows = record.rows if (record := job.read(store)) is not None else {}
    keys = [(request.problem, request.sample) for request in job.requests]
    return sum(key not in rows or not known(rows[key].trace_columns) for key in keys)


# Choose the tokens


def chosen(job: Job, record: Record, rule: Decoding, most: int, noises: int, undo: bool, seed: int) -> Frame:
    """Draw flagged tokens of each problem by `seed`, and for each of them a match that is not flagged.

    A match has the same problem, tenth and strata, except for the stratum that the gate itself decides. Its response
    has the same verdict, because the effect can only have the other sign after the other verdict. If there is no match,
    the column `match` is -1.

    Returns:
        One row per flagged token and one per match. `match` is one number for both. `weight` is how many
        flagged tokens of its problem a row represents. `change` and `own` are the changes to replay.
    """
    import pandas

    candidates, keys = [], [(request.problem, request.sample) for request in job.requests]
    for problem in dict.fromkeys(name for name, _ in keys):
        table: Frame = pandas.concat([
            _tokens(job, record, key, rule, undo) for key in keys if key[0] == problem
        ], ignore_index=True)  # fmt: skip
        random = np.random.default_rng(int(digest_of([seed, problem, rule.model_dump(mode="json"), undo]), 16))
        flagged = np.flatnonzero(table["flagged"])
        picked = random.permutation(flagged)[:most].tolist()
        free = ~table["flagged"].to_numpy()
        statistic = STRATA.get(rule.gate.statistic if rule.gate else "")
        strata = table.groupby([name for name in ("tenth", "entropy", "size") if name != statistic]).ngroup().to_numpy()
        right = table["right"].to_numpy()
        matches = []
        for at in () if undo else picked:
            near = np.flatnonzero(free & (strata == strata[at]) & (right == right[at]))
            matches.append(int(random.choice(near)) if near.size else -1)
            free[matches[-1]] &= not near.size
        weight = len(flagged) / max(1, len(picked))
        for kind, places in ((FLAGGED, picked), (MATCHED, [at for at in matches if at >= 0])):
            rows = table.loc[places].assign(kind=kind, problem=problem, weight=weight)
            candidates.append(rows.assign(match=(matches or -1) if kind == FLAGGED else places))
    whole: Frame = pandas.concat(candidates, ignore_index=True).assign(label=rule.label())
    kept = {name: getattr(rule, name) for name in ("mode", "primary", "gamma")}
    target = Decoding(**kept, criterion="always")
    own = Decoding(mode="veto", primary=rule.primary, gamma=0.0 if rule.primary == "rl" else -1.0, criterion="always")
    whole["change"], whole["own"] = None, None
    for i, token in enumerate(whole.to_dict("records")):
        place: dict[str, Any] = {name: token[name] for name in ("problem", "sample", "at")} | {"was": token["token"]}
        place["noises"] = noises if token["kind"] == FLAGGED else 0
        by: dict[str, Any] = {"token": token["proposed"]} if undo else {"by": target}
        whole.at[i, "change"] = Change(**place, **by)
        if token["kind"] == FLAGGED and not undo:
            whole.at[i, "own"] = Change(**{**place, "noises": 0}, by=own, own=True)
    return whole


def _tokens(job: Job, record: Record, key: tuple[str, int], rule: Decoding, undo: bool) -> Frame:
    """Return a row for each token of a response: its position, its statistics, and whether it is flagged.

    `same` is roughly the probability that the rule's target draws the same token again.
    """
    import pandas

    assert rule.gate is not None
    row = record.rows[key].load()
    trace, at = trace_of(row), np.arange(row.n_tokens)
    verdict = record.verdict(judge_of(job), row, job.golds[row.problem])
    assert verdict is not None
    delta = trace.fact("delta_logp")
    p = {model: np.exp(trace.fact(f"logp_{model}").astype(float)) for model in ("base", "rl")}
    if undo:
        flagged = np.asarray(row.changed)
    else:
        value, (tau, below) = trace.value(rule.gate), rule.gate.threshold
        since, until = rule.tokens(job.sampling.max_tokens)
        flagged = (value < tau if below else value > tau) & (at >= since) & (at < (until or row.n_tokens))
    return pandas.DataFrame(
        {
            "sample": row.sample,
            "at": at,
            "left": row.n_tokens - at,
            "tenth": TENTHS * at // max(1, row.n_tokens),
            "entropy": np.digitize(trace.fact("entropy_base"), EDGES) - 1,
            "size": np.digitize(np.abs(delta), EDGES) - 1,
            "below": delta < 0,
            "right": verdict.correct,
            "flagged": flagged,
            "token": row.token_ids,
            "proposed": trace.proposed,
            "same": 0.0 if rule.mode == "veto" else p["base" if rule.gamma == -1 else "rl"],
        }
    )


def changes_of(part: Frame) -> Iterator[Change]:
    """Yield all changes to replay for the chosen tokens."""
    yield from part["change"]
    yield from part["own"].dropna()


def price(parts: Sequence[tuple[Job, Frame]], store: RecordStore, noises: int) -> str:
    """Describe how many responses and replays are to generate, and how many tokens. Cached ones cost nothing."""
    draws, replays, tokens, seen = 0, 0.0, 0.0, set[Any]()
    for job, part in parts:
        record, judge = store.read(*job.record.split("/")), judge_of(job)
        for row in part.to_dict("records"):
            for change, same in ((row["change"], row["same"]), (row["own"], 0.0)):
                if change is None or (job.record, change) in seen:
                    continue
                seen.add((job.record, change))
                pending = undone(record, change, judge)
                draws += pending is None
                many = (1 - same) * (1 + change.noises) if pending is None else len(pending)
                replays, tokens = replays + many, tokens + many * row["left"]
    return (
        f"{draws:,} tokens to draw, then about {replays:,.0f} replays of those that come out as another: about "
        f"{tokens:,.0f} tokens"
    )


# Compute the results


def _measured(job: Job, part: Frame, store: RecordStore, noises: int) -> Frame:
    """Add the results of the replays: `changed`, `effect`, `fresh` and its first noise, `changed_own`, `effect_own`."""
    record = store.read(*job.record.split("/"))
    rows = []
    for row in part.to_dict("records"):
        sign, right = (-1 if row["change"].by is None else 1), int(row["right"])
        effects_of_row: dict[str, Any] = {}
        for suffix, change in (("", row["change"]), ("_own", row["own"])):
            if change is None:
                continue
            replays = [change.find(record, noise) for noise in range(change.noises + 1)]
            effects_of_row[f"changed{suffix}"] = changed = replays[0] is not None and replays[0].right is not None
            effects = [sign * (int(replay.right or 0) - right) for replay in replays if replay] if changed else [0]
            effects_of_row[f"effect{suffix}"] = effects[0]
            if change.noises and changed:
                effects_of_row |= {"fresh": float(np.mean(effects[1:])), "first": effects[1]}
        rows.append(row | effects_of_row)
    import pandas

    return pandas.DataFrame(rows)


def tables(measured: Sequence[Frame], noises: int) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return the results with intervals over problems, in one table per question with one row or more per rule.

    - `effects`: the mean effect of changing a token, and the share of tokens that `matter`, which means that changing
      them changes the verdict. Rows are for flagged tokens, for their matches and for vetoes; over all tokens and over
      those that really changed; after correct and after wrong responses.
    - `differences`: flagged tokens minus their matches, and minus vetoes, token by token; over all tokens and over
      those that the rule's target really changed.
    - `check`: the mean effect on changed tokens with the response's own noise and with fresh noise, and both variances.
    - `strata`: by depth, by base's entropy, and by size and sign of delta log p.
    - `signs`: at equal size, tokens that RL made less likely compared with those that it made more likely.
    """
    import pandas

    whole: Frame = pandas.concat(measured, ignore_index=True)
    sections: dict[str, list[dict[str, Any]]] = {n: [] for n in ("effects", "differences", "check", "strata", "signs")}
    for label, of_label in whole.groupby("label", sort=False):
        by, flagged = {"label": label}, of_label[of_label["kind"] == FLAGGED]
        groups = {FLAGGED: flagged, MATCHED: of_label[of_label["kind"] == MATCHED]}
        if "effect_own" in flagged:
            names = {"effect_own": "effect", "changed_own": "changed"}
            groups[OWN] = flagged.drop(columns=[*names.values()]).rename(columns=names)
        for kind, group in groups.items():
            for over, some in (("all", group), ("changed", group[group["changed"].astype(bool)])):
                for verdict, part in _by_verdict(some):
                    keys = {**by, "kind": kind, "over": over, "verdict": verdict}
                    sections["effects"].append({**keys, **_estimates(part)})
        sections["differences"] += [{**by, **row} for row in _differences(groups)]
        if noises:
            sections["check"].append({**by, **_check(flagged[flagged["changed"].astype(bool)])})
        for kind, group in groups.items():
            for stratum in ("tenth", "entropy") if kind != OWN else ():
                for at, part in group.groupby(stratum):
                    begin = int(at) if stratum == "tenth" else EDGES[int(at)]
                    keys = {**by, "kind": kind, "by": stratum, "from": begin, "sign": ""}
                    sections["strata"].append({**keys, **_estimates(part)})
        for at, part in flagged.groupby("size"):
            sides = {sign: part[part["below"] == (sign == "below")] for sign in ("below", "above")}
            for sign, side in sides.items():
                if len(side):
                    keys = {**by, "kind": FLAGGED, "by": "size", "from": EDGES[int(at)], "sign": sign}
                    sections["strata"].append({**keys, **_estimates(side)})
            if all(map(len, sides.values())):
                sections["signs"].append({**by, "from": EDGES[int(at)], **_signs(sides["below"], sides["above"])})
    return {name: tuple(rows) for name, rows in sections.items()}


def _by_verdict(part: Frame) -> Iterator[tuple[str, Frame]]:
    yield "any", part
    for name, right in (("wrong", False), ("right", True)):
        yield name, part[part["right"] == right]


def _sums(part: Frame, values: Any, order: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of values and of weights, both (problems,).

    The weights are scaled to sum to the number of tokens.
    """
    weight = part["weight"].astype(float)
    weight = weight * (len(part) / max(weight.sum(), 1e-12))
    both = (weight * np.asarray(values, dtype=float), weight)
    first, second = (column.groupby(part["problem"]).sum().reindex(order, fill_value=0.0).to_numpy() for column in both)
    return first, second


def _mean(part: Frame, values: Any) -> Estimate:
    """Return a mean. It has no interval if all values are equal, because their spread then carries no information."""
    estimate = token_mean(*_sums(part, values, list(dict.fromkeys(part["problem"])))) if len(part) else Estimate(None)
    return Estimate(estimate.value) if estimate.low == estimate.high else estimate


def _share(part: Frame, values: Any) -> Estimate:
    return token_share(*_sums(part, values, list(dict.fromkeys(part["problem"])))) if len(part) else Estimate(None)


def _effect(part: Frame) -> tuple[Estimate, Estimate]:
    """Return the mean effect and the share of tokens that matter.

    An effect is between -1 and 1. If all effects are equal, each end of the mean's interval lies as far from the mean
    as the share's interval is wide.
    """
    matter, estimate = _share(part, part["effect"].astype(float).abs()), _mean(part, part["effect"])
    if estimate.value is None or matter.low is None or matter.high is None:
        return estimate, matter
    width = matter.high - matter.low
    low, high = (
        end if end is not None else estimate.value + by for end, by in ((estimate.low, -width), (estimate.high, width))
    )
    return Estimate(estimate.value, max(-1.0, low), min(1.0, high)), matter


def _estimates(part: Frame) -> dict[str, Any]:
    """Return the mean effect, the share of tokens that matter, and the number of tokens."""
    counts = {"problems": part["problem"].nunique(), "tokens": len(part), "changed": int(part["changed"].sum())}
    effect, matter = _effect(part)
    return {**counts, **columns(effect=effect, matter=matter)}


def _differences(groups: Mapping[str, Frame]) -> Iterator[dict[str, Any]]:
    """Yield the mean differences of the effect and of the share that matters, for each pair of groups."""
    flagged = groups[FLAGGED]
    others = {}
    if len(matched := groups[MATCHED]):
        keys = ["problem", "match"]
        others[MATCHED] = flagged[flagged["match"] >= 0].merge(matched[[*keys, "effect"]], on=keys, suffixes=("", "_b"))
    if OWN in groups:
        others[OWN] = flagged.assign(effect_b=groups[OWN]["effect"])
    for kind, both in others.items():
        for over, pairs in (("all", both), ("changed", both[both["changed"].astype(bool)])):
            first, other = pairs["effect"].astype(float), pairs["effect_b"].astype(float)
            means = {"effect": _mean(pairs, first - other), "matter": _mean(pairs, first.abs() - other.abs())}
            yield {"minus": kind, "over": over, "tokens": len(pairs), **columns(**means)}


def _check(changed: Frame) -> dict[str, Any]:
    """Compare the effect with the response's own noise to that with fresh noise, over changed tokens."""
    if not len(changed):
        return {"tokens": 0, **columns(paired=Estimate(None), unpaired=Estimate(None), difference=Estimate(None))}
    paired, fresh, first = (changed[name].astype(float) for name in ("effect", "fresh", "first"))
    means = {"paired": _mean(changed, paired), "unpaired": _mean(changed, fresh)}
    variances = {"variance_paired": float(paired.var(ddof=0)), "variance_unpaired": float(first.var(ddof=0))}
    return {"tokens": len(changed), **columns(**means, difference=_mean(changed, paired - fresh)), **variances}


def _signs(below: Frame, above: Frame) -> dict[str, Any]:
    """Compare tokens that RL made less likely with those that it made more likely."""
    order = list(dict.fromkeys([*below["problem"], *above["problem"]]))
    signs: dict[str, Any] = {}
    for name, side in (("below", below), ("above", above)):
        effect, matter = _effect(side)
        signs |= {f"tokens_{name}": len(side), f"changed_{name}": int(side["changed"].sum())}
        signs |= columns(**{f"effect_{name}": effect, f"matter_{name}": matter})
    for name, of in (("effect", float), ("matter", abs)):
        sums = [_sums(side, side["effect"].astype(float).map(of), order) for side in (below, above)]
        estimate = token_difference(*sums)
        signs |= columns(**{name: Estimate(estimate.value) if estimate.low == estimate.high else estimate})
    return signs
