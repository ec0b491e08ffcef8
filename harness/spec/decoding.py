"""How two models decode one response: Algorithm 1's settings, and the sampling around them."""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from harness.errors import UserError, unknown
from harness.spec.base import Spec, parse

Mode = Literal["base", "rl", "replace", "extrapolate", "expo", "power"]
Primary = Literal["base", "rl"]
Criterion = Literal[
    "delta_logp", "entropy_base", "entropy_rl", "kl", "kl_rl_base", "kl_base_rl", "random",
    "abs_delta_logp", "nll_rl", "ce", "js", "spike", "always", "coupling",
]  # fmt: skip
Side = Literal["below", "above"]

MODES: tuple[str, ...] = get_args(Mode)
CRITERIA: tuple[str, ...] = get_args(Criterion)
WITHOUT_TAU = ("always", "coupling")  # criteria that have no threshold
BELOW = ("delta_logp", "random")  # hold below their threshold unless `side` says otherwise; the others hold above it
_WINDOW = re.compile(r"([0-9]{0,9}):([0-9]{0,9})")
_SHARES = re.compile(r"(0|[0-9]{1,3}%)?:([0-9]{1,3}%)?")  # of max_tokens
_SPIKE = re.compile(r"spike/[0-9]{1,4}")
SPAN, MOST_SPAN = 32, 256  # tokens that `spike` looks back at, and may
LEAST_TEMPERATURE = 1e-4  # but for 0; below it float32 cannot tell what is drawn from the likeliest token


GUARDS = ("window", "min_p_rl", "span")  # what only a gated decoding has


POWER = {"power": 4.0, "block": 192, "moves": 10}  # the settings of the authors


