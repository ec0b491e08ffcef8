"""Algorithm 1 by hand: plain Python floats, one position at a time, nothing shared with the product's code."""

import math
from fractions import Fraction
from math import ceil


def softmax(logits, temperature=1.0):
    finite = [x / temperature for x in logits]
    top = max(finite)
    weights = [math.exp(x - top) for x in finite]
    return [w / sum(weights) for w in weights]


def nucleus(p, top_p):
    """{token: renormalised probability} of the smallest likely set whose mass reaches top_p, at least one."""
    order = sorted(range(len(p)), key=lambda y: (-p[y], y))
    kept, mass = [], 0.0
    for y in order:
        if p[y] <= 0 or (kept and mass >= top_p and top_p < 1):
            break
        kept.append(y)
        mass += p[y]
    return {y: p[y] / mass for y in kept}


def narrowed(p, row):
    """p without the tokens that min-p or typical sampling drop: sets made token by token, by their definitions."""
    kept = {y for y, x in enumerate(p) if x >= row.min_p * max(p)}
    if row.typical_p < 1:
        typical, mass = set(), 0.0
        for y in sorted((y for y in range(len(p)) if p[y] > 0), key=lambda y: (abs(-math.log(p[y]) - entropy(p)), y)):
            if mass < row.typical_p:
                typical.add(y)
            mass += p[y]
        kept &= typical
    whole = sum(p[y] for y in kept)
    return [x / whole if y in kept else 0.0 for y, x in enumerate(p)]


def draw(p, top_p, u):
    """Inverse CDF over the nucleus in order of falling probability."""
    kept = nucleus(p, top_p)
    gathered = 0.0
    for y, q in kept.items():
        gathered += q
        if u < gathered:
            return y
    return y


def draw_by_mass(mass, top_p, u):
    """The same with whole numbers: masses of 2^60 p, cut, in order of the uncut ones; nothing is rounded."""
    order = sorted(range(len(mass)), key=lambda y: (-mass[y], y))
    total = sum(int(m) for m in mass)
    kept, limit = [], ceil(Fraction(top_p) * 2**60) if top_p < 1 else total
    gathered = 0
    for y in order:
        if gathered >= limit:
            break
        kept.append(y)
        gathered += int(mass[y])
    point, gathered = Fraction(u) * gathered, 0
    for y in kept:
        gathered += int(mass[y])
        if gathered > point:
            return y
    raise AssertionError("u is below 1")


def entropy(p):
    return -sum(x * math.log(x) for x in p if x > 0)


def kl(p, q):
    return sum(x * (math.log(x) - math.log(y)) for x, y in zip(p, q, strict=True) if x > 0)


def cross_entropy(p, q):
    return -sum(x * math.log(y) for x, y in zip(p, q, strict=True) if x > 0)


def halfway(p, q):
    return [(x + y) / 2 for x, y in zip(p, q, strict=True)]


def criterion_holds(name, pb, pr, y, tau, rho, below=None):
    value = {
        "delta_logp": lambda: math.log(pr[y]) - math.log(pb[y]),
        "random": lambda: rho,
        "abs_delta_logp": lambda: abs(math.log(pr[y]) - math.log(pb[y])),
        "nll_rl": lambda: -math.log(pr[y]),
        "ce": lambda: cross_entropy(pb, pr),
        "js": lambda: (kl(pb, halfway(pb, pr)) + kl(pr, halfway(pb, pr))) / 2,
        "entropy_base": lambda: entropy(pb),
        "entropy_rl": lambda: entropy(pr),
        "kl_rl_base": lambda: kl(pr, pb),
        "kl_base_rl": lambda: kl(pb, pr),
        "kl": lambda: (kl(pr, pb) + kl(pb, pr)) / 2,
    }[name]()
    if below is None:
        below = name in ("delta_logp", "random")
    return value < tau if below else value > tau


def extrapolated(pb, pr, row):
    logits = [math.log(r) + row.gamma * (math.log(r) - math.log(b)) for b, r in zip(pb, pr, strict=True)]
    kept = [r >= row.min_p_rl * max(pr) for r in pr]
    p = [x if keep else 0.0 for x, keep in zip(softmax(logits), kept, strict=True)]
    return [x / sum(p) for x in p]


def opens(row, position):
    return row.since <= position and (row.until is None or position < row.until)


def step(base, rl, row, u_propose, u_redraw, rho, position=0):
    """(token, proposed, replaced, delta) for one position under a RuleRow."""
    pb, pr = softmax(base, row.temperature), softmax(rl, row.temperature)
    y = draw(narrowed(pb if row.primary == "base" else pr, row), row.top_p, u_propose)
    if not opens(row, position):
        return y, y, False, math.log(pr[y]) - math.log(pb[y])
    if row.gate == "coupling":
        token = coupled(nucleus(narrowed(pb if row.primary == "base" else pr, row), row.top_p),
                        nucleus(narrowed(extrapolated(pb, pr, row), row), row.top_p), y, u_redraw, rho)  # fmt: skip
        return token, y, token != y, math.log(pr[y]) - math.log(pb[y])
    held = {"never": False, "always": True}.get(row.gate)
    if held is None:
        held = criterion_holds(row.gate, pb, pr, y, row.tau, rho, row.below)
    token = draw(narrowed(extrapolated(pb, pr, row), row), row.top_p, u_redraw) if held else y
    return token, y, held, math.log(pr[y]) - math.log(pb[y])


def coupled(b, q, y, u, rho):
    """y, or a token by inverse CDF over what q has more than b, in order of falling excess."""
    if rho * b[y] < q.get(y, 0.0):
        return y
    excess = {z: mass - b.get(z, 0.0) for z, mass in q.items() if mass > b.get(z, 0.0)}
    left = u * sum(excess.values())
    for z in sorted(excess, key=lambda z: (-excess[z], z)):
        left -= excess[z]
        if left < 0:
            return z
    return z


def law(base, rl, row):
    """({token: P}, P(replaced)) by enumerating every proposed and every redrawn token."""
    pb, pr = softmax(base, row.temperature), softmax(rl, row.temperature)
    target = nucleus(narrowed(extrapolated(pb, pr, row), row), row.top_p)
    out, replaced = [0.0] * len(base), 0.0
    if row.gate == "coupling":
        b = nucleus(narrowed(pb if row.primary == "base" else pr, row), row.top_p)
        return [target.get(y, 0.0) for y in range(len(base))], sum(max(p - target.get(y, 0.0), 0) for y, p in b.items())
    for y, p in nucleus(narrowed(pb if row.primary == "base" else pr, row), row.top_p).items():
        if row.gate == "random":
            chance = min(max(row.tau, 0.0), 1.0)
            chance = 1 - chance if row.below is False else chance
        elif row.gate in ("never", "always"):
            chance = float(row.gate == "always")
        else:
            chance = float(criterion_holds(row.gate, pb, pr, y, row.tau, 0.0, row.below))
        out[y] += p * (1 - chance)
        replaced += p * chance
        for z, q in target.items():
            out[z] += p * chance * q
    return out, replaced
