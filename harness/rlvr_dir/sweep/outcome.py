"""Define what a sweep and its objective exchange: the places of files, and confirmations."""

from dataclasses import dataclass
from pathlib import Path

from rlvr_dir import stats
from rlvr_dir.tracking import tracking_place

BUSY = 75  # exit status (EX_TEMPFAIL) of a process whose training is already run by another process


@dataclass(frozen=True)
class Places:
    """Locate where a sweep's files, responses, trainings and MLflow runs are kept; `tracking` None logs nothing."""

    out: Path
    records: Path
    tracking: Path | str | None

    @classmethod
    def under(cls, out: Path, *, records: Path | None = None, track: bool = True) -> "Places":
        """Return the usual places in one folder. MLflow's place is RLVR_DIR_TRACKING_URI if that is set."""
        return cls(out, records or out / "records", tracking_place(out, track=track))

    @property
    def trainings(self) -> Path:
        """Return the folder of trainings, which all sweeps under `out` share."""
        return self.out / "trainings"


@dataclass(frozen=True)
class Confirmation:
    """Hold the best point and a control on one benchmark, run again; `problems` is whether they selected the best
    point."""

    winner: stats.Scores
    control: stats.Scores
    problems: str
