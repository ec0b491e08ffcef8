"""Score given texts with both models: how the two differ, whether a file's log-probabilities fit, and who wrote them.

    from rlvr_dir import score
    scores = score({"base": "my-base", "rl": "my-rl"}, "rollouts.jsonl", candidates={"step 40": "run/step-40"})
    scores.verdict, scores.numbers["kl_rl_base"], scores.frame()

Scores are stored in OUT/records, which `rlvr_dir.tokens` reads, and likelihoods at other settings in OUT/likelihoods.
So an interrupted run resumes, and a complete one computes nothing again.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlvr_dir.analysis.result import Analysis, columns
from rlvr_dir.analysis.texts import Text, read_rows, texts_of
from rlvr_dir.analysis.who import Verdict, settings_of, who_wrote
from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import Decoding, EngineSpec, Pair, parse
from rlvr_dir.config.sampling import SamplingSettings
from rlvr_dir.decode import Engine, open_engine
from rlvr_dir.decode.plan import DELTA_LIMIT, written
from rlvr_dir.decode.trace import Trace
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import UserError, unknown
from rlvr_dir.files import check_writable
from rlvr_dir.policy.given import TOP, Scoring, Setting
from rlvr_dir.policy.trace import columns as trace_columns
from rlvr_dir.progress import Bar
from rlvr_dir.records import Record, RecordStore, Row, fingerprint
from rlvr_dir.records.config import RecordConfig, engine_identity
from rlvr_dir.results.frames import token_frame
from rlvr_dir.stats import Estimate, token_mean, token_share

if TYPE_CHECKING:
    import pandas

MEANS = {"kl_rl_base": "KL(RL ‖ base)", "kl_base_rl": "KL(base ‖ RL)", "js": "Jensen–Shannon divergence"}
TAILS = (0.1, 1.0)  # nats of |Δ log p|
RATIOS = (0.9, 1.1)  # importance ratios outside these are counted
OF_DECODING = ("proposed", "proposed_text", "flagged", "changed", "decoding", "task", "delta_logp_written")
FITS = 2.0  # another explanation is named if its log-probabilities are this many times nearer,
NEAR = 1e-3  # unless they are already this near, in nats


class Number(NamedTuple):
    """Hold a row of the table: a title, an estimate, and its unit (`nats`, `%` for a fraction, or none)."""

    title: str
    value: Estimate
    unit: str = "nats"


class Fit(NamedTuple):
    """Hold the mean distance from a file's log-probabilities, moved by `shift` tokens, to a model's at one setting."""

    distance: float
    name: str
    setting: Setting
    shift: int


@dataclass(frozen=True, eq=False)
class Scores:
    """Hold the scores of texts: a `record` with both models' traces and, if needed, `likelihoods` by model.

    `likelihoods` has a table for each text, (tokens, settings of `settings_of(claimed)`).
    """

    pair: Pair
    texts: Sequence[Text]
    record: Record
    tokenizer: Any
    info: Mapping[str, Any]
    claimed: Setting
    writer: str
    likelihoods: Mapping[str, Sequence[np.ndarray]]
    verdict: Verdict | None = None

    @cached_property
    def traces(self) -> list[Trace]:
        """Return the statistics of each text, in the order of `texts`."""
        return [Trace(self.record.rows[_key(text)].table) for text in self.texts]

    @cached_property
    def logp(self) -> list[np.ndarray]:
        """Return the file's log-probabilities of the tokens that a model wrote, by text; NaN if the file has none."""
        return [np.where(text.counted, np.nan if text.logp is None else text.logp, np.nan) for text in self.texts]

    @property
    def tokens(self) -> int:
        """Return the number of tokens that a model wrote."""
        return sum(int(text.counted.sum()) for text in self.texts)

    def frame(self) -> "pandas.DataFrame":
        """Return a row per token, as `rlvr_dir.tokens` does, without the columns that exist only for decoding.

        `counted` is whether a model wrote the token. `logp_rollout` is the file's log-probability.
        """
        data = token_frame([(self.record, self.tokenizer)]).drop(columns=[*OF_DECODING])
        counted = np.concatenate([text.counted for text in self.texts])
        return data.assign(counted=counted, logp_rollout=np.concatenate(self.logp))

    def mean(self, values: Sequence[np.ndarray], share: bool = False) -> Estimate:
        """Return the mean, with its interval, over the tokens that a model wrote.

        `values` has a (tokens,) array per text. With `share`, they are treated as a share.
        """
        kept = [value[text.counted & ~np.isnan(value)] for value, text in zip(values, self.texts, strict=True)]
        return (token_share if share else token_mean)([v.sum() for v in kept], [v.size for v in kept])

    @cached_property
    def numbers(self) -> dict[str, Number]:
        """Return how the two models differ, and how the file's log-probabilities differ from the writer's, by a key."""

        def fact(name: str) -> list[np.ndarray]:
            return [trace.fact(name).astype(float) for trace in self.traces]

        delta = [np.abs(values) for values in fact("delta_logp")]
        top = [np.equal(*(trace.likeliest(role)[0][:, 0] for role in ("base", "rl"))) for trace in self.traces]
        most = max(values[text.counted].max() for values, text in zip(delta, self.texts, strict=True))
        numbers = {name: Number(title, self.mean(fact(name))) for name, title in MEANS.items()}
        numbers["abs_delta_logp"] = Number("mean |Δ log p|", self.mean(delta))
        for tail in TAILS:
            beyond = self.mean([values > tail for values in delta], share=True)
            numbers[f"beyond_{tail:g}"] = Number(f"tokens with |Δ log p| above {tail:g}", beyond, "%")
        numbers["max_delta_logp"] = Number("largest |Δ log p|", Estimate(most))
        numbers["same_top"] = Number("same most likely token", self.mean(top, share=True), "%")
        for role, name in (("base", "base"), ("rl", "RL")):
            loss = self.mean([-values for values in fact(f"logp_{role}")])
            numbers[f"perplexity_{role}"] = Number(f"perplexity of {name}", _mapped(np.exp, loss), "")
        return numbers | (self._mismatch() if self.fits else {})

    def _mismatch(self) -> dict[str, Number]:
        at, whose = settings_of(self.claimed).index(self._untruncated), f"{self.writer}'s log p − the file's"
        off = [table[:, at] - file for table, file in zip(self.likelihoods[self.writer], self.logp, strict=True)]
        beyond = [np.where(np.isnan(d), d, (np.exp(d) < RATIOS[0]) | (np.exp(d) > RATIOS[1])) for d in off]
        spread = _mapped(lambda square: max(square, 0.0) ** 0.5, self.mean([d**2 for d in off]))
        return {
            "off_mean": Number(f"{whose}: mean", self.mean(off)),
            "off_spread": Number(f"{whose}: root mean square", spread),
            "off_ratio": Number("importance ratios outside 0.9 to 1.1", self.mean(beyond, share=True), "%"),
        }

    @property
    def _untruncated(self) -> Setting:
        return self.claimed[0] or 1.0, 1.0  # here a log-likelihood is log p

    @cached_property
    def fits(self) -> list[Fit]:
        """Return the distance of each model, setting and shift from the file's log-probabilities, the nearest first."""
        file, found = _joined(self.logp), list[Fit]()
        for name, tables in self.likelihoods.items() if np.isfinite(file).any() else ():
            model = _joined(tables)
            for (at, setting), shift in product(enumerate(settings_of(self.claimed)), (0, 1, -1)):
                distance = float(np.nanmean(np.abs(np.roll(model[:, at], -shift) - file)))
                found.append(Fit(distance, name, setting, shift))
        return sorted(found, key=lambda fit: fit.distance)

    @property
    def explanation(self) -> Fit | None:
        """Return the best fit if it is much nearer to the file than the claimed one; None otherwise."""
        claimed = (self.writer, self._untruncated, 0)
        own = next((fit.distance for fit in self.fits if fit[1:] == claimed), 0.0)
        return self.fits[0] if own > NEAR and self.fits[0].distance * FITS < own else None

    def analysis(self) -> Analysis:
        """Return the numbers as an `Analysis`, whose file is `score.json`."""
        rows = [
            {"name": name, "title": n.title, "unit": n.unit, **columns(value=n.value)}
            for name, n in self.numbers.items()
        ]
        context = {"texts": len(self.texts), "tokens": self.tokens, "engine": dict(self.info)}
        who = {} if self.verdict is None else vars(self.verdict)
        return Analysis(kind="score", context={**context, "who": who}, tables={"numbers": tuple(rows)})


