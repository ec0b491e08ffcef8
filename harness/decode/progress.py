"""The progress bar of an engine: finished rollouts, tokens a second, the time left, share of replaced tokens."""

import time

from harness.decode.types import Rollout
from harness.progress import Bar, interval

_LOOK = 1.0  # seconds between two counts of the tokens of unfinished rollouts


class Progress(Bar):
    """Counts rollouts as they finish, and tokens as they appear. Silent unless `enabled`.

    An engine tells it `now("prefilling")` where prompts are read and no token is there yet, then `now("generating")`.
    """

    def __init__(self, total: int, enabled: bool) -> None:
        super().__init__(total, "rollout", "decode", enabled=enabled)
        self._started = self._looked = time.monotonic()
        self._done = self._tokens = self._replaced = 0

    @staticmethod
    def of(progress: "bool | Progress", total: int) -> "Progress":
        """Return what an engine reports to, its clock at zero: the caller's `Progress`, or a new bar, shown or not."""
        if not isinstance(progress, Progress):
            return Progress(total, progress)
        progress._started = time.monotonic()
        return progress

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

    def finished(self, rollout: Rollout) -> None:
        """Count one more rollout as done."""
        self._done += 1
        self._tokens += rollout.n_tokens
        self._replaced += rollout.n_replaced
        self.update()
        self.show()

    def show(self, unfinished_tokens: int = 0) -> None:
        """Renew the figures; `unfinished_tokens` belong to rollouts still running."""
        if not self.enabled:
            return
        rate = (self._tokens + unfinished_tokens) / max(time.monotonic() - self._started, 1e-9)
        share = self._replaced / self._tokens if self._tokens else 0.0
        text = f"{time_left(self.tokens_left(unfinished_tokens), rate)} left, {rate:,.0f} tok/s, {share:.1%} replaced"
        self.figures(text + self.note())

    def tokens_left(self, unfinished_tokens: int = 0) -> float | None:
        """Estimate the tokens to come, every rollout as long as the finished ones were; None before one is finished.

        Short ones finish first, so it is low in the beginning.
        """
        if not self._done:
            return None
        return max(0.0, (self.total - self._done) * self._tokens / self._done - unfinished_tokens)

    def note(self) -> str:
        """Return what a subclass adds to the figures."""
        return ""


class Shared(Progress):
    """Another `Progress` for one of several engines that report to it in turn: none of them may close it."""

    def __init__(self, bar: Progress) -> None:
        self._shared = bar

    @property
    def looks(self) -> bool:
        """Tell whether the engine should count the tokens of unfinished rollouts."""
        return self._shared.looks

    def now(self, name: str, word: str = "") -> None:
        """Go over to another phase."""
        self._shared.now(name, word)

    def finished(self, rollout: Rollout) -> None:
        """Count one more rollout as done."""
        self._shared.finished(rollout)

    def show(self, unfinished_tokens: int = 0) -> None:
        """Renew the figures."""
        self._shared.show(unfinished_tokens)

    def close(self) -> None:
        """Do nothing."""


def time_left(tokens: float | None, rate: float) -> str:
    """Write the time that `tokens` take at `rate` a second as hours:minutes:seconds; `?` where either is unknown."""
    return interval(tokens / rate) if tokens is not None and rate > 0 else "?"
