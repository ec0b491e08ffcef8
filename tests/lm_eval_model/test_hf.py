"""Greedy decoding of a stock task, response for response that of lm-eval's `hf` model, with and without chat turns."""

import json

import pytest

from rlvr_dir.config import Decoding, EngineSpec
from rlvr_dir.decode import open_engine
from rlvr_dir.lm_eval_model.lm import RlvrDirLM
from rlvr_dir.problems.data import find_benchmark
from rlvr_dir.problems.generation import template_name
from rlvr_dir.tiny import tiny_pair

# lm-eval's gsm8k, with other questions, a description, and always the same examples.
LIKE_GSM8K = """
task: like_gsm8k
description: "Sums."
dataset_path: json
dataset_kwargs: {data_files: {train: "FOLDER/train.jsonl", test: "FOLDER/test.jsonl"}}
training_split: train
fewshot_split: train
test_split: test
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
num_fewshot: 2
fewshot_config: {sampler: first_n}
generation_kwargs: {until: ["Question:", "</s>", "<|im_end|>"], do_sample: false, temperature: 0.0}
repeats: 1
metric_list:
- {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true}
filter_list:
- name: flexible-extract
  filter:
  - {function: regex, group_select: -1, regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)"}
  - {function: take_first}
"""


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    from lm_eval.tasks import TaskManager

    folder = tmp_path_factory.mktemp("theirs")
    rows = [
        {"question": row["problem"], "answer": f"#### {row['answer']}"}
        for row in find_benchmark("tiny_medium").problems[:12]
    ]
    for name, some in (("test", rows[:4]), ("train", rows[4:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    (folder / "like_gsm8k.yaml").write_text(LIKE_GSM8K.replace("FOLDER", str(folder)))
    return TaskManager(include_path=str(folder), include_defaults=False)


@pytest.fixture(scope="module")
def engine():
    with open_engine(tiny_pair(), EngineSpec(backend="transformers")) as opened:
        yield opened


def asked(lm, manager, **how):
    """The prompts, the responses, and the score that lm-eval gives."""
    from lm_eval import evaluator

    found = evaluator.evaluate(lm=lm, task_dict=manager.load(["like_gsm8k"]), bootstrap_iters=0, **how)
    samples = found["samples"]["like_gsm8k"]
    score = found["results"]["like_gsm8k"]["exact_match,flexible-extract"]
    return [each["arguments"][0][0] for each in samples], [each["resps"][0][0] for each in samples], score


@pytest.mark.parametrize("role", ["base", "rl"])
def test_the_responses_are_those_of_the_hf_model(engine, manager, role):
    from lm_eval.models.huggingface import HFLM

    hf = HFLM(pretrained=getattr(engine.pair, role), dtype="float32", device="cpu", batch_size=1)
    plain, chat = asked(hf, manager), asked(hf, manager, apply_chat_template=True, fewshot_as_multiturn=True)
    ours = {
        how: RlvrDirLM(engine=engine, decoding=Decoding(mode=role), chat=how, progress=False) for how in ("off", "auto")
    }
    assert asked(ours["off"], manager) == plain
    assert asked(ours["auto"], manager) == chat  # the very turns, though nobody asked for --apply_chat_template
    assert asked(ours["auto"], manager, apply_chat_template=True, fewshot_as_multiturn=True) == chat  # and once alone
    told = {how: lm.get_model_info()["rlvr_dir"]["chat"] for how, lm in ours.items()}
    assert told == {"off": "off", "auto": template_name(engine)}
    assert plain[1] != chat[1]
    one_turn = asked(hf, manager, apply_chat_template=True, fewshot_as_multiturn=False)
    assert asked(ours["auto"], manager, fewshot_as_multiturn=False) == one_turn != chat
