"""Looking at a sweep without touching it: `sweep status` and `sweep best`."""

from harness.errors import UserError
from harness.spec.search import Search
from harness.sweep.folder import Folder
from harness.sweep.kinds import kind_of
from harness.sweep.owner import dead
from harness.sweep.progress import state
from harness.sweep.study import Book


def status(folder: Folder, spec: Search) -> str:
    """Counts of trials, who runs what, the best so far."""
    book = _book(folder, spec)
    counts = ", ".join(f"{count} {name}" for name, count in state(book).items() if count) or "no trial yet"
    lines = [f"{spec.name}: {spec.size()}; {counts}; references: {len(book.complete(book.references))} complete"]
    for trial in (*book.trials(book.references), *book.trials()):
        owner = trial.user_attrs.get("owner")
        if trial.state.name == "RUNNING" and owner:
            gone = ", which is gone: run the sweep again" if dead(owner, folder.workers) else ""
            lines.append(f"running: trial {trial.number} by process {owner['pid']} on {owner['host']}{gone}")
        if "error" in trial.user_attrs:
            lines.append(f"failed: trial {trial.number}: {trial.user_attrs['error']}")
    if best := kind_of(spec).best_so_far(book, folder):
        lines.append(best)
    return "\n".join(lines)


def best(folder: Folder, spec: Search) -> str:
    """The verdicts of the summary as it would be now."""
    return "\n".join(kind_of(spec).summarise(spec, _book(folder, spec), folder).verdicts)


def _book(folder: Folder, spec: Search) -> Book:
    if spec.storage == "journal" and not folder.journal.is_file():
        raise UserError(f"sweep {spec.name!r} has no trial yet")
    return Book(spec, folder)
