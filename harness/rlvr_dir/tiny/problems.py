"""Generate the problems of the tiny pair, and its three benchmarks: pure Python, deterministic, no torch.

A problem is a start value and labelled clauses. Some clauses change the value, and distractors do not:

>>> problem = WordProblem("Ann", " pens", 45, (Clause(" gets ", 7), Clause(" sees ", 3), Clause(" sells ", 9)))
>>> problem.text
'Ann has 45 pens a gets 7 b sees 3 c sells 9 how many ?'
>>> problem.answer
43
"""

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from rlvr_dir.errors import unknown
from rlvr_dir.tiny import vocabulary as v

TINY_TASKS = ("tiny_easy", "tiny_medium", "tiny_hard")
BENCHMARK_SIZE = 240
DISTRACTORS = (0, 1, 1, 2, 2, 3)  # numbers of distractors in a corpus problem, by frequency
RL_OPERATIONS = (2, 6)
RL_PROBLEMS = 2000


@dataclass(frozen=True, slots=True)
class Clause:
    """Represent `label verb amount`; the verb determines whether the amount is added, subtracted or irrelevant."""

    verb: str
    amount: int

    @property
    def sign(self) -> int:
        """Return +1, -1, or 0 for a distractor."""
        return 1 if self.verb in v.GAIN else -1 if self.verb in v.LOSE else 0


@dataclass(frozen=True, slots=True)
class WordProblem:
    """Represent a start value from 10 to 89 and clauses under which the value stays within 0..99."""

    name: str
    thing: str
    start: int
    clauses: tuple[Clause, ...]

    @property
    def answer(self) -> int:
        """Return the value after all clauses."""
        return self.start + sum(clause.sign * clause.amount for clause in self.clauses)

    @property
    def words(self) -> list[str]:
        """Return the text, word by word."""
        words = [self.name, v.HAS, *v.two_digits(self.start), self.thing]
        for label, clause in zip(v.LABELS, self.clauses, strict=False):
            words += [label, clause.verb, str(clause.amount)]
        return [*words, *v.QUESTION]

    @property
    def text(self) -> str:
        """Return the problem as text."""
        return "".join(self.words)


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Set inclusive ranges of how many clauses change the value and how many do not."""

    operations: tuple[int, int]
    distractors: tuple[int, int]


# Tuned on separate problems (`tuning_problems`), so that the shipped base has Avg@32 of about 50-65, 25-40 and 10-20.
DIFFICULTY: dict[str, Difficulty] = {
    "tiny_easy": Difficulty((2, 3), (0, 1)),
    "tiny_medium": Difficulty((4, 5), (1, 2)),
    "tiny_hard": Difficulty((7, 8), (2, 3)),
}


def draw_problem(random: Random, operations: int, distractors: int) -> WordProblem:
    """Draw a random problem with that many value-changing clauses and distractors, in random order."""
    changing = [True] * operations + [False] * distractors
    random.shuffle(changing)
    start = value = random.randint(10, 89)
    clauses = []
    for changes in changing:
        amount = random.randint(1, 9)
        if not changes:
            clauses.append(Clause(random.choice(v.IDLE), amount))
            continue
        gain = random.random() < 0.5
        if not 0 <= value + (amount if gain else -amount) <= 99:
            gain = not gain
        value += amount if gain else -amount
        clauses.append(Clause(random.choice(v.GAIN if gain else v.LOSE), amount))
    return WordProblem(random.choice(v.NAMES), random.choice(v.THINGS), start, tuple(clauses))


def draw_of(random: Random, difficulty: Difficulty) -> WordProblem:
    """Draw a random problem with this difficulty."""
    return draw_problem(random, random.randint(*difficulty.operations), random.randint(*difficulty.distractors))


def distinct(random: Random, difficulty: Difficulty, count: int) -> list[WordProblem]:
    """Draw `count` different problems with this difficulty."""
    problems: dict[str, WordProblem] = {}
    while len(problems) < count:
        problem = draw_of(random, difficulty)
        problems.setdefault(problem.text, problem)
    return list(problems.values())


@cache
def _problems(task: str) -> tuple[WordProblem, ...]:
    if task not in DIFFICULTY:
        raise unknown("task", task, TINY_TASKS)
    return tuple(distinct(Random(f"rlvr-dir benchmark {task}"), DIFFICULTY[task], BENCHMARK_SIZE))


def benchmark(task: str) -> list[dict[str, str]]:
    """Return the problems of a benchmark as rows of `id`, `problem` and `answer`; the same on every machine.

    Raises:
        UserError: There is no tiny benchmark of that name.
    """
    return [
        {"id": f"{task}-{index:03d}", "problem": problem.text, "answer": str(problem.answer)}
        for index, problem in enumerate(_problems(task))
    ]


@cache
def benchmark_texts() -> frozenset[str]:
    """Return the texts of all benchmark problems, which nothing may be trained or tuned on."""
    return frozenset(problem.text for task in TINY_TASKS for problem in _problems(task))


def tuning_problems(task: str, count: int, seed: int = 0) -> list[WordProblem]:
    """Draw problems with a benchmark's difficulty that are in no benchmark, for calibration and first tests.

    Raises:
        UserError: There is no tiny benchmark of that name.
    """
    if task not in DIFFICULTY:
        raise unknown("task", task, TINY_TASKS)
    drawn = distinct(Random(f"rlvr-dir tuning {seed} {task}"), DIFFICULTY[task], count + BENCHMARK_SIZE)
    return [problem for problem in drawn if problem.text not in benchmark_texts()][:count]


def rl_problems(seed: int, count: int = RL_PROBLEMS) -> list[dict[str, Any]]:
    """Draw problems for DAPO: problems of 2 to 6 operations, as chat prompts with answers, none from a benchmark."""
    random, rows = Random(f"rl problems {seed}"), []
    while len(rows) < count:
        problem = draw_problem(random, random.randint(*RL_OPERATIONS), random.choice(DISTRACTORS))
        if problem.text not in benchmark_texts():
            message = {"role": "user", "content": problem.text + v.INSTRUCTION}
            rows.append({"prompt": [message], "answer": str(problem.answer)})
    return rows
