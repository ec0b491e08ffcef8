"""Evaluations of an open engine from loose parts, as tests write them."""

from rlvr_dir import evals
from rlvr_dir.config import EvalSpec, parse
from rlvr_dir.evals import traces
from rlvr_dir.policy.gates import Threshold, gates


def asked(decodings, tasks, sampling, **fields):
    """The spec of some decodings on some tasks."""
    return parse(EvalSpec, {"tasks": tasks, "decodings": decodings, "sampling": sampling, **fields})


def evaluate(engine, decodings, tasks, sampling, *, records=None, progress=False, on_result=None, **fields):
    """`rlvr_dir.evals.evaluate` with an engine of one's own."""
    spec = asked(decodings, tasks, sampling, **fields)
    return evals.evaluate(spec, engine=engine, records=records, progress=progress, on_result=on_result)


def criterion_values(engine, tasks, records, sampling, *, progress=False, **fields):
    """`rlvr_dir.evals.traces.criterion_values` of base's own generation."""
    spec = asked("base", tasks, sampling, **fields)
    told = [gate(tau=0) for gate in gates().values() if issubclass(gate, Threshold) and gate.statistic != "random"]
    [values] = traces.criterion_values(spec, records, gates=told, engine=engine, progress=progress).values()
    return {gate.name: value for gate, value in values.items()}
