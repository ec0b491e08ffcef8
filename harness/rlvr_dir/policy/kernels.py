# ruff: noqa: ANN001, ANN201, ANN202
"""Implement the decision of Algorithm 1 as Triton kernels. `fused.py` launches them and explains what each computes.

Mass. The probability p of a token under a policy is stored as the integer floor(2^60 p), truncated from a float32. Sums
of integers do not depend on their order, so a nucleus, and a draw from it, are exact and the same for any tile size,
batch or rank. More likely tokens have larger masses, so the float's bits order the tokens. Tokens of equal mass are
ordered by id.

A number of a row that two kernels need is computed once and stored. A token's mass is always computed by the same
function, `_mass`, without fused multiply-adds, so that it is the same number everywhere.
"""

import triton
import triton.language as tl

from rlvr_dir.policy.table import COLUMNS, STATISTICS

# The results of one tile of columns, and the constants of a row: columns of two float32 tables.
PARTIALS = 12  # maxima of base, RL and the extrapolation; four sums of weights; two entropies; two divergences;
#                the maximum of RL where base cannot give the token
CONSTANTS = 25
STATISTICS_AT = 16  # of these: entropy of base and of RL, KL(RL || base), KL(base || RL)

CANDIDATES = 1024  # most tokens of a row that can have a mass of 2^50 or more, which is a probability of 2^-10
BINS = 2048  # of masses by their upper bits: 60 powers of two (and 1 itself), each in 32 parts

_CANDIDATES, _BINS = tl.constexpr(CANDIDATES), tl.constexpr(BINS)
_PARTIALS, _CONSTANTS, _STATISTICS = tl.constexpr(PARTIALS), tl.constexpr(CONSTANTS), tl.constexpr(STATISTICS_AT)
_UNIT = tl.constexpr(2.0**60)
_LIKELY = tl.constexpr(2.0**50)
_LEAST = tl.constexpr(0x3F800000)  # bits of the float 1.0, the least nonzero mass
_FINE = tl.constexpr(512)  # parts of a bin, and parts of these: 11 + 9 + 9 bits identify a mass

_BASE, _RL, _EXTRA = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # the logits that a policy is made of
_COLUMNS = tl.constexpr(len(COLUMNS))

_DELTA, _ABS_DELTA = tl.constexpr(STATISTICS.index("delta_logp")), tl.constexpr(STATISTICS.index("abs_delta_logp"))
_ENTROPY_BASE, _ENTROPY_RL = (
    tl.constexpr(STATISTICS.index("entropy_base")), tl.constexpr(STATISTICS.index("entropy_rl")),
)  # fmt: skip
_KL, _KL_RL_BASE = tl.constexpr(STATISTICS.index("kl")), tl.constexpr(STATISTICS.index("kl_rl_base"))
_NLL_RL, _CE = tl.constexpr(STATISTICS.index("nll_rl")), tl.constexpr(STATISTICS.index("ce"))
_RANDOM = tl.constexpr(STATISTICS.index("random"))

