"""The lm-eval model `rlvr_dir`: a base/RL pair that decodes as the model arguments say.

    lm_eval --model rlvr_dir --model_args pair=dapo-32b,mode=extrapolate,tau=-0.3,gamma=0.05 --tasks aime24

From Python, around an engine that is already open: `RlvrDirLM(engine=engine, decoding=Decoding(mode="rl"))`.
"""

import atexit
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import simple_parse_args_string

from harness.decode import Engine, Request, open_engine
from harness.errors import UserError
from harness.evals.args import CACHE_REFUSAL, announce_tiny, parse_model_args
from harness.evals.benchmark import OURS, BenchmarkFacts
from harness.evals.chat import has_template, template_name
from harness.evals.data import SOURCES, TINY_TASKS, TWINS
from harness.evals.loop import Done, Job, make_job, run_jobs
from harness.evals.response import Response
from harness.evals.sampling import NO_LENGTH, names_length, sampling_of
from harness.evals.scoring import gold_of
from harness.evals.task_file import ScoredTask, instance_key
from harness.grading import Verdict
from harness.progress import showing
from harness.records import RecordStore, Row
from harness.spec import Decoding
from harness.tiny import WEIGHTS, checkpoints


class RlvrDirLM(LM):
    """Decodes lm-eval's requests with one engine, each sample with noise of its own, and counts what was replaced.

    Prompts go through the pair's chat template as with lm-eval's `--apply_chat_template`, which `chat=auto` stands for
    (`harness._autoload` tells lm-eval), or not at all (`chat=off`); `get_model_info` says through which. Prompts that
    lm-eval made without a template become one turn of the user.
    """

    def __init__(
        self,
        *,
        engine: Engine | None = None,
        decoding: Decoding | None = None,
        progress: bool = True,
        **model_args: Any,
    ) -> None:
        super().__init__()
        args = parse_model_args(model_args)
        self.decoding = decoding if decoding is not None else args.decoding
        self.own, self.seed, self.chat, self.progress = args.own, args.seed, args.own.chat, progress
        self.grader = args.spec.grader
        self.records = RecordStore(args.own.store) if args.own.store else None
        self.tasks: dict[str, ScoredTask] = {}  # those of others, where it is known what identifies them
        self.done: list[Done] = []  # what the last call of `generate_until` has completed
        self._owned = engine is None
        if engine is None:
            announce_tiny(args.spec, model_args)
            with showing(progress):
                engine = open_engine(checkpoints(args.spec.pair), args.spec.engine, lazily=True)
            atexit.register(engine.close)  # lm-eval never closes a model
        self.engine = engine
        self._templated: set[str] = set()
        self._totals: Counter[str] = Counter()
        self._templates: set[str] = set()
        self.seconds = 0.0
        self.decoded = 0  # responses decoded in this process, not read from a record

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict | None = None) -> "RlvrDirLM":
        """Make it from `k=v,k2=v2`, with lm-eval's own options behind the user's."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(cls, arg_dict: dict[str, Any], additional_config: dict | None = None) -> "RlvrDirLM":
        """Make it from a dict; an option given in it (device, batch_size) wins over lm-eval's of the same name."""
        return cls(**((additional_config or {}) | arg_dict))

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Return one response an entry, in order. lm-eval lists a request once a sample: the n-th time is sample n.

        Raises:
            UserError: a request that cannot be served; nothing has been decoded then.
        """
        seen: Counter[int] = Counter()
        work = []
        for index, instance in enumerate(requests):
            work.append(self._request(instance, seen[id(instance)], index))
            seen[id(instance)] += 1
        named = [each.task_name for each in requests]
        keys = Counter((task, request.problem, request.sample) for task, request in zip(named, work, strict=True))
        if twice := [problem for (_, problem, _), n in keys.items() if n > 1]:
            raise UserError(
                f"problem={twice[0]!r} is there twice, so both would get the same tokens and one record; accepted: an "
                "id of its own for each problem of a task"
            )
        tasks = sorted(set(named) & {*SOURCES, *TWINS})
        if tasks and _is_tiny(self.engine):
            print(
                f"rlvr_dir: the tiny pair cannot do {', '.join(tasks)}; with it this run only checks the pipeline "
                f"(its own tasks are {', '.join(TINY_TASKS)})",
                file=sys.stderr,
            )
        if short := sorted({each.task_name for each in requests if not names_length(each.args[1])}):
            print(
                f"rlvr_dir: {', '.join(short)} does not say how long a response may be; {NO_LENGTH} new tokens, as in "
                "lm-eval's own models (--gen_kwargs max_gen_toks=N says otherwise)",
                file=sys.stderr,
            )
        start = time.perf_counter()
        responses: dict[int, Response] = {}  # by index of the request
        index = {(named[request.tag], request.problem, request.sample): request.tag for request in work}
        jobs, self.done = self._jobs(work, requests), []
        progress = self.progress and not disable_tqdm
        with showing(progress):
            for done in run_jobs(self.engine, jobs, self.records, progress=progress):
                self.decoded += done.decoded
                self.done.append(done)
                for key, row in done.responses.items():
                    responses[index[done.job.task, *key]] = self._response(row, done.verdicts.get(key))
        self.seconds += time.perf_counter() - start
        if missing := len(work) - len(responses):
            raise RuntimeError(f"the engine returned no response to {missing} of {len(work)} requests")
        return [responses[index] for index in range(len(work))]

    def _request(self, instance: Any, sample: int, index: int) -> Request:
        prompt, gen_kwargs = instance.args
        sampling, stop = sampling_of(gen_kwargs, samples=instance.repeats, seed=self.seed)
        if self.own.samples is not None and self.own.samples != instance.repeats:
            raise UserError(
                f"samples={self.own.samples} but {instance.task_name} draws {instance.repeats}: set its repeats"
            )
        doc = instance.doc if isinstance(instance.doc, Mapping) else {}
        ours = {"id", "problem", "answer"} <= set(doc)
        key = doc["id"] if ours else instance_key(instance)
        task = doc.get(OURS, {}).get("of") or instance.task_name
        return Request(
            prompt=self._prompt(prompt),
            problem=f"{task}/{key}",
            sample=sample,
            decoding=self.decoding,
            sampling=sampling,
            stop=stop,
            tag=index,
        )

    def _jobs(self, requests: list[Request], instances: list[Any]) -> list[Job]:
        """Return one job a task. Gold answers are known of our own benchmarks; lm-eval grades the others."""
        rows: dict[str, list[tuple[Request, Mapping[str, Any]]]] = {}
        for request, instance in zip(requests, instances, strict=True):
            doc = instance.doc if isinstance(instance.doc, Mapping) else {}
            rows.setdefault(instance.task_name, []).append((request, doc))
        jobs: list[Job] = []
        for task, pairs in rows.items():
            first = pairs[0][1]
            golds, facts = {}, self.tasks[task].facts if task in self.tasks else BenchmarkFacts()
            if OURS in first:
                facts = BenchmarkFacts(**first[OURS])
                facts = replace(facts, grader=self.grader or facts.grader)
                golds = {request.problem: gold_of(doc) for request, doc in pairs}
            mine = [request for request, _ in pairs]
            job = make_job(task, mine, self.engine, facts, golds, jobs[0] if jobs else None)
            jobs.append(replace(job, chat=self._chat))
        return jobs

    def _response(self, row: Row, verdict: Verdict | None) -> Response:
        counts = row.counts()
        self._totals.update({name: counts[name] for name in ("n_tokens", "n_replaced", "n_changed")}, responses=1)
        return Response(row.text, {**counts, "given": verdict} if verdict else counts)

    @property
    def _chat(self) -> str:
        """Say through which template prompts go."""
        return "off" if self.chat == "off" else template_name(self.engine)

    def _prompt(self, prompt: str) -> str:
        self._templates.add(self._chat)
        if self.chat == "off":
            return prompt
        if prompt in self._templated or not has_template(self.engine):
            return prompt
        return self.engine.chat_prompt([{"role": "user", "content": prompt}])

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Put messages through the pair's template; remember the prompt, so that it is not put through twice."""
        if self.chat == "off":
            raise UserError("chat='off' contradicts --apply_chat_template; drop one of them")
        prompt = self.engine.chat_prompt(chat_history, add_generation_prompt=add_generation_prompt)
        self._templated.add(prompt)
        return prompt

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the template's text, which lm-eval stores with its digest; a pair has one: a name cannot choose."""
        if isinstance(chat_template, str):
            raise UserError(f"--apply_chat_template {chat_template!r}: the pair has one chat template, give no name")
        template = getattr(self.engine.tokenizer, "chat_template", None)
        return str(template) if chat_template and template else None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer both models share."""
        return self.engine.tokenizer

    @property
    def tokenizer_name(self) -> str:
        """What lm-eval's request cache knows the tokenizer by."""
        return str(getattr(self.engine.tokenizer, "name_or_path", "rlvr_dir")).replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """Say what was run and what it counted; lm-eval merges this into the `config` of its results file."""
        tokens = self._totals["n_tokens"]
        return {
            "rlvr_dir": {
                "decoding": self.decoding.model_dump(mode="json"),
                "label": self.decoding.label(),
                "seed": self.seed,
                "chat": ", ".join(sorted(self._templates)) or self.chat,
                "engine": self.engine.info(),
                "totals": dict(self._totals),
                "replacement_ratio": self._totals["n_replaced"] / tokens if tokens else None,
                "changed_ratio": self._totals["n_changed"] / tokens if tokens else None,
                "seconds": round(self.seconds, 3),
                "records": {done.job.task: done.job.record for done in self.done} if self.records else {},
            }
        }

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Refuse lm-eval's response cache; `rlvr_dir` runs under the stock command refuse it earlier still."""
        if getattr(cache_hook, "dbdict", None) is not None:
            raise UserError(CACHE_REFUSAL)
        super().set_cache_hook(cache_hook)

    def loglikelihood(self, requests: list[Any]) -> NoReturn:
        """Refuse: a rule for decoding with two models assigns no likelihood to a given text."""
        raise UserError("--model rlvr_dir answers generate_until tasks only; this task asks for likelihoods")

    def loglikelihood_rolling(self, requests: list[Any]) -> NoReturn:
        """Refuse, as `loglikelihood` does."""
        self.loglikelihood(requests)

    def close(self) -> None:
        """Close the engine if this object opened it."""
        if self._owned:
            atexit.unregister(self.engine.close)
            self.engine.close()


register_model("rlvr_dir")(RlvrDirLM)  # as a decorator it would hide the class behind LM from a type checker


def _is_tiny(engine: Engine) -> bool:
    """Tell whether an engine runs the embedded tiny pair, however it was opened."""
    pair = engine.info().get("pair")
    return isinstance(pair, Mapping) and Path(str(pair.get("rl"))).parent == WEIGHTS
