"""Measurements that the pages of `docs/` quote, each a program: `python -m benchmarks.grade --help`.

What a user measures on a machine of his own is `rlvr-dir bench`.
"""
