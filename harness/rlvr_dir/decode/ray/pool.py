"""Run several engines behind one `Engine`, on one machine or many. Ray places and starts them as actors.

Requests wait in their own actor, and each worker takes more whenever its batch has room. If a worker dies, only time is
lost: its unfinished requests return to the front of the queue, and another worker is started. A request may be begun
several times, because its noise is a hash of (seed, problem, sample, position). So neither the worker nor the number of
attempts changes a token.
"""

import os
import re
import socket
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode.engine import Engine
from rlvr_dir.decode.progress import Progress, reporting
from rlvr_dir.decode.ray.cluster import Cluster, quiet
from rlvr_dir.decode.ray.worker import Waiting, Worker
from rlvr_dir.decode.single import single_engine
from rlvr_dir.decode.types import Plan, Request, Rollout
from rlvr_dir.errors import UserError

DEATHS = 3  # a worker is given up after this many losses without a finished response in between


@dataclass(eq=False)
class _Member:
    """Represent a worker in the parent process."""

    number: int
    actor: Any = None
    deaths: int = 0  # since it last finished a response
    host: str = ""
    pid: int = 0  # 0 until its engine is loaded

    def __str__(self) -> str:
        return f"worker {self.number}" + (f" (process {self.pid} on {self.host})" if self.pid else "")


@dataclass(frozen=True, slots=True)
class _Take:
    """Take a worker's next request from the queue, on any node."""

    waiting: Any  # the actor of `Waiting`
    worker: int

    def __call__(self, in_flight: int) -> Request | None:
        import ray

        return ray.get(self.waiting.take.remote(self.worker, in_flight))


