"""Run both models in one vLLM engine, with one scheduler, one paged KV cache and one forced token per step.

`plugin` registers the pair model in every process. `model` contains the two submodels. `processor` decides each token
and returns its facts through the log-probability channel of `channel`. `engine` runs all of these.
"""
