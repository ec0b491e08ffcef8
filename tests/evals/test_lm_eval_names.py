"""A task of lm-eval's is named as it is there, or in a folder of one's own; ours win, and records run no code."""

import json
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.evals.data import find_benchmark, preflight
from harness.evals.theirs import LmEvalBenchmark, declared

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
    assert found["tiny_easy"] is not None
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
        ("sums_of_min", "tasks", r"task='sums_of_min' is not known; .*near among lm-eval's: sums_of_mine"),
        ("gsm8", None, r"task='gsm8' is not known; accepted: aime24, .*near among lm-eval's: gsm8k, "),
        ("tiny_esy", None, r"did you mean 'tiny_easy'\?"),
        ("doubled", "tasks", r"task='doubled' is declared by .*further/twice.yaml and .*/twice.yaml; accepted: one of"),
        ("sums_of_mine", "none", r"include_path='.*none' is no folder; accepted: one with YAML files of tasks"),
    ],
)
def test_what_is_not_known_is_one_sentence_with_what_is_near(folder, task, where, sentence):
    with pytest.raises(UserError, match=sentence):
        preflight([task], include_path=where and str(folder.with_name(where)))


def test_a_name_that_no_command_asks_for_is_not_looked_up():
    """What a record says of its task goes this way: its code would be run."""
    with pytest.raises(UserError, match="task='gsm8k'"):
        find_benchmark("gsm8k")
