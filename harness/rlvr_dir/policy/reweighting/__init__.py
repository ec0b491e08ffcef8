"""Ways of reweighting the advantages of a training: how much each written token counts. One is one class here.

    @dataclass(frozen=True)
    class Position(Reweighting):             # a file of reweighting/, and its test
        name = "position"
        alpha: float = 0.1                   # its default strength

        def weight(self, logp, mask):        # two (n, tokens) -> (n, tokens) or (n, 1)
            return 1 - self.alpha * ...

Settings, refusals, labels, help, both training backends and the paper's tables are made from the class; nothing else
names one. Responses are rows; `logp` is the log-probability of each written token at the sampling temperature, before
any top-p; `mask` is true on response tokens. With alpha = 0 every weight is 1.0 and the advantage is DAPO's to the bit.
No weight is ever differentiated. Nothing here imports torch.
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
    """Multiply the advantage of each token by a weight, as strongly as `alpha` says."""

    alpha: float

    name: ClassVar[str] = ""  # under which it is asked for
    paper: ClassVar[str] = ""  # what the paper's tables call it
    alphas: ClassVar[Mapping[str, float]] = {}  # the paper's alpha by preset, where it is not the default
    clip_high: ClassVar[float] = 0.28  # where the loss clips the ratio from above, minus 1
    whole_batch: ClassVar[bool] = False  # whether a weight depends on the other rows: all rows must be there
    scope: ClassVar[str] = "batch"  # the rows that `whole_batch` means in its authors' code: batch, or group

    def weight(self, logp: Tensor, mask: Tensor) -> Tensor:
        """Return the weights of tokens, float32; what is outside the mask does not matter."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Return its name with its strength, as tables have it: `low_prob α0.2`."""
        return f"{self.name} α{self.alpha:g}"

    def refusal(self) -> UserError | None:
        """Return the error for an alpha that this method does not accept; None if it accepts it."""
        return None


@cache
def reweightings() -> dict[str, type[Reweighting]]:
    """Return the ways that there are, by name, in the order of the files and of the classes in them."""
    modules = [importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {way.name: way for way in classes if issubclass(way, Reweighting) and way.name}


def reweighting(method: str, alpha: float | None = None) -> Reweighting:
    """Make a way of reweighting by its name, with its own alpha where none is given.

    Raises:
        ValueError: there is no such way.
    """
    if (way := reweightings().get(method)) is None:
        raise unknown("method", method, reweightings())
    own: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
    return way(**own)


def method_names() -> str:
    """Name all ways for a person: `none, low_prob, dominate or ppl`."""
    *names, last = reweightings()
    return f"{', '.join(names)} or {last}"


def default_alphas() -> str:
    """Name each way's own alpha for a person: `0.2 with low_prob, 0.1 with dominate`."""
    return ", ".join(f"{way.alpha:g} with {name}" for name, way in reweightings().items() if name != PLAIN)


def token_weights(way: Reweighting, logp: Tensor, mask: Tensor, scopes: Iterable[Tensor] | None = None) -> Tensor:
    """Return what each token's advantage is multiplied by: two (n, tokens) -> (n, tokens); 1 where the mask is 0.

    Args:
        logp: of pi_old or of the policy that is being trained; detached here.
        scopes: the indices of rows that are weighed together, each (rows,) int64; default all rows. Rows in none of
            them have weight 1.
    """
    logp, inside = logp.detach().float(), mask.bool()
    if scopes is None:
        return way.weight(logp, inside).where(inside, 1.0)
    weights = logp.new_ones(logp.shape)
    for rows in scopes:
        weights[rows] = way.weight(logp[rows], inside[rows]).expand_as(logp[rows])
    return weights.where(inside, 1.0)
