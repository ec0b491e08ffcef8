"""The examples in docstrings give what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = [
    file.relative_to(ROOT) for file in sorted(ROOT.glob("harness/rlvr_dir/**/*.py")) if ">>> " in file.read_text()
]


@pytest.mark.parametrize("file", EXAMPLES, ids=str)
def test_examples(file):
    module = import_module(".".join(file.relative_to("harness").with_suffix("").parts))
    assert not doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed
