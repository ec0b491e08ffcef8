"""Run sweeps: decodings, or trainings, selected by a grid or a search. Nothing is run twice.

    from rlvr_dir.sweep.outcome import Places
    from rlvr_dir.sweep.run import run_sweep
    from rlvr_dir.sweep.specs import load
    run_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))

`run.py` takes a sweep from its spec to its summary, `entries.py` lists what there is to run, and `decoding.py` and
`training.py` run it. The records, or the folders of trainings, store what was run. They survive `kill -9` at any
moment, and the same command resumes the sweep. `study.py` writes Optuna's study from the results, for users and for
searches.

A *point* is a set of values of the sweep's parameters, and a *reference* is what points are compared with. A *trial* is
a complete or failed point, and a *study* is Optuna's list of them.
"""

from pathlib import Path

from rlvr_dir.files import shipped


def sweeps_dir() -> Path:
    """Return the folder of the shipped sweeps: `sweeps/` of a checkout, or the copy inside the installed package."""
    return shipped("sweeps")
