"""The progress bar of an engine: finished rollouts, tokens a second, share of replaced tokens."""

import time

from tqdm import tqdm

from harness.decode.types import Rollout


class Progress:
    """Counts rollouts as they finish, and tokens as they appear. Silent unless `enabled`."""

    def __init__(self, total: int, enabled: bool) -> None:
        self._bar = tqdm(total=total, unit="rollout", desc="decode", disable=not enabled, dynamic_ncols=True)
        self._started = time.monotonic()
        self._tokens = self._replaced = 0

    def finished(self, rollout: Rollout) -> None:
        """One more rollout is done."""
        self._tokens += rollout.n_tokens
        self._replaced += rollout.n_replaced
        self._bar.update()
        self.show()

    def show(self, unfinished_tokens: int = 0) -> None:
        """Redraws the figures; `unfinished_tokens` belong to rollouts still running."""
        if self._bar.disable:
            return
        rate = (self._tokens + unfinished_tokens) / max(time.monotonic() - self._started, 1e-9)
        share = self._replaced / self._tokens if self._tokens else 0.0
        self._bar.set_postfix_str(f"{rate:,.0f} tok/s, {share:.1%} replaced", refresh=False)
        self._bar.refresh() if unfinished_tokens else None

    def close(self) -> None:
        """Leaves the bar as it stands."""
        self._bar.close()
