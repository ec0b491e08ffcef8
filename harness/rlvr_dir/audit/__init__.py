"""The audit: what is said of RLVR, measured on any pair of checkpoints, in one table and on one page.

`claim.py` says what a claim is; `tokens.py`, `weights.py`, `interventions.py` and `outcomes.py` list them; `gather.py`
reads and decodes what they need, `run.py` makes the table, `page.py` shows it.
"""
