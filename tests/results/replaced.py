"""Responses whose replacements are counted by hand, their record and the tokenizer of their words."""

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models

from rlvr_dir.config import Decoding
from rlvr_dir.records import Record, Row
from tests.records.made import config

GATED = Decoding(mode="replace", tau=-0.3)
WORDS = ["<unk>", "<end>", "<|user|>", "a", "b", "c", " ", "<think>"]


def tokenizer():
    found = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    found.add_special_tokens([AddedToken("<end>"), AddedToken("<|user|>")])
    found.add_tokens([AddedToken("<think>"), AddedToken("c")])
    found.decoder = decoders.Fuse()
    return found


def response(problem, sample, proposed, written, flagged, finish="stop", known=True):
    """A response of these words, whose Δ log p is minus its position, and half of it for the written token."""
    ids = {word: i for i, word in enumerate(WORDS)}
    proposed, written = ([ids[word] for word in words] for words in (proposed, written))
    changed = np.not_equal(proposed, written)
    delta = -np.arange(len(written), dtype=float)
    more = {"proposed": proposed, "delta_logp_written": np.where(changed, delta / 2, delta)} if known else {}
    return Row.make(f"t/{problem}", sample, "", finish, flagged, changed, written, (1,), delta, **more)


def record_of(*rows):
    record = Record.without_file(config(decoding=GATED), "t")
    record.request([f"t/p{i}" for i in range(3)], 2)
    record.add(*rows)
    return record


ROWS = (
    response("p0", 0, ["a", "b", "c", "<end>"], ["a", "c", "c", "<end>"], [0, 1, 1, 0]),
    response("p0", 1, ["b", "b", " ", "a"], ["c", "c", "a", "a"], [1, 1, 1, 0], "length"),
    response("p1", 0, ["b", "<end>", "<|user|>", "<end>"], ["c", "a", "b", "<end>"], [1, 1, 1, 0]),
    response("p1", 1, ["<think>", "<end>"], ["a", "<end>"], [1, 0]),
    response("p2", 0, ["a", "<end>"], ["a", "<end>"], [0, 0]),
    response("p2", 1, ["a", "<end>"], ["a", "<end>"], [0, 0]),
)
CORRECT = [[True, False], [True, True], [False, False]]
