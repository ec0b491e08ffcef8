"""An audit from the request to its files, on small pairs: what is decoded once, what is refused, what is left out."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlvr_dir.analysis.result import Analysis
from rlvr_dir.audit.claim import GROUPS
from rlvr_dir.audit.interventions import SHARES, WAYS
from rlvr_dir.audit.run import beside_of, claims, over_seeds
from rlvr_dir.bench.random_pair import random_pair
from rlvr_dir.files import _PROBE
from rlvr_dir.records import RecordStore
from rlvr_dir.stats import Estimate
from tests.broken import files_at_most
from tests.facts import refuses, states
from tests.records.made import stored as lines_of
from tests.records.made import stored_count

SMALL = ("--backend", "transformers", "--max-tokens", "12", "--samples", "2", "--no-track")


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """A benchmark of four sums, and the same questions without answers."""
    folder = tmp_path_factory.mktemp("sums")
    rows = [{"id": str(i), "problem": f"What is {i}+{i}?", "answer": str(2 * i)} for i in range(4)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "bare.jsonl").write_text("".join(json.dumps({"problem": row["problem"]}) + "\n" for row in rows))
    return folder


@pytest.fixture
def audit(typed, tmp_path, monkeypatch):
    """Runs `rlvr-dir audit` in a folder of its own; the table, by row and column, is what it wrote."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        done = typed("audit", *words)
        file = tmp_path / "audit" / "audit.json"
        done.found = Analysis.read(file) if file.is_file() else None
        rows = done.found.tables["rows"] if done.found else ()
        done.values = {(row["name"], row["pair"]): row["value"] for row in rows}
        return done

    return run


def stored():
    store = RecordStore("runs/records")
    return {name: len(store.read(*name).rows) for name in store.names()}


def test_everything_of_a_pair(audit, peaked_pair, sums):
    """All four groups; again nothing is decoded; one more sample decodes that alone; a dry run says so before."""
    task = ("--tasks", sums / "sums.jsonl", "--limit", "2")
    pair = (peaked_pair.base, peaked_pair.rl)
    points, ways = len(WAYS) * len(SHARES) + 2, 2 * 2
    asked = audit(*pair, *task, *SMALL, "--dry-run").stdout
    states(asked, f"{points * ways:,} of {points * ways:,} responses")
    assert not Path("runs/records").exists()
    first = audit(*pair, *task, *SMALL, "--low-rank", "1")
    assert first.returncode == 0, first.stderr
    states(first.stdout, Path("audit/report.html").absolute().as_uri())
    for group in GROUPS:
        assert (Path("audit/tables") / f"{group}.csv").is_file()
        assert any(name.startswith(f"{group}/") and value is not None for (name, _), value in first.values.items())
    assert {path.stem for path in Path("audit/figures").glob("*.svg")} == {
        "accuracy",
        "concentration",
        "pass",
        "layers",
    }
    before = stored()
    again = audit(*pair, *task, *SMALL, "--low-rank", "1")
    assert "decode" not in again.stderr
    assert (again.values, stored()) == (first.values, before)
    assert again.found.context["minutes"] == first.found.context["minutes"], "what decoding took"
    held = audit(*pair, *task, *SMALL, "--dry-run").stdout
    states(held, "To generate: nothing")
    other = audit(*pair, *task, *SMALL, "--top-p", "0.9", "--dry-run").stdout
    states(other, f"{points * ways:,} of {points * ways:,} responses")  # those drawn otherwise do not count
    more = audit(*pair, *task, *SMALL, "--samples", "3", "--rows", "tokens,outcomes", "--dry-run").stdout
    states(more, "4 of 12 responses, 48 tokens at most")


