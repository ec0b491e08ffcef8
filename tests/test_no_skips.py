"""A skip is a failure under `--no-skips`, however it is asked for; what cannot be installed is excused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "test_mark.py": "import pytest\n@pytest.mark.skipif(True, reason='no browser')\ndef test_it(): pass\n",
    "test_call.py": "import pytest\ndef test_it(): pytest.skip('no server')\n",
    "test_fixture.py": "import pytest\n@pytest.fixture\ndef x(): pytest.skip('no verl')\ndef test_it(x): pass\n",
    "test_module.py": "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass\n",
    "test_gpu.py": "import pytest\ndef test_it(): pytest.skip('needs a GPU of compute capability 9')\n",
    "test_data.py": 'import pytest\ndef test_it(): pytest.skip("needs the benchmarks\' data: set RLVR_DIR_DATA")\n',
    "test_xfail.py": "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n",
    "test_pass.py": "def test_it(): pass\n",
}


def run(folder, *options, **environment):
    for name, text in FILES.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.no_skips", "--rootdir", folder, "-c", os.devnull, *options],
        capture_output=True, text=True, cwd=Path(__file__).parents[1],
        env={**{k: v for k, v in os.environ.items() if k != "RLVR_DIR_DATA"}, **environment},
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_every_kind_of_skip_fails_but_the_excused(tmp_path, workers):
    said = run(tmp_path, "--no-skips", "--continue-on-collection-errors", *workers, str(tmp_path))
    assert "1 failed, 1 passed, 2 skipped, 1 xfailed, 3 errors" in said
    for reason in ("no browser", "no server", "no verl", "could not import 'no_such_module'"):
        assert f"--no-skips allows no skip: {reason}" in said


def test_named_data_that_is_not_there_is_not_excused(tmp_path):
    said = run(tmp_path, "--no-skips", str(tmp_path / "test_data.py"), RLVR_DIR_DATA="/nowhere")
    assert "1 failed" in said


def test_without_the_option_skips_are_skips(tmp_path):
    assert "1 passed, 6 skipped, 1 xfailed" in run(tmp_path, str(tmp_path))
