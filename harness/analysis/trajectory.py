"""Follow a training from base through its RL checkpoints: accuracy, log-probabilities of given text, weights by step.

    steps = trajectory_of(["org/run@step_100", "org/run@step_200"], {"base": "org/base"})
    found = trajectory_statistics(steps, EvalSpec(tasks=("aime24",)), "runs/records", Path("runs/kept"))

One checkpoint is in memory at a time, beside base. Rollouts are kept in the store; what was computed of a checkpoint is
kept in a file of its own, so that a command that was interrupted goes on.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.extrapolated import compare, estimates, strength, triples
from harness.analysis.records import about, drawn_alike, once
from harness.analysis.result import Analysis, columns
from harness.analysis.texts import teacher_forced_logits
from harness.analysis.weights import weight_statistics
from harness.digest import digest_of
from harness.errors import UserError
from harness.evals.loop import Job, evaluate, jobs_of, opened
from harness.evals.settings import Setting
from harness.files import make_folder, write_file
from harness.progress import Bar, phase, say, showing
from harness.records import RecordStore
from harness.records.config import fingerprint
from harness.spec import Decoding, EngineSpec, EvalSpec, Pair
from harness.spec.trajectory import Checkpoint
from harness.stats import Estimate, Scores, family, token_mean, token_share

TAU = -0.1  # nats: the threshold of the share of tokens that RL made less likely
TEXTS = 4  # responses a problem whose tokens are scored
POSITIONS = 2000  # of these tokens, at which whole logits are kept and compared
BASE = "base"
# What is summed over the tokens of a problem; the first two are shares, the others means.
SUMS = ("below", "above", "delta_logp", "kl_rl_base", "kl_base_rl", "entropy_base", "entropy_rl")
_FORMAT = 4  # of what is kept of a checkpoint


@dataclass(frozen=True, eq=False)
class Text:
    """A response that is scored: who wrote it (`base` or `rl`), to which problem, its prompt's tokens and its own."""

    who: str
    problem: str
    before: tuple[int, ...]
    tokens: tuple[int, ...]


def trajectory_statistics(
    checkpoints: Sequence[Checkpoint],
    spec: EvalSpec,
    records: str | Path,
    kept: Path,
    *,
    texts: int = TEXTS,
    positions: int = POSITIONS,
    tau: float = TAU,
    progress: bool = True,
) -> Analysis:
    """Measure a training checkpoint by checkpoint.

    Of every checkpoint: its accuracy on the tasks of `spec`, with differences to base and to the checkpoint before it
    (one family of comparisons, Holm); what it and base think of every token of the first `texts` responses of base and
    of the last checkpoint to each problem; which share of the weights changed, since base and since the checkpoint
    before.

    At `positions` of these tokens, drawn once, whole logits are kept, and those of later checkpoints compared with what
    earlier ones extrapolate to (`harness.analysis.extrapolated`).

    Args:
        records: store of rollouts; what it holds is not decoded again.
        kept: folder in which the numbers of each checkpoint are kept, and the logits: 4 bytes a position and token of
            the vocabulary.
        tau: counts the tokens with delta log p below it, and above -tau.

    Raises:
        UserError: what `evaluate` refuses; the checkpoints do not fit together.
    """
    if tau >= 0:
        raise UserError(f"tau={tau:g} is refused; accepted: below 0 (it counts tokens that RL made less likely)")
    scores, jobs, shared = _decoded(checkpoints, spec, records, progress)
    given = _texts(jobs, records, texts, shared)
    sampling = jobs[0].sampling
    scoring = Scoring(
        EngineSpec(backend="transformers", dtype=spec.engine.dtype, device=spec.engine.device),
        given, sampling.criterion_temperature, tau, positions, kept,
    )  # fmt: skip
    scored = _scored(checkpoints, scoring, progress)
    labels = [BASE, *(each.name for each in checkpoints)]
    tables: dict[str, list[dict[str, Any]]] = {
        "texts": [{"writer": who, **_extent(given, who)} for who in ("base", "rl")],
        "scores": [
            _score(each, dict(zip(labels, [0.0, *(one.step for one in checkpoints)], strict=True))) for each in scores
        ],
        "differences": [_flat(each.facts()) for each in _compared(scores, labels)],
        "checkpoints": [
            {"checkpoint": one.name, "step": one.step, "writer": who, **columns(**_estimates(sums))}
            for one, of in zip(checkpoints, scored, strict=True)
            for who, sums in of.items()
        ],
        "weights": _weights(checkpoints, kept, progress),
        "extrapolated": _extrapolated(checkpoints, labels, scoring, progress),
    }
    facts = {**about(jobs, checkpoints[-1].pair.model_dump()), "tau": tau}
    return Analysis(kind="trajectory", facts=facts, tables={name: tuple(rows) for name, rows in tables.items()})


