"""Results and rollouts in the formats that others read: Every Eval Ever, the hub's results, Inspect's log, lm-eval's.

    rlvr-dir export runs/demo --format eee --out shared

A format is told what is known and nothing else; what it has no place for, or what is not known, is said in a sentence.
"""
