"""Puts prompts through the pair's chat template, in the turns that lm-eval's `--apply_chat_template` makes.

A task's description is the system's turn and each of its examples a turn of the user and one of the assistant, unless
`--fewshot_as_multiturn false` asks for a single one of the user. Without a template (or with `chat=off`) a prompt is
the text that lm-eval makes without that option.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.decode import Engine

NO_TEMPLATE = "none: the tokenizer has no chat template"


def has_template(engine: "Engine") -> bool:
    """Tell whether there is a chat template to be applied."""
    return bool(getattr(engine.tokenizer, "chat_template", None))


def template_name(engine: "Engine") -> str:
    """Say which template is applied, for results: where it is from, and the digest of its text."""
    if not has_template(engine):
        return NO_TEMPLATE
    template = engine.info()["chat_template"]
    return f"the template of {template['from']} (sha256 {template['sha256']})"


def build_requests(task: Any, engine: "Engine", limit: int | None = None) -> list[Any]:
    """Return lm-eval's instances of a task, their prompts through the template where there is one."""
    turns = {"apply_chat_template": True, "fewshot_as_multiturn": True, "chat_template": engine.chat_prompt}
    task.build_all_requests(limit=limit, rank=0, world_size=1, **(turns if has_template(engine) else {}))
    return task.instances


def completed(lm: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of lm-eval's `evaluate`: with `chat=auto` as `--apply_chat_template` would make them."""
    if given.get("apply_chat_template") or lm.chat == "off" or not has_template(lm.engine):
        return dict(given)
    return {
        **given,
        "apply_chat_template": True,
        "fewshot_as_multiturn": given.get("fewshot_as_multiturn") is not False,  # lm-eval's default beside a template
    }
