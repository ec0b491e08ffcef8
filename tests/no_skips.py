"""`pytest --no-skips`: a test that is skipped fails with the reason, unless what it needs cannot be installed.

`make test` and CI set it, so that no test goes missing unseen. Without it pytest lists what was skipped and why.
"""

import os

import pytest

# A reason that begins with one of these is allowed: no package registry has a GPU or the benchmarks' problems.
ALLOWED = ("needs a GPU", "needs the benchmarks' data")


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails, unless it needs a GPU or data")


def _refuse_skip(report, config):
    """Turn a report of a skip into one of a failure."""
    if not config.getoption("--no-skips") or not report.skipped or hasattr(report, "wasxfail"):
        return
    *_, reason = report.longrepr
    reason = reason.removeprefix("Skipped: ")
    # Who names a folder of data means to have it.
    allowed = ALLOWED[:1] if "RLVR_DIR_DATA" in os.environ else ALLOWED
    if not reason.startswith(allowed):
        report.outcome, report.longrepr = "failed", f"skipped, and --no-skips allows no skip: {reason}"


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
