"""Define how training reweights advantages: how much each written token counts. Each method is one class.

    @dataclass(frozen=True)
    class Position(Reweighting):             # a file of reweighting/, and its test
        name = "position"
        alpha: float = 0.1                   # its default strength

        def weight(self, logp, mask):        # two (n, tokens) -> (n, tokens) or (n, 1)
            return 1 - self.alpha * ...

Settings, errors, labels, help, both training backends and the paper's tables are derived from the class. No other code
names a method. Responses are rows; `logp` is the log-probability of each written token at the sampling temperature,
before any top-p; `mask` is true on response tokens. With alpha = 0 every weight is 1.0 and the advantage equals DAPO's
bit for bit. Weights are never differentiated. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from rlvr_dir.errors import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_dir.errors import UserError

PLAIN = "none"  # the name of plain DAPO


@dataclass(frozen=True)
class Reweighting:
    """Multiply the advantage of each token by a weight of strength `alpha`."""

    alpha: float

    name: ClassVar[str] = ""  # the name that selects it
    paper: ClassVar[str] = ""  # its name in the paper's tables
    alphas: ClassVar[Mapping[str, float]] = {}  # the paper's alpha by preset, if it is not the default
    clip_high: ClassVar[float] = 0.28  # the upper clip of the ratio in the loss, minus 1
    whole_batch: ClassVar[bool] = False  # whether a weight depends on the other rows, so that all of them are needed
    scope: ClassVar[str] = "batch"  # the rows that belong together in its authors' code: batch, or group

    def weight(self, logp: Tensor, mask: Tensor) -> Tensor:
        """Return the weights of tokens, float32. Values outside the mask are ignored."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Return its name with its strength, as in tables: `low_prob α0.2`."""
        return f"{self.name} α{self.alpha:g}"

    def refusal(self) -> UserError | None:
        """Return the error for an alpha that this method does not accept; None if it accepts it."""
        return None


@cache
def reweightings() -> dict[str, type[Reweighting]]:
    """Return the methods by name, in the order of the files and of the classes in them."""
    modules = [importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {way.name: way for way in classes if issubclass(way, Reweighting) and way.name}


def reweighting(method: str, alpha: float | None = None) -> Reweighting:
    """Make a reweighting by its name. Without `alpha` it has its default strength.

    Raises:
        UserError: There is no such method.
    """
    if (way := reweightings().get(method)) is None:
        raise unknown("method", method, reweightings())
    own: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
    return way(**own)


def method_names() -> str:
    """Return the names of all methods as text: `none, low_prob, dominate or ppl`."""
    *names, last = reweightings()
    return f"{', '.join(names)} or {last}"


def default_alphas() -> str:
    """Return each method's default alpha as text: `0.2 with low_prob, 0.1 with dominate`."""
    return ", ".join(f"{way.alpha:g} with {name}" for name, way in reweightings().items() if name != PLAIN)


def token_weights(way: Reweighting, logp: Tensor, mask: Tensor, scopes: Iterable[Tensor] | None = None) -> Tensor:
    """Return the factor of each token's advantage: two (n, tokens) -> (n, tokens); 1 where the mask is 0.

    Args:
        logp: By pi_old or the policy that is being trained; detached here.
        scopes: Index tensors (rows,) int64 of rows that are weighed together; by default all rows. Rows in none of them
            have weight 1.
    """
    logp, inside = logp.detach().float(), mask.bool()
    if scopes is None:
        return way.weight(logp, inside).where(inside, 1.0)
    weights = logp.new_ones(logp.shape)
    for rows in scopes:
        weights[rows] = way.weight(logp[rows], inside[rows]).expand_as(logp[rows])
    return weights.where(inside, 1.0)
