"""The progress bar of an engine: finished rollouts, tokens a second, the time left, share of replaced tokens."""

import time

from tqdm import tqdm

from harness.decode.types import Rollout

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


class Progress:
    """Counts rollouts as they finish, and tokens as they appear. Silent unless `enabled`."""

    def __init__(self, total: int, enabled: bool) -> None:
        self._bar = tqdm(
            total=total, unit="rollout", desc="decode", disable=not enabled, dynamic_ncols=True, bar_format=_FORMAT
        )
        self._started = time.monotonic()
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

    def finished(self, rollout: Rollout) -> None:
        """Count one more rollout as done."""
        self._done += 1
        self._tokens += rollout.n_tokens
        self._replaced += rollout.n_replaced
        self._bar.update()
        self.show()

    def show(self, unfinished_tokens: int = 0) -> None:
        """Redraw the figures; `unfinished_tokens` belong to rollouts still running."""
        if self._bar.disable:
            return
        rate = (self._tokens + unfinished_tokens) / max(time.monotonic() - self._started, 1e-9)
        share = self._replaced / self._tokens if self._tokens else 0.0
        text = f"{time_left(self.tokens_left(unfinished_tokens), rate)} left, {rate:,.0f} tok/s, {share:.1%} replaced"
        self._bar.set_postfix_str(text + self.note(), refresh=False)
        self._bar.refresh() if unfinished_tokens else None

    def tokens_left(self, unfinished_tokens: int = 0) -> float | None:
        """Estimate the tokens to come, every rollout as long as the finished ones were; None before one is finished.

        Short ones finish first, so it is low in the beginning.
        """
        if not self._done:
            return None
        return max(0.0, (self._bar.total - self._done) * self._tokens / self._done - unfinished_tokens)

    def note(self) -> str:
        """Return what a subclass adds to the figures."""
        return ""

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()


class Shared(Progress):
    """Another `Progress` for one of several engines that report to it in turn: none of them may close it."""

    def __init__(self, bar: Progress) -> None:
        self._shared = bar

    def finished(self, rollout: Rollout) -> None:
        """Count one more rollout as done."""
        self._shared.finished(rollout)

    def show(self, unfinished_tokens: int = 0) -> None:
        """Redraw the figures."""
        self._shared.show(unfinished_tokens)

    def close(self) -> None:
        """Do nothing."""


def time_left(tokens: float | None, rate: float) -> str:
    """Write the time that `tokens` take at `rate` a second as hours:minutes:seconds; `?` where either is unknown."""
    return tqdm.format_interval(tokens / rate) if tokens is not None and rate > 0 else "?"