# splitmix64, as in noise.py
_STEP, _MULTIPLY_1 = tl.constexpr(0x9E3779B97F4A7C15), tl.constexpr(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def _mix(value):
    value = value + tl.full((), _STEP, tl.uint64)
    value = (value ^ (value >> 30)) * tl.full((), _MULTIPLY_1, tl.uint64)
    value = (value ^ (value >> 27)) * tl.full((), _MULTIPLY_2, tl.uint64)
    return value ^ (value >> 31)


@triton.jit
def _noise(key, position, stream):
    """Return 53 random bits, uint64: `noise.uniform` without the division by 2^53."""
    mixed = _mix(key.to(tl.uint64) + position.to(tl.uint64))
    return _mix(mixed + stream.to(tl.uint64)) >> 11


@triton.jit
def _weight(argument, x):
    """Return exp(argument), 0 for an impossible token (x = -inf) whatever the argument; NaN stays NaN."""
    return tl.where(x == -float("inf"), 0.0, tl.exp(argument))


@triton.jit
def _expectation(weight, value):
    """Return the terms of an expectation: 0, not NaN, where an infinite value has no weight."""
    return tl.where(weight == 0.0, 0.0, weight * value)


@triton.jit
def summarise(
    base, rl, rules, partials, vocab, width, base_stride, rl_stride, tiles,
    TILE: tl.constexpr,
):  # fmt: skip
    """Read one tile of one row's logits and store its maxima and sums. Grid (n, tiles)."""
    i = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    gamma = tl.load(rules + i * _COLUMNS + 3).to(tl.float32)
    rate = 1.0 / tl.load(rules + i * _COLUMNS + 4).to(tl.float32)
    column = tile * TILE + tl.arange(0, TILE)
    b = tl.load(base + i * base_stride + column, mask=column < width, other=-float("inf")).to(tl.float32)
    r = tl.load(rl + i * rl_stride + column, mask=column < width, other=-float("inf")).to(tl.float32)
    b = tl.where(column < vocab, b, -float("inf"))  # `width` is a multiple of 16, `vocab` need not be
    r = tl.where(column < vocab, r, -float("inf"))

    most_b = tl.max(b, 0)
    most_r = tl.max(r, 0)
    at_b = tl.where(most_b == -float("inf"), 0.0, most_b)
    at_r = tl.where(most_r == -float("inf"), 0.0, most_r)
    of_b = (b - at_b) * rate
    of_r = (r - at_r) * rate
    weight_b = _weight(of_b, b)
    weight_r = _weight(of_r, r)
    # A token that RL can write but base cannot has no ratio. Beyond RL (gamma above 0) it keeps its RL weight. Between
    # the two models it has none. At the ends, gamma 0 and -1, the target is RL and base.
    ratio = (r - b) * rate
    beyond_rl = tl.where(gamma > 0.0, 1, 0)
    alone = (b == -float("inf")) & (beyond_rl != 0)
    e = tl.where((b == -float("inf")) | (r == -float("inf")), -float("inf"), r + gamma * (r - b))
    e = tl.where(gamma == 0.0, r, tl.where(gamma == -1.0, b, e))
    most_e = tl.max(e, 0)
    weight_e = _weight((e - tl.where(most_e == -float("inf"), 0.0, most_e)) * rate, e)

    out = partials + i * _PARTIALS * tiles + tile
    tl.store(out, most_b)
    tl.store(out + tiles, most_r)
    tl.store(out + 2 * tiles, most_e)
    tl.store(out + 3 * tiles, tl.sum(weight_b, 0))
    tl.store(out + 4 * tiles, tl.sum(weight_r, 0))
    tl.store(out + 5 * tiles, tl.sum(weight_e, 0))
    tl.store(out + 6 * tiles, tl.sum(tl.where(alone, weight_r, 0.0), 0))
    tl.store(out + 7 * tiles, tl.sum(_expectation(weight_b, of_b), 0))
    tl.store(out + 8 * tiles, tl.sum(_expectation(weight_r, of_r), 0))
    tl.store(out + 9 * tiles, tl.sum(_expectation(weight_r, ratio), 0))
    tl.store(out + 10 * tiles, tl.sum(_expectation(weight_b, -ratio), 0))
    tl.store(out + 11 * tiles, tl.max(tl.where(alone, r, -float("inf")), 0))


@triton.jit
def _joined(weights, sums, scale):
    """Add up the tiles' sums, each rescaled to the row's maximum; a tile without weight contributes nothing."""
    return tl.sum(tl.where(scale * weights == 0.0, 0.0, scale * sums), 0)


@triton.jit
def normalise(rules, partials, constants, counts, totals, vocab, tiles, TILES: tl.constexpr):
    """Join the tiles of one row, always in the same order: statistics and the constants of `_mass`. Grid (n,)."""
    i = tl.program_id(0).to(tl.int64)
    draws_target = tl.load(rules + i * _COLUMNS + 9)
    proposes_rl = tl.load(rules + i * _COLUMNS + 1) != 0.0
    gamma = tl.load(rules + i * _COLUMNS + 3).to(tl.float32)
    rate = 1.0 / tl.load(rules + i * _COLUMNS + 4).to(tl.float32)
    greedy = tl.load(rules + i * _COLUMNS + 10) != 0.0
    tile = tl.arange(0, TILES)
    inside = tile < tiles
    at = partials + i * _PARTIALS * tiles + tile
    most_b = tl.load(at, mask=inside, other=-float("inf"))
    most_r = tl.load(at + tiles, mask=inside, other=-float("inf"))
    most_e = tl.load(at + 2 * tiles, mask=inside, other=-float("inf"))
    sum_b = tl.load(at + 3 * tiles, mask=inside, other=0.0)
    sum_r = tl.load(at + 4 * tiles, mask=inside, other=0.0)
    sum_e = tl.load(at + 5 * tiles, mask=inside, other=0.0)
    sum_alone = tl.load(at + 6 * tiles, mask=inside, other=0.0)
    own_b = tl.load(at + 7 * tiles, mask=inside, other=0.0)
    own_r = tl.load(at + 8 * tiles, mask=inside, other=0.0)
    ratio_r = tl.load(at + 9 * tiles, mask=inside, other=0.0)
    ratio_b = tl.load(at + 10 * tiles, mask=inside, other=0.0)
    most_alone = tl.load(at + 11 * tiles, mask=inside, other=-float("inf"))

    b, r, e = tl.max(most_b, 0), tl.max(most_r, 0), tl.max(most_e, 0)
    scale_b = tl.where(most_b == -float("inf"), 0.0, tl.exp((most_b - b) * rate))
    scale_r = tl.where(most_r == -float("inf"), 0.0, tl.exp((most_r - r) * rate))
    scale_e = tl.where(most_e == -float("inf"), 0.0, tl.exp((most_e - e) * rate))
    weight_b = _joined(sum_b, sum_b, scale_b)
    weight_r = _joined(sum_r, sum_r, scale_r)
    weight_e = _joined(sum_e, sum_e, scale_e)
    alone = _joined(sum_alone, sum_alone, scale_r)
    # log Z of RL minus that of base, in the logits' own scale divided by the temperature
    log_b, log_r = tl.log(weight_b), tl.log(weight_r)
    shift = (r - b) * rate + (log_r - log_b)
    mean_b = _joined(sum_b, own_b + sum_b * ((most_b - b) * rate), scale_b) / weight_b
    mean_r = _joined(sum_r, own_r + sum_r * ((most_r - r) * rate), scale_r) / weight_r

    out = constants + i * _CONSTANTS
    tl.store(out, rate)
    tl.store(out + 1, gamma)
    tl.store(out + 2, b)
    tl.store(out + 3, r)
    tl.store(out + 4, log_r - log_b)
    tl.store(out + _STATISTICS, log_b - mean_b)
    tl.store(out + _STATISTICS + 1, log_r - mean_r)
    tl.store(out + _STATISTICS + 2, _joined(sum_r, ratio_r, scale_r) / weight_r - shift)
    tl.store(out + _STATISTICS + 3, _joined(sum_b, ratio_b, scale_b) / weight_b + shift)

    # A policy has a kind, a maximum and factor for its tokens, and those for tokens that base cannot write.
    tl.store(out + 5, tl.where(proposes_rl, _RL, _BASE).to(tl.float32))
    tl.store(out + 6, tl.where(proposes_rl, r, b))
    tl.store(out + 7, (1.0 / tl.where(proposes_rl, weight_r, weight_b)) * _UNIT)
    tl.store(out + 8, r)
    tl.store(out + 9, 0.0)
    # log of the mass of either kind of token, if RL's total is 1
    both = (e - r) * rate - gamma * shift + tl.log(weight_e) - log_r
    single = tl.log(alone) - log_r
    top = tl.maximum(both, single)
    share_both = tl.exp(both - top)
    share_single = tl.exp(single - top)
    total = share_both + share_single
    factor = tl.where(alone == 0.0, 1.0, share_both / total) / weight_e
    tl.store(out + 10, tl.where(gamma == 0.0, _RL, tl.where(gamma == -1.0, _BASE, _EXTRA)).to(tl.float32))
    tl.store(out + 11, e)
    tl.store(out + 12, tl.where(weight_e == 0.0, 0.0, factor) * _UNIT)
    tl.store(out + 13, r)
    tl.store(out + 14, tl.where(alone == 0.0, 0.0, share_single / total / alone) * _UNIT)
    tl.store(out + 15, draws_target.to(tl.float32))  # whether the target is ever sampled from

    # For greedy rows: the largest score of either policy, and the added score of a token that base cannot write.
    beyond = tl.where(gamma > 0.0, gamma * shift / rate, -float("inf"))
    tl.store(out + 20, tl.where(greedy, 1.0, 0.0))
    tl.store(out + 21, tl.where(proposes_rl, r, b))
    tl.store(out + 22, tl.where(gamma == 0.0, r, tl.maximum(e, tl.max(most_alone, 0) + beyond)))
    tl.store(out + 23, beyond)
    tl.store(out + 24, log_r)

    for policy in tl.static_range(2):
        tl.store(counts + i * 2 + policy, tl.where(greedy, vocab, 0))
        tl.store(totals + i * 2 + policy, tl.cast(0, tl.int64))


@triton.jit
def _mass(b, r, kind, gamma, rate, most, factor, most_single, factor_single):
    """Return 2^60 times the probability of tokens with these logits, float32; values below 1 count as 0."""
    x = tl.where(kind == _BASE, b, r)
    extra = kind == _EXTRA
    single = extra & (b == -float("inf"))
    x = tl.where(extra & (b != -float("inf")) & (r != -float("inf")), r + gamma * (r - b), x)
    argument = (x - tl.where(single, most_single, most)) * rate
    return tl.where(x == -float("inf"), 0.0, tl.exp(argument) * tl.where(single, factor_single, factor))


@triton.jit
def _policy_mass(b, r, row_constants, policy):
    """Return the `_mass` under a row's primary (policy 0) or target (1)."""
    at = row_constants + 5 + 5 * policy
    return _mass(
        b, r, tl.load(at).to(tl.int32), tl.load(row_constants + 1), tl.load(row_constants),
        tl.load(at + 1), tl.load(at + 2), tl.load(at + 3), tl.load(at + 4),
    )  # fmt: skip


@triton.jit
def _score(b, r, own, policy):
    """Return logits in the order of the tokens' probabilities under a row's primary (policy 0) or target (1).

    Those of base and RL are unchanged, bit for bit; those of an extrapolation are not normalised.
    """
    kind = tl.load(own + 5 + 5 * policy).to(tl.int32)
    extra = kind == _EXTRA
    x = tl.where(kind == _BASE, b, r)
    x = tl.where(extra & (b != -float("inf")) & (r != -float("inf")), r + tl.load(own + 1) * (r - b), x)
    return tl.where(extra & (b == -float("inf")), r + tl.load(own + 23), x)


@triton.jit
def gather(
    base, rl, constants, lists, counts, totals, vocab, width, base_stride, rl_stride,
    TILE: tl.constexpr,
):  # fmt: skip
    """Add up one tile's masses under both policies, and list its likely tokens, in any order. Grid (n, tiles).

    For a greedy row nothing is listed. The id of its most likely token replaces the count.
    """
    i = tl.program_id(0).to(tl.int64)
    own = constants + i * _CONSTANTS
    primary, target = tl.load(own + 5).to(tl.int32), tl.load(own + 10).to(tl.int32)
    redraws = tl.load(own + 15).to(tl.int32) != 0
    greedy = tl.load(own + 20).to(tl.int32)
    width_b = tl.where((primary == _BASE) | (redraws & (target != _RL)), width, 0)  # skip what no policy needs
    width_r = tl.where((primary == _RL) | redraws, width, 0)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    b = tl.load(base + i * base_stride + column, mask=column < width_b, other=-float("inf")).to(tl.float32)
    r = tl.load(rl + i * rl_stride + column, mask=column < width_r, other=-float("inf")).to(tl.float32)
    b = tl.where(column < vocab, b, -float("inf"))
    r = tl.where(column < vocab, r, -float("inf"))
    for policy in tl.static_range(2):
        if redraws | (policy == 0):
            mass = _policy_mass(b, r, own, policy)
            place = i * 2 + policy
            tl.atomic_add(totals + place, tl.sum(mass.to(tl.int64), 0), sem="relaxed")
            if greedy != 0:
                best = _score(b, r, own, policy) == tl.load(own + 21 + policy)
                tl.atomic_min(counts + place, tl.min(tl.where(best, column, vocab), 0), sem="relaxed")
            else:
                likely = mass >= _LIKELY
                slot = tl.atomic_add(counts + place + tl.zeros_like(column), 1, mask=likely, sem="relaxed")
                key = (mass.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (0xFFFFFFFF - column.to(tl.int64))
                tl.store(lists + place * _CANDIDATES + slot, key, mask=likely & (slot < _CANDIDATES))


@triton.jit
def _integer_mass(key):
    return (key >> 32).to(tl.int32).to(tl.float32, bitcast=True).to(tl.int64)


@triton.jit
def _product(bits, mass):
    """Compute floor(u mass) for u = bits / 2^53 exactly: the cumulative mass at which a draw stops."""
    return tl.umulhi(bits << 11, mass.to(tl.uint64)).to(tl.int64)


@triton.jit
def _tile(base_row, rl_row, start, vocab, width, own, policy, TILE: tl.constexpr):
    """Return a tile's columns, masses, and the masses' ranks: 0 for a mass of 1 and up; below 0 for smaller ones."""
    column = start + tl.arange(0, TILE)
    kind = tl.load(own + 5 + 5 * policy).to(tl.int32)
    b = tl.load(base_row + column, mask=column < tl.where(kind == _RL, 0, width), other=-float("inf")).to(tl.float32)
    r = tl.load(rl_row + column, mask=column < tl.where(kind == _BASE, 0, width), other=-float("inf")).to(tl.float32)
    inside = column < vocab
    mass = _policy_mass(tl.where(inside, b, -float("inf")), tl.where(inside, r, -float("inf")), own, policy)
    return column, mass, mass.to(tl.int32, bitcast=True) - _LEAST


@triton.jit
def _draw_any(base_row, rl_row, vocab, width, own, policy, bins, total, bits, limit, TILE: tl.constexpr):
    """Draw from all of a row's tokens and return the token.

    Two points of the cumulative mass are located: the end of the nucleus and that of the draw. Each takes three
    histograms: of all masses by their upper 11 bits, of one bin's by the next 9, and of one of these by the last 9.
    `bins` has space for one histogram.
    """
    lane = tl.arange(0, _BINS)
    point = limit - 1
    nucleus = total
    mass = tl.cast(1, tl.int64)
    place = tl.cast(0, tl.int32)
    before = tl.cast(0, tl.int64)
    for step in range(tl.where(limit < total, 0, 3), 6):
        level = step % 3
        if step == 3:
            point = _product(bits, nucleus)
        if level == 0:
            place = tl.cast(0, tl.int32)
            before = tl.cast(0, tl.int64)
        shift = 18 - 9 * level
        size = tl.where(level == 0, _BINS, _FINE)
        tl.store(bins + lane, tl.zeros((_BINS,), tl.int64))
        tl.debug_barrier()
        for start in range(0, vocab, TILE):
            _, masses, places = _tile(base_row, rl_row, start, vocab, width, own, policy, TILE)
            part = (places >> shift) - place * size  # within the selected bin
            tl.atomic_add(
                bins + (size - 1 - part),
                masses.to(tl.int64),
                mask=(places >= 0) & (part >= 0) & (part < size),
                sem="relaxed",
            )
        tl.debug_barrier()
        upto = before + tl.cumsum(tl.load(bins + lane, cache_modifier=".cg"), 0)  # most likely bin first
        passed = upto <= point
        before = tl.max(tl.where(passed, upto, before), 0)
        place = place * size + (size - 1 - tl.minimum(tl.sum(passed.to(tl.int32), 0), size - 1))
        tl.debug_barrier()
        if level == 2:
            mass = tl.maximum((place + _LEAST).to(tl.float32, bitcast=True).to(tl.int64), 1)
            if step == 2:
                nucleus = before + ((point - before) // mass + 1) * mass  # as many of the equal tokens as are needed
    index = (point - before) // mass  # among equal tokens, by id
    token = tl.cast(0, tl.int64)
    seen = tl.cast(0, tl.int64)
    for start in range(0, vocab, TILE):
        column, _, places = _tile(base_row, rl_row, start, vocab, width, own, policy, TILE)
        equal = (places == place).to(tl.int64)
        rank = seen + tl.cumsum(equal, 0) - 1
        token += tl.sum(tl.where((equal != 0) & (rank == index), column.to(tl.int64), 0), 0)
        seen += tl.sum(equal, 0)
    return token


@triton.jit
def _draw_listed(keys, count, total, bits, limit, CHUNK: tl.constexpr):
    """Draw from the listed tokens: (token, whether these are enough to determine it)."""
    lane = tl.arange(0, _CANDIDATES)
    valid = lane < count
    key = tl.load(keys + lane, mask=valid, other=0)
    mass = _integer_mass(key)
    upto = tl.zeros((_CANDIDATES,), tl.int64)  # the cumulative mass, including each token's own
    for start in range(0, count, CHUNK):
        at = start + tl.arange(0, CHUNK)
        other = tl.load(keys + at, mask=at < count, other=0)
        upto += tl.sum(tl.where(other[None, :] >= key[:, None], _integer_mass(other)[None, :], 0), 1)
    listed = tl.sum(mass, 0)
    nucleus = tl.sum(tl.where(upto - mass < limit, mass, 0), 0)
    whole = limit >= total
    point = _product(bits, tl.where(whole, total, nucleus))
    drawn = valid & (upto - mass <= point) & (point < upto)
    token = tl.sum(tl.where(drawn, 0xFFFFFFFF - (key & 0xFFFFFFFF), 0), 0)
    return token, tl.where(whole, point < listed, listed >= limit)


@triton.jit
def decide(
    base, rl, rules, constants, lists, counts, totals, histograms, keys, positions,
    starts, tokens, proposals, replacements, deltas, deltas_written, vocab, width, base_stride, rl_stride,
    TILE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Draw the proposal, compare its statistic, and resample if that is beyond tau. Grid (n,)."""
    i = tl.program_id(0).to(tl.int64)
    base_row = base + i * base_stride
    rl_row = rl + i * rl_stride
    own = constants + i * _CONSTANTS
    rule = rules + i * _COLUMNS
    key = tl.load(keys + i)
    position = tl.load(positions + i)
    statistic = tl.load(rule).to(tl.int32)
    top_p = tl.load(rule + 5)
    greedy = tl.load(rule + 10) != 0.0
    exact = top_p * _UNIT  # multiplying by a power of two is exact
    limit = exact.to(tl.int64)
    limit = tl.maximum(limit + (limit.to(tl.float64) < exact).to(tl.int64), 1)  # rounded up

    token = tl.cast(0, tl.int64)
    delta = tl.cast(0.0, tl.float32)
    fired = tl.cast(1, tl.int32)
    for policy in range(2):  # the primary, and then the target if the token is flagged
        if fired != 0:
            total = tl.load(totals + i * 2 + policy)
            count = tl.load(counts + i * 2 + policy)
            likeliest = count.to(tl.int64)  # for a greedy row
            count = tl.where(greedy, 0, tl.minimum(count, _CANDIDATES))
            bits = _noise(key, position, tl.cast(policy, tl.int64))  # PROPOSE, REDRAW
            most = tl.where(top_p >= 1.0, total, tl.minimum(limit, total))
            listed = lists + (i * 2 + policy) * _CANDIDATES
            drawn, settled = _draw_listed(listed, count, total, bits, most, CHUNK)
            if (settled == 0) & (greedy == 0):
                bins = histograms + i * _BINS
                drawn = _draw_any(base_row, rl_row, vocab, width, own, policy, bins, total, bits, most, TILE)
            token = tl.minimum(tl.where(greedy, likeliest, drawn), vocab - 1)
            rate = tl.load(own)
            of_b = (tl.load(base_row + token).to(tl.float32) - tl.load(own + 2)) * rate
            of_r = (tl.load(rl_row + token).to(tl.float32) - tl.load(own + 3)) * rate
            delta = (of_r - of_b) - tl.load(own + 4)
            if policy == 0:
                below = tl.load(rule + 6) != 0.0
                rho = _noise(key, position, tl.cast(2, tl.int64)).to(tl.float64) * 2.0**-53
                tau = tl.load(rule + 2).to(tl.float32)
                statistics = own + _STATISTICS
                of_base, rl_base, base_rl = tl.load(statistics), tl.load(statistics + 2), tl.load(statistics + 3)
                value = base_rl
                value = tl.where(statistic == _ENTROPY_BASE, of_base, value)
                value = tl.where(statistic == _ENTROPY_RL, tl.load(statistics + 1), value)
                value = tl.where(statistic == _KL_RL_BASE, rl_base, value)
                value = tl.where(statistic == _KL, 0.5 * (rl_base + base_rl), value)
                value = tl.where(statistic == _CE, of_base + base_rl, value)
                value = tl.where(statistic == _DELTA, delta, value)
                value = tl.where(statistic == _ABS_DELTA, tl.abs(delta), value)
                value = tl.where(statistic == _NLL_RL, tl.load(own + 24) - of_r, value)
                value = value.to(tl.float64)
                value = tl.where(statistic == _RANDOM, rho, value)
                holds = tl.where(below, value < tau, value > tau)
                written = (position - tl.load(starts + i)).to(tl.float64)
                opens = (tl.load(rule + 7) <= written) & (written < tl.load(rule + 8))
                sign = tl.load(rule + 11).to(tl.float32)
                signed = (sign == 0.0) | (sign * delta > 0.0)
                fired = tl.where(holds & opens & signed, 1, 0).to(tl.int32)
                tl.store(proposals + i, token)
                tl.store(deltas + i, delta)
                tl.store(replacements + i, fired.to(tl.int8))
    tl.store(tokens + i, token)
    tl.store(deltas_written + i, delta)


@triton.jit
def _cut(value, limit):
    return tl.where(value > limit, limit, tl.where(value < -limit, -limit, value))


@triton.jit
def force(
    logits, decided, tokens, proposals, replacements, deltas, deltas_written, band, limit,
    id_offset, id_step, delta_offset, delta_step, width, stride,
    MASKED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Leave one finite logit in a row, on its token, and two more if the token was changed. Grid (n, tiles)."""
    i = tl.program_id(0).to(tl.int64)
    ours = tl.load(decided + i).to(tl.int32) if MASKED else 1
    if ours != 0:
        column = tl.program_id(1) * TILE + tl.arange(0, TILE)
        token = tl.load(tokens + i)
        delta = tl.load(deltas + i)
        proposed = tl.load(proposals + i)
        changed = tl.where(token == proposed, 0.0, 1.0)
        cut = _cut(delta, limit)
        number = band * (1.0 + tl.load(replacements + i).to(tl.float32) + changed) + cut
        number = tl.where(delta == delta, number, 4.0 * band)  # false for NaN
        value = tl.where(column == token, number, -float("inf"))
        if (token != proposed) & (delta == delta):
            first = tl.where(token == 0, 1, 0)
            second = tl.where(token <= 1, 2, 1)
            written = tl.load(deltas_written + i)
            written = tl.where(written == written, _cut(written, limit), 0.0)
            value = tl.where(column == first, id_offset + proposed.to(tl.float32) * id_step, value)
            value = tl.where(column == second, delta_offset + written * delta_step, value)
        tl.store(logits + i * stride + column, value.to(logits.dtype.element_ty), mask=column < width)
