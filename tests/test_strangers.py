"""Files of strangers: their names are shown harmless, what they name is not looked up, and no code of theirs runs."""

import json
import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rlvr_dir.config import Decoding
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import markdown_table
from rlvr_dir.records import RecordStore
from rlvr_dir.text import visible
from tests.commands import invoke, refused
from tests.records.made import fill, say
from tests.report.made import GRID, result

HOSTILE = "\x1b]0;owned\x07\x1b[2Jrl\u202e%9.99\u2066\nall good\r\x9b1m\u200b\udcff<script>|&"
TASK = "rl\u202e%9.99\u2066\x9b1m\u200b<script>|&"  # what a task may be called
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
ROOT = Path(__file__).parents[1]


def shown(text):
    """Asserts that nothing in a text can steer what shows it, its own line breaks aside; returns the text."""
    assert {c for c in text if unicodedata.category(c) in HIDDEN} <= {"\n"}
    return text


def test_errors_and_tables_show_what_is_in_a_name():
    sentence = str(UserError(f"task={HOSTILE} is not known"))
    assert "\n" not in shown(sentence)
    assert r"\u001b]0;owned\u0007" in sentence
    assert visible(sentence, None) == sentence
    assert str(UserError("two files differ:", ["-a: 1", "+a: \x1b2"])) == "two files differ:\n-a: 1\n+a: \\u001b2"
    table = shown(markdown_table(["a", "b"], [[HOSTILE, "1"]]))
    assert len(table.splitlines()) == 3
    assert len(re.findall(r"(?<!\\)\|", table.splitlines()[2])) == 3


def test_hostile_results_reach_no_terminal_and_no_file_of_a_report(tmp_path):
    """In the task, the pair, what it is a part of, problems and provenance: as a file can hold them that is read."""
    folder = tmp_path / "results"
    folder.mkdir()
    pair = {"base": f"org/{HOSTILE}", "rl": f"org/{HOSTILE}rl"}
    for i, decoding in enumerate(GRID):
        one = result(decoding, 0.2 + 0.04 * i, pair=pair, partial=f"first 4 of {HOSTILE}", argv=["x", HOSTILE])
        data = json.loads(one.to_json())
        data["problem_ids"] = [f"{HOSTILE}{i}" for i in range(6)]
        (folder / f"{i}.json").write_text(json.dumps({**data, "task": TASK}))
    (folder / "other.json").write_text(json.dumps({**data, "task": HOSTILE}))
    done = invoke("compare", folder)
    assert r"other.json: task='\x1b]0;owned" in done.stderr  # it names files: refused, the others are compared
    assert done.exit_code == 0, done.exception
    assert r"\u001b[2J" in shown(done.output)
    done = invoke("report", folder, "--out", tmp_path / "out", "--title", HOSTILE)
    assert done.exit_code == 0, done.exception
    shown(done.output)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".md", ".tex", ".csv", ".svg"}
    for path in files:
        text = shown(path.read_text(encoding="utf-8"))
        if path.suffix == ".svg":
            assert "all good" not in [each.text for each in ET.fromstring(text).iter()]
    assert r"\u202e" in (tmp_path / "out/report.md").read_text().replace("\\\\", "\\")


def test_hostile_folders_of_records_are_listed_harmless(tmp_path):
    folder = fill(tmp_path / "store")
    name = HOSTILE.replace("/", "").encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    say(folder, base=HOSTILE, rl=HOSTILE)
    folder.rename(folder.with_name(name))
    for command in (
        ["list"],
        ["verify"],
        ["show", folder.parent.name],
        ["gc", "--drop", folder.parent.name],
        ["grade"],
    ):
        done = invoke("records", *command, "--store", tmp_path / "store")
        assert done.exit_code in (0, 1), (command, done.exception)
        assert r"\u001b" in shown(done.output), command
    done = invoke("compare", tmp_path / "store")
    assert isinstance(done.exception, UserError)


@pytest.fixture
def trap(tmp_path):
    """A folder with a tokenizer that is code, and the file that this code writes when it is run."""
    folder, sprung = tmp_path / "trap", tmp_path / "sprung"
    folder.mkdir()
    auto = {"auto_map": {"AutoConfig": "trap.Config", "AutoTokenizer": ["trap.Tokenizer", None]}}
    (folder / "config.json").write_text(json.dumps({"model_type": "trap", **auto}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Tokenizer", **auto}))
    (folder / "trap.py").write_text(
        f"open({str(sprung)!r}, 'w').close()\n"
        "from transformers import PretrainedConfig, PreTrainedTokenizer\n"
        "class Config(PretrainedConfig):\n    model_type = 'trap'\n"
        "class Tokenizer(PreTrainedTokenizer):\n    pass\n"
    )
    return folder, sprung


def foreign(store, rl):
    """A finished record that says its RL model is `rl`, and a result that names the record."""
    folder = fill(store)
    say(folder, base=rl, rl=rl)
    one = result(
        Decoding(mode="replace", tau=-0.3), task="tiny_easy", problems=12, samples=3, ids=tuple(map(str, range(12))),
        records=str(store), record=RecordStore(store).record(folder.parent.name).name,
    )  # fmt: skip
    return folder, one


WATCHED = """
import sys
watched, seen = sys.argv.pop(1), []
def watch(event, arguments):
    if event.startswith(("socket.connect", "socket.getaddrinfo")) or any(watched in str(each) for each in arguments):
        seen.append((event, *map(str, arguments)))
from rlvr_dir.cli import main
sys.addaudithook(watch)
try:
    main()
finally:
    print("SEEN", seen)
"""


@pytest.mark.parametrize("command", ["view", "report"])
def test_what_a_record_says_of_its_models_is_not_looked_up(tmp_path, trap, command):
    """Every file that Python opens or lists and every address that it asks for is watched; 'y' waits at the prompt."""
    folder, sprung = trap
    rl, out = str(folder) if command == "view" else "stranger/trap", tmp_path / "out"
    record, one = foreign(tmp_path / "store", rl)
    (tmp_path / "results").mkdir()
    one.write(tmp_path / "results")
    words = ["view", record, "--out", out / "page.html"] if command == "view" else ["report", tmp_path / "results"]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, rl, *map(str, words), *(["--out", out] if command == "report" else [])],
        input="y\ny\n", capture_output=True, text=True, cwd=ROOT, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "SEEN []"
    assert "--tokenizer records" in done.stderr
    [page] = out.glob("*.html")
    assert not re.search(r'"#\d', page.read_text())  # no token by its id
    assert not sprung.exists()


def test_told_where_a_tokenizer_is_its_code_still_does_not_run(tmp_path, trap, monkeypatch):
    from transformers import AutoTokenizer

    folder, sprung = trap
    record, _ = foreign(tmp_path / "store", str(folder))
    view = ["view", record, "--out", tmp_path / "view.html"]
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    assert "cannot be read" in refused(*view, "--tokenizer", folder)
    done = invoke(*view, "--tokenizer", "records", input="y\n")
    assert done.exit_code == 0
    assert f"no tokenizer in {folder}" in done.output
    assert not sprung.exists()
    with pytest.raises(Exception):  # noqa: B017 - the trap itself works: this is what runs it
        AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    assert sprung.exists()
