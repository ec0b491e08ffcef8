"""Show the progress of an engine: finished rollouts, tokens per second, the time left, flagged and changed tokens."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rlvr_dir.decode.time_left import Pace, work_left
from rlvr_dir.decode.types import Plan, Rollout
from rlvr_dir.progress import Bar, interval

_LOOK = 1.0  # seconds between two counts of the tokens of unfinished rollouts
_ESTIMATE = 2.0  # seconds between two estimates of the time left
_ENOUGH = 16  # finished rollouts, or a tenth of all, before the rest is estimated


class Progress(Bar):
    """Count rollouts as they finish, and tokens as they appear. Nothing is shown unless `enabled`.

    An engine calls `set_phase("prefilling")` while it reads prompts, then `set_phase("generating")`.
    """

    def __init__(self, total: int, enabled: bool) -> None:
        super().__init__(total, "decode", enabled=enabled)
        self._started = self._last_look = time.monotonic()
        self._done = self._tokens = self._unfinished = self._replaced = self._changed = 0
        self._ended: list[int] = []
        self._cut: list[int] = []
        self._running: Sequence[int] = ()
        self._pace = Pace()
        self._estimate: tuple[float, float | None] | None = None  # the time, and the seconds left at that time
        self.most = 0  # tokens of the longest possible response; 0 if unknown

    @property
    def speed(self) -> float | None:
        """Return the tokens of finished rollouts per second; None before there are any."""
        return self._tokens / max(time.monotonic() - self._started, 1e-9) if self._tokens else None

    @property
    def looks(self) -> bool:
        """Return whether the engine should count the tokens of unfinished rollouts and `show` them, once a second."""
        if time.monotonic() - self._last_look < _LOOK:
            return False
        self._last_look = time.monotonic()
        return True

    def restart(self) -> None:
        """Restart its clock. The time before was not spent on decoding."""
        self._started = time.monotonic()

    def finished(self, rollout: Rollout) -> None:
        """Count one more rollout as done."""
        self._done += 1
        self._tokens += rollout.n_tokens
        (self._cut if rollout.finish_reason == "length" else self._ended).append(rollout.n_tokens)
        self._replaced += rollout.n_replaced
        self._changed += rollout.n_changed
        self.update()
        self._unfinished = max(0, self._unfinished - rollout.n_tokens)
        self._renew()

    def show(self, running: Iterable[int]) -> None:
        """Update the figures. `running` has the tokens so far of each unfinished rollout."""
        self._running = [tokens for tokens in running if tokens]
        self._unfinished = sum(self._running)
        self._pace.see(time.monotonic(), self._tokens + self._unfinished, len(self._running))
        self._renew()

    def _renew(self) -> None:
        if not self.enabled:
            return
        tokens = self._tokens + self._unfinished
        rate = tokens / max(time.monotonic() - self._started, 1e-9)
        flagged, changed = (count / max(1, self._tokens) for count in (self._replaced, self._changed))
        now = time.monotonic()
        if self._estimate is None or now - self._estimate[0] > _ESTIMATE or self._done == self.total:
            self._estimate = now, self.seconds_left()
        since, seconds = self._estimate
        time_left = "?" if seconds is None else interval(max(seconds - (now - since), 0.0))
        text = f"{time_left} left, {tokens:,} tokens, {rate:,.0f} tok/s, "
        self.figures(f"{text}{flagged:.1%} flagged, {changed:.1%} changed{self.note()}")

    def seconds_left(self) -> float | None:
        """Estimate the seconds that the rest takes (see `time_left`); None before enough rollouts are finished."""
        if self.total and self._done >= self.total:
            return 0.0
        passed = time.monotonic() - self._started
        if self._done < min(_ENOUGH, max(1, self.total / 10)) or passed <= 0:
            return None
        if not self._running:  # for several machines only finished rollouts are known
            return passed * (self.total - self._done) / self._done
        waiting = max(0, self.total - self._done - len(self._running))
        most = max(self.most, *self._ended, *self._cut, *self._running)
        return self._pace.seconds(*work_left(self._ended, self._cut, self._running, waiting, most))

    def note(self) -> str:
        """Return text that a subclass adds to the figures."""
        return ""


@contextmanager
def reporting(progress: bool | Progress, plans: Sequence[Plan]) -> Iterator[Progress]:
    """Yield what an engine reports to: the caller's `Progress`, which stays open, or a new bar, shown or not."""
    most = max((plan.max_new_tokens for plan in plans), default=0)
    if isinstance(progress, Progress):
        if progress.speed is None:
            progress.restart()
        progress.most = max(progress.most, most)
        yield progress
        return
    with Progress(len(plans), progress) as bar:
        bar.most = most
        yield bar
