"""Check the fused decision row by row against brute force, float64 and the torch path, on a GPU or interpreted.

There are three checks, for rows of every kind and every rule:

    exact     is each draw the one that sorting the kernels' own masses gives (for a greedy row: the arg max of its
              logits), is each total their sum as integers, and is each gate consistent with the kernels' own
              statistics? There is no tolerance.
    numbers   are masses, statistics and delta log p those of float64, up to the rounding of float32?
    torch     does `decide` agree, unless rounding decides? Then the draw's point is within `CLOSE` of the token's
              place in the cumulative mass (of its places, if rounding makes tokens equal or swaps them), or the
              statistic within 1e-5 of its threshold.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf

import torch
import triton
import triton.language as tl

from rlvr_dir.policy import kernels
from rlvr_dir.policy.algorithm import Decision, decide
from rlvr_dir.policy.combine import Combination
from rlvr_dir.policy.fused import TILE, Work, run_kernels
from rlvr_dir.policy.gates import Threshold, gate_of, gates
from rlvr_dir.policy.noise import PROPOSE, REDRAW
from rlvr_dir.policy.rule import Rows, Rule, Rules
from rlvr_dir.policy.statistics import cross_entropy, entropy, kl_divergence
from rlvr_dir.policy.step import Requests, Step
from rlvr_dir.policy.table import STATISTICS
from rlvr_dir.policy.target import Policies, extrapolate

CLOSE = 2e-6  # float32's error in a cumulative mass: of the normaliser, and of the logits over the temperature
NATS = 1e-5  # tolerance for a statistic
AT_ONCE = 64  # rows that are checked together: in float64, sorted
DECIDED = ("token", "proposed", "replaced", "delta_logp", "delta_logp_written")  # of a `Decision`

TAUS = {
    "delta_logp": (-1.0, -0.1, 0.1),
    "entropy_base": (0.5, 2.0, 5.0),
    "entropy_rl": (0.5, 2.0, 5.0),
    "nll_rl": (0.5, 2.0, 5.0),
    "ce": (0.5, 2.0, 5.0),
    "random": (0.1, 0.6),
}
BY_NUMBER = [name for name, gate in gates().items() if gate.statistic in STATISTICS]  # torch decides the others
GATES = (
    None,
    *(
        gate_of({"criterion": name, **({"tau": tau, "side": side} if issubclass(gates()[name], Threshold) else {})})
        for name in BY_NUMBER
        for tau in TAUS.get(name, (0.01, 0.1, 0.4))
        for side in ("above", "below")
    ),
    *(
        gate_of({"criterion": name, "tau": TAUS.get(name, (0.1,))[0], "sign": sign})
        for name in BY_NUMBER
        if issubclass(gates()[name], Threshold)
        for sign in ("negative", "positive")
    ),
)
RULES = tuple(
    Rule(gate, primary, gamma, top_p, greedy, temperature, since, until)
    for gate in GATES
    for primary in ("base", "rl")
    for gamma in (0.0, 0.1, 0.7, -0.4, -1.0)
    for top_p, greedy in (*((p, False) for p in (0.5, 0.7, 0.95, 1.0, 1e-6)), (1.0, True))
    for temperature in (1.0, 0.6, 1.7)[: 1 if greedy else 3]
    for since, until in ((0, inf), (0, inf), (10_000, 20_000))
)
# Row i is of kind i % 8: deviation of base's logits, how much sharper RL's are, and their deviation from that.
LOGIT_KINDS = {
    "peaked": (8.0, 1.0, 0.5),
    "sharpened": (2.0, 1.6, 0.5),
    "flat": (0.3, 1.0, 0.2),
    "tied": (2.0, 1.0, 0.4),  # multiples of a half
    "alike": (0.0, 1.0, 0.0),  # all tokens of a row
    "impossible": (2.0, 1.0, 0.5),  # some tokens: in turn for base, for RL, for either
    "one or all": (1.0, 1.0, 0.5),  # every second such row has one possible token
    "close": (3.0, 0.9, 0.1),
}


@dataclass
class DecisionBatch:
    """Rows to decide, each with its rule."""

    base: torch.Tensor  # (n, padded vocabulary)
    rl: torch.Tensor
    rows: list[Rule]
    keys: torch.Tensor  # (n,) int64
    positions: torch.Tensor
    vocab_size: int

    @property
    def logits(self) -> dict[str, torch.Tensor]:
        """Both models' logits by role."""
        return {"base": self.base, "rl": self.rl}

    @property
    def rules(self) -> Rules:
        """The rows' rules, compiled."""
        return Rules.compile(self.rows, self.base.device)

    @property
    def requests(self) -> Requests:
        """Return the positions of the rows."""
        return Requests(self.keys, self.positions, torch.zeros_like(self.positions))

    def take(self, index: Sequence[int]) -> "DecisionBatch":
        """Return some of the rows, in this order."""
        index = list(index)
        tensors = (each[index] for each in (self.base, self.rl, self.keys, self.positions))
        base, rl, keys, positions = tensors
        return DecisionBatch(base, rl, [self.rows[i] for i in index], keys, positions, self.vocab_size)


