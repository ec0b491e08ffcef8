"""A skip is a failure under `--allow-skips`, however it is asked for; what cannot be installed is excused."""

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


def run(folder, *options):
    for name, text in FILES.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", "--rootdir", folder, "-c", os.devnull]
    done = subprocess.run(
        [*command, "--continue-on-collection-errors", *options, folder],
        capture_output=True, text=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_every_kind_of_skip_fails_but_the_allowed(tmp_path, workers):
    said = run(tmp_path, "--allow-skips=gpu,data", *workers)
    assert "1 failed, 1 passed, 2 skipped, 1 xfailed, 3 errors" in said
    for reason in ("no browser", "no server", "no verl", "could not import 'no_such_module'"):
        assert f"skipped, and --allow-skips=gpu,data: {reason}" in said


def test_a_kind_that_is_not_known_is_refused(tmp_path):
    assert "'cpu' is not known; accepted: gpu,data,smol" in run(tmp_path, "--allow-skips=gpu,cpu")
