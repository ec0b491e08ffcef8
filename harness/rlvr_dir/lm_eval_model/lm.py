"""Define the lm-eval model `rlvr_dir`: a base/RL pair that decodes according to the model arguments.

    lm_eval --model rlvr_dir --model_args pair=dapo-32b,mode=extrapolate,tau=-0.3,gamma=0.05 --tasks aime24

From Python, with an engine that is already open: `RlvrDirLM(engine=engine, decoding=Decoding(mode="rl"))`.
"""

import atexit
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import simple_parse_args_string

from rlvr_dir.checkpoints.resolve import resolve
from rlvr_dir.config import Decoding
from rlvr_dir.decode import Engine, Request, open_engine
from rlvr_dir.errors import UserError
from rlvr_dir.evals.jobs import Job, make_job
from rlvr_dir.evals.loop import CompletedJob, run_jobs
from rlvr_dir.lm_eval_model.args import CACHE_REFUSAL, CheckedArgs, ModelArgs, announce_tiny, parse_model_args
from rlvr_dir.problems.benchmark import OURS, SOURCES, TWINS, BenchmarkMetadata
from rlvr_dir.problems.generation import LENGTHS, NO_LENGTH, has_template, sampling_of, template_name, with_given
from rlvr_dir.problems.lm_eval_tasks import LmEvalBenchmark, instance_key
from rlvr_dir.problems.task import Response, gold_of
from rlvr_dir.progress import showing
from rlvr_dir.records import Key, RecordStore
from rlvr_dir.tiny import TINY_TASKS, WEIGHTS


