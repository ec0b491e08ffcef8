"""Describe how a benchmark's problems are presented and graded: a prompt template, examples, and a grader.

The YAML beside a JSONL file sets this for one benchmark. Options, and keys of an evaluation, a sweep or a validation,
override it for all of their benchmarks (docs/benchmarks.md).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from rlvr_dir.config.base import Spec, parse, read_jsonl
from rlvr_dir.errors import UserError

Grader = Literal["plain", "robust", "math_dapo"]
INSTRUCTION = "\nPlease reason step by step, and put your final answer within \\boxed{}."  # the paper's
DEFAULT_GRADER: Grader = "robust"
NONE = "none"
_FILTERS = ("capitalize", "indent", "lower", "regex_replace", "replace", "title", "trim", "upper", "wordwrap")


# Prompts by name. `math_dapo` is that of DAPO-Math-17k, on which the paper's models were trained.
BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'
PROMPTS = {"math_dapo": BEFORE + "{{problem}}" + AFTER}


def _read_prompt(value: Any) -> Any:
    """Read a template of `problem`, the name of one, or a file that contains one."""
    if not isinstance(value, str):
        return value
    value = PROMPTS.get(value, value)
    from jinja2 import Environment, TemplateSyntaxError, nodes
    from jinja2.meta import find_undeclared_variables

    text = Path(value).read_text(encoding="utf-8").removesuffix("\n") if os.path.isfile(value) else value
    environment = Environment()
    environment.filters["regex_replace"] = str  # lm-eval adds it
    try:
        environment.compile(text)
        template = environment.parse(text)
        read = find_undeclared_variables(template)
    except TemplateSyntaxError as error:
        raise UserError(f"is not a template: {error.message}", argument="prompt", value=value) from None
    # lm-eval renders it without a sandbox, where an attribute of a text leads to any code. So a template may only use
    # texts.
    if any(node.name not in _FILTERS for node in template.find_all(nodes.Filter)) or any(
        template.find_all((nodes.Getattr, nodes.Getitem, nodes.Call, nodes.CallBlock, nodes.ImportedName))
    ):
        raise UserError(
            "could run code",
            argument="prompt",
            value=value,
            accepted=f"no attributes, no calls, and of filters {', '.join(_FILTERS)}",
        )
    if not read and "{problem}" in text:
        raise UserError("has one pair of braces", argument="prompt", value=value, accepted="{{problem}}, in two")
    if read != {"problem"}:
        raise UserError(
            f"reads {sorted(read)}",
            argument="prompt",
            value=value,
            accepted=f"a template of {{{{problem}}}}, a file with one, or {', '.join(PROMPTS)}",
        )
    return text


def rendered(prompt: str, problem: str) -> str:
    """Return a problem as a template presents it."""
    from jinja2 import Environment

    return Environment(keep_trailing_newline=True).from_string(prompt).render(problem=problem)


def _read_examples(value: Any) -> Any:
    """Read examples from a list, or a JSONL file, or `none`."""
    if not isinstance(value, str):
        return value
    if value == NONE:
        return ()
    if not os.path.isfile(value):
        raise UserError(
            "is no file", argument="examples", value=value, accepted=f"a JSONL of problem and answer, or {NONE}"
        )
    return [{name: row[name] for name in Example.model_fields} for _, row in read_jsonl(value, ("problem", "answer"))]


def _as_text(value: Any) -> Any:
    """Return a number as text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Prompt = Annotated[str | None, BeforeValidator(_read_prompt)]
Text = Annotated[str, BeforeValidator(_as_text)]


class Example(Spec, frozen=True):
    """Show a problem with its answer, as text."""

    called: ClassVar[str] = "example"

    problem: Text
    answer: Text


class Presentation(Spec, frozen=True):
    """Describe how problems are presented to a model and graded. None means not set here.

    `prompt` is a Jinja template of `problem`. `examples` come before it, each `problem` through the same template and
    followed by its `answer`. Files are read at once, so their later changes have no effect.
    """

    called: ClassVar[str] = "benchmark"

    prompt: Prompt = Field(
        default=None,
        description="A template of {{problem}}, a file with one, or math_dapo, instead of each benchmark's own.",
    )
    examples: Annotated[tuple[Example, ...] | None, BeforeValidator(_read_examples)] = Field(
        default=None, description="A JSONL of problem and answer, shown before each problem; or none."
    )
    grader: Grader | None = Field(
        default=None,
        description="robust; plain: math-verify alone, as in the paper; or math_dapo: the last 'Answer:', as in "
        "the paper's trainings. By default the benchmark's own, otherwise robust.",
    )

    @classmethod
    def from_record(cls, data: Any) -> "Presentation":
        """Return what a record contains about itself: texts to compare. None is compiled or read as a file.

        Raises:
            UserError: The record contains nothing readable.
        """
        prompt, examples = (data.get("prompt"), data.get("examples")) if isinstance(data, Mapping) else (data, None)
        if not isinstance(prompt, str | None) or not isinstance(examples, list | None):
            raise UserError(argument="presentation", value=data, accepted="a prompt and a list of examples")
        parsed = None if examples is None else tuple(parse(Example, example, "examples.") for example in examples)
        return Presentation.model_construct(prompt=prompt, examples=parsed, grader=None)

    def applied_to(self, other: "Presentation") -> "Presentation":
        """Return `other` with the values that are set here."""
        own_fields = {name: getattr(self, name) for name in Presentation.model_fields}
        return other.model_copy(update={name: value for name, value in own_fields.items() if value is not None})

    def non_default(self) -> dict[str, Any]:
        """Return what the model is shown differently from the default, as plain values. The grader is not shown to the
        model."""
        fields = self.model_dump(mode="json", include={"prompt", "examples"})
        return {name: value for name, value in fields.items() if value}
