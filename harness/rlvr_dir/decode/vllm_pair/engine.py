"""Run a pair in vLLM: open it, submit requests, and yield rollouts as they finish."""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np

from rlvr_dir.checkpoints.beside_vllm import on_cpu
from rlvr_dir.checkpoints.context import rope_extrapolates
from rlvr_dir.checkpoints.precision import exact_float32
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode.plan import broken_logits, plan_requests, rollout
from rlvr_dir.decode.progress import Progress, reporting
from rlvr_dir.decode.trace import columns
from rlvr_dir.decode.types import BrokenLogits, GivenText, Plan, Request, Rollout
from rlvr_dir.decode.vllm_pair import batch_invariance, channel
from rlvr_dir.decode.vllm_pair.arguments import freed_args, llm_arguments, refuse, telling_args
from rlvr_dir.decode.vllm_pair.plugin import EXTRA_ARG
from rlvr_dir.decode.vllm_pair.self_test import TestedPair, self_test
from rlvr_dir.decode.vllm_pair.start import (
    LEVEL,
    QUIET,
    Log,
    clean_up,
    in_process,
    lost,
    prepare,
    start_vllm,
)
from rlvr_dir.errors import UserError
from rlvr_dir.policy.gates import GateError
from rlvr_dir.policy.given import Scoring
from rlvr_dir.policy.trace import FACTS
from rlvr_dir.progress import note, phase

COMPILED_FROM = 300_000  # tokens that take equally long eager and compiled, on a CPU (reports/performance.md)
# On a CPU, if vLLM's core has its own process, its worker has another one. Each of the two spins while the other works,
# which adds half of the processor time of decoding. With this executor the core computes by itself.
ALONE = "vllm.v1.executor.uniproc_executor.UniProcExecutor"

_open_here: set[int] = set()  # engines with workers in this process, because vLLM's distributed state is global


class _Broken(Exception):
    """Represent a response with a token that was drawn from logits that do not form a distribution."""

    def __init__(self, plan: Plan, token_ids: list[int], roles: tuple[str, ...] | None) -> None:
        """Store the tokens before it and, if the request was traced, the models whose logits they were."""
        super().__init__(plan, token_ids, roles)
        self.plan, self.token_ids, self.roles = plan, token_ids, roles