class RayEngines(Engine):
    """Decode on `spec.workers` engines on Ray. Call `start`, or let the first `generate` do so."""

    def __init__(self, pair: Pair, spec: EngineSpec) -> None:
        """Check the checkpoints and settings on this machine. Neither Ray nor a model is started.

        Raises:
            UserError: As for the engine that each worker will open.
        """
        quiet()
        self._worker_spec = spec.replace(workers=1, ray_address=None)
        self._local_engine = single_engine(pair, self._worker_spec)  # never loaded; used for its checks and facts
        super().__init__(pair, spec, self._local_engine.checkpoints)
        address = spec.ray_address or os.environ.get("RAY_ADDRESS")
        self._address = None if address == "local" else address
        self._cluster: Cluster | None = None
        self._facts: dict[str, Any] | None = None
        self._workers: dict[int, _Member] = {}
        self._calls: dict[Any, _Member] = {}  # running calls that load or return rollouts, at most one per member
        self._waiting: Any = None  # the actor of `Waiting`, while requests are decoded
        self._failed = False

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers whose engines are loaded, on any host."""
        return [member.pid for member in self._workers.values() if member.pid]

    def info(self) -> dict[str, Any]:
        """Return what each worker runs, and the number of workers; see `Engine.info`.

        On a cluster this queries whether it has GPUs.
        """
        facts = self._facts or self._local_engine.info() | {"device": self._device()}
        return {**facts, "workers": self.spec.workers}

    def start(self) -> None:
        """Start the workers that are missing and wait for the first. The others join when they have loaded.

        Raises:
            UserError: Ray cannot be reached or has too few GPUs, an engine reports an error, or workers differ.
        """
        self.started = False  # a lost one may be missing
        super().start()

    def load(self) -> None:
        """Start workers; see `start`."""
        try:
            if not self._workers and not self._on_gpus():
                self._local_engine.work = self.work and self.work // self.spec.workers
                self._worker_spec = (
                    self._local_engine.settled()
                )  # reported here, because workers do not know the amount of work
            missing = [number for number in range(self.spec.workers) if number not in self._workers]
            self._warn_of_a_queue(len(missing))
            for number in missing:
                self._start_worker(_Member(number))
            while not self.pids:
                self._next_rollout({})
        except BaseException:
            self.close()
            raise

    def generate(self, requests: Iterable[Request], *, progress: bool | Progress = False) -> Iterator[Rollout]:
        """Yield rollouts as they finish, each once; see `Engine.generate`. If the caller stops early, the workers end.

        Raises:
            UserError: As for `start`, or every worker was lost repeatedly.
        """
        return super().generate(requests, progress=progress)

    def decode(self, plans: list[Plan], progress: bool | Progress) -> Iterator[Rollout]:
        """Yield rollouts as they finish; see `Engine.decode`."""
        if self._waiting is not None:
            raise RuntimeError("this engine is already generating: exhaust or close the first iterator before the next")
        pending = dict(enumerate(plans))
        bare_plans = [_bare(plan, index) for index, plan in pending.items()]
        self._waiting = self._queue(bare_plans)
        try:
            self._set_to_work()
            with reporting(progress, plans) as bar:
                bar.set_phase("generating")
                while pending:
                    rollout = self._next_rollout(pending)
                    if rollout is not None and (plan := pending.pop(rollout.request.tag, None)) is not None:
                        done = replace(rollout, request=plan.request)
                        bar.finished(done)
                        yield done
        finally:
            self._waiting = None
            for member in list(self._calls.values()) if pending else ():
                self._stop_worker(member)

    def _queue(self, requests: list[Request]) -> Any:
        """Start the actor of waiting requests on this node, so that the loss of another node does not affect it."""
        ray = self._joined().ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        actor = ray.remote(Waiting).options(num_cpus=0, scheduling_strategy=here)
        return actor.remote(requests, len(self._workers))

    def _set_to_work(self) -> None:
        """Let every worker that is loaded and idle take waiting requests."""
        busy = set(map(id, self._calls.values()))
        for member in self._workers.values():
            if self._waiting is not None and member.pid and id(member) not in busy:
                self._calls[member.actor.decode.remote(_Take(self._waiting, member.number))] = member

    def _next_rollout(self, unfinished: dict[int, Plan]) -> Rollout | None:
        """Wait for the next answer and return its rollout; None if a worker has loaded, ended or is lost.

        Raises:
            UserError: A worker's engine reports an error, workers differ, or no worker is left.
        """
        ray = self._joined().ray
        [call], _ = ray.wait(list(self._calls))
        member = self._calls.pop(call)
        try:
            if not member.pid:
                member.host, member.pid, facts = ray.get(call)
                self._compare(member, facts)
                self._set_to_work()
                return None
            rollout = ray.get(next(call))
        except StopIteration:  # nothing was waiting when it last checked
            if unfinished and ray.get(self._waiting.count.remote()):
                self._set_to_work()
            return None
        except ray.exceptions.RayTaskError as error:  # the engine's own error, not Ray's
            self._stop_worker(member)
            if isinstance(error.cause, UserError):
                cause = error.cause
                raise UserError(f"worker {member.number}, {cause}", argument=cause.argument) from None
            raise
        except ray.exceptions.RayError as error:
            self._on_lost(member, error, unfinished)
            return None
        self._calls[call], member.deaths = member, 0
        return rollout

    def _start_worker(self, member: _Member) -> None:
        """Start an actor for a member. Ray chooses the place."""
        resources = self._resources()
        actor = self._joined().ray.remote(Worker).options(scheduling_strategy="SPREAD", **resources)
        member.actor, member.pid = actor.remote(self.pair, self._worker_spec), 0
        self._workers[member.number] = member
        self._calls[member.actor.open.remote()] = member

    def _stop_worker(self, member: _Member) -> None:
        """End a member's actor at once."""
        if self._cluster is not None:
            with suppress(Exception):  # it may be gone already, and Ray too
                self._cluster.ray.kill(member.actor)
        self._calls = {call: other for call, other in self._calls.items() if other is not member}
        self._workers.pop(member.number, None)

    def _on_lost(self, member: _Member, error: Exception, unfinished: dict[int, Plan]) -> None:
        """Replace a member whose actor is lost, unless that has happened too often."""
        self._stop_worker(member)
        member.deaths += 1
        begun = 0
        if self._waiting is not None:
            begun = self._joined().ray.get(self._waiting.put_back.remote(member.number, set(unfinished)))
            self._set_to_work()
        loss = f"{member} was lost: {_reason(error)}"
        if member.deaths < DEATHS:
            warnings.warn(f"{loss}. Starting another one, which begins {begun} responses again", stacklevel=2)
            self._start_worker(member)
        elif self._workers:
            warnings.warn(f"{loss}, {DEATHS} times in a row. The others continue without it", stacklevel=2)
        else:
            self._failed = True
            cluster = self._joined()
            logs = f". Their output is in {cluster.logs}" if cluster.private else ""
            raise UserError(
                f": no worker is left. The last one was lost {DEATHS} times in a row without finishing a response "
                f"({_reason(error)})",
                argument="workers",
                value=self.spec.workers,
                hint=f"Recorded responses are kept; run the same command again to resume{logs}",
            )

    def _compare(self, member: _Member, facts: dict[str, Any]) -> None:
        """Check that a worker decodes with the settings that the records will contain.

        Raises:
            UserError: Its versions, device or settings differ from those here or on the workers before it.
        """
        own_info = {name: value for name, value in self.info().items() if name not in ("self_test", "workers")}
        differ = [name for name, value in own_info.items() if facts.get(name) != value]
        if differ:
            self._stop_worker(member)
            name = differ[0]
            where = "the workers before it" if self._facts else f"{socket.gethostname()}, where this command runs,"
            raise UserError(
                f"{member} has {name}={facts.get(name)!r}, and {where} {own_info[name]!r}",
                accepted="the same installation and the same kind of device on every node",
            )
        self._facts = facts

    def _warn_of_a_queue(self, missing: int) -> None:
        """Warn if others use the GPUs, because Ray waits for them without a time limit."""
        wanted = missing * self._resources()["num_gpus"]
        if wanted and (free := self._joined().free_gpus) < wanted:
            warnings.warn(
                f"{wanted} GPUs are needed and {free} are free: workers start when GPUs are free", stacklevel=3
            )

    def _joined(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._address, self.spec.workers)
        return self._cluster

    def _device(self) -> str:
        """Return the workers' device: on a private Ray that of this process; on a cluster GPUs, if there are any."""
        device = self._local_engine.info()["device"]
        if self.spec.device is not None or self._address is None:
            return device
        return "cuda" if self._joined().gpus else "cpu"

    def _on_gpus(self) -> bool:
        """Return whether Ray reserves GPUs for a worker."""
        return self._device() != "cpu"

    def _resources(self) -> dict[str, Any]:
        """Return what Ray reserves for each worker.

        Raises:
            UserError: All of them together are more than the cluster has.
        """
        cluster, spec = self._joined(), self.spec
        if self._on_gpus():
            most = cluster.gpus // spec.tensor_parallel_size
            if spec.workers > most:
                raise UserError(
                    f"with tensor_parallel_size={spec.tensor_parallel_size} needs "
                    f"{spec.workers * spec.tensor_parallel_size} GPUs, and Ray has {cluster.gpus}",
                    argument="workers",
                    value=spec.workers,
                    accepted=f"up to {most} workers" if most else "a cluster with more GPUs, or device=cpu",
                )
            return {"num_gpus": spec.tensor_parallel_size, "num_cpus": 1}
        if spec.workers > cluster.cpus:
            raise UserError(
                f"is too many: Ray has {cluster.cpus} CPU cores, and each worker needs one",
                argument="workers",
                value=spec.workers,
                accepted=f"up to {cluster.cpus}",
            )
        return {"num_gpus": 0, "num_cpus": max(1, cluster.cpus // spec.workers) if cluster.private else 1}

    def close(self) -> None:
        """End the workers, and Ray if it was started for them."""
        for member in list(self._workers.values()):
            self._stop_worker(member)
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close(keep_logs=self._failed)
        self._local_engine.close()


def _bare(plan: Plan, index: int) -> Request:
    """Return a request as it is sent: token ids instead of text, and its index instead of the caller's tag."""
    return replace(plan.request, prompt="", prompt_token_ids=plan.token_ids[: plan.start], tag=index)


def _reason(error: Exception) -> str:
    """Return Ray's reason for the loss of an actor, without the text around it."""
    text = str(error).strip() or type(error).__name__
    if "creation task" in text:  # a traceback, which ends with the exception
        return text.splitlines()[-1]
    because = re.search(r"because ([^.\n]+)", text)
    return because[1] if because else text.splitlines()[0]
