"""Define a benchmark as a task of Inspect, with prompts as in `rlvr-dir eval` to `rlvr-dir serve`, and our grader.

    rlvr-dir serve                                                  # in one terminal; in another, in this checkout:
    make inspect-env                                                # or an environment with Inspect, see below
    export RLVR_BASE_URL=http://127.0.0.1:8000/v1 RLVR_API_KEY=none
    .venv-inspect/bin/inspect eval examples/inspect/benchmark.py --model "openai-api/rlvr/tiny:replace;tau=-0.1" \\
        --temperature 1 --top-p 0.7 --seed 0 --epochs 4 --limit 60

`-T data=aime24.jsonl` uses the problems of a file with `id`, `problem` and `answer`. The grader needs neither torch nor
vLLM: in an environment with Inspect and openai, run `pip install --no-deps .` and `pip install
"math-verify[antlr4_13_2]"`.
"""

import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, prompt_template, solver

from rlvr_dir.grading import DEFAULT_GRADER, grade
from rlvr_dir.tiny import TINY_TASKS, benchmark

PROMPT = "{prompt}\nPlease reason step by step, and put your final answer within \\boxed{{}}."  # the paper's
CUT = ("max_tokens", "model_length")  # Inspect's values for a response without an end


@task
def math_benchmark(data: str = "tiny_medium") -> Task:
    """Present each problem like the paper, request it by its name, and grade the last box."""
    name = data if data in TINY_TASKS else Path(data).stem
    rows = benchmark(data) if data in TINY_TASKS else [*map(json.loads, Path(data).read_text().splitlines())]
    samples = [Sample(id=row["id"], input=row["problem"], target=row["answer"]) for row in rows]
    return Task(
        name=name,
        dataset=MemoryDataset(samples, name=name),
        solver=[prompt_template(PROMPT), ask_by_name(name)],
        scorer=last_box(),
    )


@solver
def ask_by_name(benchmark: str) -> Solver:
    """Generate with the noise of `rlvr-dir eval` for this problem and sample; an epoch is a sample."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        which = {"problem": f"{benchmark}/{state.sample_id}", "sample": state.epoch - 1}
        return await generate(state, extra_body=which)

    return solve


@scorer(metrics=[accuracy(), stderr()])
def last_box(grader: str = DEFAULT_GRADER) -> Scorer:
    """Grade the last box of the response with one of our graders: `02` is 2, which Inspect's `pattern` calls wrong."""

    async def score(state: TaskState, target: Target) -> Score:
        ended = "length" if state.output.stop_reason in CUT else "stop"
        verdict = grade(tuple(target), state.output.completion, ended, grader=grader)
        return Score(
            value=CORRECT if verdict.correct else INCORRECT,
            answer=verdict.answer,
            explanation=state.output.completion,
            metadata={"verdict": verdict.kind},
        )

    return score
