"""Run the pair on vLLM's asynchronous engine, whose core has its own process, as vLLM's server does.

The rest of `VllmPair` is unchanged, including the self-test. A `Bridge` presents the asynchronous engine as it expects.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterable
from queue import Queue
from types import SimpleNamespace
from typing import Any

from rlvr_dir.checkpoints.beside_vllm import on_cpu
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.config.pair import model_name
from rlvr_dir.config.serving import Limits
from rlvr_dir.decode.plan import plan_requests
from rlvr_dir.decode.types import Plan, Request
from rlvr_dir.decode.vllm_pair.engine import VllmPair
from rlvr_dir.errors import UserError


class ServedPair(VllmPair):
    """Let requests join a running pair at any time. Call `start` from another thread than that of its event loop."""

    def __init__(self, pair: Pair, spec: EngineSpec, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        """Check the settings and the checkpoints, as `VllmPair` does.

        Args:
            loop: Runs the engine's client.
            limits: The tokens of a stream's chunk, and the seconds that requests may continue if the core shuts down by
                itself (Ctrl-C).

        Raises:
            UserError: As for `VllmPair`.
        """
        super().__init__(pair, spec)
        self.work = 0  # on a CPU, users wait for the start rather than for tokens
        self.loop, self._limits = loop, limits

    def make_llm(self, **arguments: Any) -> "Bridge":
        """Start vLLM's asynchronous engine on the loop."""
        arguments.pop("use_tqdm_on_load", None)
        if on_cpu() and self.spec.tensor_parallel_size == 1:
            _leave_a_core()
        arguments["disable_log_stats"] = False  # needed by /metrics
        arguments["served_model_name"] = model_name(self.pair.rl)  # in them: no path of this machine
        arguments |= {"shutdown_timeout": self._limits.grace, "stream_interval": self._limits.stream_interval}
        return Bridge({**arguments, "generation_config": "vllm"}, self.loop)

    @property
    def async_llm(self) -> Any:
        """Return vLLM's `AsyncLLM`."""
        return self._llm.async_llm

    def plans(self, requests: Iterable[Request]) -> list[Plan]:
        """Plan requests. Raises UserError for those that cannot be served."""
        return plan_requests(requests, self.checkpoints)


class Bridge:
    """Present vLLM's asynchronous engine like `vllm.LLM` and its `llm_engine`, for a thread beside the loop."""

    def __init__(self, arguments: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._outputs = loop, Queue[Any]()
        self._running: dict[str, asyncio.Task[None]] = {}
        self.async_llm = self._wait(_open(arguments))
        self.llm_engine, self.vllm_config = self, self.async_llm.vllm_config
        self.output_processor = SimpleNamespace(request_states={})
        self.engine_core = SimpleNamespace(shutdown=self.async_llm.shutdown)
        _leave_unnamed(self.async_llm.output_processor)

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache, and return whether that was possible."""
        return self._wait(self.async_llm.reset_prefix_cache())

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> Any:
        """Return the results of a method of the workers."""
        return self._wait(self.async_llm.collective_rpc(method, args=args))

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        """Submit a request; a step is then one more token of some request."""
        from vllm.sampling_params import RequestOutputKind

        params.output_kind = RequestOutputKind.CUMULATIVE

        async def follow() -> None:
            try:
                async for output in self.async_llm.generate(prompt, params, name):
                    self._outputs.put(output)
            except Exception as error:
                self._outputs.put(error)

        async def begin() -> None:
            self._running[name] = asyncio.create_task(follow())

        self._wait(begin())

    def step(self) -> list[Any]:
        """Wait for an output and return it."""
        output = self._outputs.get()
        if isinstance(output, Exception):
            raise output
        if output.finished:
            self._running.pop(output.request_id, None)
        return [output]

    def abort_request(self, names: list[str]) -> None:
        """End requests."""

        async def end() -> None:
            tasks = [task for name in names if (task := self._running.pop(name, None))]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._wait(end())

    def has_unfinished_requests(self) -> bool:
        """Return whether any request is still running."""
        return bool(self._running)


async def _open(arguments: dict[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except KeyboardInterrupt:
        raise UserError("interrupted while vLLM started") from None


def _leave_unnamed(processor: Any) -> None:
    """Stop vLLM from adding texts to tokens' log-probabilities, because our numbers are not tokens of a response."""
    add = processor.add_request

    def add_request(request: Any, *args: Any, **kwargs: Any) -> None:
        add(request, *args, **kwargs)
        processor.request_states[request.request_id].logprobs_processor.tokenizer = None

    processor.add_request = add_request


def _leave_a_core() -> None:
    """Leave one core of a CPU to the server, as vLLM does when it starts a worker, unless the user sets it."""
    import torch

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() - 1)))  # of what is started from here
