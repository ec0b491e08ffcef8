"""Return the text of tokens, within a response and alone, for any tokenizer and any ids, without errors."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rlvr_dir.results.tokenizers import decoded

UNKNOWN = "\ufffd"  # what decoders write for bytes that are not text
_MOST_BYTES = 4  # of a character, so the most tokens it can consist of
_SEGMENT = re.compile(r"\n|[^\S\n]?[^\s]{1,24}|[^\S\n]+")


class TokenTexts:
    """Collect token texts in a table that grows as they are used. The page contains indices into it.

    Without a tokenizer it contains only the words of a text.
    """

    def __init__(self, tokenizer: Any = None) -> None:
        self._tokenizer, self.has_tokenizer = tokenizer, tokenizer is not None
        self._places: dict[tuple[int, str], int] = {}
        self._alone: dict[int, int] = {}

    @property
    def texts(self) -> list[str]:
        """Return the texts by index."""
        return [text for _, text in self._places]

    @property
    def ids(self) -> list[int]:
        """Return the token ids by index; -1 for text that is not a token."""
        return [token for token, _ in self._places]

    def place(self, token: int, text: str) -> int:
        """Return the index of a token with this text."""
        return self._places.setdefault((token, text), len(self._places))

    def alone(self, tokens: np.ndarray) -> np.ndarray:
        """Return the index of each token decoded alone; any shape."""
        return np.array([self._of_token(int(token)) for token in tokens.ravel()], np.uint32).reshape(tokens.shape)

    def _of_token(self, token: int) -> int:
        if token not in self._alone:
            self._alone[token] = self.place(token, self._decode([token]))
        return self._alone[token]

    def response(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the index of each token with what it adds to the text.

        A character that consists of several tokens belongs to its last one; the others add nothing. Bytes that never
        become a character are the replacement character.
        """
        return np.array([self.place(*piece) for piece in zip(tokens, self._adds(tokens), strict=True)], np.uint32)

    def _adds(self, tokens: Sequence[int]) -> Iterator[str]:
        before, start, decoded_text = (
            0,
            0,
            "",
        )  # tokens[before:start] are decoded again before new ones, for correct spaces
        for i in range(len(tokens)):
            text = self._decode(tokens[before : i + 1])
            incomplete = text.endswith(UNKNOWN) and i + 1 - start < _MOST_BYTES and i + 1 < len(tokens)
            if incomplete:
                yield ""
                continue
            yield text[len(decoded_text) :] if text.startswith(decoded_text) else self._decode(tokens[start : i + 1])
            before, start = start, i + 1
            decoded_text = self._decode(tokens[before:start])

    def _decode(self, tokens: Sequence[int]) -> str:
        try:
            return decoded(self._tokenizer, tokens)
        except (IndexError, KeyError, OverflowError, TypeError, ValueError):  # ids outside the vocabulary
            return "".join(f"#{token}" for token in tokens)

    def words(self, text: str) -> np.ndarray:
        """Return the indices of a text that is cut at spaces and line ends, long words into parts, without a
        tokenizer."""
        return np.array([self.place(-1, word) for word in segments(text)], np.uint32)


def segments(text: str) -> Iterable[str]:
    """Cut a text into parts of about 25 characters that join to it; line ends are separate parts."""
    return _SEGMENT.findall(text)
