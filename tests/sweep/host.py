"""Whole sweeps in processes of their own, forked from one that has imported everything once.

Workers of a fleet are forked too, and end with their parent like real ones: only starting Python and importing
everything anew is spared.
"""

import multiprocessing
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

from tests.sweep.made import sweep


class Forked(multiprocessing.get_context("fork").Process):
    """Stands in for `subprocess.Popen` of a worker: same life, no new interpreter."""

    def __init__(self, args, **_):
        super().__init__(target=worker, args=args[args.index("-m") + 2 :])
        self.start()

    def poll(self):
        return self.exitcode

    wait = multiprocessing.Process.join
    returncode = multiprocessing.Process.exitcode


def worker(folder, records, number, parent):
    """What `python -m rlvr_dir.sweep.worker` does."""
    from rlvr_dir.sweep.worker import die_with_parent, join

    die_with_parent()
    with (Path(folder) / "workers" / f"{number}.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    join(Path(folder), Path(records), int(number), int(parent))


def run(out, changes):
    """Run the small sweep, so changed."""
    from rlvr_dir.sweep import run as running
    from rlvr_dir.sweep.outcome import Places

    running.subprocess = SimpleNamespace(
        Popen=Forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    extend = changes.pop("extend", False)
    places = Places.under(Path(out), track=changes.pop("track", False))
    running.run_sweep(sweep(**changes), places, extend=extend, say=lambda text: None, progress=False)


class Host:
    """Starts such processes, one at a time."""

    context = multiprocessing.get_context("forkserver")
    process = None

    def start(self, out, **changes):
        """The pid of a process that runs the small sweep, so changed, in `out`."""
        if self.process is not None:
            self.process.kill()  # left by a test that failed
        self.process = self.context.Process(target=run, args=(out, changes))
        self.process.start()
        return self.process.pid

    def answer(self):
        """Wait for the process that was started; gives its exit status."""
        self.process.join()
        return self.process.exitcode

    def run(self, out, **changes):
        """The exit status of such a process."""
        self.start(out, **changes)
        return self.answer()
