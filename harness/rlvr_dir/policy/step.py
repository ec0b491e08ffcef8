"""Provide what a gate may use: the policies of its rows, the proposals, the noise, and each row's position."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from rlvr_dir.policy.noise import GATE, uniform
from rlvr_dir.policy.nucleus import nucleus
from rlvr_dir.policy.rule import Rows
from rlvr_dir.policy.statistics import STATISTICS
from rlvr_dir.policy.target import Policies, weights


@dataclass(frozen=True)
class Requests:
    """Hold the position of each row; all (rows,) int64. An engine describes a request only by this and a `Rule`."""

    keys: Tensor  # of the noise
    positions: Tensor  # absolute, of the token to be drawn
    starts: Tensor  # absolute, of the response's first token

    @property
    def written(self) -> Tensor:
        """Return (rows,) int64: how many tokens the response has before this one."""
        return self.positions - self.starts

    def of(self, rows: Rows) -> "Requests":
        """Return the positions of some rows."""
        return Requests(rows.of(self.keys), rows.of(self.positions), rows.of(self.starts))

    def noise(self, stream: int) -> Tensor:
        """Return the uniform numbers of a stream: (rows,) float64 in [0, 1)."""
        return uniform(self.keys, self.positions, stream)


class Step:
    """Represent one step of some rows of a batch. Values are computed only when a gate uses them.

    `lb`, `lr` and `primary` are log-probabilities over the whole vocabulary, (rows, vocab) float32, not truncated;
    `token` (rows,) is the proposed token; `rho` (rows,) float64 is uniform.
    """

    def __init__(
        self, rows: Rows, requests: Requests, token: Tensor, policies: Policies,
        computed: Mapping[str, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """Select some rows of a batch.

        Args:
            requests, token, policies: Those of the whole batch.
            computed: Statistics of the whole batch that are already computed, (n,) each.
        """
        self._rows, self._all, self._policies, self._computed = rows, requests, policies, computed or {}
        self._token = token
        self._statistics: dict[str, Tensor] = {}

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self._statistics:
            self._statistics[name] = make()
        return self._statistics[name]

    @property
    def lb(self) -> Tensor:
        """Return base's log-probabilities."""
        return self._once("lb", lambda: self._rows.of(self._policies.lb))

    @property
    def lr(self) -> Tensor:
        """Return RL's log-probabilities."""
        return self._once("lr", lambda: self._rows.of(self._policies.lr))

    @property
    def primary(self) -> Tensor:
        """Return the log-probabilities of the proposing model."""
        return self._once("primary", lambda: self._rows.of(self._policies.primary))

    @property
    def token(self) -> Tensor:
        """Return (rows,) int64, the proposals."""
        return self._rows.of(self._token)

    @property
    def rho(self) -> Tensor:
        """Return (rows,) float64, uniform numbers that only gates use."""
        return self._once("rho", lambda: self.requests.noise(GATE))

    @cached_property
    def requests(self) -> Requests:
        """Return the positions of these rows."""
        return self._all.of(self._rows)

    @property
    def written(self) -> Tensor:
        """Return (rows,) int64: how many tokens the response has before this one."""
        return self.requests.written

    def stat(self, name: str) -> Tensor:
        """Return one of STATISTICS, (rows,) in nats."""
        value = self._computed.get(name)
        return self._once(name, lambda: STATISTICS[name](self) if value is None else self._rows.of(value))

    def law(self, name: str) -> Tensor:
        """Return the `proposal` or `target` distribution that is sampled, truncated and normalised: (rows, vocab)
        float64."""
        return self._once(f"law of {name}", lambda: self._distribution(name))

    def _distribution(self, name: str) -> Tensor:
        policies = self._policies
        if name == "target":
            policy, rules = policies.target(self._rows, self._token)
        else:
            policy, rules = self.primary, policies.rules.of(self._rows)
        return nucleus(weights(policy, rules), rules.top_p)
