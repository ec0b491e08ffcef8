"""Write a conversation as a prompt with a tokenizer's chat template, and find the template's arguments."""

import re
import warnings
from collections.abc import Mapping
from typing import Any

from rlvr_dir.errors import UserError

# What a template reads that is not a user's argument: values from transformers, and its functions.
_ALWAYS = {
    "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "raise_exception",
    "strftime_now", "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
}  # fmt: skip
_GENERATION = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")  # transformers' own tag, around the assistant's text


def arguments_of(tokenizer: Any) -> frozenset[str]:
    """Return the names of the arguments that a tokenizer's chat template reads; empty if it has no template.

    Raises:
        jinja2.TemplateSyntaxError: It is not a template.
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


def unread(kwargs: Mapping[str, Any], tokenizer: Any) -> UserError | None:
    """Return the error for an argument that the chat template does not read; None if it reads all of them."""
    if not kwargs:
        return None
    if not tokenizer.chat_template:
        problem = "has no effect, because RL's tokenizer has no chat template"
        return UserError(problem, argument="chat_template_kwargs", value=dict(kwargs), hint="Leave it out")
    arguments = sorted(arguments_of(tokenizer))
    lost = [name for name in kwargs if name not in arguments]
    if not lost:
        return None
    return UserError(
        f"has {lost[0]!r}, which the chat template of {tokenizer.name_or_path} does not read",
        argument="chat_template_kwargs",
        value=dict(kwargs),
        accepted=", ".join(arguments) or "none, because the template has no arguments",
    )


def encode_prompt(tokenizer: Any, prompt: str) -> tuple[int, ...]:
    """Return the token ids of a prompt; special tokens (BOS) are added unless the chat template has written them."""
    written = bool(tokenizer.bos_token) and prompt.startswith(tokenizer.bos_token)
    return tuple(tokenizer.encode(prompt, add_special_tokens=not written))


def chat_prompt(
    tokenizer: Any,
    messages: list[dict[str, str]],
    add_generation_prompt: bool = True,
    kwargs: Mapping[str, Any] | None = None,
) -> str:
    """Return a conversation as prompt text, by the tokenizer's chat template, like lm-eval's own models.

    Without `add_generation_prompt` the last message is left open, so that it can be continued. If a template rejects a
    system message, that message is left out. `kwargs` are the template's own arguments.

    Raises:
        UserError: The tokenizer has no chat template, or it rejects the conversation.
    """
    if not tokenizer.chat_template:
        raise UserError(
            "chat: the RL model's tokenizer has no chat template", accepted="chat=off, for prompts as they are"
        )
    template_kwargs = {
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": not add_generation_prompt,
    }
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, **template_kwargs, **(kwargs or {}))
    except Exception as error:  # a template may raise anything
        others = [message for message in messages if message["role"] != "system"]
        if len(others) == len(messages):
            problem = f"The chat template of {tokenizer.name_or_path} rejects a conversation: {error}"
            raise UserError(problem, argument="chat") from None
        warnings.warn("The chat template rejects the system message, so that message is left out", stacklevel=3)
        return chat_prompt(tokenizer, others, add_generation_prompt, kwargs)
