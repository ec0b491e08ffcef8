"""The pair engine behind vLLM's own OpenAI server: every request carries its own rule.

    rlvr-dir serve                    # rlvr_dir.serve.run.serve(ServeSpec, EvalSpec)

`request_parser` reads a rule from a request, `engine` is the pair on vLLM's asynchronous engine, `client` decodes what
vLLM's server asks for, `openai` has its two handlers with the rule in them, `guard` keeps the limits, `run` starts and
ends.
"""
