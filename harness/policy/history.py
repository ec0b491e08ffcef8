"""What `spike` looks back at: the cross entropy of each response's latest positions, on the device.

A criterion of one position needs no memory; this one compares a position with those before it. The cross entropy of a
position depends on the tokens before it alone, not on the one that is written there, so what is written down twice, by
a position that is decided once more (after a preemption, or a draft that was cut), is the same number in the same
place.
"""

from dataclasses import dataclass

import torch

MOST_SPAN = 256  # positions that a mean may be taken over
WIDTH = 2 * MOST_SPAN  # positions kept of a response; what is decided once more or ahead overwrites no other's number


class History:
    """The numbers of up to `cells` responses, by cell and position.

    A number is kept with its position, so that one that is missing is noticed. There is one cell more than asked for:
    `spare`, the last, for rows that need none.
    """

    def __init__(self, cells: int, device: torch.device | str = "cpu") -> None:
        self.spare, self.device = cells, torch.device(device)
        self._numbers = torch.zeros(cells + 1, WIDTH, dtype=torch.float32, device=device)
        self._positions = torch.full((cells + 1, WIDTH), -1, dtype=torch.int64, device=device)

    def clear(self, cells: torch.Tensor) -> None:
        """Forget what these cells hold, (m,) int64, before another response is given them."""
        self._positions.index_fill_(0, cells, -1)

    def write(self, cells: torch.Tensor, positions: torch.Tensor, numbers: torch.Tensor) -> None:
        """Write down one number a row, all (n,); of two positions that share a place the later one stays."""
        place = positions.remainder(WIDTH)
        later = self._positions[cells, place] > positions
        self._numbers[cells, place] = torch.where(later, self._numbers[cells, place], numbers.float())
        self._positions[cells, place] = torch.where(later, self._positions[cells, place], positions)

    def mean(
        self, cells: torch.Tensor, positions: torch.Tensor, starts: torch.Tensor, spans: torch.Tensor, longest: int
    ) -> torch.Tensor:
        """Return the mean over the `spans` positions before each row's, from its `starts` on; all (n,) int64.

        Args:
            cells, positions: of the rows.
            starts: the position of each response's first token.
            spans: at most `longest` each, which is known to the host.

        Returns:
            (n,) float64; infinite where there is no position before, NaN where a number is missing.
        """
        back = positions[:, None] - 1 - torch.arange(longest, device=positions.device)
        wanted = (back >= starts[:, None]) & (back >= positions[:, None] - spans[:, None])
        place = back.remainder(WIDTH)
        found = self._positions[cells[:, None], place] == back
        numbers = self._numbers[cells[:, None], place].double()
        total = numbers.masked_fill_(~wanted, 0.0).masked_fill_(wanted & ~found, torch.nan).sum(1)
        count = wanted.sum(1)
        return torch.where(count > 0, total / count, torch.inf)


@dataclass(frozen=True, slots=True)
class Past:
    """Where n rows look back: each row's cell of a history, (n,) int64."""

    history: History
    cells: torch.Tensor

    def take(self, index: torch.Tensor) -> "Past":
        """Return the past of rows `index` (m,) int64, in that order."""
        return Past(self.history, self.cells[index])

    def only(self, rows: torch.Tensor) -> "Past":
        """Return a past in which all but these rows, (n,) bool, share the spare cell: what they say means nothing."""
        return Past(self.history, self.cells.where(rows, self.history.spare))

    def spike(
        self, ce: torch.Tensor, positions: torch.Tensor, starts: torch.Tensor, spans: torch.Tensor, longest: int
    ) -> torch.Tensor:
        """Write down the cross entropy of each row's position; return it as a multiple of its mean before.

        Args:
            ce: (n,) in nats; a row is a response's position, of which a draft has several.
            positions: (n,) int64, absolute.
            starts, spans, longest: as for `History.mean`.

        Returns:
            (n,) float32: 0 where no position comes before, or `ce` is 0; NaN where a number is missing.
        """
        self.history.write(self.cells, positions, ce)
        mean = self.history.mean(self.cells, positions, starts, spans, longest)
        return torch.where((ce == 0) & ~mean.isnan(), 0.0, ce.double() / mean).float()
