"""Serve the pair engine behind vLLM's own OpenAI server, with a decoding for each request.

    rlvr-dir serve                    # rlvr_dir.serve.run.serve(ServeSpec, EvalSpec)

`request_parser` reads a decoding from a request, `engine` is the pair on vLLM's asynchronous engine, `client` decodes
the requests of vLLM's server, `openai` has its two handlers with the decoding added, `guard` enforces the limits, and
`run` starts and ends the server.
"""