@pytest.mark.whole(reason="two audits in processes of their own")
def test_killed_and_run_again_it_finds_what_one_run_finds(audit, peaked_pair, sums, tmp_path):
    words = (peaked_pair.base, peaked_pair.rl, "--tasks", sums / "sums.jsonl", *SMALL)
    whole = audit(*words)
    assert whole.returncode == 0, whole.stderr
    wanted = sum(stored().values())
    (tmp_path / "cut").mkdir()
    command = [sys.executable, "-m", "rlvr_dir.cli", "audit", *map(str, words)]
    process = subprocess.Popen(command, cwd=tmp_path / "cut", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while process.poll() is None and stored_count(tmp_path / "cut/runs/records") < wanted // 2:
        time.sleep(0.001)
    assert process.poll() is None, "killed while it decoded"
    process.kill()
    process.communicate()
    assert not (tmp_path / "cut/audit/audit.json").exists()
    shutil.rmtree(tmp_path / "audit")
    again = subprocess.run(command, cwd=tmp_path / "cut", capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert Analysis.read(tmp_path / "cut/audit/audit.json").tables == whole.found.tables
    assert sum(len(keys) for keys in lines_of(tmp_path / "cut/runs/records").values()) == wanted, "none decoded twice"


def test_on_a_disk_that_fills_what_was_decoded_stays(audit, peaked_pair, sums):
    words = (peaked_pair.base, peaked_pair.rl, "--tasks", sums / "sums.jsonl", *SMALL)
    words = (*words, "--samples", "16", "--rows", "tokens,outcomes")
    with files_at_most(_PROBE + 1000):
        full = audit(*words)
    assert full.returncode == 2
    [sentence] = [line for line in full.stderr.splitlines() if line.startswith("error: ")]
    kept = stored().values()  # a record each of base's and RL's answers
    assert 0 < sum(kept) < 128
    assert any(f"(no space is left for it); the {n} rollouts before it are safe" in sentence for n in kept)
    done = audit(*words)
    assert done.returncode == 0, done.stderr
    assert sum(stored().values()) == 128


def test_an_evaluation_that_was_there_is_used(audit, typed, peaked_pair, sums):
    task = ("--tasks", sums / "sums.jsonl")
    pair = ("--base", peaked_pair.base, "--rl", peaked_pair.rl)
    assert typed("eval", *pair, *task, *SMALL, "-d", "base", "-d", "rl").returncode == 0
    done = audit(*pair, *task, *SMALL, "--rows", "outcomes")
    assert done.returncode == 0, done.stderr
    assert "decode" not in done.stderr
    assert {name.split("/")[0] for name, _ in done.values} == {"outcomes"}


def test_a_model_and_itself(audit, peaked_pair, sums):
    done = audit(peaked_pair.base, peaked_pair.base, "--tasks", sums / "sums.jsonl", *SMALL)
    assert done.returncode == 0, done.stderr
    values = {name: value for (name, column), value in done.values.items() if column == "this pair"}
    ones = ("tokens/same_top", "tokens/forks", "weights/equal", "weights/within")
    zeros = ("tokens/js", "tokens/kl", "weights/change", "weights/rank", "outcomes/gain", "interventions/token")
    for name, value in values.items():
        if name.startswith(ones):
            assert value == 1, name
        if name.startswith(zeros):
            assert value in (0, None), name
    assert "the same model" in Path("audit/report.md").read_text()


def test_questions_without_answers(audit, peaked_pair, sums):
    done = audit(peaked_pair.base, peaked_pair.rl, "--tasks", sums / "bare.jsonl", *SMALL)
    assert done.returncode == 0, done.stderr
    found = {name.split("/")[0] for (name, _), value in done.values.items() if value is not None}
    assert found == {"tokens", "weights"}
    for group in ("outcomes", "interventions"):
        assert any(line.startswith(f"{group} of this pair ") for line in done.stderr.splitlines())
    states(Path("audit/report.md").read_text(), "this pair: ", sums / "bare.jsonl")


def test_questions_in_families(audit, peaked_pair, sums):
    """Name families in a file: nothing is decoded again, no number moves, intervals are over them and say so."""
    rows = [json.loads(line) | {"family": "ab"[i > 1]} for i, line in enumerate((sums / "sums.jsonl").open())]
    found = {}
    for folder, of in (("alone", []), ("named", rows)):
        file = sums / folder / "mine.jsonl"
        file.parent.mkdir()
        lines = [json.dumps(row) + "\n" for row in of] or (sums / "sums.jsonl").open()
        file.write_text("".join(lines))
        done = audit(peaked_pair.base, peaked_pair.rl, "--tasks", file, "--rows", "outcomes,tokens", *SMALL)
        assert done.returncode == 0, done.stderr
        assert done.found.context["families"] == ({"mine": 2} if of else {})
        page = Path("audit/report.md").read_text()
        assert (" over the 2 families of mine." in page) == bool(of)
        assert ("Few families: mine." in page) == bool(of)
        own = [row for row in done.found.tables["rows"] if row["pair"] == "this pair"]
        found[folder] = {row["name"]: row for row in own}, stored()
    (alone, decoded), (named, again) = found["alone"], found["named"]
    assert decoded == again
    assert {name: row["value"] for name, row in named.items()} == pytest.approx(
        {name: row["value"] for name, row in alone.items()}
    )
    for name in ("tokens/js/rl", "tokens/logp_base/base"):
        assert named[name]["value_low"] < alone[name]["value_low"], "two families have a t of one degree of freedom"


def test_unlike_vocabularies_leave_the_weights(audit, peaked_pair, sums, tmp_path):
    other = random_pair(tmp_path / "other", vocab=280)
    done = audit(peaked_pair.base, other.rl, "--tasks", sums / "sums.jsonl", *SMALL)
    assert done.returncode == 0, done.stderr
    assert {name.split("/")[0] for (name, _), value in done.values.items() if value is not None} == {"weights"}
    why = done.found.context["missing"]["this pair"]
    assert set(why) == {"tokens", "interventions", "outcomes"}


def test_a_checkpoint_that_was_fetched_in_part(audit, peaked_pair, tmp_path):
    folder = Path(shutil.copytree(peaked_pair.rl, tmp_path / "part"))
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    done = audit(peaked_pair.base, folder, "--rows", "weights")
    assert done.returncode == 2
    assert "model.safetensors" in done.stderr
    assert done.stderr.count("\n") == 1


def test_tokens_that_base_does_not_know_leave_outcomes_and_weights(audit, peaked_pair, sums, tmp_path):
    from transformers import AutoTokenizer

    folder = shutil.copytree(peaked_pair.rl, tmp_path / "more")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<more>"])
    tokenizer.save_pretrained(folder)
    done = audit(peaked_pair.base, folder, "--tasks", sums / "sums.jsonl", *SMALL)
    assert done.returncode == 0, done.stderr
    found = {name.split("/")[0] for (name, _), value in done.values.items() if value is not None}
    assert found == {"weights", "outcomes"}
    assert any(line.startswith("tokens of this pair ") and " 1 token" in line for line in done.stderr.splitlines())


def test_unlike_architectures_leave_the_answers(audit, peaked_pair, sums, tmp_path):
    wide = random_pair(tmp_path / "wide", hidden=128)
    words = (peaked_pair.base, wide.rl, "--tasks", sums / "sums.jsonl", *SMALL, "--rows", "tokens,weights")
    done = audit(*words)
    assert done.returncode == 0, done.stderr
    assert done.values["tokens/same_top/rl", "this pair"] is not None
    assert done.values["weights/equal", "this pair"] is None
    states(done.found.context["missing"]["this pair"]["weights"], "base", "rl", " of ")
    alone = audit(peaked_pair.base, wide.rl, "--rows", "weights")
    assert (alone.returncode, alone.stderr.count("error: ")) == (2, 1)


def test_pairs_beside(audit, peaked_pair, tmp_path):
    other = random_pair(tmp_path / "other", step=0.02)
    beside = f"far={peaked_pair.base}:{other.rl},{peaked_pair.rl}"
    done = audit(peaked_pair.base, peaked_pair.rl, "--rows", "weights", "--beside", beside)
    assert done.returncode == 0, done.stderr
    near, seeds = (done.values["weights/change/all", name] for name in ("this pair", "far"))
    assert seeds > near, "the mean of a larger change and of this one"
    assert "| this pair |" in Path("audit/report.md").read_text().replace("  ", "")


def test_seeds_are_one_number():
    same = over_seeds([Estimate(0.3, 0.2, 0.4), Estimate(0.3, 0.2, 0.4)])
    assert same == Estimate(0.3, 0.2, 0.4)  # of the base that they share
    alike = over_seeds([Estimate(0.3, 0.2, 0.4), Estimate(0.3, 0.1, 0.4)], 0.0, 1.0)
    assert (alike.low, alike.high) == (pytest.approx(0.15), pytest.approx(0.4))
    assert over_seeds([Estimate(0.3), Estimate(0.3, 0.2, 0.4)], 0.0, 1.0) == Estimate(0.3)
    apart = over_seeds([Estimate(0.2, 0.1, 0.3), Estimate(0.4, 0.3, 0.5), Estimate(0.3, 0.2, 0.4)])
    assert apart.value == pytest.approx(0.3)
    assert (apart.high or 0) - 0.3 == pytest.approx(((4.302653 * 0.1 / 3**0.5) ** 2 + 0.1**2) ** 0.5, rel=1e-5)
    assert over_seeds([Estimate(0.2), Estimate(None)]).value is None
    ends = {claim.name: over_seeds([Estimate(0.9, 0.8, 0.95), Estimate(0.99, 0.98, 1)], *claim.range)
            for claim in claims((1,))}  # fmt: skip
    cut = {name: (end.low, end.high) for name, end in ends.items()}
    assert (
        cut["outcomes/pass/rl"]
        == cut["tokens/same_top/rl"]
        == (pytest.approx(0.945 - (0.571779**2 + 0.055**2) ** 0.5, rel=1e-5), 1)
    )
    assert cut["interventions/replace/js"] == cut["outcomes/rank/1"] == cut["outcomes/gain"]
    assert cut["outcomes/gain"][1] > 1.5
    few = over_seeds([Estimate(1.0, 0.5, 1.5), Estimate(3.0, 2.0, 4.0)], 0.0)
    assert (few.value, few.low) == (2.0, 0.0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rows", "token"], "--rows token tokens"),
        (["--beside", "x"], "--beside x BASE:RL"),
        (["--beside", "a=b:c", "--beside", "a=b:d"], "--beside a=b:d"),
        (
            ["--beside", "this pair=b:c"],
            "--beside this pair",
        ),
        (["--low-rank", "0"], "--low-rank 0 1"),
        (["--low-rank", "1", "--rows", "weights"], "--low-rank --rows outcomes"),
        (["--rows", "tokens"], "--tasks tiny_easy"),
        (["./nowhere", "./neither", "--rows", "weights"], "BASE ./nowhere"),
        (["./one", "--rows", "weights"], "1 BASE RL --pair"),
        (["a", "b", "--pair", "tiny"], "--pair tiny 'a'"),
        (["--tasks", "aime99"], "task aime99"),
        (["--tasks", "tiny_easy", "--temperature", "0"], "--temperature 0"),
        (["--tasks", "tiny_easy", "--temperature", "0", "--samples", "4"], "--samples 4 --temperature"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_before_anything_loads(audit, words, sentence):
    done = audit(*words)
    assert done.returncode == 2
    states(done.stderr, *sentence.split())
    assert "loading" not in done.stderr


def test_pairs_are_read():
    [(name, pairs)] = beside_of(["SFT=org/base:org/sft,org/other"]).items()
    assert (name, [pair.rl for pair in pairs]) == ("SFT", ["org/sft", "org/other"])
    with refuses("beside", "NAME", "BASE:RL"):
        beside_of(["SFT=org/base"])


def test_from_python(peaked_pair, sums, tmp_path, monkeypatch):
    from rlvr_dir import audit

    monkeypatch.chdir(tmp_path)
    options = {"samples": 2, "max_tokens": 12, "backend": "transformers", "rows": "tokens,weights"}
    assert audit is sys.modules["rlvr_dir.audit"], "the room, whose modules are imported, is the function, too"
    frame = audit(peaked_pair.base, peaked_pair.rl, str(sums / "sums.jsonl"), **options)
    assert {*frame.group} == {"tokens", "weights"}
    assert frame.set_index("name").value["tokens/same_top/rl"] > 0.5
    assert {"measured", "how", "pair", "value", "value_low", "value_high", "unit", "published"} < {*frame.columns}


def test_metrics_in_mlflow(audit, peaked_pair, tmp_path):
    done = audit(peaked_pair.base, peaked_pair.rl, "--rows", "weights", "--tracking", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    from rlvr_dir.tracking.store import TrackingStore

    client = TrackingStore.at(tmp_path / "runs").client()
    experiment = client.get_experiment_by_name("rlvr-dir-audit")
    [run] = client.search_runs([experiment.experiment_id])
    assert run.data.metrics["weights/equal"] == pytest.approx(done.values["weights/equal", "this pair"])
    assert run.data.params["base"] == peaked_pair.base
