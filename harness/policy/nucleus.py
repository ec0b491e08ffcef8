"""Top-p truncation, and drawing from a truncated policy by inverse CDF.

The nucleus of a policy is the smallest set of tokens, taken in order of falling probability (equal ones by token id),
whose mass reaches top-p. A draw walks the cumulative mass in that order up to u times the nucleus' mass, so a small u
always means a likely token, whichever policy is drawn from. top-p 1 truncates nothing, top-p 0 leaves one token.

`draw` is for CPUs: it looks at values to do little work. `draw_by_mass` never looks, so that a GPU need not be waited
for, and sums integers, so that no order of summation can change a token. Both draw the same tokens but for a cumulative
mass that meets its limit to the last digits.
"""

import torch

HEAD = 256  # most nuclei end within this many tokens
_SHIFT, _BUCKETS = 16, 0x3F80 + 1  # float32 probabilities by their upper bits: 1.0 is 0x3F800000

UNIT = 60  # a probability p as an integer is floor(2^60 p)
_LEAST = 0x3F800000  # bits of the float 1.0, the least mass that counts
_PLACES, _FINE = 29, 15  # 2^29 masses are told apart: 2^14 bins, of 2^15 each


def draw(logp: torch.Tensor, top_p: torch.Tensor, u: torch.Tensor, *, head: int = HEAD) -> torch.Tensor:
    """Draw one token a row from the nucleus of each policy.

    Only the `head` likeliest tokens of a row are sorted. Rows whose draw those do not settle are drawn from all of
    their tokens, by buckets, of which two are sorted. The result is the same for any `head`, but for a cumulative mass
    that meets its limit to the last of sixteen digits.

    Args:
        logp: (n, vocab) float32 log-probabilities, normalised; -inf for impossible tokens. A row may be all NaN.
        top_p: (n,) in [0, 1].
        u: (n,) float64 in [0, 1).

    Returns:
        (n,) int64 token ids; 0 for a row of NaN, which has nothing to draw from.
    """
    vocab = logp.shape[-1]
    top_p, u = top_p.double().clamp(min=2.0**-UNIT), u.double()
    nothing = logp[:, 0].isnan()
    if bool(nothing.any()):
        logp = logp.masked_fill(nothing[:, None], float("-inf"))
        logp[nothing, 0] = 0.0
    if head >= vocab:
        return _draw_ordered(*_by_probability(logp.exp()), top_p, u)[0]
    values, ids = logp.topk(head, dim=-1, sorted=False)
    p, ids = _by_probability(values.exp(), ids)
    token, decisive = _draw_ordered(p, ids, top_p, u)
    # The head settles a row when it holds the whole nucleus, and no token outside ties with one the draw rests on.
    settled = decisive > p[:, -1]
    if not bool(settled.all()):
        rest = (~settled).nonzero().squeeze(1)
        each = zip(logp[rest].exp(), top_p[rest].tolist(), u[rest].tolist(), strict=True)
        token[rest] = torch.tensor([_draw_bucketed(*row) for row in each], device=token.device)
    return token


