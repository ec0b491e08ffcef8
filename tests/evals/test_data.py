"""The problems: where they come from, what is checked, what is said when they are not there."""

import json

import pytest

from harness.errors import UserError
from harness.evals import data
from harness.grading import grade_many


def write(folder, rows, name="aime24"):
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def rows(n):
    return [{"id": f"p{i}", "problem": f"{i}?", "answer": i} for i in range(n)]


def test_a_local_folder_by_setting_and_by_variable(tmp_path, monkeypatch):
    write(tmp_path, rows(30))
    found = data.find_benchmark("aime24", str(tmp_path)).problems
    assert found[7] == {"id": "p7", "problem": "7?", "answer": "7"}
    monkeypatch.setenv("RLVR_DIR_DATA", str(tmp_path))
    assert data.find_benchmark("aime24").problems is found


@pytest.mark.parametrize("n", [29, 31])
def test_the_rows_are_counted(tmp_path, n):
    with pytest.raises(UserError, match=rf"aime24.jsonl has {n} problems; aime24 has 30"):
        data.find_benchmark("aime24", write(tmp_path, rows(n)))


def test_without_a_folder_the_hub_is_asked(monkeypatch):
    import datasets

    monkeypatch.delenv("RLVR_DIR_DATA", raising=False)
    data._shipped.cache_clear()
    asked = []

    def hub(name, split):
        asked.append((name, split))
        return datasets.Dataset.from_list([{"question": f"{i}?", "answer": "3e6"} for i in range(272)])

    monkeypatch.setattr(datasets, "load_dataset", hub)
    assert data.find_benchmark("minerva").problems[3] == {"id": "3", "problem": "3?", "answer": r"3 \times 10^{6}"}
    assert asked == [("math-ai/minervamath", "test")]
    data._shipped.cache_clear()


def test_no_hub_is_one_sentence_that_says_what_to_set(monkeypatch):
    import datasets

    def hub(name, split):
        raise ConnectionError("Couldn't reach it\nat all")

    monkeypatch.delenv("RLVR_DIR_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", hub)
    data._shipped.cache_clear()
    with pytest.raises(UserError, match=r"set RLVR_DIR_DATA to a folder that holds aime24\.jsonl") as error:
        data.find_benchmark("aime24")
    assert "HuggingFaceH4/aime_2024" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (142.0, "142"),
        ("-4.0", "-4"),
        ("025", "025"),
        (" 7 ", "7"),
        ("1.6e-19", r"1.6 \times 10^{-19}"),
        ("3e6", r"3 \times 10^{6}"),
        ("0.50", "0.50"),
        (r"\frac{1}{2}e^{2}", r"\frac{1}{2}e^{2}"),
    ],
)
def test_golds_are_readable(raw, text):
    assert data.gold(raw) == text


def test_the_digest_is_of_the_content(tmp_path):
    one = data.find_benchmark("aime24", write(tmp_path, rows(30))).data
    other = tmp_path / "other"
    other.mkdir()
    assert data.find_benchmark("aime24", write(other, [row | {"source": "x"} for row in rows(30)])).data == one
    changed = tmp_path / "changed"
    changed.mkdir()
    assert data.find_benchmark("aime24", write(changed, [{**row, "answer": 0} for row in rows(30)])).data != one


def test_the_real_benchmarks(real_data):
    found = {name: data.find_benchmark(name, real_data).problems for name in data.SOURCES}
    assert [len(found[name]) for name in ("aime24", "aime25", "amc", "minerva")] == [30, 30, 83, 272]
    golds = [row["answer"] for rows in found.values() for row in rows][::3]
    assert all(0 <= int(row["answer"]) <= 999 for name in ("aime24", "aime25") for row in found[name])
    verdicts = grade_many([(gold, f"\\boxed{{{gold}}}") for gold in golds])
    assert [gold for gold, verdict in zip(golds, verdicts, strict=True) if not verdict.correct] == []
