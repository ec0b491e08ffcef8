"""What runs in each process of `ray_pool`: one engine, decoding in a thread of its own, and `turn`, its in- and outbox.

No Ray in here: `ray_pool` makes an actor of `Worker`.
"""

import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from harness.decode.engine import single_engine
from harness.decode.progress import Progress
from harness.decode.types import EngineLost, Request, Rollout
from harness.errors import UserError
from harness.spec import EngineSpec, Pair
from harness.watch import end_with

PATIENCE = 1.0  # seconds that `turn` waits for something to finish


class Worker:
    """An engine that never waits for its caller: requests come in and rollouts go out while it decodes."""

    def __init__(self, pair: Pair, spec: EngineSpec) -> None:
        """Begin to load the engine and return. From here on the process ends with its node's raylet, its parent."""
        end_with(os.getppid())
        self._inbox = _Inbox()
        self._outbox: SimpleQueue[Rollout | BaseException] = SimpleQueue()
        self._opened: Future[dict[str, Any]] = Future()
        self._beat = _Beat()
        Thread(target=self._work, args=(pair, spec), daemon=True).start()

    def ready(self) -> tuple[str, int, dict[str, Any]]:
        """Wait for the engine, then return host name, process id, and the engine's `info`.

        Raises:
            UserError: the engine refuses; the sentence begins with this process.
        """
        return socket.gethostname(), os.getpid(), self._opened.result()

    def turn(self, requests: Sequence[Request]) -> tuple[list[Rollout], int]:
        """Take more requests and return what has finished since the last turn, as soon as there is any or after
        `PATIENCE`, and the tokens of what is unfinished.

        Raises:
            UserError: the engine refuses a request. Any other error of the engine comes through as well.
        """
        if requests:
            self._inbox.put(requests)
        finished: list[Rollout] = []
        try:
            while True:
                item = self._outbox.get(timeout=0 if finished else PATIENCE)
                if isinstance(item, BaseException):
                    if not finished:
                        raise item
                    self._outbox.put(item)  # the engine has ended: it stays the last, for the next turn
                    break
                finished.append(item)
        except Empty:
            pass
        return finished, self._beat.tokens

    def _work(self, pair: Pair, spec: EngineSpec) -> None:
        try:
            with single_engine(pair, spec) as engine:
                engine.start()
                self._opened.set_result(engine.info())
                while True:
                    self._inbox.wait()
                    for rollout in engine.serve(self._inbox, self._beat):
                        self._outbox.put(rollout)
        except BaseException as error:
            if isinstance(error, EngineLost):  # the parent starts another worker in this one's place
                os._exit(1)
            if isinstance(error, UserError):
                error = UserError(f"process {os.getpid()} on {socket.gethostname()}: {error}")
            if not self._opened.done():
                self._opened.set_exception(error)
            self._outbox.put(error)


class _Inbox:
    """An iterator that ends when nothing waits now, and goes on when something has come in."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Sequence[Request]] = SimpleQueue()
        self._waiting: deque[Request] = deque()

    def put(self, requests: Sequence[Request]) -> None:
        self._queue.put(requests)

    def wait(self) -> None:
        """Wait until there is a request."""
        if not self._waiting:
            self._waiting.extend(self._queue.get())

    def __iter__(self) -> Iterator[Request]:
        return self

    def __next__(self) -> Request:
        while not self._queue.empty():
            self._waiting.extend(self._queue.get())
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()


class _Beat(Progress):
    """Where the engine says how many tokens its unfinished rollouts have."""

    def __init__(self) -> None:
        super().__init__(0, False)
        self.tokens = 0

    def finished(self, rollout: Rollout) -> None:
        """Do nothing: the caller counts what it gets."""

    def show(self, unfinished_tokens: int = 0) -> None:
        """Keep the number for the next turn."""
        self.tokens = unfinished_tokens
