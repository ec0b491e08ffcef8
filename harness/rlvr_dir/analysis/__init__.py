"""Compute statistics of tokens, problems and training curves with numpy; no plotting."""
