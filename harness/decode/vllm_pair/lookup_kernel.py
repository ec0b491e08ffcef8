# ruff: noqa: ANN001, ANN201
"""Find the longest shared runs, as `lookup.longest` does: one program a row and text, which reads the text once."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["siblings"])  # else another number of them is compiled anew
def find(
    tokens, lengths, own_texts, among, found, length, siblings,
    LEAST: tl.constexpr, MOST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, which = tl.program_id(0).to(tl.int64), tl.program_id(1)
    text = tl.load(among + row * siblings + which)
    own = tl.load(own_texts + row)
    written = tl.load(lengths + own)
    end = tl.where(text >= 0, tl.load(lengths + tl.maximum(text, 0)), 0)
    theirs, ours = tokens + tl.maximum(text, 0) * length, tokens + own * length
    best = tl.zeros([BLOCK], tl.int64)
    for start in range(0, end, BLOCK):
        place = start + tl.arange(0, BLOCK)
        alive = (place >= 1) & (place < end)
        run = tl.zeros([BLOCK], tl.int64)
        for back in tl.static_range(1, MOST + 1):
            want = tl.where(written >= back, tl.load(ours + tl.maximum(written - back, 0)), -1)
            before = tl.load(theirs + tl.maximum(place - back, 0), mask=place < end, other=-2)
            alive = alive & (place >= back) & (before == want)
            run += alive.to(tl.int64)
        score = (2 * run + tl.where(which == 0, 1, 0)) * length + place
        best = tl.maximum(best, tl.where(run >= LEAST, score, 0))
    score = tl.max(best, axis=0)
    tl.store(found + row * siblings + which, tl.where(score > 0, score * siblings + siblings - 1 - which, 0))
