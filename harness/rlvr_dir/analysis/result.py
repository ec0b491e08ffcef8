"""What an analysis found: facts, and tables of plain rows, in one class that writes its file and reads it back.

    found.write(Path("runs/analysis"))                       # tokens.json
    Analysis.read(Path("runs/analysis/tokens.json")).frame("by_delta")

An estimate is three columns of a row: `share`, `share_low`, `share_high`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field, Strict

from rlvr_dir.config.stored import Number, Plain, Stored, Text
from rlvr_dir.files import make_folder, write_file
from rlvr_dir.stats import Estimate

Frame: TypeAlias = Any  # a pandas.DataFrame, whose own types say too little
if TYPE_CHECKING:
    Scalar: TypeAlias = Any
else:
    Scalar = Annotated[bool, Strict()] | Annotated[int, Strict()] | Number | Text | None


class Analysis(Stored, frozen=True):
    """`kind` names the file and its chapter, `facts` say what was analysed and how, `tables` hold what was found."""

    kind: Text
    facts: Plain = Field(default_factory=dict)
    tables: dict[str, tuple[dict[str, Scalar], ...]]

    @classmethod
    def read(cls, path: Path) -> "Analysis":
        """Read a file; raises DamagedError."""
        return cls.from_file(path)

    def write(self, folder: Path) -> Path:
        """Write it into a folder, under its kind, and return the file."""
        make_folder(folder)
        path = folder / f"{self.kind}.json"
        write_file(path, self.model_dump_json(indent=1) + "\n")
        return path

    def frame(self, table: str) -> Frame:
        """Return one of the tables; what is not known is None."""
        import pandas

        return pandas.DataFrame(list(self.tables[table]), dtype=object)


def columns(**estimates: Estimate) -> dict[str, float | None]:
    """Write estimates as columns of a row."""
    values: dict[str, float | None] = {}
    for name, estimate in estimates.items():
        values |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return values
