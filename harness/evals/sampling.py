"""lm-eval's generation arguments as a `Sampling`: honoured or refused, never ignored."""

from collections.abc import Mapping
from typing import Any

from harness.errors import UserError, unknown
from harness.spec import Sampling, parse

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
ACCEPTED = ("temperature", "top_p", "do_sample", "until", *LENGTHS)


def sampling_of(gen_kwargs: Mapping[str, Any], *, samples: int, seed: int) -> tuple[Sampling, tuple[str, ...]]:
    """Return the sampling and the stop strings of one request.

    Task files write `max_gen_toks`; an alias beside it therefore came from `--gen_kwargs` and wins. A task that names
    no temperature or top-p gets 1, plain sampling.

    Raises:
        UserError: an argument that no engine of ours honours (`top_k`, ...), or greedy decoding.
    """
    for name in gen_kwargs:
        if name not in ACCEPTED:
            raise unknown("gen_kwargs", name, ACCEPTED)
    if gen_kwargs.get("do_sample") in (False, 0) or gen_kwargs.get("temperature") == 0:
        name = "do_sample" if gen_kwargs.get("do_sample") in (False, 0) else "temperature"
        raise UserError(
            f"gen_kwargs {name}={gen_kwargs[name]} is refused: a pair is sampled, as in the paper; "
            "for greedy decoding give do_sample=true,temperature=0.0001 (and one sample)"
        )
    fields: dict[str, Any] = {"samples": samples, "seed": seed, "temperature": 1.0, "top_p": 1.0}
    fields |= {name: gen_kwargs[name] for name in ("temperature", "top_p") if gen_kwargs.get(name) is not None}
    lengths = [gen_kwargs[name] for name in (*LENGTHS[1:], LENGTHS[0]) if gen_kwargs.get(name) is not None]
    if lengths:
        fields["max_tokens"] = lengths[0]
    until = gen_kwargs.get("until") or ()
    stop = (until,) if isinstance(until, str) else tuple(str(text) for text in until)
    return parse(Sampling, fields, where="gen_kwargs "), tuple(text for text in stop if text)