# Accuracy


def _decoded(
    checkpoints: Sequence[Checkpoint], spec: EvalSpec, records: str | Path, progress: bool
) -> tuple[list[Scores], list[Job], int]:
    """Decode base and every checkpoint; return their scores, base first, and of base and the last one the jobs and how
    many tokens both know.
    """
    last, by_name, jobs, shared = checkpoints[-1], dict[str, list[Scores]](), [], 0
    for one in (last, *checkpoints[:-1]):
        modes = ("base", "rl") if one is last else ("rl",)  # base is decoded beside the last one
        asked = spec.model_copy(update={"pair": one.pair, "decodings": tuple(Decoding(mode=mode) for mode in modes)})
        with showing(progress), opened(asked) as engine:
            if one is last:
                jobs, shared = drawn_alike(jobs_of(asked, engine)), engine.checkpoints.shared
            results = evaluate(asked, engine=engine, records=records, progress=progress)
        for result in results:
            label = BASE if result.decoding.mode == "base" else one.name
            mine = [Setting.of([each]) for each in result.by_metric()]
            by_name.setdefault(label, []).extend(replace(each, label=label) for each in mine)
    return [each for label in (BASE, *(each.name for each in checkpoints)) for each in by_name[label]], jobs, shared


def _score(scores: Scores, steps: Mapping[str, float]) -> dict[str, Any]:
    """Return a score as a row."""
    about = {"checkpoint": scores.label, "step": steps[scores.label], "task": scores.task}
    about |= {"problems": len(scores.units), "samples": scores.samples}
    return {**about, **columns(accuracy=Estimate(scores.avg, *scores.interval))}


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison as a row."""
    names = ("task", "label", "minus", "p", "holm_p")
    found = Estimate(facts["mean"], facts["low"], facts["high"])
    return {**{name: facts[name] for name in names}, **columns(difference=found)}


def _compared(scores: Sequence[Scores], labels: Sequence[str]) -> list[Any]:
    """Compare every checkpoint with base and with the one before it, on every task, as one family."""
    at = {(each.label, each.task): each for each in scores}
    tasks = dict.fromkeys(each.task for each in scores)
    pairs = [(label, BASE) for label in labels[1:]] + [(after, before) for before, after in pairwise(labels[1:])]
    return family((at[one, task], at[other, task]) for task in tasks for one, other in pairs)


# What both models think of given text


def _texts(jobs: Sequence[Job], records: str | Path, samples: int, shared: int) -> list[Text]:
    """Read the responses that are scored: the first samples of each problem, of base and of the last checkpoint.

    Those with a token that base does not know, `shared` or above, are left out, which is said.
    """
    store, found, unknown = RecordStore(records), list[Text](), 0
    for job in once(jobs):
        record = store.read(*job.record.split("/"))
        for request in job.requests:
            if request.sample >= samples:
                continue
            row = record.rows[request.problem, request.sample].load()
            if (prompt := row.prompt_token_ids) and (tokens := row.token_ids):
                if max(tokens) >= shared:
                    unknown += 1
                    continue
                found.append(Text(str(job.decoding.mode), request.problem, prompt, tokens))
    if unknown:
        say(f"{unknown} responses of RL have tokens that base does not know, and are not scored")
    if not found:
        raise UserError(f"records={str(records)!r}: none of the responses has its tokens, so none can be scored")
    return found


def _extent(texts: Sequence[Text], who: str) -> dict[str, int]:
    mine = [text for text in texts if text.who == who]
    return {
        "problems": len({text.problem for text in mine}),
        "responses": len(mine),
        "tokens": sum(len(text.tokens) for text in mine),
    }


@dataclass(frozen=True, eq=False)
class Scoring:
    """How texts are scored, and where what was found is kept."""

    engine: EngineSpec
    texts: Sequence[Text]
    temperature: float
    tau: float
    positions: int
    kept: Path

    @cached_property
    def key(self) -> list[Any]:
        """Return what identifies it: the texts, which positions, how."""
        texts = digest_of([(text.who, text.problem, text.before, text.tokens) for text in self.texts])
        return [texts, self.temperature, self.tau, self.positions, self.engine.dtype]

    @cached_property
    def drawn(self) -> list[tuple[int, np.ndarray]]:
        """Return the texts by number, and which of their tokens are the positions: drawn once, from all alike."""
        ends = np.cumsum([len(text.tokens) for text in self.texts])
        all_of = int(ends[-1])
        chosen = np.sort(np.random.default_rng(0).choice(all_of, min(self.positions, all_of), replace=False))
        owner = np.searchsorted(ends, chosen, side="right")
        begins = ends - [len(text.tokens) for text in self.texts]
        return [(int(i), (chosen - begins[i])[owner == i]) for i in np.unique(owner)]

    def logits(self, place: str, revision: str | None) -> Path:
        """Return the file with a model's logits at the positions, (positions, vocab) float32."""
        return self.kept / f"logits-{digest_of([_FORMAT, fingerprint(place, revision), *self.key])}.npy"


