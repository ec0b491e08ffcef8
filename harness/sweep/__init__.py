"""Sweeps: ways of decoding, or trainings, chosen by a grid or a search; nothing is done twice.

    from harness.sweep.run import Places, run_sweep
    from harness.sweep.specs import load
    run_sweep(load(yaml.safe_load(text)), Places.under(Path("runs")))

`run.py` has a sweep from its spec to its summary, `trials.py` how trials are claimed and resumed, `decoding.py` and
`training/kind.py` what each kind does with them. Optuna stores the trials, a store every rollout or training, the
sweep's folder the results. All three survive `kill -9` at any moment; the same command goes on from there.
"""

from pathlib import Path


def sweeps_dir() -> Path:
    """Return the folder of the sweeps that ship: `sweeps/` of a checkout, or the copy inside the installed package."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "sweeps"
    return checkout if checkout.is_dir() else package / "_data" / "sweeps"
