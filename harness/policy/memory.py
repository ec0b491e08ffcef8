"""What gates remember of each request: a ring of numbers by absolute position, on the device."""

import torch
from torch import Tensor

from harness.policy.gates import MEMORY

WIDTH = 2 * MEMORY  # what is decided once more, after a preemption, overwrites no number that is needed


class Memory:
    """A number is kept with its position, so that one that is missing is noticed.

    What is written twice, by a position that is decided once more after a preemption, is the same number in the same
    place. There is one cell more than asked for, `spare`, the last, for rows that need none.
    """

    def __init__(self, cells: int, device: torch.device | str = "cpu") -> None:
        self.spare, self.device = cells, torch.device(device)
        self._numbers = torch.zeros(cells + 1, WIDTH, device=device)
        self._positions = torch.full((cells + 1, WIDTH), -1, dtype=torch.int64, device=device)

    def clear(self, cells: Tensor) -> None:
        """Forget what these cells hold, (rows,) int64, before other requests are given them."""
        self._positions.index_fill_(0, cells, -1)

    def write(self, cells: Tensor, positions: Tensor, numbers: Tensor) -> None:
        """Write down a number a row, all (rows,); of two positions that share a place the later one stays."""
        place = cells, positions.remainder(WIDTH)
        later = self._positions[place] > positions
        self._numbers[place] = torch.where(later, self._numbers[place], numbers.float())
        self._positions[place] = torch.where(later, self._positions[place], positions)

    def read(self, cells: Tensor, positions: Tensor) -> Tensor:
        """Return the numbers of (rows, k) positions, float32; NaN where there is none."""
        place = cells[:, None], positions.remainder(WIDTH)
        return torch.where(self._positions[place] == positions, self._numbers[place], torch.nan)
