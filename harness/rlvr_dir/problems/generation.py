"""Convert lm-eval's requests: prompts through the chat template, and generation arguments to a `Sampling`.

A task's description becomes the system message, and each of its examples a user and an assistant message, as with
lm-eval's `--apply_chat_template`; with `--fewshot_as_multiturn false` all are one user message. Without a template (or
with `chat=off`) a prompt is the text that lm-eval makes without that option.
"""

import io
from collections.abc import Mapping
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any

from rlvr_dir.config import Sampling, parse
from rlvr_dir.config.engine import kwargs_words
from rlvr_dir.errors import UserError, mention, unknown

if TYPE_CHECKING:
    from rlvr_dir.decode import Engine

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
DRAWS = ("temperature", "top_p")
ACCEPTED = (*DRAWS, "do_sample", "until", *LENGTHS)
NO_LENGTH = 256  # new tokens if a task gives no number, as in all models of lm-eval
# Arguments that no engine of ours supports, which greedy decoding ignores, and what to use instead.
INSTEAD = {
    "top_k": "top_p=…, since no engine here cuts by a number of tokens",
    "min_p": "top_p=…, since no engine here cuts by a share of the most likely token",
    "typical_p": "top_p=…, since no engine here cuts by how typical a token is",
}
_NO_EFFECT = {"num_beams": 1, "min_p": 0, "typical_p": 1}  # values without an effect


def has_template(engine: "Engine") -> bool:
    """Return whether there is a chat template to apply."""
    return bool(getattr(engine.tokenizer, "chat_template", None))


def template_name(engine: "Engine") -> str:
    """Describe the chat template for results: where it is from, and the digest of its text."""
    if not has_template(engine):
        return "none: the tokenizer has no chat template"
    info = engine.info()
    template, kwargs = info["chat_template"], kwargs_words(info.get("chat_template_kwargs") or {})
    suffix = f" with {kwargs}" if kwargs else ""
    return f"the template of {template['from']} (sha256 {template['sha256']}){suffix}"


def build_requests(task: Any, engine: "Engine", limit: int | None = None) -> list[Any]:
    """Return lm-eval's instances of a task, with prompts in the chat template if there is one."""
    turns = {"apply_chat_template": True, "fewshot_as_multiturn": True, "chat_template": engine.chat_prompt}
    with redirect_stderr(io.StringIO()):  # hides its bar
        task.build_all_requests(limit=limit, rank=0, world_size=1, **(turns if has_template(engine) else {}))
    return task.instances


def sampling_of(gen_kwargs: Mapping[str, Any], *, samples: int, seed: int) -> tuple[Sampling, tuple[str, ...]]:
    """Return the sampling and the stop strings of one request. Each argument is used or rejected, never ignored.

    As in lm-eval's own models, `do_sample=false` and `temperature=0` are greedy, and so is a task without either;
    `do_sample=true` without a temperature samples at 1. Task files contain `max_gen_toks`, so an alias beside it came
    from `--gen_kwargs` and has priority.

    Raises:
        UserError: An argument is not supported by our engines (`top_k`, ...), or several greedy samples are requested.
    """
    settings = {name: value for name, value in gen_kwargs.items() if value is not None}
    draws = (
        settings.get("do_sample", bool(settings.get("temperature"))) not in (False, 0)
        and settings.get("temperature") != 0
    )
    for name in settings:
        has_effect = name not in _NO_EFFECT or settings[name] != _NO_EFFECT[name]
        if name in INSTEAD and has_effect and draws:
            raise UserError(f"gen_kwargs {name}={settings[name]} is not allowed", accepted=f"{INSTEAD[name]}")
        if name not in ACCEPTED and name not in INSTEAD and has_effect:
            raise unknown("gen_kwargs", name, ACCEPTED)
    if not draws and samples > 1:
        raise UserError(
            (
                f"is not allowed with greedy decoding ({mention('temperature', 0)} or do_sample=false): the "
                "responses to a problem are all equal"
            ),
            argument="repeats",
            value=samples,
            accepted=f"one sample (model argument {mention('samples', 1)} for our tasks, repeats: 1 of others)",
        )
    fields: dict[str, Any] = {"samples": samples, "seed": seed, "temperature": 1.0 if draws else 0.0, "top_p": 1.0}
    fields |= {name: settings[name] for name in DRAWS if draws and name in settings}
    lengths = [settings[name] for name in (*LENGTHS[1:], LENGTHS[0]) if name in settings]
    until = settings.get("until") or ()
    stop = (until,) if isinstance(until, str) else tuple(str(text) for text in until)
    return parse(Sampling, {**fields, "max_tokens": [*lengths, NO_LENGTH][0]}, where="gen_kwargs "), tuple(
        text for text in stop if text
    )


def with_given(gen_kwargs: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's generation arguments, overridden by temperature, top_p and max_tokens of the model arguments.

    The model `arguments` apply to every task, as lm-eval's `--gen_kwargs` do.
    """
    dropped = LENGTHS if "max_tokens" in arguments else ()
    draws = {"do_sample": arguments["temperature"] > 0} if "temperature" in arguments else {}
    return {**{name: value for name, value in gen_kwargs.items() if name not in dropped}, **arguments, **draws}


def check_gen_kwargs(gen_kwargs: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Check lm-eval's `--gen_kwargs` against the model `arguments`, before anything loads.

    Raises:
        UserError: An argument is not supported, or contradicts a model argument.
    """
    alone = {name: value for name, value in gen_kwargs.items() if value is not None}
    if alone:
        sampling_of({"do_sample": True, **alone}, samples=1, seed=0)
    for name, value in arguments.items():
        for same in LENGTHS if name == "max_tokens" else (name,):
            if same in alone and alone[same] != value:
                raise UserError(
                    f"(a model argument) and --gen_kwargs {same}={alone[same]} contradict each other",
                    argument=name,
                    value=value,
                    accepted="one of them",
                )
    if (
        "do_sample" in alone
        and "temperature" in arguments
        and bool(alone["do_sample"]) != (arguments["temperature"] > 0)
    ):
        raise UserError(
            f"(a model argument) and --gen_kwargs do_sample={alone['do_sample']} contradict each other",
            argument="temperature",
            value=arguments["temperature"],
            accepted="one of them",
        )
