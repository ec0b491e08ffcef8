"""What MLflow missed while it was away: results on the disk that have no run."""

from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import DamagedError, UserError
from harness.evals.from_records import result_of_record
from harness.evals.result import EvalResult, read_result
from harness.records import RecordStore
from harness.records.verdicts import OFFICIAL
from harness.text import visible
from harness.tracking.log import write_run
from harness.tracking.query import experiments, find_run
from harness.tracking.store import TrackingStore, patience


@dataclass(frozen=True)
class SyncReport:
    """What `sync` did: files logged, files whose results had a run, and files that are no results."""

    logged: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"logged: {visible(name)}" for name in self.logged]
        lines += [f"no result, left alone: {visible(name)}" for name in self.skipped]
        lines.append(
            f"{len(self.logged)} logged, {len(self.present)} there already, {len(self.skipped)} files are no results"
        )
        return "\n".join(lines)


def sync(folder: Path | str, store: Path | str, experiment: str | None = None) -> SyncReport:
    """Log each result file `<folder>/*.json` whose config hash no finished run of the store has.

    So is the result of each imported record of a store of records (`<folder>` or `<folder>/records`): by the verdicts
    that it came with, where it has any.

    Doing it again does nothing more.

    Raises:
        UserError: the folder does not exist, or MLflow cannot be written to; what was logged until then stays.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"folder={str(folder)!r} does not exist; accepted: a folder that eval or demo has written to")
    place, report = TrackingStore.at(store), SyncReport()
    try:
        with patience():
            for path in sorted(folder.glob("*.json")):
                _log(path, place, experiment, report)
            for records in (RecordStore(folder), RecordStore(folder / "records")):
                _log_imported(records, place, experiment, report)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"tracking={str(store)!r} cannot be written to ({type(error).__name__}: {reason}); "
            f"{len(report.logged)} results were logged before, run again for the rest"
        ) from error
    return report


def _log(path: Path, place: TrackingStore, experiment: str | None, report: SyncReport) -> None:
    try:
        result = read_result(path)
    except DamagedError:
        report.skipped.append(path.name)
        return
    _write(result, path.name, path.stat().st_mtime, place, experiment, report)


def _log_imported(records: RecordStore, place: TrackingStore, experiment: str | None, report: SyncReport) -> None:
    for name in records.names():
        try:
            record = records.read(*name)
            if record.config is None or record.config.kind != "imported":
                continue
            grader = OFFICIAL if OFFICIAL in record.judges else None
            result = result_of_record(record, grader=grader)
        except UserError:
            report.skipped.append("/".join(name))
            continue
        _write(result, record.name, record.path.stat().st_mtime, place, experiment, report)


def _write(
    result: EvalResult, name: str, ended: float, place: TrackingStore, experiment: str | None, report: SyncReport
) -> None:
    client = place.client()
    if find_run(client, result.config_hash, [e.experiment_id for e in experiments(client)]):
        report.present.append(name)
        return
    write_run(result, place, experiment, ended=ended)
    report.logged.append(name)
