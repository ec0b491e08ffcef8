r"""Find the answer of a response: the content of its last closed, non-empty `\boxed{...}` (or `\fbox{...}`).

A response that ends inside a later box was cut there, and has no final answer.
"""

import re
from dataclasses import dataclass
from typing import Literal

# One pass over escapes (`\{`, `\}`, `\\`), box openings and braces. A doubled backslash before `boxed` is a line break
# followed by a box that lost its own backslash, or a text that was escaped once too often: both count as a box.
_TOKEN = re.compile(r"\\[\\{}]|(?<=\\)(?:boxed|fbox)\s*\{|[{}]")
_OPENING = re.compile(r"\\(?:boxed|fbox)")
MAX_ANSWER = 400  # characters; the longest gold of the four benchmarks has fewer than 300
# What ends a formula or a paragraph; in a box that never closes, it shows that the brace was forgotten.
_END = re.compile(r"\n\s*\n|(?<!\\)\$|\\[\])]")


@dataclass(frozen=True, slots=True)
class Box:
    """Hold the result: `content` is None unless `status` is `closed`."""

    status: Literal["closed", "no_box", "unclosed_box"]
    content: str | None = None


def find_box(text: str, *, cut: bool = True) -> Box:
    r"""Find the last closed, non-empty box of `text`, by where the box opens.

    Braces are matched with escapes skipped (`\{` is a character of the answer). Empty boxes are ignored, because
    prompts and models quote `\boxed{}` as an instruction. If the last box never closes and the text ends with its
    content, the response was cut while it wrote its answer, and an earlier box is not the answer (with `cut=False` it
    is). A box whose closing brace was forgotten does not hide an earlier one. The text is read once, in linear time,
    whatever it contains.

    >>> find_box(r"first \boxed{33}, then \boxed{204}").content
    '204'
    >>> find_box(r"first \boxed{33}, then \boxed{20").status
    'unclosed_box'
    """
    first = _OPENING.search(text)
    if first is None:
        return Box("no_box")
    open_braces: list[int | None] = []  # start of a box's content; None for an ordinary brace
    best: tuple[int, int] | None = None
    for token in _TOKEN.finditer(text, first.start()):
        word = token.group()
        if word[0] == "\\":
            continue
        if word == "{":
            open_braces.append(None)
        elif word == "}":
            start = open_braces.pop() if open_braces else None
            if start is not None and (best is None or start > best[0]) and text[start : token.start()].strip():
                best = (start, token.start())
        else:
            open_braces.append(token.end())
    unclosed = max((start for start in open_braces if start is not None), default=-1)
    if best is not None and not (cut and unclosed > best[0] and _only_content(text[unclosed:])):
        return Box("closed", text[best[0] : best[1]].strip())
    return Box("unclosed_box" if unclosed >= 0 else "no_box")


def _only_content(rest: str) -> bool:
    r"""Return whether everything after an unclosed box may be its content: `20`, not `20$ is the answer.`"""
    rest = rest.strip("$ \n")
    return len(rest) <= MAX_ANSWER and _END.search(rest) is None
