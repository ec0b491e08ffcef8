r"""Measure the speed of both graders in one run, on generated answers: integers, Minerva-like ones, hostile ones.

Answers come from seeded generators, so that a new seed is a corpus on which no bound was tuned. The verdicts are
counted by family of answer. A `near miss` that is `correct`, or a `rewrite` that is `wrong`, should be inspected.
"""

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.script import run
from rlvr_dir.bench.decode import machine
from rlvr_dir.errors import UserError
from rlvr_dir.grading import grade_many
from rlvr_dir.grading.pool import close_workers, verify_many
from rlvr_dir.markdown import markdown_table

MINERVA_ANSWERS = 32
HOSTILE = 200


@dataclass(frozen=True, slots=True)
class Item:
    """Hold one grading: `family` is how `response` was made."""

    family: str
    gold: str
    response: str


@dataclass(slots=True)
class Result:
    """Hold the result of one corpus with one grader; `alive`: whether a formula is still graded right after it."""

    corpus: str
    grader: str
    gradings: int
    distinct: int
    seconds: float
    seconds_per_1000: float
    kinds: dict[str, int]
    families: dict[str, dict[str, int]]
    alive: bool


def bench_grade(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    graders: Iterable[str] = ("plain", "robust"),  # of boxed answers
    corpora: dict[str, list[Item]] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Grade each corpus with each grader, with new workers each time (their start is measured).

    Args:
        data_dir: A folder with minerva.jsonl; without one the Minerva-like corpus is left out and `skipped` says so.
        seed: That of the generators.
        graders: Names, measured in turn on each corpus.
        corpora: What to grade instead of the three.
        say: Called with the progress.

    Returns:
        A plain object: `results` (a `Result` each), `skipped` (a sentence or None), `seed`, `machine`, `date`.

    Raises:
        UserError: `data_dir` is given and has no minerva.jsonl.
    """
    skipped = None
    if corpora is None:
        corpora = {"integers": integers(seed), "hostile": hostile(seed)}
        if data_dir is None:
            skipped = (
                "The Minerva-like corpus was skipped: set RLVR_DIR_DATA or --data-dir to a folder with minerva.jsonl."
            )
        else:
            corpora["minerva"] = minerva(read_golds(data_dir), seed)
    results = []
    for name, items in corpora.items():
        for grader in graders:
            say(f"{name}: {len(items)} gradings, {grader}")
            results.append(_measure(name, items, grader))
    close_workers()
    return {
        "results": [asdict(result) for result in results],
        "skipped": skipped,
        "seed": seed,
        "machine": machine(),
        "date": date.today().isoformat(),
    }


def read_answers(path: str | Path) -> list[Item]:
    """Read answers to count from JSON lines with `gold` and `response`, such as other models' outputs.

    Raises:
        UserError: The file cannot be read, or a line is not such an object.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot be read ({error})", argument="--answers", value=str(path), accepted="a file of JSON lines"
        ) from None
    items = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            gold, response = row["gold"], row["response"]
        except (ValueError, TypeError, KeyError):
            gold = response = None
        if not (isinstance(gold, str) and isinstance(response, str)):
            raise UserError(
                f"{path}, line {number} is {line[:60]!r}", accepted="an object with the texts gold and response"
            )
        items.append(Item("given", gold, response))
    return items