def draw_by_mass(mass: torch.Tensor, top_p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Draw one token a row from the nucleus of each policy, without a sort and without looking at a value.

    The mass is counted into bins by its upper bits, which are in the order of probability, and one bin into finer ones,
    each of a single mass: once for where the nucleus ends, once for where the draw falls.

    Args:
        mass: (n, vocab) float32, probabilities times 2^60; overwritten. A row may be all NaN.
        top_p: (n,) float64 in [0, 1].
        u: (n,) float64 in [0, 1), multiples of 2^-53.

    Returns:
        (n,) int64 token ids; any for a row of NaN, which has nothing to draw from.
    """
    weight = mass.long()
    total = weight.sum(1)
    limit = (top_p * 2.0**UNIT).ceil().long().clamp(min=1).minimum(total).where(top_p < 1, total)
    # Places in order, likeliest first: 0 up to 2^29 - 2; the last is that of masses below 1, which weigh nothing.
    last = (1 << _PLACES) - 1
    place = mass.view(torch.int32).sub_(_LEAST - 1).clamp_(0, last).mul_(-1).add_(last)  # NaN is beyond all masses
    coarse = _cumulative(place >> _FINE, weight, 1 << (_PLACES - _FINE))

    def find(point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find where points of the cumulative mass fall: the place, a token's mass there, the sum of larger masses."""
        bin, before = _before(coarse, point)
        inside = (place ^ (bin << _FINE)[:, None].int()).clamp_(max=1 << _FINE)  # others into one bin more
        fine = _cumulative(inside, weight, (1 << _FINE) + 1)
        part, within = _before(fine, point - before)
        found = (bin << _FINE) | part
        bits = (1 << _PLACES) - 1 - found + (_LEAST - 1)
        return found, bits.int().view(torch.float32).long().clamp(min=1), before + within

    _, each, before = find(limit - 1)
    # Of equal tokens as many as are needed; where all are needed, those below 1 too, which is to say none.
    nucleus = torch.where(limit < total, before + ((limit - 1 - before) // each + 1) * each, total)
    point = _times(u, nucleus)
    found, each, before = find(point)
    rank = (place == found[:, None].int()).int().cumsum_(1)  # among equal tokens, by id
    index = ((point - before) // each + 1).int()
    return torch.searchsorted(rank, index[:, None])[:, 0].clamp(max=mass.shape[1] - 1)


def _cumulative(bins: torch.Tensor, weight: torch.Tensor, size: int) -> torch.Tensor:
    """Sum a row's weights up to and with each bin: (n, vocab) int32, overwritten, and int64 -> (n, size) int64."""
    n = len(bins)
    counted = torch.zeros(n * size, dtype=torch.int64, device=bins.device)
    rows = torch.arange(n, dtype=torch.int32, device=bins.device)[:, None] * size
    return counted.index_add_(0, bins.add_(rows).view(-1), weight.view(-1)).view(n, size).cumsum_(1)


def _before(upto: torch.Tensor, point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the first bin whose cumulative mass is beyond a point, and the mass before: (n, size), (n,) -> two (n,)."""
    index = torch.searchsorted(upto, point[:, None], right=True).clamp_(max=upto.shape[1] - 1)
    before = upto.gather(1, (index - 1).clamp_(min=0)).where(index > 0, 0)
    return index[:, 0], before[:, 0]


def _times(u: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Compute floor(u mass), exactly: the product of 53 and 61 bits has no integer type, so it is made of parts."""
    bits = (u * 2.0**53).long()
    a, b = bits >> 27, bits & ((1 << 27) - 1)
    c, d = mass >> 31, mass & ((1 << 31) - 1)
    return (a * c << 5) + ((a * d + (b * c << 4) + (b * d >> 27)) >> 26)


def _draw_bucketed(p: torch.Tensor, top_p: float, u: float) -> int:
    """Draw one token from all of a row, (vocab,) probabilities, without sorting it.

    Buckets of equal upper bits are in the order of probability, so their masses say in which bucket the nucleus ends
    and in which the draw falls; only these two are sorted.
    """
    bucket = p.view(torch.int32) >> _SHIFT
    mass = torch.bincount(bucket, weights=p.double(), minlength=_BUCKETS).flip(0)  # likeliest first
    cumulative = mass.cumsum(0)

    def ordered(index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return a bucket's probabilities and ids in order, and the mass up to and with each."""
        ids = (bucket == mass.numel() - 1 - index).nonzero().squeeze(1)
        values, order = torch.sort(p[ids], descending=True, stable=True)
        before = cumulative[index - 1] if index else 0.0
        return values, ids[order], before + values.double().cumsum(0)

    filled = mass.nonzero().squeeze(1)
    last = filled[-1:] if top_p >= 1 else filled[(cumulative - mass)[filled] < top_p][-1:]
    end = int(last)
    values, ids, upto = ordered(end)
    size = int((values > 0).sum()) if top_p >= 1 else int(((upto - values < top_p) & (values > 0)).sum())
    point = u * (1.0 if top_p >= 1 else float(upto[size - 1]))
    start = int(filled[torch.searchsorted(cumulative[filled], point, right=True).clamp(max=len(filled) - 1)])
    if start < end:
        values, ids, upto = ordered(start)
        size = len(ids)
    return int(ids[torch.searchsorted(upto, point, right=True).clamp(max=size - 1)])


def truncate(logp: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return the truncated, renormalised policy that `draw` draws from: (n, vocab), (n,) -> (n, vocab) float64."""
    p, ids = _by_probability(logp.exp())
    cumulative = p.double().cumsum(-1)
    kept = torch.where(_in_nucleus(p, cumulative, top_p.double().clamp(min=2.0**-UNIT)), p.double(), 0.0)
    return torch.zeros_like(kept).scatter_(1, ids, kept / kept.sum(-1, keepdim=True))


def _by_probability(p: torch.Tensor, ids: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort rows by falling probability, equal ones by id: (n, k) -> probabilities (n, k), token ids (n, k)."""
    if ids is None:
        return torch.sort(p, dim=-1, descending=True, stable=True)
    # One sort of 64-bit keys: non-negative floats order like their bit patterns; the id breaks ties downwards.
    keys = (p.contiguous().view(torch.int32).long() << 32) | (0xFFFFFFFF - ids)
    keys = keys.sort(dim=-1, descending=True).values
    return (keys >> 32).int().view(torch.float32), 0xFFFFFFFF - (keys & 0xFFFFFFFF)


def _in_nucleus(p: torch.Tensor, cumulative: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Tell which ordered tokens, (n, k) bool, are in the nucleus: those before which there is less than top-p.

    top-p 1 is asked for by itself: rounding can make a cumulative sum reach 1 before the last tokens.
    """
    before = cumulative - p
    return ((before < top_p[:, None]) | (top_p[:, None] >= 1)) & (p > 0)


def _draw_ordered(
    p: torch.Tensor, ids: torch.Tensor, top_p: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw from rows ordered by probability: (n, k) probabilities and ids -> tokens (n,), decisive (n,).

    `decisive` is the smallest probability that the draw rests on, or 0 where the ordered rows do not reach top-p (a
    head that is too short): the nucleus' least token, or, with top-p 1, the drawn token.
    """
    cumulative = p.double().cumsum(-1)
    size = _in_nucleus(p, cumulative, top_p).sum(-1, keepdim=True)  # (n, 1), at least 1
    whole = top_p >= 1
    mass = cumulative.gather(1, size - 1).squeeze(1)
    point = u * torch.where(whole, 1.0, mass)
    index = torch.searchsorted(cumulative, point[:, None], right=True)
    reached = torch.where(whole, index.squeeze(1) < p.shape[1], mass >= top_p)
    index = torch.minimum(index, size - 1)
    decisive = p.gather(1, torch.where(whole[:, None], index, size - 1)).squeeze(1)
    return ids.gather(1, index).squeeze(1), torch.where(reached, decisive, 0.0)
