"""Group problems into families, such as parts of one question or instances of one template, which are not independent.

In this package, `families` is a label per problem, or None if every problem is independent.

>>> by_family([1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "c"])
array([0.75, 0.75, 0.75])
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlvr_dir.errors import UserError

Labels = Sequence[Hashable]
FEW = 10  # with fewer families, tables add a note about the interval


@dataclass(frozen=True, slots=True, eq=False)
class Families:
    """Hold the family of each problem, (problems,), and the number of problems in each family, (families,)."""

    codes: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, labels: Labels, problems: int) -> "Families":
        """Number the labels of the problems in the order of their first appearance.

        Raises:
            UserError: The number of labels is not that of the problems.
        """
        if len(labels) != problems:
            raise UserError(f"families has {len(labels)} labels", accepted=f"one for each of the {problems} problems")
        numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        codes = np.array([numbers[label] for label in labels], dtype=int)
        return cls(codes, np.bincount(codes).astype(float))

    @property
    def effective(self) -> float:
        """Return the number of families of equal size that would be as uncertain, n^2 / sum n_g^2 (Kish, 1965)."""
        return float(self.sizes.sum() ** 2 / np.square(self.sizes).sum())

    @property
    def degrees(self) -> float:
        """Return the degrees of freedom of a mean's CR2 variance, by Bell and McCaffrey (2002); 0 for one family.

        They are Satterthwaite's for problems with equal, independent variation: tr(B)^2 / tr(B^2), where B is the Gram
        matrix of the families' parts of the variance. With f_g = n_g / n and u_g = n_g f_g / (1 - f_g) that is n^2 /
        (sum n_g^2 + (sum u_g)^2 - sum u_g^2), which is G - 1 for G families of equal size.
        """
        if self.sizes.size < 2:
            return 0.0
        share = self.sizes / self.sizes.sum()
        u = self.sizes * share / (1 - share)
        return float(self.sizes.sum() ** 2 / (np.square(self.sizes).sum() + u.sum() ** 2 - np.square(u).sum()))

    def sums(self, values: ArrayLike) -> np.ndarray:
        """Sum values by family, (problems,) -> (families,)."""
        return np.bincount(self.codes, weights=np.asarray(values, dtype=float))

    def error(self, values: np.ndarray) -> float:
        """Return the CR2 standard error of the mean of values, (problems,); NaN for one family.

        It is the root of sum_g (sum of g's residuals)^2 / (1 - n_g / n) / n^2: the sandwich estimator over families,
        with each residual enlarged so that it is unbiased for independent problems (Bell and McCaffrey, 2002;
        Pustejovsky and Tipton, 2018). If every family has one problem it is sd / sqrt(n).
        """
        if self.sizes.size < 2:
            return float("nan")
        n = values.size
        residuals = self.sums(values - values.mean())
        return float(np.sqrt((np.square(residuals) / (1 - self.sizes / n)).sum()) / n)


def by_family(values: ArrayLike, families: Labels | None, centre: float = 0.0) -> np.ndarray:
    """Return one number per family whose mean over families is that of the values over problems, (families,).

    It is centre + G / n times the sum over the family of (value - centre), for G families and n problems. About 0 these
    are the numbers whose signs are flipped; about the mean, they are the families' residuals. Without families the
    values are unchanged.
    """
    x = np.asarray(values, dtype=float)
    if families is None:
        return x
    groups = Families.of(families, x.size)
    return centre + groups.sums(x - centre) * (groups.sizes.size / x.size)


def unseen(n: int) -> float:
    """Return the largest share of problems with an effect that n problems may all miss: 1 - 0.025^(1/n).

    >>> round(unseen(30), 3)
    0.116
    """
    return 1 - 0.025 ** (1 / n)


def common_families(labels: Iterable[tuple[Hashable, ...] | None]) -> tuple[Hashable, ...] | None:
    """Return the labels that several tables of the same problems have in common. Tables without labels are ignored.

    Raises:
        UserError: Two tables have different families.
    """
    different = dict.fromkeys(families for families in labels if families is not None)
    if len(different) > 1:
        raise UserError("the same problems are of other families in two results", accepted="one `family` a problem")
    return next(iter(different), None)


def count_families(families: Labels | None) -> int:
    """Return the number of families; 0 if none are given."""
    return len(set(families or ()))