def _scored(checkpoints: Sequence[Checkpoint], scoring: Scoring, progress: bool) -> list[dict[str, Any]]:
    """Score the texts with base and each checkpoint in turn; return each one's sums by writer and problem."""
    found, each = [], len(scoring.texts)
    with showing(progress), Bar(len(checkpoints) * each, "text", "scoring", enabled=progress) as bar:
        for one in checkpoints:
            there = all(scoring.logits(*one.pair.models[role]).is_file() for role in ("base", "rl"))
            key = ["scores", *_identity(one.pair), *scoring.key]

            def make(pair: Pair = one.pair) -> dict[str, Any]:
                return _sums(pair, scoring, bar)

            before = bar.n
            found.append(keep(scoring.kept, key, make, again=not there))
            if bar.n == before:  # it was there
                bar.update(each)
    return found


def _sums(pair: Pair, scoring: Scoring, bar: Bar) -> dict[str, Any]:
    """Score texts with one pair: by writer and problem the tokens, and the sums of `SUMS`; keep logits at positions."""
    import torch

    from harness.decode import open_engine
    from harness.policy.trace import FACTS, trace

    found: dict[str, dict[str, np.ndarray]] = {}
    drawn = dict(scoring.drawn)
    make_folder(scoring.kept)
    with phase("loading"):
        engine: Any = open_engine(pair, scoring.engine)
    try:
        files = [_LogitsFile(scoring.logits(*pair.models[role]), scoring, engine) for role in ("base", "rl")]
        for number, text in enumerate(scoring.texts):
            both = teacher_forced_logits(engine, text.before, text.tokens)
            if (at := drawn.get(number)) is not None:
                for file, logits in zip(files, both, strict=True):
                    file.add(logits, at)
            lb, lr = (torch.log_softmax(logits / scoring.temperature, dim=-1) for logits in both)
            table = trace(lb, lr, torch.tensor(text.tokens[: len(lb)], device=lb.device)).cpu().double().numpy()
            facts = {name: table[:, i] for i, name in enumerate(FACTS)}
            delta = facts["logp_rl"] - facts["logp_base"]
            facts |= {"delta_logp": delta, "below": delta < scoring.tau, "above": delta > -scoring.tau}
            mine = found.setdefault(text.who, {}).setdefault(text.problem, np.zeros(1 + len(SUMS)))
            mine += [len(delta), *(facts[name].sum() for name in SUMS)]
            bar.update()
        for file in files:
            file.close()
    finally:
        engine.close()
    return {who: {problem: row.tolist() for problem, row in rows.items()} for who, rows in found.items()}


class _LogitsFile:
    """Logits on their way into a file, which is there when it is whole."""

    def __init__(self, path: Path, scoring: Scoring, engine: Any) -> None:
        self.path, self.new, self.row = path, path.with_suffix(".new.npy"), 0
        shape = sum(len(at) for _, at in scoring.drawn), engine.checkpoints.shared
        self.table = np.lib.format.open_memmap(self.new, mode="w+", dtype=np.float32, shape=shape)

    def add(self, logits: Any, at: np.ndarray) -> None:
        """Add a text's logits, (tokens, vocab), at some of its tokens; beyond the models' context they are NaN."""
        rows = np.full((len(at), self.table.shape[1]), np.nan, dtype=np.float32)
        inside = at < len(logits)
        rows[inside] = logits[at[inside]].float().cpu().numpy()
        self.table[self.row : self.row + len(at)] = rows
        self.row += len(at)

    def close(self) -> None:
        """Put the file in its place."""
        self.table.flush()
        os.replace(self.new, self.path)


