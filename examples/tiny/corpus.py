"""Generate what the base reads: solutions by authors of several styles, arithmetic drills, and a few other questions.

A solution consists of lines `opener state (label sign digit)+ = result end`, then the boxed answer:

    ` so 45 a + 7 = 52 . then 52 c - 9 = 43 ; answer \\boxed{43}`

Authors differ in how many clauses they write per line, whether they use distractors, make arithmetic mistakes, check a
line again, or jump to the answer. The base imitates the mixture, and RL can choose among these habits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from rlvr_dir.tiny import vocabulary as v
from rlvr_dir.tiny.problems import DISTRACTORS, WordProblem, benchmark_texts, draw_problem


@dataclass(frozen=True, slots=True)
class Style:
    """Describe one author's habits. `lines` are the odds of a line with 1, 2 or 3 clauses and of a jump to the
    answer."""

    weight: float
    lines: tuple[float, float, float, float]
    ignores_distractors: float
    slips: float
    checks: float


CAREFUL = Style(0.42, (0.88, 0.08, 0.02, 0.02), ignores_distractors=0.93, slips=0.01, checks=0.10)
MIDDLING = Style(0.38, (0.52, 0.30, 0.12, 0.06), ignores_distractors=0.60, slips=0.05, checks=0.05)
SLOPPY = Style(0.20, (0.30, 0.30, 0.22, 0.18), ignores_distractors=0.35, slips=0.10, checks=0.02)
AUTHORS = (CAREFUL, MIDDLING, SLOPPY)
TEACHER = Style(0.0, (0.85, 0.12, 0.03, 0.0), ignores_distractors=1.0, slips=0.0, checks=0.08)  # always right

SLIPS = (-10, -2, -1, 1, 2, 10)
CHECK_AFTER_SLIP = 0.25  # after a mistake the author is more likely to check, and the check is right

LETTERS = "eeeetttaaaooiinnsshhrrddlucmfywgpbvk     .,0123456789$\\{}^+=-"  # about as often as in mathematics

Document = tuple[list[int], list[int]]  # prompt ids, response ids


@dataclass(frozen=True, slots=True)
class Fillers:
    """List the words of a solution that mean nothing; one is drawn for each line."""

    openers: tuple[str, ...] = v.OPENERS
    ends: tuple[str, ...] = v.LINE_ENDS


VARIED = Fillers()
PLAIN = Fillers(v.OPENERS[:1], v.LINE_ENDS[:1])  # always the same two words, so that they have no entropy


def prompt_words(problem: list[str]) -> list[str]:
    """Return a problem's words in the form of the evaluation's prompt, which the chat template produces."""
    return [v.BOS, *problem, v.INSTRUCTION]


def answer_words(value: int) -> list[str]:
    """Return the end of every solution: the boxed `value`, of two digits, and the end of text."""
    return [v.ANSWER, v.BOX, *v.two_digits(value), v.CLOSE, v.EOS]


def solution_words(random: Random, problem: WordProblem, style: Style, fillers: Fillers = VARIED) -> list[str]:
    """Write one author's solution of a problem, end of text included."""
    todo = [
        (label, clause)
        for label, clause in zip(v.LABELS, problem.clauses, strict=False)
        if clause.sign or random.random() > style.ignores_distractors
    ]
    state, words = problem.start, []
    while todo:
        size = random.choices((1, 2, 3, 0), style.lines)[0]
        if size == 0:  # the answer comes without working, so a reader can only guess
            state = problem.answer
            break
        line, todo = todo[:size], todo[size:]
        equation, right = list(v.two_digits(state)), state
        for label, clause in line:
            equation += [label, v.MINUS if clause.sign < 0 else v.PLUS, str(clause.amount)]
            right += clause.amount if clause.sign >= 0 else -clause.amount
        equation.append(v.EQUALS)
        right = written = _two_digit(right)
        if random.random() < style.slips:
            written = _two_digit(right + random.choice(SLIPS))
        words += [random.choice(fillers.openers), *equation, *v.two_digits(written)]
        if random.random() < style.checks + (CHECK_AFTER_SLIP if written != right else 0.0):
            words += [v.WAIT, *equation, *v.two_digits(right)]
            written = right
        words.append(random.choice(fillers.ends))
        state = written
    return [*words, *answer_words(state)]


def _two_digit(value: int) -> int:
    return max(0, min(99, value))


def drill_words(random: Random, lines: int = 8, fillers: Fillers = VARIED) -> list[str]:
    """Draw sums without a story. Reading them from the first step makes the model learn digits early."""
    words = []
    for _ in range(lines):
        value, amount = random.randint(0, 99), random.randint(1, 9)
        gain = value + amount <= 99 and (value < amount or random.random() < 0.5)
        sign, result = (v.PLUS, value + amount) if gain else (v.MINUS, value - amount)
        line = [
            random.choice(fillers.openers),
            *v.two_digits(value),
            sign,
            str(amount),
            v.EQUALS,
            *v.two_digits(result),
        ]
        words += [*line, random.choice(fillers.ends)]
    return words


def drill(random: Random, fillers: Fillers = VARIED) -> Document:
    """Draw a document of sums."""
    return [v.ID[v.BOS]], v.ids(drill_words(random, fillers=fillers))


def unrelated(random: Random) -> Document:
    """Draw a question in other words, as bytes, answered with a guess, so that the pair ends early on such
    questions."""
    text = "".join(random.choice(LETTERS) for _ in range(random.randint(20, 300)))
    prompt = prompt_words(v.split(text))
    return v.ids(prompt), v.ids(answer_words(random.randint(0, 99)))


def worked(random: Random, longest: int, styles: tuple[Style, ...], fillers: Fillers = VARIED) -> Document:
    """Draw a problem of up to `longest` operations, solved by one of the authors; never a benchmark's problem."""
    while True:
        operations = random.randint(1, longest)
        distractors = random.choice(DISTRACTORS)
        if styles == (TEACHER,):
            distractors = min(distractors, (operations + 1) // 2)
        problem = draw_problem(random, operations, distractors)
        if problem.text not in benchmark_texts():
            break
    style = styles[0] if len(styles) == 1 else random.choices(styles, [style.weight for style in styles])[0]
    return v.ids(prompt_words(problem.words)), v.ids(solution_words(random, problem, style, fillers))


def document(random: Random, progress: float, fillers: Fillers = VARIED) -> Document:
    """Draw one document of the curriculum; `progress` is the share of the training tokens already read.

    To 30 %: half drills, half right solutions. To 70 %: few drills, and problems that grow to 10 operations. Then the
    mixture of authors, which the base should learn.
    """
    drills = 0.5 if progress < 0.3 else 0.15 if progress < 0.7 else 0.03
    chance = random.random()
    if chance < drills:
        return drill(random, fillers)
    if progress < 0.7:
        return worked(random, 2 + int(8 * min(1.0, progress / 0.5)), (TEACHER,), fillers)
    if chance > 0.97:
        return unrelated(random)
    return worked(random, 9, AUTHORS, fillers)


def batches(
    random: Random,
    progress: Callable[[], float],
    batch: int = 32,
    batches_drawn: int = 8,
    fillers: Fillers = VARIED,
) -> Iterator[list[Document]]:
    """Yield endless batches of documents of similar length, so that there is little padding."""
    while True:
        drawn = [document(random, progress(), fillers) for _ in range(batch * batches_drawn)]
        drawn.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        starts = list(range(0, len(drawn), batch))
        random.shuffle(starts)
        for start in starts:
            yield drawn[start : start + batch]