class Decoding(Spec, frozen=True):
    """Which model proposes a token, when it is redrawn, and from which policy (Algorithm 1 of the paper).

    `mode` is a name for a setting of the same algorithm:

    - `base`: base proposes, nothing is redrawn;
    - `rl`: the RL model proposes, nothing is redrawn;
    - `replace`: `primary` proposes; where the criterion holds the token is redrawn from the RL model (gamma = 0);
    - `extrapolate`: as `replace`, redrawn from pi_extra, proportional to exp(lr + gamma (lr - lb));
    - `expo`: no gate and one model, whose weights are extrapolated instead, theta_RL + gamma (theta_RL - theta_base)
      (ExPO, arXiv 2404.16792; to first order in gamma the same step): what extrapolating tokens is compared with;
    - `power`: no gate and one model, `primary`, sampled from its law over whole responses to the `power`, by `moves`
      of a Markov chain after each `block` of tokens (arXiv 2510.14901): the other baseline.

    `tau` is the threshold of the criterion: `delta_logp` < tau, `random` < tau, all others > tau; `side` turns that
    round. Two have no threshold: `always` draws every token from the target, and `coupling` keeps as many
    proposals as the target's law allows. `spike` looks back: the cross entropy of base and RL is above `tau` times its
    mean over the `span` tokens before, of the response's own. Outside the `window` nothing is redrawn.

    `min_p_rl` guards a large gamma (arXiv 2210.15097): tokens that RL finds implausible have no weight in the target.
    """

    mode: Mode = Field(default="rl", description="base, rl, replace, extrapolate, expo or power.")
    primary: Primary | None = Field(
        default=None,
        description="Who proposes each token of replace and extrapolate: base (default) or rl; the model of power.",
    )
    criterion: Criterion = Field(default="delta_logp", description=f"When a token is redrawn: {', '.join(CRITERIA)}.")
    tau: float | None = Field(default=None, description="Threshold: delta_logp and random below it, others above.")
    side: Side | None = Field(
        default=None,
        exclude_if=lambda side: side is None,  # so the hashes of decodings without it stay what they were
        description="Redraw below or above tau, where that is not the criterion's own side.",
    )
    gamma: float = Field(
        default=0.0,
        ge=-1.0,
        le=100.0,
        description="Extrapolation strength: -1 is base, 0 RL (replaces), above 0 beyond RL, between -1 and 0 between.",
    )

    window: str | None = Field(
        default=None,
        exclude_if=lambda window: window is None,
        description="Tokens where the criterion is asked, as a slice: 0:16, 16:, or of max_tokens: 0:25%, 25%:.",
    )
    min_p_rl: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        exclude_if=lambda share: share == 0,
        description="Redraw no token that RL gives less than this share of its largest probability.",
    )

    span: int | None = Field(
        default=None,
        ge=1,
        le=MOST_SPAN,
        exclude_if=lambda span: span is None,
        description=f"Earlier tokens whose mean criterion=spike compares with ({SPAN}).",
    )

    power: float | None = Field(
        default=None,
        gt=1.0,
        le=100.0,
        exclude_if=lambda power: power is None,
        description="Of mode=power: responses are drawn from p to this power (4).",
    )
    block: int | None = Field(
        default=None,
        ge=1,
        exclude_if=lambda block: block is None,
        description="Of mode=power: tokens that are written before the chain moves (192).",
    )
    moves: int | None = Field(
        default=None,
        ge=0,
        exclude_if=lambda moves: moves is None,
        description="Of mode=power: moves of the chain after each block (10).",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        """Settle what the mode implies, so that two ways of writing one decoding are equal and hash alike."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        mode = data.get("mode", "rl")
        if mode == "power":
            for name in ("tau", "side", "gamma", "span", *GUARDS):
                if data.get(name) not in (None, 0, 0.0, "0"):
                    raise ValueError(f"{name}={data[name]!r} has no effect with mode='power', which has no gate")
            given = {name: value for name, value in data.items() if value is not None}
            return {"primary": "rl", **POWER, **given, "criterion": "delta_logp"}
        for name in POWER:
            if data.get(name) is not None:
                raise ValueError(f"{name}={data[name]!r} has no effect with mode={mode!r}; use mode=power")
        if mode == "expo":
            for name in ("tau", "side", "primary", *GUARDS):
                if data.get(name) not in (None, "rl", 0, "0"):
                    raise ValueError(f"{name}={data[name]!r} has no effect with mode='expo', which has no gate")
            if not data.get("gamma"):
                raise ValueError("gamma is missing: mode='expo' needs its strength, as gamma=0.3 (gamma=0 is mode=rl)")
            data.update(primary="rl", criterion="delta_logp", tau=None, side=None)
        elif mode in ("base", "rl"):
            if data.get("primary") not in (None, mode):
                raise ValueError(f"primary={data['primary']!r} contradicts mode={mode!r}, which proposes from {mode}")
            for name in ("tau", "side", "gamma", *GUARDS):
                if data.get(name) not in (None, 0, 0.0, "0"):
                    raise ValueError(
                        f"{name}={data[name]!r} has no effect with mode={mode!r}; use mode=replace or mode=extrapolate"
                    )
            data.update(primary=mode, criterion="delta_logp", tau=None, side=None, gamma=0.0)
        elif mode in ("replace", "extrapolate"):
            criterion = data.get("criterion", "delta_logp")
            if isinstance(criterion, str) and _SPIKE.fullmatch(criterion):  # with its span, as labels have it
                criterion, _, over = criterion.partition("/")
                if str(data.get("span") or over) != over:
                    raise ValueError(f"span={data['span']!r} contradicts criterion='spike/{over}'")
                data |= {"criterion": criterion, "span": over}
            if data.get("primary") is None:
                data["primary"] = "base"
            if data.get("side") == ("below" if criterion in BELOW else "above"):
                data["side"] = None
            if isinstance(window := data.get("window"), str):
                data["window"] = _settle_window(window)
            if criterion == "spike" and data.get("span") is None:
                data["span"] = SPAN
            if criterion != "spike" and data.get("span") is not None:
                raise ValueError(f"span={data['span']!r} has no effect with criterion={criterion!r}; use spike")
            for name in ("tau", "side"):
                if criterion in WITHOUT_TAU and data.get(name) is not None:
                    raise ValueError(f"{name}={data[name]!r} has no effect with criterion={criterion!r}")
        return data

    @model_validator(mode="after")
    def _check(self) -> "Decoding":
        if not self.gated:
            return self
        if self.mode == "replace" and self.gamma:
            raise ValueError(f"gamma={self.gamma} is refused with mode='replace'; use mode=extrapolate")
        if self.criterion in WITHOUT_TAU:
            return self
        if self.tau is None:
            raise ValueError(f"tau is missing: mode={self.mode!r} needs the threshold of criterion={self.criterion!r}")
        if self.criterion == "delta_logp" and self.below and self.tau > 0:
            warnings.warn(
                f"tau={self.tau} is positive: delta_logp < tau then also redraws tokens that RL made likelier; "
                "the paper uses negative thresholds",
                stacklevel=2,
            )
        if self.criterion == "random" and not 0 <= self.tau <= 1:
            warnings.warn(f"tau={self.tau}: the random criterion compares with a number in [0, 1)", stacklevel=2)
        if self.criterion not in BELOW and self.tau < 0:
            share = "every token is" if self.side is None else "no token is ever"
            warnings.warn(
                f"tau={self.tau} is negative: {self.criterion} is never below 0, so {share} redrawn", stacklevel=2
            )
        return self

    @property
    def gated(self) -> bool:
        """Whether a criterion is asked at all (`replace` and `extrapolate`)."""
        return self.mode in ("replace", "extrapolate")

    @property
    def gate(self) -> str:
        """Return the criterion with its side, where that is not its own, and window: `delta_logp above @0:16`.

        That of `spike` with its span: `spike/32`.
        """
        criterion = f"{self.criterion}/{self.span}" if self.span else self.criterion
        window = f"@{self.window}" if self.window else None
        return " ".join(word for word in (criterion, self.side, window) if word)

    def tokens(self, max_tokens: int) -> tuple[int, int | None]:
        """Return the tokens of a response at which the criterion is asked: the first, and the first that is not.

        A share is one of `max_tokens`, rounded up; how long the response will be is not known while it is written.
        """
        since, _, until = (self.window or ":").partition(":")
        return _place(since, max_tokens) or 0, _place(until, max_tokens)

    @property
    def below(self) -> bool:
        """Whether the criterion holds below tau, not above it."""
        return self.side == "below" if self.side else self.criterion in BELOW

    @property
    def reads_both(self) -> bool:
        """Whether only tokens that both models know are written: not by RL, its powers or extrapolated weights."""
        return self.mode not in ("rl", "expo") and (self.mode, self.primary) != ("power", "rl")

    @property
    def reads_base(self) -> bool:
        """Whether base's logits are read; RL alone needs none of them."""
        return self.mode != "rl"

    def forwards(self, models: int = 2) -> int:
        """Return how many models' forwards one token costs, of a pair (2 `models`) or a pair with a target (3).

        Of `power` it is one model; how often it is run for a response is counted (`Rollout.n_forwards`).

        Base (or the target), RL and extrapolated weights are one model. The change carried over to a target is three.
        """
        return 1 if self.mode == "base" or (models == 2 and not self.gated) else models

    def control(self) -> "Decoding":
        """Return an extrapolation's gamma = 0 control: the same gate, redrawn from RL. Anything else is its own."""
        return self.replace(mode="replace", gamma=0.0) if self.mode == "extrapolate" else self

    def label(self) -> str:
        """Return a short name: `base`, `rl`, `replace τ-0.3`, `extrapolate τ-0.3 γ0.05 on rl`, `expo γ0.3`."""
        if self.mode == "power":
            return f"power {self.power:g} of {self.primary}, {self.moves} moves a {self.block} tokens"
        if not self.gated:
            return f"expo γ{self.gamma:g}" if self.mode == "expo" else self.mode
        words = [self.mode] if self.tau is None else [self.mode, f"τ{self.tau:g}"]
        if self.mode == "extrapolate":
            words.append(f"γ{self.gamma:g}")
        if self.gate != "delta_logp":
            words.append(self.gate)
        if self.min_p_rl:
            words.append(f"p≥{self.min_p_rl:g}")
        if self.primary == "rl":
            words.append("on rl")
        return " ".join(words)


def _settle_window(window: str) -> str | None:
    """Return a window as it is always written; None for all tokens.

    Raises:
        ValueError: it is no slice, or has no token, or its shares are not within 0% and 100%.
    """
    unit = "%" if "%" in window else ""
    found = (_SHARES if unit else _WINDOW).fullmatch(window)
    since, until = (int(end.strip("%")) if end else None for end in found.groups()) if found else (1, 0)
    if unit and (since or 0) < 100 and until == 100:
        until = None
    if (until is not None and until <= (since or 0)) or (unit and max(since or 0, until or 0) >= 100):
        raise ValueError(
            f"window={window!r} is refused; accepted: a slice of tokens, as 0:16, 16: or 16:64, or of shares of "
            "max_tokens, as 0:25%, 25%: or 25%:50%"
        )
    if not since and until is None:
        return None
    return f"{f'{since}{unit}' if since else 0}:{'' if until is None else f'{until}{unit}'}"


def _place(end: str, max_tokens: int) -> int | None:
    """Return one end of a window in tokens; None where it has none."""
    if end.endswith("%"):
        return -(-max_tokens * int(end[:-1]) // 100)
    return int(end) if end else None


def parse_decoding(text: str) -> Decoding:
    """Read a decoding from `rl`, `replace,tau=-0.3` or `mode=extrapolate,tau=-0.3,gamma=0.1`.

    Raises:
        UserError: an unknown name, or a value that is refused.
    """
    fields: dict[str, str] = {}
    for i, part in enumerate(text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            name, value = "mode", name
            if i:
                raise UserError(f"decoding={text!r}: {part!r} is no name=value; accepted: MODE,name=value,…")
        if name not in Decoding.model_fields:
            raise unknown("decoding", name, Decoding.model_fields)
        if name in fields:
            raise UserError(f"decoding={text!r} gives {name} twice")
        fields[name] = value
    return parse(Decoding, fields)


def with_controls(decodings: Sequence[Decoding]) -> tuple[Decoding, ...]:
    """Put base and RL first, and before each extrapolation its gamma = 0 control: the same gate, redrawn from RL."""
    found = [Decoding(mode="base"), Decoding(mode="rl")]
    for decoding in decodings:
        found += [decoding.control(), decoding]
    return tuple(dict.fromkeys(found))


GREEDY = {"temperature": 0.0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "samples": 1, "seed": 0}
TRUNCATIONS = {"min_p": 0.0, "typical_p": 1.0}  # what takes the place of top_p, and the value that does not


def truncation(sampling: Mapping[str, Any]) -> str:
    """Say how a sampling, as plain values, truncates policies: `top-p 0.7`, `min-p 0.1`, `typical 0.9`."""
    if sampling.get("min_p"):
        return f"min-p {sampling['min_p']:g}"
    typical = sampling.get("typical_p", 1.0)
    return f"typical {typical:g}" if typical < 1 else f"top-p {sampling['top_p']:g}"


class Sampling(Spec, frozen=True):
    """How many responses, and how each is drawn. The defaults are the paper's (temperature 1, top-p 0.7, 20k tokens).

    `temperature` divides both models' logits before anything else, the criterion included; `top_p` truncates each
    policy before it is drawn from. `min_p` (arXiv 2407.01082) and `typical_p` (locally typical sampling, arXiv
    2202.00666) truncate in its place: with either, top_p is 1. Criteria look at policies that are not truncated.

    Temperature 0 is greedy: the proposal and, where the criterion holds, the token in its place are each the likeliest
    one of their policy, of equal ones that of the lowest id. The criterion looks at the models as they are (temperature
    1). Nothing is left to chance: `samples` is 1, and what has no effect is as if it were not given: `top_p` and
    `typical_p` are 1, `min_p` and `seed` 0.
    """

    temperature: float = Field(
        default=1.0,
        ge=0.0,
        le=100.0,
        description="Divides both models' logits; 0 is greedy: one sample, no top_p, no seed.",
    )
    top_p: float = Field(default=0.7, gt=0.0, le=1.0, description="Nucleus of each policy.")
    min_p: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="In place of top_p: each policy keeps tokens of this share of its largest probability, and above.",
        exclude_if=lambda value: value == 0,  # so that older settings keep their hash
    )
    typical_p: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="In place of top_p: the mass of each policy's locally typical tokens that are kept.",
        exclude_if=lambda value: value == 1,
    )
    max_tokens: int = Field(default=20_000, ge=1, description="New tokens at most; the context may allow fewer.")
    samples: int = Field(
        default=32, ge=1, description="Responses a problem: Avg@k and Pass@k, k up to this; greedy has 1."
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="Key of the noise.")

    @model_validator(mode="after")
    def _settle(self) -> "Sampling":
        """Settle what temperature 0, min-p and typical-p imply: two ways of asking for it are equal and hash alike."""
        if self.greedy:
            if "samples" in self.model_fields_set and self.samples != 1:
                raise ValueError(
                    f"samples={self.samples} is refused with temperature=0: greedy responses to one problem are all "
                    "equal; accepted: samples=1"
                )
            for name, value in GREEDY.items():
                object.__setattr__(self, name, value)
        others = [f"{name}={getattr(self, name):g}" for name, off in TRUNCATIONS.items() if getattr(self, name) != off]
        if len(others) > 1 or (others and "top_p" in self.model_fields_set and self.top_p < 1):
            given = [*others, *([f"top_p={self.top_p:g}"] if "top_p" in self.model_fields_set else [])]
            raise ValueError(f"{' and '.join(given[:2])} are refused together: each truncates; accepted: one of them")
        if others:
            object.__setattr__(self, "top_p", 1.0)
        if 0 < self.temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"temperature={self.temperature} is refused; accepted: 0 (greedy), or {LEAST_TEMPERATURE} to 100"
            )
        return self

    @property
    def truncation(self) -> str:
        """Say how policies are truncated, as `truncation` does."""
        return truncation(self.model_dump())

    def unlike(self, usual: "Sampling") -> str:
        """Say in words how this draws otherwise than `usual`: `greedy`, `T = 0.6`, `min-p 0.1`; empty if alike."""
        if self.greedy:
            return "" if usual.greedy else "greedy"
        temperature = [] if self.temperature == usual.temperature else [f"T = {self.temperature:g}"]
        return ", ".join(temperature + ([] if self.truncation == usual.truncation else [self.truncation]))

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, and nothing is drawn."""
        return self.temperature == 0

    @property
    def criterion_temperature(self) -> float:
        """At which criteria, traces and delta log p look at both models; greedy decoding has none of its own."""
        return self.temperature or 1.0


def check_together(decoding: Decoding, sampling: Sampling) -> None:
    """Refuse a decoding that this sampling cannot serve.

    Raises:
        UserError: the random criterion in greedy decoding, whose tokens are a function of the prompt; power sampling
            of anything but the model's own law.
    """
    if sampling.greedy and decoding.gated and decoding.criterion == "random":
        raise UserError(
            "criterion='random' is refused with temperature=0: nothing is left to chance there; accepted: another "
            f"criterion, or temperature={LEAST_TEMPERATURE}, which draws the likeliest token but for near-ties"
        )
    if decoding.mode == "power" and (sampling.temperature != 1 or sampling.truncation != "top-p 1"):
        drawn = (
            "temperature=0" if sampling.greedy else f"temperature={sampling.temperature:g} and {sampling.truncation}"
        )
        raise UserError(
            f"mode=power is refused with {drawn}: it samples the model's own law to a power; accepted: temperature=1 "
            "and top_p=1"
        )
