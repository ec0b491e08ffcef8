"""Grouped heads and a cache that grows in place give the logits of the usual attention."""

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from harness.decode.caches import GROUPED, group_heads, growing_cache


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
