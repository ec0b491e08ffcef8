"""Draw from a nucleus by inverse CDF, with integers.

The nucleus of a policy is the smallest set of tokens, taken in order of decreasing probability (equal ones by token
id), whose mass reaches top-p. A draw walks along the cumulative mass in that order up to u times the nucleus' mass. So
a small u always means a likely token, whichever policy is sampled. top-p 1 truncates nothing.

The mass of a token is the integer floor(2^60 p). Sums of integers do not depend on their order, so every way to add
them up draws the same token. `draw_by_head` sorts and reads values to save work, for CPUs. `draw_by_mass` counts into
bins and never reads a value on the host, so the host need not wait for a GPU. The kernels use a third way.
"""

import torch

LOOKED_AT = {"cpu"}  # devices on which values are read to save work; elsewhere the host would wait
HEAD = 256  # most nuclei end within this many tokens

UNIT = 60  # a probability p is stored as the integer floor(2^60 p)
_LEAST = 0x3F800000  # bits of the float 1.0, the least mass that counts
_PLACES, _FINE = 29, 15  # 2^29 masses are distinguished: 2^14 bins of 2^15 each


def draw(p: torch.Tensor, top_p: torch.Tensor, u: torch.Tensor, *, head: int = HEAD) -> torch.Tensor:
    """Draw one token per row from the nucleus of each policy.

    Args:
        p: (n, vocab) weights of at most 1, whose sum is 1 except for rounding (or less, if a token was removed);
            overwritten. A row may be all NaN.
        top_p: (n,) float64 in [0, 1].
        u: (n,) float64 in [0, 1), multiples of 2^-53.
        head: On a CPU, how many of the most likely tokens are sorted first; it changes no token.

    Returns:
        (n,) int64 token ids; arbitrary for a row of NaN.
    """
    mass = p.float().mul_(2.0**UNIT)
    if mass.device.type in LOOKED_AT:
        return draw_by_head(mass, top_p, u, head)
    return draw_by_mass(mass, top_p, u)


def draw_by_head(mass: torch.Tensor, top_p: torch.Tensor, u: torch.Tensor, head: int = HEAD) -> torch.Tensor:
    """Draw the same tokens as `draw_by_mass` by sorting the `head` most likely tokens of each row, faster on a CPU.

    The head is enough for a row if nucleus and point lie within it, and no token outside it has the same mass as its
    last one. Other rows are counted into bins, because sorting 152,000 tokens takes ten times as long.
    """
    if head >= mass.shape[1]:
        return _draw_sorted(*torch.sort(mass, dim=1, descending=True, stable=True), mass.long().sum(1), top_p, u)[0]
    # If the head reaches top-p, the total mass is not needed.
    total = mass.long().sum(1) if bool((top_p >= 1).any()) else torch.full_like(u, 1 << 62, dtype=torch.int64)
    token, settled = _draw_sorted(*_by_mass(*mass.topk(head, dim=1, sorted=False)), total, top_p, u)
    rest = (~settled).nonzero().squeeze(1)
    if len(rest):
        token[rest] = draw_by_mass(mass[rest], top_p[rest], u[rest])
    return token


