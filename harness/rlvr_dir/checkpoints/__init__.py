"""Do two checkpoints fit together, and how are they read: everything about a pair's files, and no engine."""
