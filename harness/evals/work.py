"""What there is to decode: an exam is a benchmark with its prompts, work is one decoding of an exam."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.decode import Engine, Request, Rollout
from harness.decode.trace import columns
from harness.evals import tasks_dir
from harness.evals.data import GOLDS, PUBLISHED, digest, gold_answers, versions_at_hand
from harness.evals.sampling import sampling_of
from harness.grading import Gold
from harness.records import RecordConfig, StoredRollout
from harness.records import digest as text_digest
from harness.records.config import Drawing
from harness.spec import Decoding, Pair, Sampling


@dataclass(frozen=True, slots=True)
class Exam:
    """A benchmark as it is put to the models: prompts (chat template applied) and answers, by problem id, in order.

    `gold` has each version of the answers that can be graded, the one asked for first.
    """

    task: str
    sampling: Sampling
    stop: tuple[str, ...]
    prompts: Mapping[str, str]
    gold: Mapping[str, Mapping[str, Gold]]
    data: str  # digest of the questions


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The requests of one decoding on one task, which differ in problem and sample only, and the record they belong to.

    `gold` has the answer of each `request.problem`, by version of the answers; empty where they are not graded here.
    """

    task: str
    pair: Pair
    requests: tuple[Request, ...]
    config: RecordConfig
    gold: Mapping[str, Mapping[str, Gold]] = field(default_factory=dict)

    @property
    def decoding(self) -> Decoding:
        """How all of it is decoded."""
        return self.requests[0].decoding

    @property
    def sampling(self) -> Sampling:
        """How all of it is drawn."""
        return self.requests[0].sampling

    @property
    def trace_columns(self) -> int:
        """What a record must hold of each rollout's trace; 0 where none is asked for."""
        trace = self.requests[0].trace
        return 0 if trace is None else columns(trace)

    @property
    def prompts(self) -> dict[str, str]:
        """The digest of each problem's prompt, by `request.problem`."""
        return {request.problem: text_digest(request.prompt) for request in self.requests}


@dataclass(frozen=True, slots=True)
class Sample:
    """What scoring needs of a rollout: a long run must not keep the tokens of all of them."""

    text: str
    finish_reason: str
    n_tokens: int
    n_replaced: int
    n_changed: int

    @classmethod
    def of(cls, rollout: Rollout | StoredRollout) -> "Sample":
        """Of a rollout, decoded or stored."""
        return cls(rollout.text, rollout.finish_reason, rollout.n_tokens, rollout.n_replaced, rollout.n_changed)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Sample":
        """Of a row of a record."""
        return cls(*(row[name] for name in ("text", "finish_reason", "n_tokens", "n_replaced", "n_changed")))

    def facts(self) -> dict[str, Any]:
        """The counts, by the names of lm-eval's samples file."""
        return {
            "n_tokens": self.n_tokens,
            "n_replaced": self.n_replaced,
            "n_changed": self.n_changed,
            "finish_reason": self.finish_reason,
        }


def exams(
    tasks: Sequence[str],
    engine: Engine,
    sampling: Sampling | None = None,
    *,
    limit: int | None = None,
    data_dir: str | None = None,
    version: str = PUBLISHED,
) -> list[Exam]:
    """The exams of benchmarks (no groups), with the prompts that our lm-eval tasks make.

    `sampling` None is each task's own; `limit` takes the first problems; prompts go through the engine's chat template
    where it has one.
    """
    from lm_eval.tasks import TaskManager

    metadata = {"data_dir": data_dir, "golds": version, **({"repeats": sampling.samples} if sampling else {})}
    manager = TaskManager(include_path=str(tasks_dir()), include_defaults=False, metadata=metadata)
    loaded = manager.load(list(tasks))["tasks"]
    return [_exam(name, loaded[name], engine, sampling, limit, data_dir, version) for name in tasks]


def _exam(
    name: str,
    task: Any,
    engine: Engine,
    sampling: Sampling | None,
    limit: int | None,
    data_dir: str | None,
    version: str,
) -> Exam:
    task.build_all_requests(limit=limit, rank=0, world_size=1)
    own, stop = sampling_of(task.config.generation_kwargs, samples=task.config.repeats, seed=0)
    chat = bool(getattr(engine.tokenizer, "chat_template", None))
    prompts = {}
    for instance in task.instances:
        text = instance.args[0]
        prompts[instance.doc["id"]] = engine.chat_prompt([{"role": "user", "content": text}]) if chat else text
    others = [v for v in versions_at_hand(name, data_dir) if v != version]
    asked = version if version in GOLDS.get(name, (PUBLISHED,)) else PUBLISHED
    gold = {v: gold_answers(name, v, data_dir) for v in (asked, *[v for v in others if v != asked])}
    return Exam(
        task=name,
        sampling=sampling or own,
        stop=stop,
        prompts=prompts,
        gold={v: {key: answers[key] for key in prompts} for v, answers in gold.items()},
        data=digest(name, data_dir),
    )


def works_of(
    exams: Sequence[Exam], decodings: Sequence[Decoding], engine: Engine, *, trace: int | None = None
) -> list[Work]:
    """Every decoding of every exam, decoding by decoding, each sample by sample: sample 0 of every problem comes first,
    so that what is there when it is interrupted, or looked at, is a smaller whole. `trace` is that of the requests."""
    works: list[Work] = []
    for decoding in decodings:
        for exam in exams:
            requests = [
                Request(
                    prompt=prompt,
                    problem=f"{exam.task}/{key}",
                    sample=sample,
                    decoding=decoding,
                    sampling=exam.sampling,
                    stop=exam.stop,
                    trace=trace,
                )
                for sample in range(exam.sampling.samples)
                for key, prompt in exam.prompts.items()
            ]
            gold = {
                version: {f"{exam.task}/{key}": answer for key, answer in answers.items()}
                for version, answers in exam.gold.items()
            }
            like = works[0].config if works else None
            works.append(work_on(exam.task, requests, engine, data=exam.data, gold=gold, like=like))
    return works


def work_on(
    task: str,
    requests: Sequence[Request],
    engine: Engine,
    *,
    data: str | None,
    gold: Mapping[str, Mapping[str, Gold]] | None = None,
    like: RecordConfig | None = None,
) -> Work:
    """Work from requests that differ in problem and sample only; the first one's prompt stands for how they are made.

    `like` is the config of other work on this engine: the checkpoints are not read again to identify them.
    """
    info, first = engine.info(), requests[0]
    pair, prompt = Pair(**info["pair"]), text_digest(first.prompt)
    if like is None:
        config = RecordConfig.of(pair, first.decoding, first.sampling, info, stop=first.stop, prompt=prompt, data=data)
    else:
        drawing = Drawing.of(first.sampling)
        config = like.replace(
            decoding=first.decoding, sampling=drawing, stop=tuple(first.stop), prompt=prompt, data=data
        )
    return Work(task, pair, tuple(requests), config, gold or {})


def numbered(works: Sequence[Work]) -> list[Request]:
    """All requests in order, each tagged with the index of its work."""
    return [replace(request, tag=i) for i, work in enumerate(works) for request in work.requests]
