"""Both models in one vLLM engine: one scheduler, one paged KV cache, one forced token a step.

`plugin` registers the pair model in every process, `model` holds the two submodels, `processor` decides each token
and sends its facts back through the log-probability channel of `channel`, `engine` drives it all.
"""
