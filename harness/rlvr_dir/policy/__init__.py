"""Compute decoding with two models, and the advantages of training: pure functions on torch tensors, no I/O.

`algorithm.decide` is Algorithm 1 for a batch in which each row has its own `rule.Rule`. `gates` contains the criteria,
and `combine` what makes a pair of policies. `reweighting` contains the training methods, and `advantages` Lemma 1.
"""
