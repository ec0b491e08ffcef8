"""DAPO through verl, on Ray: verl runs in an environment of its own and is never imported in our process.

Ours       `spec` (what is asked of it), `presets` (the paper's), `overrides` (verl's arguments), `validate` (they are
           checked there before anything starts), `run` (the trainings), `process` and `keeper` (the child), `log`.
In verl's  `plugin` (loss), `hook` (trainer), `reward`, `check` (what `validate` asks).

Nothing is imported here: this package is loaded in verl's processes too.
"""
