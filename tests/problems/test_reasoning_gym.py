"""The example of docs/benchmarks.md, with a stand-in for reasoning-gym: its pinned dependencies conflict with ours."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

from tests.commands import run

PAGE = Path(__file__).parents[2] / "docs/benchmarks.md"


class _Data(list):
    """A data set with the methods that the page uses."""

    def score_answer(self, answer, entry):
        """Return 1.0 if an answer is right, and a little for any other answer, as many tasks do."""
        return 1.0 if answer == entry["answer"] else 0.01 if answer else 0.0


def test_the_example_makes_a_benchmark_and_scores_its_responses(tmp_path, monkeypatch, capsys):
    section = PAGE.read_text().partition("## Problems from reasoning-gym")[2].partition("\n## ")[0]
    make, score = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    command = re.search(r"^ {4}rlvr-dir (eval .*)$", section, re.MULTILINE)
    assert command
    entries = [{"question": "How many cups ? 1 a gets 2 how many ?", "answer": "3"}, {"question": "x", "answer": "y"}]
    stand_in = SimpleNamespace(create_dataset=lambda name, size, seed: _Data(entries))
    monkeypatch.setitem(sys.modules, "reasoning_gym", stand_in)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(make, "make", "exec"), names)
    run(*command[1].split(), "--backend", "transformers", "--max-tokens", "8", "--no-track")
    capsys.readouterr()
    exec(compile(score, "score", "exec"), names)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2
    assert all(name.endswith("/sorting") and 0 <= float(mean) <= 1 for name, mean in lines)
