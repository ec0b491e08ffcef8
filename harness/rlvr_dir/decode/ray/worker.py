"""Runs in processes of Ray for `ray_pool`: an engine, and the requests that wait for one. No Ray in here."""

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
    """One engine, which takes its requests wherever they wait."""

    def __init__(self, pair: Pair, spec: EngineSpec) -> None:
        """Keep the settings; `open` loads. From here on the process ends with its node's raylet, its parent."""
        end_with(os.getppid())
        self._place = f"process {os.getpid()} on {socket.gethostname()}"
        self._make: Callable[[], Any] = lambda: single_engine(pair, spec)

    def open(self) -> tuple[str, int, dict[str, Any]]:
        """Load the engine; return host name, process id, and the engine's `info`.

        Raises:
            UserError: the engine refuses; the sentence begins with this process.
        """
        try:
            self._engine = self._make()
            self._engine.start()
        except UserError as error:
            raise UserError(f"{self._place}: {error}") from None
        return socket.gethostname(), os.getpid(), self._engine.info()

    def decode(self, take: "Take") -> Iterator[Rollout]:
        """Yield rollouts until nothing waits; `take` gives the next request to one that holds so many.

        Raises:
            UserError: the engine refuses a request. Any other error of the engine comes through as well.
        """
        taking = _Taking(take)
        try:
            for rollout in self._engine.serve(taking, Progress(0, False)):
                taking.in_flight -= 1
                yield rollout
        except EngineLost:
            os._exit(1)  # the parent starts another worker in this one's place
        except UserError as error:
            raise UserError(f"{self._place}: {error}") from None


Take: TypeAlias = Callable[[int], Request | None]


class _Taking:
    """An iterator that ends where there is no request now, and goes on when there is one."""

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
    """The requests that nobody has taken yet, by index, and who took the others."""

    def __init__(self, requests: Sequence[Request], workers: int) -> None:
        self._requests, self._workers = requests, workers
        self._waiting = deque(range(len(requests)))
        self._taken: dict[int, list[int]] = {}
        self._by_worker: dict[int, int] = {}

    def take(self, worker: int, in_flight: int) -> Request | None:
        """Give the next request to a worker that holds so many; None where it has its share of what is left."""
        self._by_worker[worker] = in_flight
        if not self._waiting or in_flight * self._workers >= len(self._waiting) + sum(self._by_worker.values()):
            return None
        index = self._waiting.popleft()
        self._by_worker[worker] += 1
        self._taken.setdefault(worker, []).append(index)
        return self._requests[index]

    def count(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def put_back(self, worker: int, unfinished: Collection[int]) -> int:
        """Have those that a lost worker took and did not finish wait again, first; return how many."""
        self._by_worker.pop(worker, None)
        begun = [index for index in self._taken.pop(worker, []) if index in unfinished]
        self._waiting.extendleft(reversed(begun))
        return len(begun)
