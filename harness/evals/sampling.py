"""lm-eval's generation arguments as a `Sampling`: honoured or refused, never ignored."""

from collections.abc import Mapping
from typing import Any

from harness.errors import UserError, unknown
from harness.spec import Sampling, parse
from harness.spec.sampling import TRUNCATIONS

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
DRAWS = ("temperature", *TRUNCATIONS)
ACCEPTED = (*DRAWS, "do_sample", "until", *LENGTHS)
NO_LENGTH = 256  # new tokens where a task names no number: what every model of lm-eval gives then
_FOR_DRAWS = ("top_k",)  # no engine of ours honours it, and greedy decoding has no use for it


def names_length(gen_kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a request says how long a response may be."""
    return any(gen_kwargs.get(name) is not None for name in LENGTHS)


def sampling_of(gen_kwargs: Mapping[str, Any], *, samples: int, seed: int) -> tuple[Sampling, tuple[str, ...]]:
    """Return the sampling and the stop strings of one request.

    As in lm-eval's own models, `do_sample=false` and `temperature=0` are greedy, and so is a task that names neither;
    `do_sample=true` without a temperature draws at 1. Task files write `max_gen_toks`; an alias beside it therefore
    came from `--gen_kwargs` and wins.

    Raises:
        UserError: an argument that no engine of ours honours (`top_k`, ...), or several samples of greedy decoding.
    """
    given = {name: value for name, value in gen_kwargs.items() if value is not None}
    draws = given.get("do_sample", bool(given.get("temperature"))) not in (False, 0) and given.get("temperature") != 0
    for name in given:
        beams = name == "num_beams" and given[name] == 1  # no search
        if name not in ACCEPTED and not beams and (draws or name not in _FOR_DRAWS):
            raise unknown("gen_kwargs", name, ACCEPTED)
    if not draws and samples > 1:
        raise UserError(
            f"repeats={samples} is refused with greedy decoding (temperature=0 or do_sample=false): the responses to a "
            "problem are all equal; accepted: one sample (model argument samples=1 for our tasks, repeats: 1 of others)"
        )
    fields: dict[str, Any] = {"samples": samples, "seed": seed, "temperature": 1.0 if draws else 0.0, "top_p": 1.0}
    if draws:
        fields |= {name: given[name] for name in DRAWS if name in given}
    lengths = [given[name] for name in (*LENGTHS[1:], LENGTHS[0]) if name in given]
    fields["max_tokens"] = lengths[0] if lengths else NO_LENGTH
    until = given.get("until") or ()
    stop = (until,) if isinstance(until, str) else tuple(str(text) for text in until)
    return parse(Sampling, fields, where="gen_kwargs "), tuple(text for text in stop if text)
