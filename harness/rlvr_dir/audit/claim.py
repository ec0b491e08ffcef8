"""A claim: a sentence that somebody published of what RL does to a model, and how to measure it on any pair.

A new claim is one more entry of a list (`tokens.CLAIMS`, `weights.CLAIMS`, ...), and its test: the table, the page,
CSV, LaTeX, `rlvr_dir.audit` and MLflow's metrics are made from the entries.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, TypeAlias

from rlvr_dir.stats import Estimate

Frame: TypeAlias = Any  # a pandas.DataFrame, whose own types say too little
Reads = Literal["traces", "weights", "points", "scores", "texts"]
# The groups of rows, by their names in `--rows`, and what the claims of each read.
GROUPS: dict[str, Reads] = {"outcomes": "scores", "interventions": "points", "tokens": "traces", "weights": "weights"}
TEXTS = "texts"  # a further group, of a file that is named with --texts


@dataclass(frozen=True, slots=True)
class Source:
    """Who published it: a paper's arXiv id, where in it, on which pair, and the number; empty where it was not read."""

    arxiv: str
    place: str = ""
    pair: str = ""
    number: str = ""

    @property
    def words(self) -> str:
        """Write it for a table: `77.7 % (Llama-2-7b and -chat; 2312.01552, Fig. 3)`."""
        where = ", ".join(filter(None, (self.arxiv, self.place)))
        return f"{self.number or 'no number'} ({'; '.join(filter(None, (self.pair, where)))})"


@dataclass(frozen=True, slots=True)
class Claim:
    """Describe how a row is made.

    `name` is unique; `sentence` says what is measured, `how` what a reader must know to measure it again; `{k}` in
    either is the number of samples.
    `estimate` computes it from what the group `reads`: a frame with a row a token of `traces`, a tensor of `weights`,
    or a response of `points` (all decodings) and of `scores` (base and RL alone); the `Scores` of `texts`. A number is
    printed times `unit` with `suffix`, so many `digits`, and a sign where it is a difference (`signed`).
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
    of_gain: bool = False  # a share of the gain, which may be below 0 and above all of it

    @property
    def range(self) -> tuple[float, float]:
        """Return what the number can be: shares are from 0 to 1, numbers of times or tokens from 0 on."""
        if self.signed or self.of_gain or self.suffix == NATS["suffix"]:
            return -inf, inf
        return 0.0, 1.0 if self.suffix == " %" else inf

    @property
    def group(self) -> str:
        """Return the group of rows that it is in."""
        return next((name for name, reads in GROUPS.items() if reads == self.reads), TEXTS)

    def words(self, samples: int | None) -> tuple[str, str]:
        """Return its sentence, and how, of so many samples."""
        return self.sentence.replace("{k}", str(samples)), self.how.replace("{k}", str(samples))

    @property
    def published(self) -> str:
        """Write all sources, the first one first."""
        return "; ".join(source.words for source in self.sources)


NATS: dict[str, Any] = {"unit": 1.0, "suffix": " nats", "digits": 4}
POINTS: dict[str, Any] = {"suffix": " points", "signed": True}
COUNT: dict[str, Any] = {"unit": 1.0, "suffix": "", "digits": 0}
