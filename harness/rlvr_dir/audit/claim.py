"""Define a claim: a published sentence about what RL does to a model, and how to measure it on any pair.

To add a claim, add an entry to a list (`tokens.CLAIMS`, `weights.CLAIMS`, ...) and write its test. The table, the page,
the CSV and LaTeX files, `rlvr_dir.audit` and the MLflow metrics are made from these entries.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, TypeAlias

from rlvr_dir.stats import Estimate

Frame: TypeAlias = Any  # a pandas.DataFrame, whose own types say too little
Reads = Literal["traces", "weights", "points", "scores", "texts"]
# The groups of rows, by their names in `--rows`, and the data that the claims of each group read.
GROUPS: dict[str, Reads] = {"outcomes": "scores", "interventions": "points", "tokens": "traces", "weights": "weights"}
TEXTS = "texts"  # a further group, for the file given with --texts


@dataclass(frozen=True, slots=True)
class Source:
    """Hold who published the claim: arXiv id, place in the paper, pair and number.

    Fields are empty if they were not read.
    """

    arxiv: str
    place: str = ""
    pair: str = ""
    number: str = ""

    @property
    def words(self) -> str:
        """Return the source as text for a table: `77.7 % (Llama-2-7b and -chat; 2312.01552, Fig. 3)`."""
        where = ", ".join(filter(None, (self.arxiv, self.place)))
        return f"{self.number or 'no number'} ({'; '.join(filter(None, (self.pair, where)))})"


@dataclass(frozen=True, slots=True)
class Claim:
    """Hold what defines a row of the table.

    `name` is unique. `sentence` states what is measured. `how` states what a reader must know to measure it again.
    `{k}` in either is replaced by the number of samples.

    `estimate` computes the number from the data that the group `reads`. These data are a frame with one row per token
    (`traces`), per tensor (`weights`) or per response (`points` for all decodings, `scores` for base and RL alone), or
    the `Scores` of `texts`. The printed number is multiplied by `unit`, rounded to `digits` and followed by `suffix`.
    It has a sign if it is a difference (`signed`).
    """

    name: str
    reads: Reads
    sentence: str
    how: str
    estimate: Callable[[Frame], Estimate] = field(repr=False)
    sources: tuple[Source, ...] = ()
    unit: float = 100.0
    suffix: str = " %"
    digits: int = 1
    signed: bool = False
    of_gain: bool = False  # whether it is a share of the gain, which may be below 0 or above 1

    @property
    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest possible value: 0 and 1 for shares. Signed numbers have no bounds."""
        if self.signed or self.of_gain or self.suffix == NATS["suffix"]:
            return -inf, inf
        return 0.0, 1.0 if self.suffix == " %" else inf

    @property
    def group(self) -> str:
        """Return the name of its group of rows."""
        return next((name for name, reads in GROUPS.items() if reads == self.reads), TEXTS)

    def words(self, samples: int | None) -> tuple[str, str]:
        """Return its sentence and its `how`, with `samples` filled in."""
        return self.sentence.replace("{k}", str(samples)), self.how.replace("{k}", str(samples))

    @property
    def published(self) -> str:
        """Return all sources as text, in their order."""
        return "; ".join(source.words for source in self.sources)


NATS: dict[str, Any] = {"unit": 1.0, "suffix": " nats", "digits": 4}
POINTS: dict[str, Any] = {"suffix": " points", "signed": True}
COUNT: dict[str, Any] = {"unit": 1.0, "suffix": "", "digits": 0}
