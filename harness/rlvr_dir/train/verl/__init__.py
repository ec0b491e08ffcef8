"""Train with DAPO through verl, on Ray. verl runs in its own environment and is never imported in our process.

    ours       `spec` (the settings), `presets` (the paper's), `overrides` (verl's arguments), `validate` (checks before
               anything starts), `run` (the trainings), `log` (verl's lines as ours)
    in verl's  `plugin` (loss), `hook` (trainer), `reward`

Nothing is imported here, because verl's processes also load this package.
"""
