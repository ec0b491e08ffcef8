"""Whole sweeps in processes of their own, forked from one that has imported everything once.

Workers of a fleet are forked too, and end with their parent like real ones: only starting Python and importing
everything anew is spared.
"""

import multiprocessing
from pathlib import Path

from tests.sweep.made import sweep


def run(out, changes):
    """Run the small sweep, so changed."""
    from rlvr_dir.sweep import run as running
    from rlvr_dir.sweep.outcome import Places

    places = Places.under(Path(out), track=changes.pop("track", False))
    running.run_sweep(sweep(**changes), places, say=lambda text: None, progress=False)


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