class RlvrDirLM(LM):
    """Decode lm-eval's requests with one engine, each sample with its own noise, and count flagged and changed tokens.

    Prompts use the pair's chat template as with lm-eval's `--apply_chat_template`, which `chat=auto` implies
    (`rlvr_dir_autoload` passes it to lm-eval), or not at all (`chat=off`). `get_model_info` reports the template.
    Prompts that lm-eval made without a template become one user message.
    """

    def __init__(
        self,
        *,
        engine: Engine | None = None,
        decoding: Decoding | None = None,
        progress: bool = True,
        args: ModelArgs | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__()
        self.args = args or parse_model_args(model_args)
        self.decoding, self.own, self.progress = decoding or self.args.decoding, self.args.own, progress
        self.records = RecordStore(self.own.records) if self.own.records else None
        self.tasks: dict[str, LmEvalBenchmark] = {}  # other tasks, if they can be identified
        self.done: list[CompletedJob] = []  # the jobs that the last call of `generate_until` completed
        self._owned = engine is None
        if engine is None:
            if args is None:
                announce_tiny(self.args.spec, model_args)
            with showing(progress):
                engine = open_engine(resolve(self.args.spec.pair), self.args.spec.engine, lazily=True)
            atexit.register(engine.close)  # lm-eval never closes a model
        self.engine = engine
        self._templated: set[str] = set()
        self._totals: Counter[str] = Counter()
        self._seconds = 0.0

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict | None = None) -> "RlvrDirLM":
        """Make it from `k=v,k2=v2`, with lm-eval's own options after the user's."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(cls, arg_dict: dict[str, Any], additional_config: dict | None = None) -> "RlvrDirLM":
        """Make it from a dict. An option in it (device, batch_size) overrides lm-eval's of the same name."""
        if isinstance(arg_dict, CheckedArgs):  # from the `lm_eval` command, which has read lm-eval's options too
            return cls(args=arg_dict.read)
        return cls(**((additional_config or {}) | arg_dict))

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Return one response per entry, in order. lm-eval lists a request once per sample, and the n-th time is sample
        n.

        Raises:
            UserError: A request is not supported; nothing has been decoded then.
        """
        start, self.done = time.perf_counter(), []
        seen: Counter[int] = Counter()
        places: dict[tuple[str, Key], int] = {}
        by_task: dict[str, list[tuple[Request, Mapping[str, Any]]]] = defaultdict(list)
        for place, instance in enumerate(requests):
            doc = instance.doc if isinstance(instance.doc, Mapping) else {}
            request = self._request(instance, doc, seen[id(instance)])
            seen[id(instance)] += 1
            if places.setdefault((instance.task_name, (request.problem, request.sample)), place) != place:
                raise UserError(
                    "is there twice, so both would get the same tokens and one record",
                    argument="problem",
                    value=request.problem,
                    accepted="an id of its own for each problem of a task",
                )
            by_task[instance.task_name].append((request, doc))
        self._remark(requests, [*by_task])
        jobs: list[Job] = []
        for task, pairs in by_task.items():
            jobs.append(self._job(task, pairs, jobs[0] if jobs else None))
        responses = [""] * len(requests)
        progress = self.progress and not disable_tqdm
        with showing(progress):
            for done in run_jobs(self.engine, jobs, self.records, progress=progress):
                self.done.append(done)
                for key, row in done.responses.items():
                    counts, verdict = row.counts(), done.verdicts.get(key)
                    self._totals += Counter({name: n for name, n in counts.items() if isinstance(n, int)})
                    info = {**counts, "given": verdict} if verdict else counts
                    # Our own tasks receive the facts; others get plain text, which lm-eval may recreate.
                    responses[places[done.job.task, key]] = Response(row.text, info) if done.job.golds else row.text
        self._totals["responses"] += len(requests)
        self._seconds += time.perf_counter() - start
        return responses

    def _request(self, instance: Any, doc: Mapping[str, Any], sample: int) -> Request:
        prompt, gen_kwargs = instance.args
        gen_kwargs = with_given(gen_kwargs, self.args.sampling)
        sampling, stop = sampling_of(gen_kwargs, samples=instance.repeats, seed=self.args.seed)
        if self.own.samples is not None and self.own.samples != instance.repeats:
            raise UserError(
                f"but {instance.task_name} draws {instance.repeats}. Set its repeats",
                argument="samples",
                value=self.own.samples,
            )
        key = doc["id"] if {"id", "problem", "answer"} <= {*doc} else instance_key(instance)
        if self.own.chat != "off" and prompt not in self._templated and has_template(self.engine):
            prompt = self.engine.chat_prompt([{"role": "user", "content": prompt}])
        problem = f"{doc.get(OURS, {}).get('of') or instance.task_name}/{key}"
        kwargs: dict[str, Any] = {"decoding": self.decoding, "sampling": sampling, "stop": stop}
        return Request(prompt=prompt, problem=problem, sample=sample, **kwargs)

    def _job(self, task: str, pairs: Sequence[tuple[Request, Mapping[str, Any]]], like: Job | None) -> Job:
        """Return the job of a task. Gold answers are known for our own benchmarks; lm-eval grades the others."""
        requests, lm_eval_task = [request for request, _ in pairs], self.tasks.get(task)
        golds, metadata = {}, lm_eval_task.metadata if lm_eval_task else BenchmarkMetadata()
        if ours := pairs[0][1].get(OURS):
            metadata = BenchmarkMetadata(**ours)
            families = {doc["id"]: doc["family"] for _, doc in pairs if doc.get("family")} or None
            metadata = replace(metadata, grader=self.args.spec.grader or metadata.grader, families=families)
            golds = {request.problem: gold_of(doc) for request, doc in pairs}
        job = make_job(task, requests, self.engine, metadata, golds, like, store=self.records)
        return replace(job, lm_eval_task=lm_eval_task, chat=self._chat)

    def _remark(self, requests: Sequence[Any], tasks: Sequence[str]) -> None:
        """Print what a user may not expect: a default length, and benchmarks that the tiny pair cannot solve."""
        hard, pair = sorted({*tasks} & {*SOURCES, *TWINS}), self.engine.info().get("pair")
        if hard and isinstance(pair, Mapping) and Path(str(pair.get("rl"))).parent == WEIGHTS:
            print(
                f"rlvr_dir: the tiny pair cannot solve {', '.join(hard)}; with it this run only checks the pipeline "
                f"(its own tasks are {', '.join(TINY_TASKS)})",
                file=sys.stderr,
            )
        short = {
            request.task_name for request in requests if all(request.args[1].get(name) is None for name in LENGTHS)
        }
        if short and "max_tokens" not in self.args.sampling:
            print(
                f"rlvr_dir: {', '.join(sorted(short))} sets no maximum length of a response, so it is {NO_LENGTH} new "
                "tokens, as in lm-eval's own models (the model argument max_tokens=N changes this)",
                file=sys.stderr,
            )

    @property
    def _chat(self) -> str:
        """Describe the chat template of the prompts."""
        return "off" if self.own.chat == "off" else template_name(self.engine)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Write messages with the pair's template, and remember the prompt, so that the template is not applied
        twice."""
        if self.own.chat == "off":
            raise UserError("contradicts --apply_chat_template. Remove one of them", argument="chat", value="off")
        prompt = self.engine.chat_prompt(chat_history, add_generation_prompt=add_generation_prompt)
        self._templated.add(prompt)
        return prompt

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the template's text, which lm-eval stores with its digest. A pair has one template, so a name is an
        error."""
        if isinstance(chat_template, str):
            raise UserError(
                f"--apply_chat_template {chat_template!r} names a template", hint="The pair has one, so give no name."
            )
        template = getattr(self.engine.tokenizer, "chat_template", None)
        return str(template) if chat_template and template else None

    @property
    def tokenizer(self) -> Any:
        """Return the tokenizer that both models share."""
        return self.engine.tokenizer

    @property
    def tokenizer_name(self) -> str:
        """Return the tokenizer's name for lm-eval's request cache."""
        return str(getattr(self.engine.tokenizer, "name_or_path", "rlvr_dir")).replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """Describe what was run and counted; lm-eval merges this into the `config` of its results file."""
        totals = {name: self._totals[name] for name in ("n_tokens", "n_replaced", "n_changed", "responses")}
        ratios = {f"{name}_ratio": totals[f"n_{name}"] / max(1, totals["n_tokens"]) for name in ("replaced", "changed")}
        return {
            "rlvr_dir": {
                "decoding": self.decoding.model_dump(mode="json"),
                "label": self.decoding.label(),
                "seed": self.args.seed,
                "chat": self._chat,
                "engine": self.engine.info(),
                "totals": totals,
                "replacement_ratio": ratios["replaced_ratio"] if totals["n_tokens"] else None,
                "changed_ratio": ratios["changed_ratio"] if totals["n_tokens"] else None,
                "seconds": round(self._seconds, 3),
                "records": {done.job.task: done.job.record for done in self.done} if self.records else {},
            }
        }

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Reject lm-eval's response cache. The `lm_eval` command rejects it even earlier."""
        if getattr(cache_hook, "dbdict", None) is not None:
            raise UserError(f"use_cache {CACHE_REFUSAL}", argument="use_cache")
        super().set_cache_hook(cache_hook)

    def loglikelihood(self, requests: list[Any]) -> NoReturn:
        """Raise an error, because decoding with two models assigns no likelihood to a given text."""
        raise UserError(
            "--model rlvr_dir cannot compute likelihoods, which this task needs", accepted="generate_until tasks"
        )

    loglikelihood_rolling = loglikelihood

    def close(self) -> None:
        """Close the engine if this object opened it."""
        if self._owned:
            atexit.unregister(self.engine.close)
            self.engine.close()


register_model("rlvr_dir")(RlvrDirLM)  # as a decorator it would hide the class from a type checker
