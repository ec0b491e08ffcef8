"""Settings are refused in one sentence, and importing them costs nothing."""

import subprocess
import sys

import pytest

from harness.errors import UserError
from harness.spec import parse
from harness.train import DapoSettings


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"prompts": 3, "samples": 5, "minibatches": 4}, "minibatches=4 does not divide"),
        ({"samples": 1}, "samples=1 is refused"),
        ({"learning_rte": 1e-4}, "did you mean 'learning_rate'"),
        ({"top_p": 0}, "top_p=0 is refused"),
    ],
)
def test_mistakes_are_named(data, message):
    with pytest.raises(UserError, match=message):
        parse(DapoSettings, data)


def test_sizes():
    settings = DapoSettings(prompts=4, samples=8, minibatches=2)
    assert (settings.responses, settings.minibatch) == (32, 16)


def test_settings_do_not_import_torch():
    code = "import sys, harness.train; print(*{'torch', 'trl'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []
