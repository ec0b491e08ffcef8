"""The front door: the model `rlvr_dir` of lm-evaluation-harness, its arguments, its tasks, what it keeps and logs."""
