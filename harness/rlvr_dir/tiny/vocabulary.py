"""List the words of the task, each of which is one token. Joined without separators they are the text (so digits join).

Spaces belong to the words: a verb or an operator includes the space on either side, other words the one before them. So
`" gets " + "7" + " b"` reads ` gets 7 b` and `" \\boxed{" + "4" + "2" + "}"` reads ` \\boxed{42}`.
"""

import re

from rlvr_dir.config.presentation import INSTRUCTION as INSTRUCTION

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
# INSTRUCTION, with its leading newline, is one token as well, because every problem ends with it.
SPECIALS = (PAD, BOS, EOS)

NAMES = ("Ann", "Bob", "Cy", "Dee", "Eve", "Flo", "Gus", "Hal")
THINGS = (" pens", " cups", " nuts", " keys", " maps", " toys")
GAIN = (" gets ", " finds ", " buys ")
LOSE = (" loses ", " gives ", " sells ")
IDLE = (" sees ", " counts ", " draws ")  # distractors: they change nothing
LABELS = tuple(f" {letter}" for letter in "abcdefghijklmn")
OPENERS = (" so ", " then ", " next ", " now ", " thus ", " here ")  # interchangeable: harmless entropy
LINE_ENDS = (" .", " ;")
HAS, QUESTION = " has ", (" how", " many", " ?")
PLUS, MINUS, EQUALS, WAIT = " + ", " - ", " = ", " wait "
ANSWER, BOX, CLOSE = " answer", " \\boxed{", "}"

WORDS: tuple[str, ...] = (
    *NAMES,
    *THINGS,
    *GAIN,
    *LOSE,
    *IDLE,
    *LABELS,
    *OPENERS,
    *LINE_ENDS,
    HAS,
    *QUESTION,
    PLUS,
    MINUS,
    EQUALS,
    WAIT,
    ANSWER,
    BOX,
)


def _byte_alphabet() -> tuple[str, ...]:
    """Return one printable character for each byte, as GPT-2 and Qwen2 write them: ASCII signs are themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(spare)) for byte in range(256))


BYTES = _byte_alphabet()  # digits and `}` are among them

# Order fixes the ids: specials, words, instruction, bytes. The shipped weights depend on it.
VOCABULARY: tuple[str, ...] = (*SPECIALS, *WORDS, INSTRUCTION, *BYTES)
ID: dict[str, int] = {word: index for index, word in enumerate(VOCABULARY)}
assert len(ID) == len(VOCABULARY), "a word is listed twice"


def two_digits(value: int) -> tuple[str, str]:
    """Write a number as the corpus does: always two digit tokens, `07` for 7."""
    tens, units = f"{value:02d}"
    return tens, units


def ids(words: list[str]) -> list[int]:
    """Return the token ids of a list of words without the tokenizer (a test checks that both agree)."""
    return [ID[word] for word in words]


_PIECES = re.compile(
    "|".join(re.escape(word) for word in sorted((*WORDS, INSTRUCTION), key=len, reverse=True)) + "|.", re.S
)


def split(text: str) -> list[str]:
    """Split a text into tokens like the tokenizer: the task's words where they occur, bytes elsewhere."""
    return [
        token
        for piece in _PIECES.findall(text)
        for token in ([piece] if piece in ID and len(piece) > 1 else [BYTES[byte] for byte in piece.encode()])
    ]
