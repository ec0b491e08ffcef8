"""DAPO through verl, on Ray: verl runs in an environment of its own and is never imported in our process.

Ours       `spec` (what is asked of it), `presets` (the paper's), `overrides` (verl's arguments), `validate` (what is
           refused before anything starts), `run` (the trainings), `log` (verl's lines as ours).
In verl's  `plugin` (loss), `hook` (trainer), `reward`.

Nothing is imported here: this package is loaded in verl's processes too.
"""
