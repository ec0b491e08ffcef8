"""DAPO-Math-17k becomes bare problems, each once; what is another set, or not at hand, is one sentence.

The set itself is on no registry: the copies here are made, in its schema and of its size without the repetitions.
"""

import json

import pyarrow
import pyarrow.parquet
import pytest

from rlvr_dir.config.presentation import AFTER, BEFORE
from rlvr_dir.digest import digest
from rlvr_dir.train import TrainSpec, load_train
from rlvr_dir.train.dapo_math import dapo_math, read_rows
from rlvr_dir.train.data import read_problems
from rlvr_dir.train.spec import plain
from tests.commands import refused, run
from tests.facts import refuses, states

COUNT = 17_398


def row(number, answer=None, content=None):
    """One row as the hub has it."""
    content = f"{BEFORE}What is ${number} + 1$?{AFTER}" if content is None else content
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": content, "role": "user"}],
        "ability": "MATH",
        "reward_model": {
            "ground_truth": str(number + 1 if answer is None else answer),
            "style": "rule-lighteval/MATH_v2",
        },
        "extra_info": {"index": f"{number:08x}"},
    }


def rows():
    """Every problem twice, and one of them with a second answer."""
    return [row(number) for _ in range(2) for number in range(COUNT)] + [row(7, answer=9)]


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "dapo-math-17k.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows()), path)
    return path


@pytest.fixture(scope="module")
def made(parquet):
    return dapo_math(read_rows(parquet))


def test_every_problem_stands_once_and_bare(made, tmp_path):
    assert (made.rows, len(made.problems), made.ambiguous) == (2 * COUNT + 1, COUNT - 1, 1)
    assert made.problems[0] == {"problem": "What is $0 + 1$?", "answer": "1"}
    assert made.problems[7] == {"problem": "What is $8 + 1$?", "answer": "9"}  # 7 has two answers
    file = tmp_path / "x.jsonl"
    file.write_text(made.text)
    first = read_problems(file, TrainSpec(instruction=" Box it."))[0]
    assert first == {"prompt": [{"role": "user", "content": "What is $0 + 1$? Box it."}], "answer": "1"}


def test_other_copies_give_the_same(made, tmp_path):
    lines = tmp_path / "copy.jsonl"
    lines.write_text("".join(json.dumps(each) + "\n" for each in rows()))
    assert dapo_math(read_rows(lines)).problems == made.problems
    theirs = [  # open-r1/DAPO-Math-17k-Processed
        {"prompt": f"What is ${n} + 1$?", "source_prompt": row(n)["prompt"], "reward_model": row(n)["reward_model"]}
        for n in range(COUNT)
    ]
    assert [each for each in dapo_math(theirs).problems if each["problem"] != "What is $7 + 1$?"] == made.problems


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            row(3, content="What is $3 + 1$?"),
            "3 DAPO-Math-17k",
        ),
        (row(3, content=BEFORE + "What is it?"), "3"),
        ({**row(3), "reward_model": None}, "3"),
        ({"problem": " ", "answer": "1"}, "3"),
        ([], "3"),
    ],
)
def test_a_row_of_another_form_is_named(bad, message):
    with refuses(*message.split()):
        dapo_math([row(1), row(2), bad])


@pytest.mark.parametrize("count", [0, 16_999, 18_000])
def test_a_part_and_another_set_are_refused(count):
    with refuses("17,000", "17,999", f"{count:,}"):
        dapo_math({"problem": f"{n}?", "answer": "1"} for n in range(count))


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "x.parquet").write_text("no")
    (tmp_path / "x.jsonl").write_text("{}\nno\n")
    for name, message in (
        ("x.parquet", "source Parquet"),
        ("x.jsonl", "source 2 JSON"),
        ("none", "source"),
    ):
        with refuses(*message.split()):
            list(read_rows(tmp_path / name))


def test_the_command_writes_counts_and_digest(parquet, made, tmp_path):
    file = tmp_path / "dapo-math-17k.jsonl"
    asked = ["data", "dapo-math-17k", "--source", parquet, "--out", tmp_path]
    assert digest(made.text) in refused(*asked, "--digest", "0" * 16)
    assert not file.exists()
    for _ in range(2):  # the second finds it
        done = run(*asked, "--digest", digest(made.text))
        states(done.stderr, "17,397", "34,797", digest(made.text))
    assert file.read_text() == made.text
    file.write_text("other")
    assert str(file) in refused(*asked)
    assert file.read_text() == "other"


def test_a_benchmark_is_written_as_a_validation_reads_it(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    lines = [{"id": f"{n}", "problem": f"{n}?", "answer": n, "more": 1} for n in range(30)]
    (copy / "aime24.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("data", "aime24", "--source", copy, "--out", tmp_path)
    assert read_problems(tmp_path / "aime24.jsonl", TrainSpec(instruction=""))[29] == {
        "prompt": [{"role": "user", "content": "29?"}], "answer": "29",
    }  # fmt: skip


def test_a_training_names_what_makes_its_data_and_refuses_prompts_that_no_box_answers(tmp_path):
    with refuses("data", "dapo-math-17k", "rlvr-dir"):
        read_problems(tmp_path / "dapo-math-17k.jsonl", TrainSpec())
    file = tmp_path / "raw.jsonl"
    file.write_text(json.dumps({"prompt": row(1)["prompt"], "answer": "2"}) + "\n")
    with refuses("dapo.grader", "robust", "raw.jsonl", "1"):
        read_problems(file, TrainSpec())


def test_the_authors_prompt_and_grader_go_together(tmp_path):
    theirs = {"data": "x.jsonl", "base": "some/model", "prompt": "math_dapo", "dapo": {"grader": "math_dapo"}}
    bare, raw, spec = tmp_path / "bare.jsonl", tmp_path / "raw.jsonl", load_train(theirs)
    bare.write_text(json.dumps({"problem": "What is $1 + 1$?", "answer": "2"}) + "\n")
    raw.write_text(json.dumps({"prompt": row(1)["prompt"], "answer": "2"}) + "\n")
    assert read_problems(bare, spec) == read_problems(raw, spec)  # as the hub has it
    with refuses("dapo.grader", "math_dapo", "1"):
        read_problems(bare, load_train({**theirs, "prompt": None}))
    assert load_train(plain(spec)) == spec
    for more, message in (
        ({"instruction": "Think."}, "prompt instruction"),
        ({"data": "tiny", "base": "tiny"}, "prompt data tiny"),
    ):
        with refuses(*message.split()):
            load_train({**theirs, **more})
