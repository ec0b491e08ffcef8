"""Escape what is invisible or reorders text, because text from models and other people may be hostile, and shorten it.

`visible` is applied where text is output: by `UserError`, the command line's `echo` and `say`, `markdown_table`, and
the renderers of reports and figures. Applying it twice changes nothing.
"""

import re
import unicodedata

LONGEST = 2000  # the most characters of a text on a page
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # control, format (bidi marks), surrogates, unassigned, breaks


def visible(text: object, limit: int | None = LONGEST, keep: str = "") -> str:
    r"""Return `text` on one line, with invisible characters except those in `keep` as escapes, and at most `limit`
    characters.

    >>> visible("a\u202eb\n")
    'a\\u202eb\\n'
    """
    text = str(text)
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(_escape(c) if c not in keep and unicodedata.category(c) in _HIDDEN else c for c in text)


def _escape(character: str) -> str:
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(character)
    return short.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def without_passwords(text: str) -> str:
    """Return `text` without the passwords of addresses in it.

    >>> without_passwords("postgresql://me:secret@host/db")
    'postgresql://me:***@host/db'
    """
    return re.sub(r"(://[^/\s:@]*):[^/\s]*@", r"\1:***@", text)