class VllmPair(TestedPair):
    """Implement `Engine` with both models in one vLLM engine."""

    def __init__(self, pair: Pair, spec: EngineSpec | None = None) -> None:
        """Check the settings and the checkpoints. `start` starts vLLM.

        Raises:
            UserError: The checkpoints do not fit together, or a setting cannot be used with a pair.
        """
        spec = spec or EngineSpec()
        refuse(spec)
        super().__init__(pair, spec)
        logging.getLogger("vllm").setLevel(os.environ.setdefault(LEVEL, QUIET))  # vLLM reads the variable later
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        self._numbers = count()
        self._generating = False
        self._llm: Any = None
        self._engine: Any = None
        self._log: Log | None = None
        self.eager = bool(spec.enforce_eager)
        self._lost = False  # whether vLLM's processes ended unexpectedly
        self.self_test = "off"

    def load(self) -> None:
        """Start vLLM and test that both submodels compute the right logits; see `start`.

        Raises:
            UserError: The pair does not fit into vLLM, or the self-test found a submodel with wrong logits.
        """
        if self.spec.deterministic:
            batch_invariance.refuse()  # here and not in __init__, because a pool's first process may have no GPU
        batch_invariance.switch(self.spec.deterministic)
        if self.dtype == "float32":
            exact_float32()
        self.eager = self._starts_eager()
        self.merge()
        arguments = self.arguments()
        with phase("loading vLLM"):
            self._log = prepare(self.spec)
        if _open_here and in_process():
            raise UserError(
                "allows only one engine in this process, and another vLLM engine is open",
                argument="backend",
                value="vllm",
                hint="Close the other engine first.",
            )
        if on_cpu() and not in_process() and self.spec.tensor_parallel_size == 1:
            arguments.setdefault("distributed_executor_backend", ALONE)
        self._llm = start_vllm(self.make_llm, arguments, self._log)
        self._engine, self._lost = self._llm.llm_engine, False
        self._tell_room()
        if in_process():
            _open_here.add(id(self))
        elif self.eager and on_cpu():
            self.ask_worker("rlvr_compile_nothing")  # if the core is in this process, `_step` does it in each step
        if self.spec.self_test:
            try:
                with phase("self-test"):
                    self.self_test = self_test(self, full=self.spec.self_test == "full")
            except BaseException:
                self.close()
                raise

    def _tell_room(self) -> None:
        """Print how many responses of the greatest length fit into the KV cache.

        Further ones are preempted and recomputed.
        """
        cache, most = self._engine.vllm_config.cache_config, self.spec.max_num_seqs
        length = min(self.longest or self.context.length, self.context.length)
        tokens = cache.num_gpu_blocks * cache.block_size
        room = (
            f"the KV cache has room for {tokens:,} tokens, which is {tokens // length:,} responses of {length:,} "
            "tokens with their prompts"
        )
        note(room)
        if 4 * (tokens // length) < most:
            warnings.warn(
                f"{room}, and max_num_seqs={most}. If responses become that long, most of a batch waits and is read "
                "again. To avoid that, lower max_num_seqs, or give the cache more memory (tensor_parallel_size).",
                stacklevel=4,
            )

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `vllm.LLM`; see `llm_arguments`."""
        return llm_arguments(self, eager=self.eager, head_dtype=self.head_dtype)

    def make_llm(self, **arguments: Any) -> Any:
        """Start vLLM and return `vllm.LLM(**arguments)`. A subclass may return another object."""
        from vllm import LLM

        return LLM(**arguments)

    def _starts_eager(self) -> bool:
        """Return whether to skip torch.compile: if that is requested, or on a CPU with few tokens to generate."""
        wanted, work = self.spec.enforce_eager, self.work
        if wanted is not None or work is None or not on_cpu():
            return bool(wanted)
        eager = work < COMPILED_FROM
        effect, other = ("Skipping torch.compile", "--no-") if eager else ("Running torch.compile", "--")
        expected = f"it pays off above about {COMPILED_FROM:,} tokens on a CPU, and this run expects {work:,}"
        why = expected if work else "the engine starts sooner without it on a CPU"
        note(f"{effect}: {why} ({other}enforce-eager changes this)")
        return eager

    def settled(self) -> EngineSpec:
        """Return the settings, with a definite choice of whether vLLM compiles."""
        return self.spec.replace(enforce_eager=self._starts_eager())

    @property
    def head_dtype(self) -> str:
        """Return the type in which logits are computed.

        It is float32, or the model's own type if vLLM has no choice (0.25) or no batch-invariant kernel for float32.
        """
        if self.dtype == "float32":
            return self.dtype
        from vllm.model_executor.layers.logits_processor import LogitsProcessor
        from vllm.platforms import current_platform

        mixed = hasattr(LogitsProcessor, "_apply_head")
        if self.spec.deterministic:  # before Hopper vLLM replaces matrix products, except those with two types
            mixed = mixed and current_platform.has_device_capability(90)
        return "float32" if mixed else self.dtype

    def decode(self, plans: list[Plan], progress: bool | Progress) -> Iterator[Rollout]:
        """Yield rollouts as they finish; see `Engine.decode`."""
        return self._generate(iter(plans), plans, progress)

    def serve(self, waiting: Iterator[Request], progress: Progress) -> Iterator[Rollout]:
        """Yield rollouts as they finish; see `Engine.serve`. New requests join the running batch."""
        self.start()
        return self._generate(map(self._plan, waiting), (), progress)  # a generator could not continue after its end

    def _plan(self, request: Request) -> Plan:
        return plan_requests([request], self.checkpoints)[0]

    def _generate(
        self, waiting: Iterator[Plan], planned: Sequence[Plan], progress: bool | Progress
    ) -> Iterator[Rollout]:
        try:
            yield from self._stream(waiting, planned, progress)
        except _Broken as broken:
            raise self._explained(broken) from None

    def _explained(self, broken: "_Broken") -> BrokenLogits:
        """Return the error for a broken response.

        If the response was not traced, that token is decoded again, traced, to find the model whose logits are broken.
        """
        plan, roles = broken.plan, broken.roles
        if roles is None:
            once_more = replace(
                plan,
                request=replace(plan.request, trace=0),
                rule=replace(plan.rule, trace=0),
                begun=plan.begun + len(broken.token_ids),
                token_ids=(*plan.token_ids, *broken.token_ids),
                max_new_tokens=1,
            )
            try:
                list(self._stream(iter([once_more]), [once_more]))
            except _Broken as again:
                roles = again.roles
        if not self._engine.has_unfinished_requests():  # other users' requests may be running
            with suppress(UserError):
                self.forget_prompts()
            self.ask_worker("rlvr_clear")
        if len(self.roles) > 2:
            roles = None  # the trace has the two combined policies, each made of several models
        return broken_logits(plan, self.pair, self.dtype, plan.begun + len(broken.token_ids), roles or ())

    def _stream(
        self, waiting: Iterator[Plan], planned: Sequence[Plan], progress: bool | Progress = False
    ) -> Iterator[Rollout]:
        if self._generating:
            raise RuntimeError("this engine is already generating: exhaust or close the first iterator before the next")
        self._generating = True
        running: dict[str, Plan] = {}
        try:
            with reporting(progress, planned) as bar:
                bar.set_phase("prefilling")
                while True:
                    while len(running) < 2 * self.spec.max_num_seqs and (plan := next(waiting, None)) is not None:
                        running[self._submit(plan)] = plan
                    if not running:
                        return
                    yield from self._finished(running, bar)
                    if progress and bar.looks and any(lengths := self._lengths()):
                        bar.show(lengths)
                        bar.set_phase("generating")
        finally:
            self._generating = False
            if running and not self._lost:
                self._engine.abort_request(list(running))

    def _finished(self, running: dict[str, Plan], bar: Progress) -> Iterator[Rollout]:
        """Run a step, and yield the rollouts that it has finished.

        Raises:
            _Broken: A rollout is broken. The others are yielded before.
        """
        broken: _Broken | None = None
        for output in self._step():
            plan = running.pop(output.request_id, None) if output.finished else None
            if plan is None:  # a plain vLLM request of another user
                continue
            try:
                done = self._rollout(plan, output.outputs[0])
            except _Broken as error:
                broken = error
                continue
            bar.set_phase("generating")
            bar.finished(done)
            yield done
        if broken is not None:
            raise broken

    def _step(self) -> list[Any]:
        """Run vLLM's next step and return the outputs that it has finished.

        Raises:
            EngineLost: Its processes have ended.
        """
        from torch.compiler import set_stance

        # Even in eager mode vLLM compiles a helper of its sampler, 3 to 10 seconds before the first token.
        eager = self.eager and on_cpu() and in_process()
        with self._lost_noticed(), set_stance("force_eager") if eager else nullcontext():
            return self._engine.step()

    @contextmanager
    def _lost_noticed(self) -> Iterator[None]:
        """Raise EngineLost if vLLM reports that its processes have ended."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except GateError as error:  # raised by a core in this process
            self._lost = True
            raise UserError(error, hint="Responses that were finished before are not affected.") from None
        except EngineDeadError as error:
            self._lost = True
            raise lost(error, self._log, self.arguments()) from None

    def sampling_params(self, plan: Plan, kind: Any = None) -> Any:
        """Return vLLM's `SamplingParams` for a plan: greedy, without a sampler of its own.

        `kind` is how vLLM returns the response (a `RequestOutputKind`): as a whole (None), or in pieces. In pieces, the
        text is written as well.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0.0,  # greedy sampling from the forced row selects the decided token
            max_tokens=plan.max_new_tokens,
            stop_token_ids=sorted(self.checkpoints.eos_token_ids),
            stop=list(plan.request.stop) or None,
            detokenize=kind is not None or bool(plan.request.stop),
            skip_special_tokens=True,
            **channel.asked_for(channel.numbers_of(plan), self.runner_v2),
            flat_logprobs=True,
            output_kind=kind or RequestOutputKind.FINAL_ONLY,
            extra_args={EXTRA_ARG: plan.plain()},
        )

    def _submit(self, plan: Plan) -> str:
        """Submit one plan to vLLM; return the request's name."""
        return self._add(plan.token_ids, self.sampling_params(plan))

    def _add(self, token_ids: Sequence[int], params: Any) -> str:
        name = f"rlvr-{next(self._numbers)}"
        with self._lost_noticed():
            self._engine.add_request(name, {"type": "token", "prompt_token_ids": list(token_ids)}, params)
        return name

    def _rollout(self, plan: Plan, completion: Any) -> Rollout:
        token_ids = list(completion.token_ids)
        logits, returned = channel.unpack(completion.logprobs, token_ids)
        replaced, changed, delta_logp = channel.decode(logits)
        reason = "length" if completion.finish_reason == "length" else "stop"
        trace = None
        if plan.request.trace is not None:
            trace = channel.decode_trace(token_ids, returned, columns(plan.request.trace))
        if (broken := np.isnan(delta_logp)).any():
            first = int(broken.argmax())
            roles = None
            if trace is not None:
                logp = {role: trace[first, FACTS.index(f"logp_{role}")] for role in self.roles[:2]}
                roles = tuple(role for role in logp if np.isnan(logp[role]))
            raise _Broken(plan, token_ids[:first], roles)
        proposed, written = channel.decode_proposals(token_ids, changed, delta_logp, returned)
        return rollout(plan, self.tokenizer, token_ids, replaced, changed, delta_logp, reason, proposed, written, trace)

    @property
    def longest_text(self) -> int:
        """Return the largest number of tokens of a scored text. vLLM needs room for one more, which it never reads."""
        goes_on = all(map(rope_extrapolates, self.checkpoints.configs.values()))
        return self.max_model_len if goes_on else self.max_model_len - 1

    def read_given(self, texts: Sequence[GivenText], scoring: Scoring) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the scores of texts as they finish. Each text is read in one step as a prompt; see `Engine.score`."""
        self.start()
        waiting, running = iter(enumerate(texts)), dict[str, tuple[int, GivenText]]()
        self.ask_worker("rlvr_score", *scoring)
        try:
            while True:
                for place, text in islice(waiting, 2 * self.spec.max_num_seqs - len(running)):
                    running[self._add([*text.before, *text.tokens], self._as_prompt(text, scoring.width))] = place, text
                if not running:
                    return
                for output in filter(lambda output: output.finished, self._step()):
                    place, text = running.pop(output.request_id)
                    yield place, channel.scores(output, len(text.before), scoring.width)
        finally:
            if not self._lost:
                self._engine.abort_request(list(running))
                self.ask_worker("rlvr_score")

    def _as_prompt(self, text: GivenText, width: int) -> Any:
        """Return vLLM's `SamplingParams` that return `width` numbers for each token of a text.

        They ask for one more token, which is ignored.
        """
        from vllm import SamplingParams

        ids = np.broadcast_to(np.arange(width), (len(text.tokens), width))
        v2 = {"prompt_logprob_token_ids": ids, "prompt_logprob_start": len(text.before) - 1}
        asked: dict[str, Any] = v2 if self.runner_v2 else {"prompt_logprobs": width}
        return SamplingParams(temperature=0.0, max_tokens=1, detokenize=False, flat_logprobs=True, **asked)

    @property
    def runner_v2(self) -> bool:
        """Return whether vLLM runs its model runner V2, as it does on GPUs."""
        return bool(getattr(self._engine.vllm_config, "use_v2_model_runner", False))

    def forget_prompts(self) -> None:
        """Empty the prefix cache, so that prompts are computed again.

        Raises:
            UserError: vLLM keeps the cache, because a request still uses it.
        """
        if not self._llm.reset_prefix_cache():
            raise UserError(
                "vLLM cannot empty its prefix cache, because a request still uses it. Prompts would not be recomputed",
                accepted="no other request at the same time",
                hint="When the engine starts, `self_test=False` avoids this step.",
            )

    def ask_worker(self, method: str, *args: Any) -> Any:
        """Return the result of a method of `PairWorker` in the first of vLLM's workers."""
        with self._lost_noticed():
            return self._llm.collective_rpc(method, args=args)[0]

    def _lengths(self) -> list[int]:
        """Return the number of tokens of each running request, for the progress bar only.

        The list is empty if vLLM does not report them.
        """
        states = getattr(self._engine.output_processor, "request_states", {})
        return [state.detokenizer.num_output_tokens() for state in states.values() if state.detokenizer]

    def info(self) -> dict[str, Any]:
        """Return the facts about what is run; see `Engine.info`."""
        import vllm

        from rlvr_dir.decode.vllm_pair.step import decision_path

        device = "cpu" if on_cpu() else "cuda"
        path = decision_path(device)
        return self.common_info(
            backend="vllm",
            vllm=vllm.__version__,
            device=device,
            **({"decision": path} if path != "torch" else {}),  # near-ties may be decided differently from torch
            tensor_parallel_size=self.spec.tensor_parallel_size,
            self_test=self.self_test,
            **({"deterministic": True} if self.spec.deterministic else {}),  # other records keep their hash
            **({"vllm_args": args} if (args := telling_args(self.spec)) else {}),
            **({"freed_args": args} if (args := freed_args(self.spec)) else {}),
        )

    def close(self) -> None:
        """Shut the engine down and free its memory; see `Engine.close`."""
        self.started = False
        if self._llm is None:
            return
        with phase("ending vLLM"):  # takes seconds on a busy machine
            self._engine.engine_core.shutdown()
            self._llm = self._engine = None
            if id(self) in _open_here:
                _open_here.discard(id(self))
                clean_up()
        if self._log is not None:
            self._log.discard()
        self.remove_merged()
