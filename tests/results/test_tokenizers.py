"""A tokenizer read without transformers writes what one of transformers writes, to the character."""

import json
import random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rlvr_dir.bench.random_pair import tokenizer as byte_level
from rlvr_dir.results.tokenizers import decoded, tokenizers
from rlvr_dir.tiny import tiny_pair


def tiny():
    return AutoTokenizer.from_pretrained(tiny_pair().rl)


def with_added_tokens():
    """Of bytes, with special tokens and others that were added after all."""
    fast = byte_level()
    fast.add_special_tokens({"additional_special_tokens": ["<tool>"]})
    fast.add_tokens(["<think>", " spaced "])
    return fast


def of_words():
    """As sentencepiece cuts: a sign for each space, which the first word of a text loses."""
    words = {word: i for i, word in enumerate(["<unk>", "▁a", "▁b", "c", ".", "▁", "</s>"])}
    words = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="</s>")


@pytest.mark.parametrize("make", [tiny, with_added_tokens, of_words])
def test_every_token_and_any_sequence_is_written_as_transformers_writes_it(make, tmp_path):
    make().save_pretrained(tmp_path)
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), tokenizers(str(tmp_path))([])
    assert isinstance(ours, Tokenizer)
    rng, ids = random.Random(0), range(len(theirs) + 3)  # the last ones are beyond the vocabulary
    sequences = [[token] for token in ids] + [rng.choices(ids, k=rng.randint(0, 40)) for _ in range(300)]
    how = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    assert [decoded(ours, each) for each in sequences] == [theirs.decode(each, **how) for each in sequences]
    assert [decoded(theirs, each) for each in sequences] == [decoded(ours, each) for each in sequences]


def test_tokens_that_its_settings_add_are_read_by_transformers(tmp_path):
    """As older versions of it wrote them: beside a `tokenizer.json` that does not know them."""
    byte_level().save_pretrained(tmp_path)
    path, last = tmp_path / "tokenizer_config.json", len(byte_level())
    added = {str(last): {"content": "<late>", "special": False}}
    path.write_text(json.dumps({**json.loads(path.read_text()), "added_tokens_decoder": added}))
    ours = tokenizers(str(tmp_path))([])
    assert not isinstance(ours, Tokenizer)
    assert decoded(ours, [last]) == "<late>"
