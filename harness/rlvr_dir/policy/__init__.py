"""The mathematics of decoding with two models, and of training: pure functions on torch tensors, no I/O.

`algorithm.decide` is Algorithm 1 for a batch whose rows each have their own `rule.Rule`; what makes a criterion, a
pair of policies is in `gates` and `combine`. `reweighting` has the ways of training, `advantages` Lemma 1.
"""
