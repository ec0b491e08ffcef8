"""Describe an evaluation: everything that determines its responses and its scores, under one hash.

    spec = parse(EvalSpec, {"tasks": ["aime24"], "pair": "dapo-32b", "decodings": ["rl", "replace,tau=-0.3"]})

The folders for responses, results and runs are not part of it; they are separate arguments of
`rlvr_dir.evals.evaluate`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from rlvr_dir.config.base import Place, Spec, parse
from rlvr_dir.config.decoding import Decoding, check_together, parse_decoding, with_controls
from rlvr_dir.config.engine import EngineSpec
from rlvr_dir.config.pair import PAIR_OPTIONS, TINY, NamedPair, pair_of
from rlvr_dir.config.presentation import Presentation
from rlvr_dir.config.sampling import Sampling, merge_sampling
from rlvr_dir.digest import digest
from rlvr_dir.errors import UserError, mention
from rlvr_dir.policy.own import load_named

SECTIONS: dict[str, type[Spec]] = {"sampling": Sampling, "engine": EngineSpec}


def read_decodings(value: Any) -> tuple[Decoding, ...]:
    """Read one decoding or several: a `Decoding`, a mapping of its fields, or text such as `replace,tau=-0.3`.

    Raises:
        UserError: There is no decoding, one is repeated, or one is not valid.
    """
    if not isinstance(value or (), Iterable | Decoding):
        raise UserError(argument="decodings", value=value, accepted="one decoding, or a list of them")
    items = [value] if isinstance(value, str | Mapping | Decoding) else list(value or ())
    decodings = tuple(
        parse_decoding(item) if isinstance(item, str) else parse(Decoding, item, where=f"decodings.{i}.")
        for i, item in enumerate(items)
    )
    if doubled := [decoding.label() for i, decoding in enumerate(decodings) if decoding in decodings[:i]]:
        raise UserError("is given twice", argument="decodings", value=doubled[0], accepted="different decodings")
    if not decodings:
        raise UserError("decodings is empty", argument="decodings")
    return decodings


def read_names(value: Any) -> Any:
    """Read names from one text, `aime24,amc`, or leave a list as it is."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def is_task_file(task: str) -> bool:
    """Return whether a benchmark is named by the YAML file of an lm-eval task."""
    return task.endswith((".yaml", ".yml"))


class ProblemPart(Spec, frozen=True):
    """Select problems of a benchmark: those after the first `skip`, of those that a `split` selects.

    A split of 0.5 selects half of the problems by a digest of their ids, the same for everybody and in any order of the
    file; `held_out` selects the other half. Families of problems are never divided. They are selected by a digest of
    their names, up to the nearest number of problems, and `skip` leaves out whole families.
    """

    skip: int = Field(
        default=0, ge=0, description="Skip this many problems at the beginning, and the rest of their families."
    )
    split: float | None = Field(
        default=None, gt=0.0, lt=1.0, description="Use this share of the problems, selected by their ids."
    )
    held_out: bool = Field(default=False, description="Use the other share of a split.")

    @property
    def words(self) -> str:
        """Describe the selected problems; empty if they are all."""
        share = (
            [] if self.split is None else [f"{'held out' if self.held_out else 'drawn'} by a split of {self.split:g}"]
        )
        return ", ".join([*share, *([f"after the first {self.skip}"] if self.skip else [])])

    def select(self, ids: Sequence[str], families: Mapping[str, str] | None = None) -> list[str]:
        """Return the ids of the selected problems, in their order. `families` are those of all problems, or None."""
        family = {key: key for key in ids} | (dict(families) if families else {})
        problem_ids = list(ids)
        if self.split is not None:
            order = sorted(problem_ids, key=lambda key: digest(f"split {family[key]}"))  # keep families together
            cut = round(self.split * len(order))
            if families:
                ends = [at for at in range(1, len(order)) if family[order[at - 1]] != family[order[at]]]
                cut = min(ends or [len(order)], key=lambda end: abs(end - cut))
            drawn = set(order[:cut])
            problem_ids = [key for key in problem_ids if (key in drawn) != self.held_out]
        skipped = {family[key] for key in problem_ids[: self.skip]}
        return [key for key in problem_ids[self.skip :] if family[key] not in skipped]


