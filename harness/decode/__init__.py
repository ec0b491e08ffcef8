"""Engines behind one protocol: `open_engine(pair, spec).generate(requests)` yields rollouts as they finish."""

from harness.decode.types import Engine, Request, Rollout

__all__ = ["Engine", "Request", "Rollout"]