def count_verdicts(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Count the answers by their verdicts with `robust` and `plain`, the most frequent pair of verdicts first.

    Returns:
        One object per pair of verdicts: `robust`, `plain`, `answers`.
    """
    responses = [(item.gold, item.response) for item in items]
    robust, plain = (grade_many(responses, grader=grader) for grader in ("robust", "plain"))
    counts = Counter((first.kind, second.kind) for first, second in zip(robust, plain, strict=True))
    return [{"robust": kinds[0], "plain": kinds[1], "answers": count} for kinds, count in counts.most_common()]


def _measure(corpus: str, items: list[Item], grader: str) -> Result:
    close_workers()
    start = time.perf_counter()
    verdicts = grade_many([(item.gold, item.response) for item in items], grader=grader)
    seconds = time.perf_counter() - start
    families: dict[str, Counter[str]] = {}
    for item, verdict in zip(items, verdicts, strict=True):
        families.setdefault(item.family, Counter())[verdict.kind] += 1
    return Result(
        corpus=corpus,
        grader=grader,
        gradings=len(items),
        distinct=len({(item.gold, verdict.answer) for item, verdict in zip(items, verdicts, strict=True)}),
        seconds=round(seconds, 2),
        seconds_per_1000=round(1000 * seconds / len(items), 2),
        kinds=dict(sum(families.values(), Counter()).most_common()),
        families={family: dict(kinds.most_common()) for family, kinds in sorted(families.items())},
        alive=verify_many([("x+1", "1+x")]) == ["correct"],  # past the memo: a worker answers
    )


def boxed(answer: str) -> str:
    """Write a response with that answer."""
    return f"Adding up, we find that the answer is $\\boxed{{{answer}}}$."


def read_golds(data_dir: str | Path) -> list[str]:
    """Read the gold answers of minerva.jsonl in a folder."""
    path = Path(data_dir) / "minerva.jsonl"
    if not path.is_file():
        raise UserError(f"{data_dir} has no minerva.jsonl; RLVR_DIR_DATA and --data-dir name a folder with one")
    return [json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def integers(seed: int) -> list[Item]:
    """Make AIME-like items: 30 golds, 32 integer answers each, about a third of them right."""
    rng = random.Random(f"integers {seed}")
    golds = [rng.randrange(1000) for _ in range(30)]
    answers = [(gold, rng.choice([gold, gold + rng.randint(-9, 9), rng.randrange(1000)])) for gold in golds * 32]
    return [
        Item("right" if gold == a else "wrong", f"{gold}", boxed(rng.choice([f"{a}", f"{a:03}"])))
        for gold, a in answers
    ]


def minerva(golds: list[str], seed: int) -> list[Item]:
    """Make 32 answers a gold: 14 rewrites, 8 near misses, 5 golds of other problems, 5 of junk; some occur twice."""
    rng = random.Random(f"minerva {seed}")
    items = []
    for gold in golds:
        rewrites, misses = _number_answers(gold, rng) or _formula_answers(gold, rng)
        others = [other for other in golds if other != gold]
        answers = [("rewrite", rng.choice(rewrites)) for _ in range(14)]
        answers += [("near miss", rng.choice(misses)) for _ in range(8)]
        answers += [("another gold", rng.choice(others)) for _ in range(5)]
        answers += [("junk", rng.choice(JUNK)) for _ in range(MINERVA_ANSWERS - len(answers))]
        items += [Item(family, gold, boxed(answer)) for family, answer in answers]
    return items


JUNK = (
    "?", r"\text{no solution}", r"\text{undefined}", "x", "f(x)", r"\infty", r"\text{See the figure above.}", "...",
    r"\frac{GM}{r^2}", r"\sqrt{\frac{2kT}{m}}", r"E = mc^2", r"\frac{d}{dt}", "a, b, c", r"10^{5} \text{ to } 10^{6}",
    r"\text{approximately the same}", r"\lambda = \frac{h}{p}", r"1.5 \pm 0.2", "y(t)", r"\frac{1}{2}mv^2", "x > 3",
)  # fmt: skip
_NUMBER = re.compile(r"([+-]?)(\d+(?:\.\d+)?)(?: \\times 10\^\{(-?\d+)\})?")


def _number_answers(gold: str, rng: random.Random) -> tuple[list[str], list[str]] | None:
    """Make rewrites and near misses of a gold that is a decimal; return None for any other gold."""
    match = _NUMBER.fullmatch(gold)
    if match is None:
        return None
    value = Decimal(f"{match[1]}{match[2]}E{match[3] or 0}")

    def forms(value: Decimal) -> list[str]:
        shift = value.adjusted()
        mantissa = f"{value.scaleb(-shift):f}"
        found = [rf"{mantissa} \times 10^{{{shift}}}", rf"{mantissa}\cdot10^{{{shift}}}", f"{mantissa}e{shift}"]
        if abs(shift) < 12:
            found += [f"{value:f}", f"{value:,f}", f"x = {value:f}", rf"\approx {value:f}", f"{value:f}."]
            found += [rf"{value:f} \text{{ {unit}}}" for unit in ("m/s", "kg", "eV", "K")]
        return found + [rf"{mantissa} \times 10^{{{shift}}} \, \mathrm{{{unit}}}" for unit in ("W", "cm^{-2}", "erg")]

    last = Decimal(1).scaleb(value.adjusted() - len(value.as_tuple().digits) + 1)
    misses = [value + last, value - last, value * 10, value / 10, value * 1000, value + rng.randint(2, 9) * last]
    return forms(value), [form for miss in misses if miss not in (value, 0) for form in forms(miss)] + forms(-value - 1)


def _formula_answers(gold: str, rng: random.Random) -> tuple[list[str], list[str]]:
    k = rng.randint(2, 9)
    spaced = gold.replace("=", " = ").replace("+", " + ").replace(r"\frac", r"\dfrac")
    rewrites = [gold, spaced, f"${gold}$", rf"\displaystyle {gold}", rf"\text{{The answer is }} {gold}", f"{gold}."]
    if "=" in gold or "," in gold:
        return rewrites, [gold.replace("=", rf"= {k} +").replace(",", f", {k}"), f"{k}"]
    rewrites += [f"y = {gold}", rf"\left({gold}\right)", rf"{k}\left({gold}\right) - {k - 1}\left({gold}\right)"]
    rewrites += [rf"\frac{{{k} ({gold})}}{{{k}}}", rf"({gold}) + {k} - {k}", rf"-(-({gold}))"]
    misses = [f"-({gold})", f"{k} ({gold})", f"({gold}) + {k}", f"({gold})^{{{k}}}", rf"\frac{{1}}{{{gold}}}"]
    return rewrites, misses


def hostile(seed: int, count: int = HOSTILE) -> list[Item]:
    """Make answers meant to cost time or memory, or to confuse, all different, each from a random family."""
    rng = random.Random(f"hostile {seed}")
    items: dict[str, Item] = {}
    while len(items) < count:
        family, make = rng.choice(list(FAMILIES.items()))
        answer = make(rng)
        response = answer if family == "responses" else boxed(answer)
        items[response] = Item(family, rng.choice(HOSTILE_GOLDS), response)
    return list(items.values())


HOSTILE_GOLDS = (
    "204",
    r"\frac{1}{2}",
    r"x^{2}+1",
    "(1,2)",
    r"\sqrt{3}",
    "1,2",
    r"\frac{e^{t}}{3}",
    r"4.5 \times 10^{33}",
)

# <k>: a number from 3 to 60, <m>: 100 to 9999, <n>: 3 to 12 digits, <d>: 20 to 180 digits; <c>: three small letters
_TEMPLATES: dict[str, str] = {
    "factorials": r"""
        <n>! | ((<k>!)!)! | \binom{<n>}{<k>} | \binom{<n>}{<n>} | \frac{<n>!}{<n>!} | <n>!! | (<n>-1)!+1
        | \Gamma(<n>) | <n>! \cdot <n>! | <k>^{<n>} \bmod <n> | <k>^{<n>} - 1""",
    "digits": r"""
        <d> | 0.<d> | <d>.<d> | <d>/<d> | <n>^{<n>} | \sqrt{<d>} | \frac{<d>}{<d>} | <d> \cdot <d>
        | \log_{<n>} <d> | \gcd(<d>, <d>) | \sin(<d>) | <k> \times 10^{<d>} | <k>e<n> | <d> \bmod <d>""",
    "bounds": r"""
        \sum_{n=1}^{<n>} n^{n} | \sum_{n=1}^{<n>} \frac{1}{n^{<k>}} | \prod_{k=1}^{<n>} (x-k)
        | \int e^{x^{<k>}} \ln(\sin x) dx | \int_{0}^{\infty} \frac{\sin(x^{<k>})}{1+x^{<k>}} dx
        | \int_0^{<n>} \int_0^{<n>} \sqrt{x^{<k>}+y} dx dy | \sum_{i=1}^{<k>} \sum_{j=1}^{<n>} \frac{i^j}{j!}
        | \lim_{n \to \infty} \left(1+\frac{<k>}{n}\right)^{n^2}
        | \lim_{x \to 0} \frac{\sin(\sin(x^{<k>}))}{x^{<k>}} | \frac{d^{<k>}}{dx^{<k>}} e^{\sin(x^2)}
        | \prod_{p=2}^{<n>} \cos(p) | \sum_{k=0}^{\infty} \frac{x^k}{k!+<k>}""",
    "macros": r"""
        \def\<c>{\<c>\<c>}\<c> | \newcommand{\<c>}[1]{#1#1#1}\<c>{\<c>{x}} | \loop\iftrue <c>\repeat
        | \csname <c>\endcsname | \input{/etc/<c>} | \write18{echo <c>} | __import__('os').system('echo <c>')
        | (lambda x: x(x))(lambda <c>: <c>(<c>)) | \let\<c>\frac\<c>12 | \catcode`\<c>=13
        | {{<c>.__class__.__mro__}} | %s%n%x<c> | [0]*<n>**9 | \operatorname{<c>}(<c>) | \text{<c>
        | \<c>\<c>\<c>\<c>""",
    "slow": r"""
        (x+y+z)^{<m>} | (x+1)^{<m>}(x-1)^{<m>} | \sin^{<k>} x \cos^{<k>} x | (1+\sqrt{2})^{<m>} | x^{<k>}-3x+1=0
        | x^{<k>}-x^{3}+x><k> | \cos(<m>\pi/<k>) | (a+b+c+d)^{<k>} - (a-b+c-d)^{<k>}
        | \tan(\arctan(<k>) + \arctan(<m>)) | \frac{x^{<m>}-1}{x-1}
        | (\cos \frac{2\pi}{<m>} + i \sin \frac{2\pi}{<m>})^{<k>} | \log_{<k>}(x^{<m>}+1)
        | <m>^{1/<k>} + <m>^{1/<k>} | \lfloor (1+\sqrt{<k>})^{<m>} \rfloor | e^{e^{<k>}} | i^{i^{<k>}}
        | \{x \in \mathbb{R} : x^{<k>} < <m>\} | |x-<k>|+|x-<k>|+|x-<k>|+|x-<k>| < <m>
        | \sqrt[<k>]{<m>+\sqrt[<k>]{<m>}} | \frac{1}{\sqrt{<k>}+\sqrt{<k>}+\sqrt{<k>}+\sqrt{<k>}+\sqrt{<k>}}
        | \pm <k> \pm <k> \pm <k> \pm <k> \pm <k> | x=<k>=x=<k>=x=<k>=x=<k> | 1<x<<k><x<<m><x""",
}
_HOLES: dict[str, Callable[[random.Random], str]] = {
    "<k>": lambda rng: f"{rng.randint(3, 60)}",
    "<m>": lambda rng: f"{rng.randint(100, 9999)}",
    "<n>": lambda rng: _digits(rng, rng.randint(3, 12)),
    "<d>": lambda rng: _digits(rng, rng.randint(20, 180)),
    "<c>": lambda rng: "".join(rng.choices(_LETTERS, k=3)),
}
_LETTERS = "abkmnpqrstuvwxyz"


def _digits(rng: random.Random, count: int) -> str:
    return rng.choice("123456789") + "".join(rng.choices("0123456789", k=count - 1))


def _filled(family: str) -> Callable[[random.Random], str]:
    templates = [template.strip() for template in re.split(r"\s\|\s", _TEMPLATES[family])]
    return lambda rng: re.sub("<[kmndc]>", lambda hole: _HOLES[hole[0]](rng), rng.choice(templates))


def _towers(rng: random.Random) -> str:
    text = rng.choice(["9", "x", "7", r"\pi", "(2+i)", "0.5"])
    for _ in range(rng.randint(2, 9)):
        base = rng.choice(["9", "10", "x", "e", "99", "1.01", "(n+1)"])
        text = rng.choice([f"{base}^{{{text}}}", f"({text})^{{{rng.randint(2, 99)}}}", f"{{{base}}}^{{{text}+1}}"])
    return text


def _nested(rng: random.Random) -> str:
    shapes = [r"\frac{1}{1+@}", r"\sqrt{1+@}", r"\sin(@)", r"\ln(1+@)", "e^{@}", r"\sqrt[3]{2+@}", r"\left|@\right|"]
    chosen, text = rng.sample(shapes, rng.randint(1, 3)), rng.choice("x2t")
    for _ in range(rng.randint(5, 60)):
        text = rng.choice(chosen).replace("@", text)
    return text


def _braces(rng: random.Random) -> str:
    pieces = ["{", "(", "[", r"\{", r"\left(", r"\left\{", r"\frac{", r"\text{", r"\langle "]
    opened = "".join(rng.choices(pieces, k=rng.randint(20, 70)))
    n = rng.randint(13, 190)
    return rng.choice(
        [opened + "x", opened + "1" + "}" * opened.count("{"), "{" * n + "1" + "}" * n, "(" * n + "x" + ")" * n]
    )


def _matrices(rng: random.Random) -> str:
    size = rng.randint(3, 9)
    cells = [
        rng.choice([rng.choice(_LETTERS), f"{rng.randint(-9, 9)}", rf"\sqrt{{{rng.randint(2, 9)}}}"]) for _ in range(9)
    ]
    body = r"\\".join("&".join(rng.choices(cells, k=size)) for _ in range(size))
    matrix = rf"\begin{{pmatrix}}{body}\end{{pmatrix}}"
    terms = ", ".join(f"{rng.choice(_LETTERS)}^{{{rng.randint(2, 9)}}}+{i}" for i in range(rng.randint(15, 36)))
    intervals = r" \cup ".join(rf"({i},{i}+\sqrt{{{i + 2}}})" for i in range(rng.randint(8, 20)))
    forms = [matrix, rf"{matrix}^{{{rng.randint(2, 9999)}}}", rf"\det {matrix}", rf"{matrix}^{{-1}}", rf"\{{{terms}\}}"]
    return rng.choice([*forms, f"({terms})", terms, intervals, ",".join(map(str, range(rng.randint(90, 120))))])


def _unicode(rng: random.Random) -> str:
    blocks = [(0x20, 0x7E), (0x370, 0x3FF), (0x2200, 0x22FF), (0x1D400, 0x1D7FF), (0x4E00, 0x4EFF), (0x2070, 0x218F)]
    text = "".join(chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(5, 300)))
    return re.sub(r"[{}\\]", "", text)


def _marks(rng: random.Random) -> str:
    marks = "\u0300\u0301\u0338\u20dd\u20e3\u200d\u200f\u202e\u202d\u2066\u2069\u061c\ufe0f\u3099"  # the bidi ones, too
    return "".join(digit + "".join(rng.choices(marks, k=rng.randint(1, 40))) for digit in _digits(rng, 4))


def _control(rng: random.Random) -> str:
    text = list(rng.choice(["204", r"\frac{1}{2}", "x^2+1", r"\sqrt{3}"]) * rng.randint(1, 9))
    for _ in range(rng.randint(1, 40)):
        text.insert(rng.randrange(len(text) + 1), rng.choice("\0\x01\x07\b\t\n\v\f\r\x1b\x7f\x85\u2028\ud800"))
    return "".join(text)


def _responses(rng: random.Random) -> str:
    n = rng.randint(1000, 20000)
    forms = [
        r"\boxed{" * n,
        r"\boxed{1}" * n,
        "{" * n + r"\boxed{2}",
        r"\boxed{" + "9" * n + "}",
        r"\boxed" * n + "{3}",
    ]
    return rng.choice([*forms, "}" * n + r"\boxed{4}"])


FAMILIES: dict[str, Callable[[random.Random], str]] = {
    **{family: _filled(family) for family in _TEMPLATES},
    "towers": _towers,
    "nested": _nested,
    "braces": _braces,
    "matrices": _matrices,
    "unicode": _unicode,
    "marks": _marks,
    "control": _control,
    "responses": _responses,
}
"""Hostile answers by family; `responses` are whole responses."""


def measure(
    *,
    data_dir: str | None = os.environ.get("RLVR_DIR_DATA"),
    seed: int = 0,
    answers: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Time both graders on 960 integer answers, 8,704 Minerva-like ones and 200 hostile ones, in one run.

    --data-dir is the folder with minerva.jsonl (default RLVR_DIR_DATA; without one that corpus is skipped). With
    --answers, JSON lines with gold and response, it counts the verdicts of both, and times nothing.
    """
    if answers is not None:
        return {"verdicts": count_verdicts(read_answers(answers))}
    return bench_grade(data_dir=data_dir, seed=seed, say=say)


def show(found: dict[str, Any]) -> str:
    """Write the verdicts as a table, and times as JSON."""
    if "verdicts" not in found:
        return json.dumps(found, indent=1)
    rows = [[row["robust"], row["plain"], str(row["answers"])] for row in found["verdicts"]]
    return markdown_table(["`robust`", "`plain`", "answers"], rows)


if __name__ == "__main__":
    run(measure, show)
