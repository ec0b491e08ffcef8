"""Hold the result of an analysis, its context and tables of plain rows. The class writes its file and reads it back.

    found.write(Path("runs/analysis"))                       # tokens.json
    Analysis.read(Path("runs/analysis/tokens.json")).frame("by_delta")

An estimate takes three columns of a row: `share`, `share_low`, `share_high`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field, Strict

from rlvr_dir.config.stored import Number, Plain, Stored, Text
from rlvr_dir.files import make_folder, write_file
from rlvr_dir.stats import Estimate

Frame: TypeAlias = Any  # a pandas.DataFrame, whose own types say too little
if TYPE_CHECKING:
    Scalar: TypeAlias = Any
else:
    Scalar = Annotated[bool, Strict()] | Annotated[int, Strict()] | Number | Text | None


class Analysis(Stored, frozen=True):
    """Hold the result of an analysis. `kind` names its file and its chapter in a report.

    `context` states what was analysed and how (`facts` in the file). `tables` contain the results.
    """

    model_config = ConfigDict(validate_by_name=True)

    kind: Text
    context: Plain = Field(default_factory=dict, validation_alias="facts", serialization_alias="facts")
    tables: dict[str, tuple[dict[str, Scalar], ...]]

    @classmethod
    def read(cls, path: Path) -> "Analysis":
        """Read a file. Raises DamagedError if it is damaged."""
        return cls.from_file(path)

    def write(self, folder: Path) -> Path:
        """Write the file into a folder, named after its kind, and return its path."""
        make_folder(folder)
        path = folder / f"{self.kind}.json"
        write_file(path, self.model_dump_json(indent=1, by_alias=True) + "\n")
        return path

    def frame(self, table: str) -> Frame:
        """Return one of the tables. Unknown values are None."""
        import pandas

        return pandas.DataFrame(list(self.tables[table]), dtype=object)


def columns(**estimates: Estimate) -> dict[str, float | None]:
    """Return estimates as the columns of a row."""
    values: dict[str, float | None] = {}
    for name, estimate in estimates.items():
        values |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return values
