"""Benchmarks by name: where the problems of ours come from, tasks of lm-eval's and one's own, and mistakes."""

import json
from pathlib import Path

import pytest

from rlvr_dir.errors import UserError
from rlvr_dir.grading import grade_many
from rlvr_dir.problems import data
from rlvr_dir.problems.benchmark import BENCHMARKS, GROUPS
from rlvr_dir.problems.data import find_benchmark, preflight, tasks_dir
from rlvr_dir.problems.lm_eval_tasks import LmEvalBenchmark, declared
from tests.facts import refuses


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


def test_a_group_has_the_same_benchmarks_for_lm_eval_and_for_us():
    """A benchmark that is added to ours is in no group by that."""
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks_dir()), include_defaults=False)
    assert set(manager.all_groups) == set(GROUPS)
    for group, members in GROUPS.items():
        assert tuple(manager.task_index[group].cfg["task"]) == members
        assert set(members) <= set(BENCHMARKS)


@pytest.mark.parametrize("n", [29, 31])
def test_the_rows_are_counted(tmp_path, n):
    with refuses("aime24.jsonl", n, 30):
        data.find_benchmark("aime24", write(tmp_path, rows(n)))


def test_without_a_folder_the_hub_is_asked(monkeypatch):
    import datasets

    asked = []

    def hub(name, split):
        asked.append((name, split))
        if "aime" in name:
            raise ConnectionError("Couldn't reach it\nat all")
        return datasets.Dataset.from_list([{"question": f"{i}?", "answer": "3e6"} for i in range(272)])

    monkeypatch.delenv("RLVR_DIR_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", hub)
    data._shipped.cache_clear()
    assert data.find_benchmark("minerva").problems[3] == {"id": "3", "problem": "3?", "answer": r"3 \times 10^{6}"}
    assert asked == [("math-ai/minervamath", "test")]
    data._shipped.cache_clear()
    with refuses("RLVR_DIR_DATA", "aime24.jsonl") as error:
        data.find_benchmark("aime24")
    assert "HuggingFaceH4/aime_2024" in str(error.value)


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


def test_the_real_benchmarks(real_data):
    found = {name: data.find_benchmark(name, real_data).problems for name in data.SOURCES}
    assert [len(found[name]) for name in ("aime24", "aime25", "amc", "minerva")] == [30, 30, 83, 272]
    golds = [row["answer"] for rows in found.values() for row in rows][::3]
    assert all(0 <= int(row["answer"]) <= 999 for name in ("aime24", "aime25") for row in found[name])
    verdicts = grade_many([(gold, f"\\boxed{{{gold}}}") for gold in golds])
    assert [gold for gold, verdict in zip(golds, verdicts, strict=True) if not verdict.correct] == []


TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{problem}}}}"
doc_to_target: "{{{{answer}}}}"
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of tasks: `sums_of_mine`, one that has the name of a shipped benchmark, and one that is there twice."""
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps({"problem": f"1+{i}?", "answer": 1 + i}) + "\n" for i in range(3)))
    (tmp_path / "tasks/further").mkdir(parents=True)
    names = {"mine": "sums_of_mine", "ours": "tiny_easy", "twice": "'doubled'  # here", "further/twice": '"doubled"'}
    for file, name in names.items():
        (tmp_path / f"tasks/{file}.yaml").write_text(TASK.format(name=name, data=data))
    return tmp_path / "tasks"


def test_a_task_is_found_by_its_name_in_a_folder_and_ours_win(folder):
    found = preflight(["sums_of_mine", "tiny_easy"], include_path=str(folder))
    assert isinstance(found["sums_of_mine"], LmEvalBenchmark)
    assert found["sums_of_mine"].data == preflight([str(folder / "mine.yaml")]).popitem()[1].data
    assert not isinstance(found["tiny_easy"], LmEvalBenchmark)


def test_lm_evals_own_are_found_by_their_names():
    """As its index has them, of which these are some of each kind of file."""
    tasks = declared()
    assert len(tasks) > 10_000
    for name in ("gsm8k", "gsm8k_cot", "minerva_math_algebra", "ifeval", "bbh_cot_fewshot_boolean_expressions"):
        [file] = tasks[name]
        assert Path(file).suffix == ".yaml"


@pytest.mark.parametrize(
    ("task", "where", "sentence"),
    [
        ("sums_of_min", "tasks", "task sums_of_min lm-eval sums_of_mine"),
        ("gsm8", None, "task gsm8 aime24 gsm8k"),
        ("tiny_esy", None, "task tiny_esy tiny_easy"),
        ("doubled", "tasks", "task doubled further/twice.yaml /twice.yaml"),
        ("sums_of_mine", "none", "include_path YAML"),
    ],
)
def test_what_is_not_known_is_one_sentence_with_what_is_near(folder, task, where, sentence):
    with refuses(*sentence.split()):
        preflight([task], include_path=where and str(folder.with_name(where)))


def test_a_name_that_no_command_asks_for_is_not_looked_up():
    """What a record says of its task goes this way: its code would be run."""
    with refuses("task", "gsm8k"):
        find_benchmark("gsm8k")


LOST = [
    (r'{"problem": "x", "answer": "\frac{1}{2}"}', "answer", r"\frac"),
    (r'{"problem": "x", "answer": "\boxed{30}"}', "answer", r"\boxed"),
    (r'{"problem": "x", "answer": "3\times 10"}', "answer", r"\times"),
    (r'{"problem": "x", "answer": "\tan x"}', "answer", r"\tan"),
    (r'{"problem": "x", "answer": "\rho"}', "answer", r"\rho"),
    (r'{"problem": "x", "answer": "x\neq 3"}', "answer", r"\neq"),
    (r'{"problem": "What is \frac{1}{2}?", "answer": 1}', "problem", r"\frac"),
    (r'{"problem": "What is $2\times 3$?", "answer": 6}', "problem", r"\times"),
    (r'{"problem": "$\text{Is }x\not= 3$?", "answer": 6}', "problem", r"\text"),
]


@pytest.mark.parametrize(("line", "field", "command"), LOST)
def test_a_backslash_that_json_took_is_refused_with_its_line_and_value(tmp_path, line, field, command):
    (tmp_path / "mine.jsonl").write_text('{"problem": "1?", "answer": 1}\n' + line + "\n")
    with refuses(field, "mine.jsonl line 2", command, f"\\{command}") as info:
        find_benchmark(str(tmp_path / "mine.jsonl"))
    assert isinstance(info.value, UserError)
    assert info.value.value == json.loads(line)[field]


KEPT = [
    {"problem": "Two lines,\nnot three:\n\tan indented one\nu = 3\ne = 2\n\ti = 1\r\nright?", "answer": "3"},
    {"problem": r"\frac{1}{2} \neq \tan x", "answer": r"\frac{1}{2}"},
    {"problem": "x", "answer": "first\nthen\nnow #### 5"},
]


@pytest.mark.parametrize("row", KEPT)
def test_lines_and_tabs_are_no_lost_backslash(tmp_path, row):
    write(tmp_path, [row], "mine")
    assert find_benchmark(str(tmp_path / "mine.jsonl")).problems[0]["problem"] == row["problem"]


@pytest.mark.parametrize(
    ("line", "facts", "cure"),
    [
        (r'{"problem": "1", "answer": "\sqrt2"}', "1 escape", r"\\frac"),
        (r'{"problem": "1", "answer": "\underline{2}"}', "1 escape", r"\\frac"),
        ('{"problem": "1", "answer": 1, "answer": 2}', "1 'answer'", ""),
        ('{"problem": "1", "answer": ' + "9" * 5000 + "}", "1 digits", "text"),
        ('{"problem": "1", "answer": 1', "1 JSON", ""),
        ("[" * 100_000, "1", ""),
    ],
)
def test_a_line_that_cannot_be_read_as_it_was_meant(tmp_path, line, facts, cure):
    (tmp_path / "mine.jsonl").write_text(line)
    with refuses("mine.jsonl", *facts.split(), cure):
        find_benchmark(str(tmp_path / "mine.jsonl"))