def _estimates(sums: Mapping[str, Sequence[float]]) -> dict[str, Estimate]:
    """Return what `SUMS` are a token, with intervals over problems; `kl` is the mean of both ways."""
    table = np.asarray(list(sums.values()))  # (problems, 1 + sums)
    found: dict[str, np.ndarray] = dict(zip(SUMS, table[:, 1:].T, strict=True))
    found |= {"kl": (found["kl_rl_base"] + found["kl_base_rl"]) / 2}
    return {
        name: (token_share if name in SUMS[:2] else token_mean)(column, table[:, 0]) for name, column in found.items()
    }


# Extrapolated logits against the real later checkpoint's


def _extrapolated(
    checkpoints: Sequence[Checkpoint], labels: Sequence[str], scoring: Scoring, progress: bool
) -> list[dict[str, Any]]:
    """Compare each later checkpoint with what two earlier ones, base among them, extrapolate to."""
    steps = [0.0, *(one.step for one in checkpoints)]
    models = [checkpoints[0].pair.models["base"], *(one.pair.models["rl"] for one in checkpoints)]
    problems = [scoring.texts[number].problem for number, at in scoring.drawn for _ in at]
    asked, found = triples(steps), []
    with showing(progress), Bar(len(asked), "comparison", "extrapolating", enabled=progress) as bar:
        for three in asked:
            gamma = strength(*(steps[i] for i in three))

            def make(three: tuple[int, ...] = three, gamma: float = gamma) -> list[dict[str, Any]]:
                tables = [np.load(scoring.logits(*models[i]), mmap_mode="r") for i in three]
                inside = np.isfinite(np.stack([table[:, 0] for table in tables], axis=1)).all(axis=1)
                both = min(table.shape[1] for table in tables)
                compared = compare(*(table[inside, :both] for table in tables), gamma=gamma)
                return estimates(compared, np.array(problems)[inside].tolist())

            key = ["extrapolated", *(fingerprint(*models[i]) for i in three), gamma, *scoring.key]
            names = {role: labels[i] for role, i in zip(("early", "late", "real"), three, strict=True)}
            found += [{**names, "gamma": gamma, **row} for row in keep(scoring.kept, key, make)]
            bar.update()
    return found


# Weights


def _weights(checkpoints: Sequence[Checkpoint], kept: Path, progress: bool) -> list[dict[str, Any]]:
    """Count for each checkpoint the weights that changed since base and since the checkpoint before it."""
    found, before = [], None
    for one in checkpoints:
        since = {BASE: one.pair}
        if before is not None:
            since["before"] = one.pair.replace(base=before.pair.rl, base_revision=before.pair.rl_revision)
        about = {"checkpoint": one.name, "step": one.step}
        counted = {name: _changed(pair, kept, progress) for name, pair in since.items()}
        found += [{**about, "since": name, **numbers} for name, numbers in counted.items() if numbers]
        before = one
    return found


def _changed(pair: Pair, kept: Path, progress: bool) -> dict[str, Any] | None:
    """Sum up what `analyse weights` counts of two checkpoints; None where it cannot (adapters, no safetensors)."""

    def make() -> dict[str, Any]:
        tensors = weight_statistics(pair, spectra=False, progress=progress).frame("tensors")
        numbers = {
            name: tensors[name].to_numpy(float) for name in ("numbers", "changed", "moved", "norm", "difference")
        }
        return {
            name: float(np.linalg.norm(each)) if name in ("norm", "difference") else int(each.sum())
            for name, each in numbers.items()
        }

    try:
        with showing(progress), phase("comparing weights"):
            return keep(kept, ["weights", *_identity(pair)], make)
    except UserError:
        return None


# What is kept of a checkpoint


def keep(folder: Path, key: Sequence[Any], make: Callable[[], Any], *, again: bool = False) -> Any:
    """Return what was kept under a key; if nothing was, or `again`, make it and keep it: JSON in a file of its own."""
    path = folder / f"{key[0]}-{digest_of([_FORMAT, *key])}.json"
    try:
        if not again:
            return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        pass
    found = json.loads(json.dumps(make(), allow_nan=False))
    make_folder(folder)
    write_file(path, json.dumps(found) + "\n")
    return found


def _identity(pair: Pair) -> tuple[str, str]:
    """Return what identifies the two models' contents."""
    base, rl = (fingerprint(*pair.models[role]) for role in ("base", "rl"))
    return base, rl
