"""Caches that grow in place hold what `DynamicCache` holds; grouped heads give the logits of the usual attention."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, DynamicCache

from harness.decode.caches import GROUPED, group_heads, growing_cache

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.integers(1, 40)),
        st.tuples(st.just("crop"), st.integers(1, 6)),
        st.tuples(st.just("rows"), st.integers(0, 3)),
        st.tuples(st.just("replace"), st.just(0)),
    ),
    max_size=25,
)


@given(STEPS, st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_a_growing_cache_holds_what_a_dynamic_one_holds(steps, seed):
    torch.manual_seed(seed)
    ours, theirs, rows = growing_cache(), DynamicCache(), 4
    for name, n in [("update", 3), *steps]:
        layer = ours.layers[0] if ours.layers else None
        if name == "update":
            new = torch.randn(2, rows, 2, n, 8)
            for got, expected in zip(ours.update(*new, 0), theirs.update(*new, 0), strict=True):
                assert torch.equal(got, expected)
        elif name == "crop" and layer.keys.shape[2] > n:
            ours.crop(-n), theirs.crop(-n)
        elif name == "rows" and rows > 1:
            keep = torch.tensor([i for i in range(rows) if i != n % rows])
            ours.batch_select_indices(keep), theirs.batch_select_indices(keep)
            rows -= 1
        elif name == "replace":  # what closing holes does
            for cache in (ours, theirs):
                one = cache.layers[0]
                one.keys, one.values = one.keys.flip(2).clone(), one.values.flip(2).clone()
        assert ours.get_seq_length() == theirs.get_seq_length()
    assert torch.equal(ours.layers[0].keys, theirs.layers[0].keys)
    assert torch.equal(ours.layers[0].values, theirs.layers[0].values)


def test_a_cache_has_room_before_it_is_needed():
    cache = growing_cache()
    places = set()
    for _ in range(400):
        keys, _ = cache.update(*torch.zeros(2, 1, 1, 1, 8), 0)
        places.add(keys.data_ptr())
    assert len(places) < 20


@torch.inference_mode()
def test_grouped_heads_give_the_logits_of_the_usual_attention(peaked_pair):
    usual = AutoModelForCausalLM.from_pretrained(peaked_pair.rl, dtype=torch.float32).eval()
    grouped = AutoModelForCausalLM.from_pretrained(peaked_pair.rl, dtype=torch.float32).eval()
    group_heads(grouped)
    assert grouped.config._attn_implementation == GROUPED != usual.config._attn_implementation
    assert usual.config.num_attention_heads > usual.config.num_key_value_heads
    ids = torch.randint(4, 290, (3, 40))
    mask = torch.ones_like(ids)
    mask[1, :7] = mask[2, :20] = 0
    for model, cache in ((usual, DynamicCache()), (grouped, growing_cache())):
        first = model(input_ids=ids[:, :30], attention_mask=mask[:, :30], past_key_values=cache, use_cache=True).logits
        rest = model(input_ids=ids[:, 30:], attention_mask=mask, past_key_values=cache, use_cache=True).logits
        if model is usual:
            expected = torch.cat([first, rest], 1)[mask.bool()]
        else:
            got = torch.cat([first, rest], 1)[mask.bool()]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)
