"""Check whether a pair's tokenizers split text alike, by splitting the same texts. Equal vocabularies are not
sufficient."""

from collections.abc import Iterable
from itertools import product

from rlvr_dir.checkpoints.chat_template import encode_prompt
from rlvr_dir.checkpoints.read import Checkpoints

_MOST_TOKENS = 6  # tokens to show of a text that is split in two ways
TEXTS = (  # digits, spaces, accents and LaTeX
    "Let $x^2+3x=\\frac{1}{2}$. Find the value of 12345 + 67.890, of 1 000 000 and of \\sqrt[3]{2}.\n\n",
    "  def f(n):\n\treturn n**2  # naïve — E\u0301tude, ﬁve, 漢字, emoji 🎲, \u00a0",
)


def cut_otherwise(loaded: Checkpoints, texts: Iterable[str]) -> str | None:
    """Describe how each tokenizer splits the first text that they split differently; None if there is none.

    All models read a prompt as RL's tokenizer splits it.
    """
    for text, role in product(texts, [role for role in loaded.models if role != "rl"]):
        ids = [encode_prompt(loaded.models[name].tokenizer, text) for name in (role, "rl")]
        if ids[0] != ids[1]:
            at = next((i for i, (own, rl) in enumerate(zip(*ids, strict=False)) if own != rl), min(map(len, ids)))
            first = max(0, at - 1)
            own, rl = (
                [loaded.models[name].tokenizer.decode([token]) for token in sequence[first : first + _MOST_TOKENS]]
                for name, sequence in zip((role, "rl"), ids, strict=True)
            )
            return (
                f"{loaded.pair.argument(role)} and {loaded.pair.argument('rl')} cut text into tokens differently, "
                f"{text[:40]!r} from its token {first} on into {own} and {rl}: all models read what RL's tokenizer "
                "makes of a prompt"
            )
    return None
