"""The metrics that a sweep can go by: those that each of its benchmarks has."""

from collections.abc import Mapping, Sequence

from harness.errors import UserError
from harness.evals.benchmark import Benchmark
from harness.evals.theirs import LmEvalBenchmark
from harness.spec.search import Search
from harness.spec.sweep import check_metric


def check_metrics(
    spec: Search, benchmarks: Mapping[str, Benchmark], samples: int, shared: Sequence[str], *, means: bool = False
) -> None:
    """Refuse metrics that a benchmark does not have or that are better the other way.

    `shared` are those that a task of lm-eval's has beside its own, of which `means` accepts only means over problems.

    Raises:
        UserError: naming the task, the metric and what would be accepted.
    """
    for task, each in benchmarks.items():
        own = isinstance(each, LmEvalBenchmark)
        theirs = each.metrics(means=means) if own else {}
        known = spec.metrics if not own else (*theirs, *shared) if theirs or not means else ()
        for name in (*(metric.name for metric in spec.metric), *spec.constraints):
            try:
                check_metric(name, known, samples)
            except UserError as error:
                raise UserError(f"task={task!r}: {error}") from None
        for metric in spec.metric:
            if (metric.goal == "maximize") != theirs.get(metric.name, metric.goal == "maximize"):
                other = "minimize" if metric.goal == "maximize" else "maximize"
                raise UserError(
                    f"task={task!r}: metric={metric.name!r} with goal={metric.goal} is refused: the task says that "
                    f"{'less' if other == 'minimize' else 'more'} of it is better; accepted: goal: {other}"
                )