def mixed_batch(
    n: int,
    vocab: int,
    *,
    seed: int = 0,
    padded: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> DecisionBatch:
    """Make n rows of every kind, with rules drawn from `RULES`.

    The `padded` columns after them must not be read: they would be as likely as a row's most likely token, and the last
    is NaN for RL.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal() -> torch.Tensor:
        return torch.randn(n, vocab, generator=generator, device=device)

    kind = torch.arange(n, device=device)[:, None] % len(LOGIT_KINDS)
    deviations = torch.tensor(list(LOGIT_KINDS.values()), device=device)[kind[:, 0]]
    base = normal() * deviations[:, :1]
    rl = base * deviations[:, 1:2] + normal() * deviations[:, 2:]
    order = list(LOGIT_KINDS)
    base, rl = (torch.where(kind == order.index("tied"), (each * 2).round() / 2, each) for each in (base, rl))
    turn = torch.arange(n, device=device)[:, None] // len(LOGIT_KINDS)
    single = (kind == order.index("one or all")) & (turn % 2 == 0)
    for model, each in enumerate((base, rl)):
        sparse = (kind == order.index("impossible")) & (turn % 3 != 1 - model)
        gone = (sparse & (torch.rand(n, vocab, generator=generator, device=device) < 0.3)) | single
        gone[:, min(3, vocab - 1)] = False
        each.masked_fill_(gone, float("-inf"))
    if padded:
        base, rl = (torch.cat([each, each.amax(1, keepdim=True).expand(-1, padded)], 1) for each in (base, rl))
        rl[:, -1] = float("nan")
    return DecisionBatch(
        base=base.to(dtype),
        rl=rl.to(dtype),
        rows=random.Random(seed).choices(RULES, k=n),
        keys=torch.randint(-(2**62), 2**62, (n,), generator=generator, device=device),
        positions=torch.randint(0, 30_000, (n,), generator=generator, device=device),
        vocab_size=vocab,
    )


@triton.jit
def _spell_out(  # noqa: ANN202
    base, rl, constants, masses, n, vocab, base_stride, rl_stride,  # noqa: ANN001
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Store the mass of every token under both policies, as the kernels compute it. Grid (n / ROWS, tiles)."""
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = (tl.program_id(1) * TILE + tl.arange(0, TILE))[None, :]
    inside = (i < n) & (column < vocab)
    b = tl.load(base + i * base_stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    r = tl.load(rl + i * rl_stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    own = constants + tl.minimum(i, n - 1) * kernels.CONSTANTS
    for policy in tl.static_range(2):
        mass = kernels._policy_mass(b, r, own, policy)
        tl.store(masses + (i * 2 + policy) * vocab + column, mass, mask=inside)


@dataclass
class Outcome:
    """Hold what the kernels computed for a batch."""

    decision: Decision
    statistics: torch.Tensor  # (n, 5) float32: H(base), H(RL), KL(RL || base), KL(base || RL), -log p_RL(proposed)
    mass: torch.Tensor  # (n, 2, vocabulary) float32: of every token under the primary and under the target
    totals: torch.Tensor  # (n, 2) int64: of these, as the kernels added them up


def outcome(batch: DecisionBatch, *, tile: int = TILE, chunk: int = 8) -> Outcome:
    """Run the kernels, and spell out the masses that they drew from."""
    decision, constants, totals = run_kernels(
        batch.base, batch.rl, Work.of(batch.rules).table, batch.requests, batch.vocab_size, tile=tile, chunk=chunk,
    )  # fmt: skip
    n, vocab = len(batch.rows), batch.vocab_size
    mass = torch.empty(n, 2, vocab, device=batch.base.device)
    at_once = max(1, (1 << 16) // tile) if batch.base.device.type == "cpu" else 1
    _spell_out[(-(-n // at_once), -(-vocab // tile))](
        batch.base, batch.rl, constants, mass, n, vocab, batch.base.stride(0), batch.rl.stride(0),
        ROWS=at_once, TILE=tile, enable_fp_fusion=False,
    )  # fmt: skip
    found = constants[:, kernels.STATISTICS_AT :].unbind(1)[:4]  # both entropies, both KLs
    at = batch.rl.gather(1, decision.proposed[:, None])[:, 0].float()
    nll = constants[:, 24] - (at - constants[:, 3]) * constants[:, 0]
    statistics = torch.stack([*found, nll], 1)
    return Outcome(decision, statistics, mass, totals)


def check(batch: DecisionBatch, got: Outcome) -> dict[str, float]:
    """Measure how far the kernels are from the correct results.

    Returns:
        Over all rows: `rows`; `inexact`, draws and gates that do not follow from the kernels' own numbers; `mass`, the
            largest error of a probability in units of what float32's rounding allows; `nats`, the largest error of a
            statistic or of delta log p; `differ`, rows decided differently by `decide`; `unexplained`, those of them
            that rounding does not explain. Correct values are: inexact 0, mass at most 1, nats at most `NATS`,
            unexplained 0.
    """
    found = {"rows": 0, "inexact": 0, "mass": 0.0, "nats": 0.0, "differ": 0, "unexplained": 0}
    for start in range(0, len(batch.rows), AT_ONCE):
        index = list(range(start, min(start + AT_ONCE, len(batch.rows))))
        some = batch.take(index)
        part = Outcome(
            Decision(*(getattr(got.decision, name)[index] for name in DECIDED)),
            got.statistics[index],
            got.mass[index],
            got.totals[index],
        )
        found["rows"] += len(index)
        found["inexact"] += _inexact(some, part)
        mass, nats = _errors(some, part)
        found["mass"], found["nats"] = max(found["mass"], mass), max(found["nats"], nats)
        differ, unexplained = _differences(some, part)
        found["differ"] += differ
        found["unexplained"] += unexplained
    return found


def _inexact(batch: DecisionBatch, got: Outcome) -> int:
    """Count rows whose totals, proposal, gate or token do not follow from the kernels' own masses and statistics."""
    rules, requests = batch.rules, batch.requests
    top_p = [row.top_p for row in batch.rows]
    proposed = _brute_force(got.mass[:, 0], top_p, requests.noise(PROPOSE))
    redrawn = _brute_force(got.mass[:, 1], top_p, requests.noise(REDRAW))
    policies = Policies(batch.base[:, : batch.vocab_size], batch.rl[:, : batch.vocab_size], rules)
    greedy, every = ~rules.normalised[:, 0], Rows(range(rules.n), rules.n, batch.base.device)
    proposed = torch.where(greedy, policies.primary.argmax(1), proposed)
    redrawn = torch.where(greedy, policies.target(every, proposed)[0].argmax(1), redrawn)
    base, rl, rl_base, base_rl, nll = got.statistics.unbind(1)
    delta = got.decision.delta_logp
    known = {
        "delta_logp": delta, "entropy_base": base, "entropy_rl": rl, "kl_rl_base": rl_base, "kl_base_rl": base_rl,
        "nll_rl": nll, "ce": base + base_rl,
    }  # fmt: skip
    value = torch.zeros(rules.n, dtype=torch.float64, device=delta.device)
    for gate, rows in rules.gates:
        rows.write(value, gate.value(Step(rows, requests, got.decision.proposed, policies, known)))
    replaced = rules.fires(value, delta) & rules.open(requests.written)
    token = torch.where(replaced, redrawn, proposed)
    right = (got.decision.proposed == proposed) & (got.decision.replaced == replaced) & (got.decision.token == token)
    added_up = got.totals == got.mass.long().sum(2)
    added_up[:, 1] |= _alone(batch)  # the target's are not made
    return int((~right | ~added_up.all(1)).sum())


def _brute_force(mass: torch.Tensor, top_p: list[float], u: torch.Tensor) -> torch.Tensor:
    """Draw by sorting: (n, vocab) float32 masses, summed up as integers -> (n,) tokens. u is a multiple of 2^-53."""
    order, upto, nucleus = sorted_masses(mass, top_p)
    points = [(int(x * 2**53) * whole) >> 53 for x, whole in zip(u.tolist(), nucleus, strict=True)]
    at = torch.searchsorted(upto, torch.tensor(points, device=mass.device)[:, None], right=True)
    return order.gather(1, at.clamp(max=mass.shape[1] - 1))[:, 0]


def sorted_masses(mass: torch.Tensor, top_p: list[float]) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return tokens in order, the mass up to and with each (both (n, vocab) int64), and the mass of every nucleus."""
    mass, order = torch.sort(mass, dim=1, descending=True, stable=True)
    weights = mass.long()
    upto = weights.cumsum(1)
    total = upto[:, -1].tolist()
    limits = [max(1, ceil(Fraction(p) * 2**60)) if p < 1 else whole for p, whole in zip(top_p, total, strict=True)]
    limit = torch.tensor(limits, device=mass.device)[:, None]
    return order, upto, weights.where(upto - weights < limit, 0).sum(1).tolist()


def _alone(batch: DecisionBatch) -> torch.Tensor:
    """Return which rows have no gate: (n,) bool."""
    return torch.tensor([row.gate is None for row in batch.rows], device=batch.base.device)


def _truth(batch: DecisionBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log-probabilities in float64, (n, vocab) each: of base, of RL, of the primary, of the target."""
    rules = batch.rules
    lb, lr = (
        torch.log_softmax(logits[:, : batch.vocab_size].double() / rules.temperature.double(), -1)
        for logits in (batch.base, batch.rl)
    )
    extra = extrapolate(lb, lr, rules.gamma.double(), torch.ones_like(rules.normalised))
    return lb, lr, rules.rl_rows.put(lb, lr), extra


def _rounding(batch: DecisionBatch) -> torch.Tensor:
    """Return the relative error of a probability that float32 may make: (n,).

    A GPU's division and exponential are the fast ones, off by at most 2 units in the last place each (`div.full`,
    `ex2.approx` in the PTX manual); the interpreter's are exact. In halves of a unit in the last place of the largest
    logit, the error of a probability's logarithm: three for the extrapolated logit; of its distance from the largest,
    which is up to twice as large, two for the difference, eight for the reciprocal of the temperature (a division: four
    halves), two for their product, two for its product with log2(e), one for that number's own rounding. That is 18.
    What does not grow with the logits: four exponentials and divisions of four halves each (the token's, its tile's
    scale, those summed up, the normaliser), and 18 roundings of sums and products: 34 halves, 2.0e-6.
    """
    rules = batch.rules
    largest = torch.stack([each[:, : batch.vocab_size].float() for each in (batch.base, batch.rl)])
    largest = largest.abs().where(largest.isfinite(), 0.0).amax((0, 2))
    return 34 * 2.0**-24 + 18 * 2.0**-24 * largest * ((1 + 2 * rules.gamma.abs()) / rules.temperature)[:, 0]


def _errors(batch: DecisionBatch, got: Outcome) -> tuple[float, float]:
    """Return the largest error of a mass, in units of what rounding allows, and of a statistic, in nats."""
    lb, lr, primary, target = _truth(batch)
    allowed = _rounding(batch)
    drawn = ~_alone(batch)  # of the others the target's masses are not made
    worst = 0.0
    for policy, logp, rows in ((0, primary, drawn | True), (1, target, drawn)):
        if rows.any():
            p, mass = logp[rows].exp(), got.mass[rows, policy].double() / 2**60
            worst = max(worst, float(((p - mass).abs() / (p * allowed[rows, None] + 1e-30)).max()))
    at, (of_base, _, _, base_rl, _) = got.decision.proposed[:, None], got.statistics.unbind(1)
    nll = -lr.gather(1, at)[:, 0]
    expected = [entropy(lb), entropy(lr), kl_divergence(lr, lb), kl_divergence(lb, lr), nll]
    pairs = [*zip(expected, got.statistics.unbind(1), strict=True)]
    pairs.append(((lr - lb).gather(1, at)[:, 0], got.decision.delta_logp))
    pairs.append(((lr - lb).gather(1, got.decision.token[:, None])[:, 0], got.decision.delta_logp_written))
    pairs.append((cross_entropy(lb, lr), of_base + base_rl))
    nats = torch.stack([torch.where(right == value, 0.0, right - value.double()) for right, value in pairs])
    return worst, float(nats.abs().nan_to_num(torch.inf).max())


def _differences(batch: DecisionBatch, got: Outcome) -> tuple[int, int]:
    """Count rows that `decide` decides differently, and those of them that rounding does not explain."""
    torchs = decide(batch.logits, batch.rules, batch.requests, Combination(batch.vocab_size))
    ours = got.decision
    same = (ours.proposed == torchs.proposed) & (ours.replaced == torchs.replaced) & (ours.token == torchs.token)
    rows = (~same).nonzero()[:, 0].tolist()
    if not rows:
        return 0, 0
    lb, lr, primary, target = _truth(batch)
    rounding, propose, redraw = _rounding(batch), *map(batch.requests.noise, (PROPOSE, REDRAW))
    unexplained = 0
    for i in rows:
        p = 0.0 if batch.rows[i].greedy else batch.rows[i].top_p
        if ours.proposed[i] != torchs.proposed[i]:
            explained = _near(primary[i], p, propose[i], ours.proposed[i], rounding[i])
        elif ours.replaced[i] != torchs.replaced[i]:
            explained = _at_threshold(batch.rows[i], lb[i : i + 1], lr[i : i + 1], ours.proposed[i : i + 1])
        else:
            explained = _near(target[i], p, redraw[i], ours.token[i], rounding[i])
        unexplained += not explained
    return len(rows), unexplained


def _near(logp: torch.Tensor, top_p: float, u: torch.Tensor, token: torch.Tensor, rounding: torch.Tensor) -> bool:
    """Return whether u's point of the cumulative mass is the token's, or within `CLOSE` of it: (vocab,) float64.

    Tokens of equal probability, up to rounding, may come before or after it.
    """
    p = logp.exp()
    if top_p == 0:
        return bool(p[token] >= p.max() * (1 - rounding))
    likeliest = p.sort(descending=True).values
    upto = likeliest.cumsum(0)
    least, most = ((upto - likeliest < top_p + error).mul(likeliest).sum() for error in (-CLOSE, CLOSE))
    first = p[p > p[token] * (1 + rounding)].sum()
    last = p[p >= p[token] * (1 - rounding)].sum()
    return bool(u * least - CLOSE <= last) and bool(u * most + CLOSE >= first)


def _at_threshold(rule: Rule, lb: torch.Tensor, lr: torch.Tensor, token: torch.Tensor) -> bool:
    """Return whether the statistic of a rule's gate is within rounding of tau: (1, vocab), (1, vocab), (1,) float64."""
    assert rule.gate is not None
    policies, zero = Policies(lb, lr, Rules.compile([Rule()], lb.device)), torch.zeros_like(token)
    policies.lb, policies.lr = lb, lr
    value = rule.gate.value(Step(Rows([0], 1, lb.device), Requests(zero, zero, zero), token, policies))
    return abs(float(value) - rule.gate.threshold[0]) <= NATS
