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


def narrowed(p, rule):
    """p, or of a greedy rule its likeliest token alone, of equal ones the first."""
    return [float(y == p.index(max(p))) for y in range(len(p))] if rule.greedy else p


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


def criterion_holds(name, pb, pr, y, tau, rho, below):
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
    return value < tau if below else value > tau


def extrapolated(pb, pr, rule):
    logits = [math.log(r) + rule.gamma * (math.log(r) - math.log(b)) for b, r in zip(pb, pr, strict=True)]
    return softmax(logits)


def opens(rule, written):
    return rule.since <= written < rule.until


def holds(gate, pb, pr, y, rho):
    return gate.name == "always" or criterion_holds(gate.name, pb, pr, y, gate.tau, rho, gate.holds_below)


def signed(gate, pb, pr, y):
    """Whether delta log p of y has the sign that the gate asks for, if it asks for one."""
    sign = getattr(gate, "sign", None)
    return sign is None or (pr[y] < pb[y] if sign == "negative" else pr[y] > pb[y])


def step(base, rl, rule, u_propose, u_redraw, rho, u_rewrite, written=0):
    """(token, proposed, replaced, delta) for one position under a Rule."""
    pb, pr = softmax(base, rule.temperature), softmax(rl, rule.temperature)
    proposal = narrowed(pb if rule.primary == "base" else pr, rule)
    y = draw(proposal, rule.top_p, u_propose)
    delta = math.log(pr[y]) - math.log(pb[y])
    if rule.gate is None or not opens(rule, written):
        return y, y, False, delta
    target = narrowed(extrapolated(pb, pr, rule), rule)
    if rule.gate.name == "coupling":
        laws = (nucleus(each, rule.top_p) for each in (proposal, target))
        token = coupled(*laws, y, u_redraw, rho)
        return token, y, token != y, delta
    held = holds(rule.gate, pb, pr, y, rho) and signed(rule.gate, pb, pr, y)
    if not held:
        return y, y, False, delta
    if rule.decider in ("base", "rl"):
        if draw(narrowed(pr if rule.decider == "rl" else pb, rule), rule.top_p, u_redraw) == y:
            return y, y, True, delta
        u_redraw = u_rewrite
    if isinstance(rule.decider, float):
        if u_redraw < 1 - rule.decider:
            return y, y, True, delta
        u_redraw = u_rewrite
    if rule.decider is not None:
        target = narrowed(without(extrapolated(pb, pr, rule), y), rule)
    return draw(target, rule.top_p, u_redraw), y, True, delta


def without(p, y):
    """The policy without one token, normalised."""
    rest = sum(each for z, each in enumerate(p) if z != y)
    return [0.0 if z == y else each / rest for z, each in enumerate(p)]


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


def law(base, rl, rule):
    """({token: P}, P(replaced)) by enumerating every proposed and every redrawn token."""
    pb, pr = softmax(base, rule.temperature), softmax(rl, rule.temperature)
    proposal, target = (
        nucleus(narrowed(each, rule), rule.top_p)
        for each in (pb if rule.primary == "base" else pr, extrapolated(pb, pr, rule))
    )
    out, replaced, gate = [0.0] * len(base), 0.0, rule.gate
    if gate is not None and gate.name == "coupling":
        return [target.get(y, 0.0) for y in range(len(base))], sum(
            max(p - target.get(y, 0.0), 0) for y, p in proposal.items()
        )
    for y, p in proposal.items():
        if gate is not None and gate.name == "random":
            chance = min(max(gate.tau, 0.0), 1.0)
            chance = chance if gate.holds_below else 1 - chance
        else:
            chance = float(gate is not None and holds(gate, pb, pr, y, 0.0))
        chance *= gate is None or signed(gate, pb, pr, y)
        stays = 0.0
        if rule.decider in ("base", "rl"):
            stays = nucleus(narrowed(pr if rule.decider == "rl" else pb, rule), rule.top_p).get(y, 0.0)
        if isinstance(rule.decider, float):
            stays = 1 - rule.decider
        out[y] += p * (1 - chance) + p * chance * stays
        replaced += p * chance
        if rule.decider is not None:
            target = nucleus(narrowed(without(extrapolated(pb, pr, rule), y), rule), rule.top_p)
        for z, q in target.items():
            out[z] += p * chance * (1 - stays) * q
    return out, replaced