class EvalSpec(Presentation, frozen=True):
    """Describe an evaluation: every decoding of a pair on every task.

    `prompt`, `examples` and `grader` apply to all of its tasks. `pair` is a pair, the name of one, or a folder. If
    `sampling` is None, each task uses its own. In a file, `controls: true` adds base, RL, the reject and veto of each
    replacement and the gamma = 0 control of each extrapolation to `decodings`.
    """

    called: ClassVar[str] = "evaluation"

    tasks: Annotated[tuple[str, ...], BeforeValidator(read_names)] = Field(
        default=(),
        description="aime24, aime25, amc, minerva, rlvr_math, tiny_easy, …; your own file as PATH.jsonl or NAME=PATH; "
        "or a task of lm-eval, by its name or as PATH.yaml.",
    )
    pair: NamedPair = Field(
        default=TINY, description="A name from `rlvr-dir pair list` (such as dapo-32b), or a folder with base and rl."
    )
    decodings: Annotated[tuple[Decoding, ...], BeforeValidator(read_decodings)] = Field(
        default_factory=lambda: (Decoding(),),
        description="rl, replace,tau=-0.3, or {mode: ...}; one or a list.",
        json_schema_extra={"written": "rl"},
    )
    sampling: Sampling | None = Field(default_factory=Sampling, description="null: the sampling settings of each task.")
    limit: int | None = Field(
        default=None, ge=1, description="Use only the first problems. For a quick look, not for a score to report."
    )
    part: ProblemPart = Field(default_factory=ProblemPart)
    data_dir: Place | None = Field(
        default=None, description="Folder with <task>.jsonl files, to be used instead of the hub."
    )
    include_path: Place | None = Field(
        default=None, description="Folder with YAML files of lm-eval tasks, as in lm_eval."
    )
    engine: EngineSpec = Field(default_factory=EngineSpec)

    def problem_ids(self, ids: Sequence[str], families: Mapping[str, str] | None = None) -> list[str]:
        """Return the problems of a benchmark that are used, given all ids: the first `limit` of `part`."""
        return self.part.select(ids, families)[: self.limit]

    @model_validator(mode="before")
    @classmethod
    def _add_controls(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "controls" in data:
            data = dict(data)
            if data.pop("controls"):
                data["decodings"] = with_controls(read_decodings(data.get("decodings", "rl")))
        return data

    @model_validator(mode="after")
    def _check_greedy(self) -> "EvalSpec":
        if self.sampling is not None:
            for decoding in self.decodings:
                check_together(decoding, self.sampling)
        return self


def load_criteria(*values: Any) -> None:
    """Import the user-defined criteria that a user names in options or in a file that is run.

    Raises:
        UserError: One cannot be imported.
    """
    load_named(*values)


def load_eval(data: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> EvalSpec:
    """Make an `EvalSpec` from a file's mapping and options that override it.

    Options have the names of the command line and of lm-eval's model arguments: those of the pair (`pretrained`,
    `base`, ...), of `Decoding`, `Sampling`, `EngineSpec`, and of `EvalSpec` itself. An option overrides the file.
    Options of the decoding (`mode`, `tau`, ...) change the file's decoding, which must then be the only one.

    Raises:
        UserError: A key is unknown, a value is not valid, or parts do not fit together.
    """
    load_criteria(data, options or {})
    data = {name: value for name, value in data.items() if value is not None}
    fields = {name: value for name, value in (options or {}).items() if value is not None}
    decoding = {name: fields.pop(name) for name in Decoding.options() if name in fields}
    if decoding:
        first = next(iter(decoding))
        if "decodings" in fields:
            raise UserError(
                f"is given beside {mention('decoding', fields['decodings'][0])}",
                argument=first,
                value=decoding[first],
                accepted="one of them",
            )
        decodings = read_decodings(data["decodings"]) if "decodings" in data else ()
        if len(decodings) > 1:
            raise UserError(
                f"changes one decoding, and the file has {len(decodings)}; use -d",
                argument=first,
                value=decoding[first],
            )
        fields["decodings"] = [change_decoding(decodings[0] if decodings else None, decoding)]
    pair = pair_of(fields)
    data |= {} if pair is None else {"pair": pair}
    for section, spec in SECTIONS.items():
        if own_fields := {name: fields.pop(name) for name in spec.options() if name in fields}:
            decodings = data.get(section) or {}
            data[section] = merge_sampling(
                decodings.model_dump() if isinstance(decodings, Spec) else dict(decodings), own_fields
            )
            parse(spec, data[section])  # by the option's own name
    data |= {name: value for name, value in fields.items() if name not in PAIR_OPTIONS}
    return parse(EvalSpec, data)


def change_decoding(decoding: Decoding | None, changes: Mapping[str, Any]) -> Decoding:
    """Change a decoding by options. A new mode starts without settings. A threshold without a mode means `replace`."""
    if decoding is None and "mode" not in changes and "tau" in changes:
        changes = {"mode": "extrapolate" if "gamma" in changes else "replace", **changes}
    if decoding is None or changes.get("mode", decoding.mode) != decoding.mode:
        return parse(Decoding, changes)
    return decoding.replace(**changes)
