"""lm-eval's own API models ask the server, and score what we score, problem by problem.

Greedy: lm-eval cannot tell the server which problem it asks, so its noise would be another.
"""

from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")
pytest.importorskip("tenacity", reason="lm-eval's API models need tenacity, of the extra [dev]")

import lm_eval
from lm_eval.models import openai_completions  # noqa: F401 - registers its models
from lm_eval.tasks import TaskManager

from rlvr_dir.config import Decoding, EngineSpec, EvalSpec, Sampling
from rlvr_dir.evals import evaluate
from rlvr_dir.lm_eval_model.lm import RlvrDirLM
from rlvr_dir.problems.data import tasks_dir
from rlvr_dir.tiny import tiny_pair

pytestmark = pytest.mark.vllm
LIMIT, TASK, TOKENS = 40, "tiny_medium", 500
RULES = {"tiny:base": Decoding(mode="base"), "tiny:replace,tau=-0.1": Decoding(mode="replace", tau=-0.1)}


def scored_by_lm_eval(model: Any, chat: bool, **arguments: Any) -> dict[str, float]:
    """{problem: right or not}, after a look at the mean that lm-eval makes of it."""
    run: Any = lm_eval.simple_evaluate  # whose decorator hides its arguments
    manager: Any = TaskManager
    found = run(
        model=model,
        tasks=[TASK],
        task_manager=manager(include_path=str(tasks_dir()), include_defaults=False, metadata={"repeats": 1}),
        limit=LIMIT,
        gen_kwargs={"temperature": 0, "top_p": 1, "max_gen_toks": TOKENS},
        apply_chat_template=chat,
        fewshot_as_multiturn=chat,
        **arguments,
    )
    assert found is not None
    right = {sample["doc"]["id"]: sample["avg@1"] for sample in found["samples"][TASK]}
    assert found["results"][TASK]["avg@1,boxed"] == pytest.approx(sum(right.values()) / LIMIT)
    return right


@pytest.mark.parametrize("model", RULES)
def test_chats_give_the_numbers_of_our_own_evaluation(server, tmp_path, model):
    spec = EvalSpec(
        tasks=(TASK,),
        decodings=(RULES[model],),
        sampling=Sampling(temperature=0, max_tokens=TOKENS),
        limit=LIMIT,
        engine=EngineSpec(backend="transformers"),
    )
    [ours] = evaluate(spec, records=tmp_path)
    arguments = {"base_url": f"{server.url}/chat/completions", "model": model, "num_concurrent": 8}
    theirs = scored_by_lm_eval("local-chat-completions", chat=True, model_args=arguments)
    assert theirs == dict(zip(ours.problem_ids, ours.correct[:, 0].astype(float), strict=True))
    assert 0 < sum(theirs.values()) < LIMIT


@pytest.mark.parametrize("model", RULES)
def test_completions_give_the_numbers_of_our_own_lm_eval_model(server, model):
    """Of prompts as they are: lm-eval hands this model no text that went through a template."""
    ours = RlvrDirLM(decoding=RULES[model], pair="tiny", backend="transformers", chat="off", progress=False)
    arguments = {
        "base_url": f"{server.url}/completions",
        "model": model,
        "num_concurrent": 8,
        "tokenized_requests": False,
        "tokenizer_backend": "huggingface",
        "tokenizer": tiny_pair().rl,
    }
    theirs = scored_by_lm_eval("local-completions", chat=False, model_args=arguments)
    assert theirs == scored_by_lm_eval(ours, chat=False)
    assert 0 < sum(theirs.values()) < LIMIT
