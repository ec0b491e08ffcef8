"""Read a pair's checkpoints and check whether they fit together: everything about their files, without an engine."""
