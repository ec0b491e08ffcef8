r"""Finds the answer of a response: the content of its last closed, non-empty `\boxed{...}` (or `\fbox{...}`)."""

import re
from dataclasses import dataclass
from typing import Literal

# One pass over escapes (`\{`, `\}`, `\\`), box openings and braces. A doubled backslash before `boxed` is a line break
# followed by a box that lost its own backslash, or a text that was escaped once too often: both count as a box.
_TOKEN = re.compile(r"\\[\\{}]|(?<=\\)(?:boxed|fbox)\s*\{|[{}]")
_OPENING = re.compile(r"\\(?:boxed|fbox)")


@dataclass(frozen=True, slots=True)
class Box:
    """What was found: `content` is None unless `status` is `closed`."""

    status: Literal["closed", "no_box", "unclosed_box"]
    content: str | None = None


def find_box(text: str) -> Box:
    r"""Find the last closed, non-empty box of `text`, by where the box opens.

    Braces are matched with escapes skipped (`\{` is a character of the answer). A box that never closes does not
    hide an earlier one that does: `\boxed{204} ... \boxed{20` gives `204`. Empty boxes count as no box: prompts and
    models quote `\boxed{}` as an instruction. One pass, linear in the length of the text, whatever the text.

    >>> find_box(r"first \boxed{33}, then \boxed{204}").content
    '204'
    """
    first = _OPENING.search(text)
    if first is None:
        return Box("no_box")
    open_braces: list[int | None] = []  # where the content of a box begins; None for an ordinary brace
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
    if best is not None:
        return Box("closed", text[best[0] : best[1]].strip())
    return Box("unclosed_box" if any(start is not None for start in open_braces) else "no_box")
