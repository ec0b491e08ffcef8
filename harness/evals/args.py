"""The model arguments of `--model rlvr_dir`: an `EvalSpec` and what concerns lm-eval alone."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from harness.errors import unknown
from harness.spec import TINY, Decoding, EngineSpec, EvalSpec, Presentation, Sampling, Spec, load_eval, parse
from harness.spec.base import Place
from harness.spec.pair import PAIR_OPTIONS

ASKED = (
    *PAIR_OPTIONS, *Decoding.options(), *EngineSpec.model_fields, "seed",
    "data_dir", *Presentation.model_fields,
)  # fmt: skip

CACHE_REFUSAL = (
    "use_cache is refused: lm-eval's response cache knows neither the models nor tau and gamma nor the sample, "
    "so it would return one response for all samples and all settings"
)
OFF = "off"
_LM_EVAL_DEVICE = "cuda:0"  # what lm-eval passes when the user said nothing


class OwnArgs(Spec, frozen=True):
    """The model arguments that change neither a rollout nor a score, and a check of the task's number of samples."""

    chat: Literal["auto", "off"] = "auto"
    samples: int | None = Field(default=None, ge=1)
    records: Place | None = None
    tracking: Place | None = None

    @property
    def store(self) -> str | None:
        """Return the folder of the record store, if rollouts are to be kept."""
        return None if self.records == OFF else self.records

    @property
    def runs(self) -> str | None:
        """Return the folder or server of MLflow, if results are to be logged."""
        return None if self.tracking == OFF else self.tracking


ACCEPTED = (*ASKED, *OwnArgs.model_fields)


@dataclass(frozen=True)
class ModelArgs:
    """The parsed model arguments. Tasks, samples, temperature and lengths come with lm-eval's requests."""

    spec: EvalSpec
    own: OwnArgs

    @property
    def decoding(self) -> Decoding:
        """Return the one decoding."""
        return self.spec.decodings[0]

    @property
    def seed(self) -> int:
        """Return the key of the noise."""
        return (self.spec.sampling or Sampling()).seed


def parse_model_args(given: Mapping[str, Any]) -> ModelArgs:
    """Validate model arguments; `batch_size`, `max_batch_size` and `device` may come from lm-eval's own options.

    Raises:
        UserError: an unknown argument, or a value that is refused.
    """
    args = {name: value for name, value in given.items() if value is not None and value != ""}
    batch = args.pop("batch_size", None), args.pop("max_batch_size", None)
    for name in args:
        if name not in ACCEPTED:
            raise unknown("model_args", name, ACCEPTED)
    if args.get("device") == _LM_EVAL_DEVICE:
        del args["device"]
    for size in batch:  # lm-eval's default is 1, and "auto" may carry a schedule: both mean the engine's own choice
        if str(size).isdecimal() and int(size) > 1:
            args.setdefault("max_num_seqs", int(size))
    own = {name: args.pop(name) for name in OwnArgs.model_fields if name in args}
    if isinstance(own.get("chat"), bool):
        own["chat"] = "auto" if own["chat"] else "off"
    for name in ("records", "tracking"):
        if name in own:  # `False` is how lm-eval reads `off`
            own[name] = OFF if own[name] is False else str(own[name])
    if "data_dir" in args:
        args["data_dir"] = str(args["data_dir"])
    return ModelArgs(load_eval({}, args), parse(OwnArgs, own))


def announce_tiny(spec: EvalSpec, args: Mapping[str, Any]) -> None:
    """Say on stderr that the tiny pair is used, where no pair was named."""
    if spec.pair == TINY and not {"pair", "pretrained"} & set(args):
        print("rlvr_dir: no pair named; using the tiny pair that ships with rlvr-dir", file=sys.stderr)
