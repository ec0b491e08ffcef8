"""Run in Ray's processes for `pool`: an engine, and the queue of requests. This module does not import Ray."""

import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Self, TypeAlias

from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.single import single_engine
from rlvr_dir.decode.types import EngineLost, Request, Rollout
from rlvr_dir.errors import UserError
from rlvr_dir.watch import end_with


class Worker:
    """Run one engine, which takes its requests from a queue."""

    def __init__(self, pair: Pair, spec: EngineSpec) -> None:
        """Store the settings; `open` loads. From now on the process ends with its node's raylet, its parent."""
        end_with(os.getppid())
        self._place = f"process {os.getpid()} on {socket.gethostname()}"
        self._make: Callable[[], Any] = lambda: single_engine(pair, spec)

    def open(self) -> tuple[str, int, dict[str, Any]]:
        """Load the engine; return host name, process id, and the engine's `info`.

        Raises:
            UserError: The engine reports an error; the message begins with this process.
        """
        try:
            self._engine = self._make()
            self._engine.start()
        except UserError as error:
            raise UserError(f"{self._place}: {error}", argument=error.argument) from None
        return socket.gethostname(), os.getpid(), self._engine.info()

    def decode(self, take: "Take") -> Iterator[Rollout]:
        """Yield rollouts until nothing waits. `take` returns the next request, given the number of running ones.

        Raises:
            UserError: The engine does not accept a request. Any other error of the engine is raised as well.
        """
        taking = _Taking(take)
        try:
            for rollout in self._engine.serve(taking, Progress(0, False)):
                taking.in_flight -= 1
                yield rollout
        except EngineLost:
            os._exit(1)  # the parent starts another worker instead
        except UserError as error:
            raise UserError(f"{self._place}: {error}", argument=error.argument) from None


Take: TypeAlias = Callable[[int], Request | None]


class _Taking:
    """Iterate over requests. The iterator ends when there is none, and can be used again when there is one."""

    def __init__(self, take: Take) -> None:
        self._take, self.in_flight = take, 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Request:
        if (request := self._take(self.in_flight)) is None:
            raise StopIteration
        self.in_flight += 1
        return request


class Waiting:
    """Store the requests that no worker has taken yet, by index, and who took the others."""

    def __init__(self, requests: Sequence[Request], workers: int) -> None:
        self._requests, self._workers = requests, workers
        self._waiting = deque(range(len(requests)))
        self._taken: dict[int, list[int]] = {}
        self._by_worker: dict[int, int] = {}

    def take(self, worker: int, in_flight: int) -> Request | None:
        """Return the next request for a worker with this many running ones; None if it has its share of the rest."""
        self._by_worker[worker] = in_flight
        if not self._waiting or in_flight * self._workers >= len(self._waiting) + sum(self._by_worker.values()):
            return None
        index = self._waiting.popleft()
        self._by_worker[worker] += 1
        self._taken.setdefault(worker, []).append(index)
        return self._requests[index]

    def count(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    def put_back(self, worker: int, unfinished: Collection[int]) -> int:
        """Return the unfinished requests of a lost worker to the front of the queue; return how many they are."""
        self._by_worker.pop(worker, None)
        begun = [index for index in self._taken.pop(worker, []) if index in unfinished]
        self._waiting.extendleft(reversed(begun))
        return len(begun)
