"""`pytest --allow-skips gpu,data,paper,smol`: a skipped test fails with its reason, unless it needs one of these.

`make test`, `make test-all` and CI set it, so that no test goes missing unseen. Without it pytest lists what was
skipped and why.
"""

import pytest

# What no package registry has, or only `make paper-smol` and `paper-gemma` install, and how the reason of such a skip
# begins.
KINDS = {
    "gpu": "needs a GPU",
    "data": "needs the benchmarks' data",
    "paper": "needs the paper's source",
    "smol": "needs the weights of the package",
}


def _kinds(text):
    kinds = text.split(",")
    if unknown := set(kinds) - set(KINDS):
        raise pytest.UsageError(f"--allow-skips={text}: {min(unknown)!r} is not known; accepted: {','.join(KINDS)}")
    return kinds


def pytest_addoption(parser):
    parser.addoption(
        "--allow-skips", type=_kinds, metavar="gpu,data,paper,smol", help="a skip for any other reason is a failure"
    )


def _refuse_skip(report, config):
    """Turn a report of a skip that is not allowed into one of a failure."""
    kinds = config.getoption("--allow-skips")
    if kinds is None or not report.skipped or hasattr(report, "wasxfail"):
        return
    *_, reason = report.longrepr
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(tuple(KINDS[kind] for kind in kinds)):
        report.outcome, report.longrepr = "failed", f"skipped, and --allow-skips={','.join(kinds)}: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    _refuse_skip(report, item.config)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector):
    report = yield
    _refuse_skip(report, collector.config)
    return report
