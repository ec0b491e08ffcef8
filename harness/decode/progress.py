"""The progress bar of an engine: finished rollouts, tokens a second, the time left, replaced and changed tokens."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.decode.types import Rollout
from harness.progress import Bar, interval

_LOOK = 1.0  # seconds between two counts of the tokens of unfinished rollouts
_ENOUGH = 16  # finished rollouts, or a tenth of all, from which on the rest is estimated


class Progress(Bar):
    """Counts rollouts as they finish, and tokens as they appear. Silent unless `enabled`.

    An engine tells it `now("prefilling")` where prompts are read and no token is there yet, then `now("generating")`.
    """

    def __init__(self, total: int, enabled: bool) -> None:
        super().__init__(total, "rollout", "decode", enabled=enabled)
        self._started = self._looked = time.monotonic()
        self._done = self._tokens = self._unfinished = self._replaced = self._changed = 0

    @property
    def speed(self) -> float | None:
        """Tokens of finished rollouts a second, None before there are any."""
        return self._tokens / max(time.monotonic() - self._started, 1e-9) if self._tokens else None

    @property
    def looks(self) -> bool:
        """Tell whether the engine should count the tokens of unfinished rollouts and `show` them: once a second."""
        if time.monotonic() - self._looked < _LOOK:
            return False
        self._looked = time.monotonic()
        return True

    def restart(self) -> None:
        """Set its clock to zero: what came before was no decoding."""
        self._started = time.monotonic()

    def finished(self, rollout: Rollout) -> None:
        """Count one more rollout as done."""
        self._done += 1
        self._tokens += rollout.n_tokens
        self._replaced += rollout.n_replaced
        self._changed += rollout.n_changed
        self.update()
        self.show(max(0, self._unfinished - rollout.n_tokens))

    def show(self, unfinished_tokens: int = 0) -> None:
        """Renew the figures; `unfinished_tokens` belong to rollouts still running."""
        self._unfinished = unfinished_tokens
        if not self.enabled:
            return
        rate = (self._tokens + unfinished_tokens) / max(time.monotonic() - self._started, 1e-9)
        replaced, changed = (count / max(1, self._tokens) for count in (self._replaced, self._changed))
        tokens = self._tokens + unfinished_tokens
        text = f"{time_left(self.tokens_left(), rate)} left, {tokens:,} tokens, {rate:,.0f} tok/s, "
        self.figures(f"{text}{replaced:.1%} replaced, {changed:.1%} changed{self.note()}")

    def tokens_left(self) -> float | None:
        """Estimate the tokens to come; None before enough rollouts are finished.

        Short ones finish first. So the tokens of running ones count into the mean length, as where every token is the
        last one by the same chance: then each running one has a mean length before it still.
        """
        if self._done < min(_ENOUGH, max(1, self.total / 10)):
            return None
        return (self.total - self._done) * (self._tokens + self._unfinished) / self._done

    def note(self) -> str:
        """Return what a subclass adds to the figures."""
        return ""


@contextmanager
def reporting(progress: bool | Progress, total: int) -> Iterator[Progress]:
    """Give what an engine reports to: the caller's `Progress`, which stays open, or a new bar, shown or not."""
    if isinstance(progress, Progress):
        if progress.speed is None:
            progress.restart()
        yield progress
        return
    with Progress(total, progress) as bar:
        yield bar


def time_left(tokens: float | None, rate: float) -> str:
    """Write the time that `tokens` take at `rate` a second as hours:minutes:seconds; `?` where either is unknown."""
    return interval(tokens / rate) if tokens is not None and rate > 0 else "?"