def _draw_sorted(
    mass: torch.Tensor, ids: torch.Tensor, total: torch.Tensor, top_p: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw from the first k tokens in order, (n, k) masses and ids, of (n,) total: tokens, and whether these are
    enough."""
    upto = mass.long().cumsum(1)
    limit = _limit(top_p, total)
    end = _first_beyond(upto, limit - 1)  # where the nucleus ends
    nucleus = torch.where(limit < total, upto.gather(1, end)[:, 0], total)
    drawn = _first_beyond(upto, _times(u, nucleus))
    last = mass.gather(1, torch.where((limit < total)[:, None], torch.maximum(end, drawn), drawn))[:, 0]
    reached = torch.where(limit < total, limit, _times(u, nucleus) + 1) <= upto[:, -1]
    return ids.gather(1, drawn)[:, 0], reached & (last > mass[:, -1])


def _first_beyond(upto: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    """Find the first place whose cumulative mass is beyond a point: (n, k), (n,) -> (n, 1)."""
    return torch.searchsorted(upto, point[:, None], right=True).clamp_(max=upto.shape[1] - 1)


def _limit(top_p: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Return the mass that a nucleus has to reach: (n,) float64, (n,) int64 -> (n,) int64, at least 1."""
    return (top_p * 2.0**UNIT).ceil().long().clamp(min=1).minimum(total).where(top_p < 1, total)


def draw_by_mass(mass: torch.Tensor, top_p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Draw one token per row from the nucleus of each policy, without a sort and without reading a value on the host.

    The mass is counted into bins by its upper bits, which are in the order of probability. One bin is then divided into
    finer ones, each of a single mass. This is done once for the end of the nucleus and once for the draw.

    Args:
        mass: (n, vocab) float32, probabilities times 2^60; overwritten. A row may be all NaN.
        top_p: (n,) float64 in [0, 1].
        u: (n,) float64 in [0, 1), multiples of 2^-53.

    Returns:
        (n,) int64 token ids; arbitrary for a row of NaN.
    """
    weight = mass.long()
    total = weight.sum(1)
    limit = _limit(top_p, total)
    # Places in order, most likely first: 0 up to 2^29 - 2. The last place contains masses below 1, which count as 0.
    last = (1 << _PLACES) - 1
    place = mass.view(torch.int32).sub_(_LEAST - 1).clamp_(0, last).mul_(-1).add_(last)  # NaN comes after all masses
    coarse = _cumulative(place >> _FINE, weight, 1 << (_PLACES - _FINE))

    def find(point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find points of the cumulative mass: the place, the mass of a token there, and the sum of larger masses."""
        bin, before = _before(coarse, point)
        inside = (place ^ (bin << _FINE)[:, None].int()).clamp_(max=1 << _FINE)  # others into one extra bin
        fine = _cumulative(inside, weight, (1 << _FINE) + 1)
        part, within = _before(fine, point - before)
        position = (bin << _FINE) | part
        bits = (1 << _PLACES) - 1 - position + (_LEAST - 1)
        return position, bits.int().view(torch.float32).long().clamp(min=1), before + within

    _, token_mass, before = find(limit - 1)
    # As many of the equal tokens as are needed. If all are needed, also those below 1, whose mass is 0.
    nucleus = torch.where(limit < total, before + ((limit - 1 - before) // token_mass + 1) * token_mass, total)
    point = _times(u, nucleus)
    position, token_mass, before = find(point)
    rank = (place == position[:, None].int()).int().cumsum_(1)  # among equal tokens, by id
    index = ((point - before) // token_mass + 1).int()
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
    """Compute floor(u mass) exactly. The product of 53 and 61 bits fits no integer type, so it is computed in parts."""
    bits = (u * 2.0**53).long()
    a, b = bits >> 27, bits & ((1 << 27) - 1)
    c, d = mass >> 31, mass & ((1 << 31) - 1)
    return (a * c << 5) + ((a * d + (b * c << 4) + (b * d >> 27)) >> 26)


def nucleus(p: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return the truncated, normalised policy that `draw` samples from: (n, vocab), (n,) -> (n, vocab) float64."""
    ordered, ids = torch.sort(p, dim=-1, descending=True, stable=True)
    before = ordered.double().cumsum(-1) - ordered
    inside = ((before < top_p.clamp(min=2.0**-UNIT)[:, None]) | (top_p[:, None] >= 1)) & (ordered > 0)
    kept = torch.where(inside, ordered.double(), 0.0)
    return torch.zeros_like(kept).scatter_(1, ids, kept / kept.sum(-1, keepdim=True))


def _by_mass(mass: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort rows by falling mass, equal ones by id: (n, k) masses and token ids -> the same, in order."""
    # One sort of 64-bit keys: non-negative floats are ordered like their bit patterns, and the id breaks ties.
    keys = (mass.contiguous().view(torch.int32).long() << 32) | (0xFFFFFFFF - ids)
    keys = keys.sort(dim=-1, descending=True).values
    return (keys >> 32).int().view(torch.float32), 0xFFFFFFFF - (keys & 0xFFFFFFFF)
