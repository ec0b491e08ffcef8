"""The arguments that a chat template reads beside the conversation, such as Qwen3's `enable_thinking`."""

import re
from collections.abc import Mapping
from typing import Any

# What a template reads that is no argument of a user's: what transformers hands to it, and its functions.
_ALWAYS = {
    "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "raise_exception",
    "strftime_now", "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
}  # fmt: skip
_GENERATION = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")  # transformers' own tag, around what an assistant wrote


def arguments_of(tokenizer: Any) -> frozenset[str]:
    """Return the names of the arguments that a tokenizer's chat template reads; none where it has no template.

    Raises:
        jinja2.TemplateSyntaxError: it is no template.
    """
    template = tokenizer.chat_template
    texts = template.values() if isinstance(template, Mapping) else [template] if template else []
    return frozenset().union(*map(_variables, texts))


def _variables(template: str) -> set[str]:
    from jinja2 import Environment
    from jinja2.defaults import DEFAULT_NAMESPACE
    from jinja2.meta import find_undeclared_variables

    parsed = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(_GENERATION.sub("", template))
    return find_undeclared_variables(parsed) - _ALWAYS - DEFAULT_NAMESPACE.keys()


def unread(kwargs: Mapping[str, Any], tokenizer: Any) -> str | None:
    """Say, in one sentence, which of some arguments the chat template does not read; None where it reads all."""
    if not kwargs:
        return None
    if not tokenizer.chat_template:
        return f"chat_template_kwargs={dict(kwargs)} is refused: rl's tokenizer has no chat template"
    arguments = sorted(arguments_of(tokenizer))
    lost = [name for name in kwargs if name not in arguments]
    if not lost:
        return None
    return (
        f"chat_template_kwargs: the chat template of {tokenizer.name_or_path} does not read {lost[0]!r}; "
        f"accepted: {', '.join(arguments) or 'none, it reads no argument'}"
    )