def score(
    pair: Pair | Mapping[str, Any],
    texts: str | Path,
    *,
    candidates: Mapping[str, str] | None = None,
    writer: str = "rl",
    temperature: float = 1.0,
    top_p: float = 1.0,
    out: str | Path = "scored",
    engine: EngineSpec | Mapping[str, Any] | None = None,
) -> Scores:
    """Score given texts with both models, as `rlvr-dir score` does. Scores that are in `out` are not computed again.

    Args:
        pair: `base` and `rl`, directories or hub ids.
        texts: A file of JSON lines, or a parquet file; see `rlvr_dir.analysis.texts`.
        candidates: Further checkpoints that may have written the texts, by name. An empty mapping tests base and RL
            alone. None skips the test.
        writer: The model whose log p is compared with the file's: `base`, `rl`, or a candidate.
        temperature, top_p: The claimed sampling settings of the texts. Logits are divided by the temperature.
        out: The folder of the scores.
        engine: Settings of the engine, such as `{"dtype": "bfloat16"}`.

    Raises:
        UserError: A name, the file or a text is refused, before any model loads.
    """
    pair, spec, names = resolve(parse(Pair, pair)), parse(EngineSpec, engine or {}), ["base", "rl", *(candidates or {})]
    claimed = parse(SamplingSettings, {"temperature": temperature, "top_p": top_p})
    if len(names) > len({*names}):
        raise UserError("is a model of the pair", argument="candidate", value=min({*names[2:]} & {*names[:2]}))
    if writer not in names:
        raise unknown("writer", writer, names)
    rows, said = read_rows(Path(texts)), (temperature, claimed.top_p if temperature else 1.0)
    others = {name: resolve(pair.replace(rl=place, rl_revision=None)) for name, place in (candidates or {}).items()}
    for other in others.values():
        check_pair(other, spec)
    check_writable(Path(out))
    with open_engine(pair, spec, lazily=True) as opened:
        given, info, tokenizer = texts_of(rows, opened), opened.info(), opened.tokenizer
        asked = candidates is not None or any(text.logp is not None for text in given)
        scoring = Scoring(claimed.criterion_temperature, settings_of(said) if asked else ())
        record, *tables = stored_scores(opened, given, scoring, Path(out), ("records", "likelihoods")[: 1 + asked])
        likelihoods = {name: _tables(tables[0], given, i) for i, name in enumerate(names[:2])} if asked else {}
    for name, other in others.items():
        with open_engine(other, spec, lazily=True) as opened:
            [table] = stored_scores(opened, given, scoring, Path(out), ("likelihoods",))
        likelihoods[name] = _tables(table, given, 1)
    verdict = None
    if candidates is not None:
        counted = np.concatenate([text.counted for text in given])
        models = {name: np.concatenate(tables)[counted] for name, tables in likelihoods.items()}
        verdict = who_wrote(models, scoring.settings, said)
    return Scores(pair, given, record, tokenizer, info, said, writer, likelihoods, verdict)


