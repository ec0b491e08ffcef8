"""Sweeps: ways of decoding, or trainings, chosen by a grid or a search; nothing is done twice.

    from rlvr_dir.sweep.outcome import Places
    from rlvr_dir.sweep.run import run_sweep
    from rlvr_dir.sweep.specs import load
    run_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))

`run.py` takes a sweep from its spec to its summary, `sweep.py` says what is left to do, `study.py` what was tried;
`decoding.py` and `training.py` do the points. Optuna's storage lists the trials, the records (or the folders of
trainings) hold what was done. Both survive `kill -9` at any moment; the same command goes on from there.

The words: a *point* is a set of values of the sweep's parameters, a *reference* what points are compared with; a
*trial* is one that was tried, a *study* is Optuna's list of them.
"""

from pathlib import Path

from rlvr_dir.files import shipped


def sweeps_dir() -> Path:
    """Return the folder of the sweeps that ship: `sweeps/` of a checkout, or the copy inside the installed package."""
    return shipped("sweeps")
