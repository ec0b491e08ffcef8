"""Provide the model `rlvr_dir` for lm-evaluation-harness: its arguments, its tasks, its records and logs."""