def stored_scores(
    engine: Engine, texts: Sequence[Text], scoring: Scoring, out: Path, folders: Sequence[str]
) -> list[Record]:
    """Score the texts that are not yet in a record, and return the records, one in each folder.

    Args:
        engine: The engine, which scores the texts.
        texts: The texts.
        scoring: The settings of the scores.
        out: The folder that contains `folders`.
        folders: `records`, which has traces, and `likelihoods`, which has those of base and then those of RL.
    """
    width, names = trace_columns(TOP), [_key(text)[0] for text in texts]
    parts = {"records": slice(0, width), "likelihoods": slice(width, None)}
    own = engine_identity(engine.info(), Decoding(mode="base"))
    del own["max_model_len"]  # the texts fit
    identity: dict[str, Any] = {
        "weights": {role: fingerprint(*place) for role, place in engine.pair.models.items()},
        "decoding": Decoding(mode="base"),
        "sampling": SamplingSettings(temperature=scoring.temperature, top_p=1.0),
        "data": digest_of([[[*text.before], [*text.tokens]] for text in texts]),
    }
    with ExitStack() as stack:
        records: dict[str, Record] = {}
        for folder in folders:
            traced = folder == "records"
            config = RecordConfig(
                **identity, engine={**own, "scored": [] if traced else [*map(list, scoring.settings)]}
            )
            opened = RecordStore(out / folder).open(config, "texts", names, 1, trace_columns=width * traced)
            records[folder] = stack.enter_context(opened)
        missing = [text for text in texts if any(_key(text) not in record for record in records.values())]
        with Bar(len(texts), "scoring", done=len(texts) - len(missing)) as bar:
            for place, table in engine.score(missing, scoring) if missing else ():
                for folder, record in records.items():
                    record.add(_row(missing[place], table, parts[folder], engine))
                bar.update()
        for record in records.values():
            record.finish()
    return [*records.values()]


def _key(text: Text) -> tuple[str, int]:
    return f"texts/{text.number}", 0


def _tables(record: Record, texts: Sequence[Text], which: int) -> list[np.ndarray]:
    """Return the likelihoods of base (0) or RL (1), one table per text."""
    return [np.split(record.rows[_key(text)].table, 2, axis=1)[which] for text in texts]


def _row(text: Text, table: np.ndarray, part: slice, engine: Engine) -> Row:
    flags, ids = np.zeros(len(text.tokens), dtype=bool), (text.tokens, text.before)
    delta = np.clip(table[:, 1] - table[:, 0], -DELTA_LIMIT, DELTA_LIMIT)
    ended, plain = text.tokens[-1] in engine.eos_token_ids, written(engine.tokenizer, text.tokens)
    return Row.make(*_key(text), plain, "stop" if ended else "length", flags, flags, *ids, delta, trace=table[:, part])


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of all texts, with NaN after each text, so that a shifted token never reaches another text."""
    return np.concatenate([np.concatenate([part, np.full_like(part[:1], np.nan)]) for part in parts])


def _mapped(function: Callable[[float], float], estimate: Estimate) -> Estimate:
    """Return the estimate of `function` of an estimated number. `function` must be increasing."""
    ends = (estimate.value, estimate.low, estimate.high)
    return Estimate(*(None if end is None else float(function(end)) for end in ends))
