"""Describe how two models decode one response: Algorithm 1's settings."""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, InstanceOf, model_serializer, model_validator
from pydantic.fields import FieldInfo

from rlvr_dir.config.base import Spec, parse, truth_for_number
from rlvr_dir.config.sampling import LEAST_TEMPERATURE, SamplingSettings
from rlvr_dir.errors import UserError, mention, nearest, unknown, unknown_key
from rlvr_dir.policy.gates import Gate, Threshold, gates, parameters, split
from rlvr_dir.policy.own import NotLoaded, imported

Mode = Literal["base", "rl", "replace", "extrapolate", "resample", "veto", "reject"]
Primary = Literal["base", "rl"]
Decider = Literal["gate", "base", "rl"]
SHORT = ("veto", "reject")  # short names: of the gate as decider, and of the other model's decision with own tokens
ALONE = ("base", "rl")  # modes in which one model writes: nothing is redrawn, and there is no criterion
MODES: tuple[Mode, ...] = get_args(Mode)
_GATED = ", ".join(mode for mode in MODES if mode not in ALONE)
_WINDOW = re.compile(r"([0-9]{0,9}):([0-9]{0,9})")
_SHARES = re.compile(r"(0|[0-9]{1,3}%)?:([0-9]{1,3}%)?")  # of max_tokens
SYNONYMS = {"threshold": "tau", "cutoff": "tau", "strength": "gamma", "metric": "criterion", "gate": "criterion"}
_UNSET = (None, 0, 0.0, "0")  # values that say nothing where a mode has no such setting


class Decoding(Spec, frozen=True):
    """Which model proposes a token, when it is redrawn, and from which policy (Algorithm 1 of the paper).

    base, rl: one model writes, and nothing is flagged. All others: `primary` proposes, and the criterion flags tokens.
    The mode says who writes at a flagged token: replace RL, resample base (gamma -1), extrapolate pi_extra,
    proportional to exp(lr + gamma (lr - lb)). Without a `decider` the writer's draw is written, which may be the same
    token. With one, the decider says whether the token is dropped, and the writer draws from its distribution without
    it; top-p cuts what is left.

    | decider | a flagged token is dropped              | writes base          | writes RL          |
    |---------|-----------------------------------------|----------------------|--------------------|
    | gate    | always                                  | resample (veto)      | replace            |
    | base    | unless a draw of base's is the same     | resample             | replace            |
    | rl      | unless a draw of RL's is the same       | resample (reject)    | replace            |
    | 0 to 1  | with this probability                   | resample             | replace            |

    `veto` and `reject` are short names. `veto` is decider gate, with gamma (-1 by default) for the writer. `reject` is
    the other model's decision with the proposing model's tokens: `resample,decider=rl`, or where RL proposes
    `replace,decider=base`. These decodings keep their short names, whatever was written. What is RL is called replace
    and what is base resample. The criterion and its parameters are written flat: `criterion: kl, tau: 0.1`. Outside the
    `window` nothing is flagged.
    """

    called: ClassVar[str] = "decoding"

    mode: Mode = Field(
        default="rl",
        description="How to decode. `base`, `rl`: that model alone. `replace`: resample flagged tokens from RL. "
        "`extrapolate`: resample them from a distribution pushed past RL (see gamma). `resample`: from base. "
        "`veto`: always drop them, base writes another. `reject`: drop them if RL would, base writes another.",
    )
    primary: Primary = Field(
        default="base",
        description="Which model proposes each token: base or rl.",
    )
    gate: InstanceOf[Gate] | None = None
    decider: Annotated[Decider | float | None, BeforeValidator(lambda value: _decider(value))] = Field(
        default=None,
        description="What drops a flagged token: gate (always), base or rl (unless its draw is the same token), or a "
        "probability. The mode's model then writes another token. Unset, its draw may be the same token.",
    )
    gamma: float = Field(
        default=0.0,
        ge=-1.0,
        le=100.0,
        description="Strength of extrapolation: 0 is RL, above 0 goes past RL, between -1 (base) and 0 interpolates.",
    )
    window: Annotated[str | None, BeforeValidator(lambda value: _normal_window(value))] = Field(
        default=None,
        description="Tokens where the criterion is asked, as a slice: 0:16, 16:, or of max_tokens: 0:25%, 25%:.",
    )

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the fields, and in place of the gate the criterion and the parameters of all criteria."""
        criterion: Any = Field(
            default="delta_logp", description=f"Criterion that flags tokens: {', '.join(gates())}, or your own as "
            "package.module:CLASS.",
        )  # fmt: skip
        criterion.annotation = str
        fields = {name: info for name, info in cls.model_fields.items() if name != "gate"}
        return fields | {"criterion": criterion} | parameters()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        """Refuse what the mode does not have, and collect the criterion and its parameters, which are written flat."""
        if not isinstance(data, Mapping):
            return data
        mode = data.get("mode", "rl")
        if not isinstance(mode, str) or mode not in MODES:
            raise unknown("mode", mode, MODES)
        return _read_alone(data, mode) if mode in ALONE else _read_gated(data, mode)

    @model_validator(mode="after")
    def _check(self) -> "Decoding":
        if self.gate is None:
            if self.primary != self.mode:
                raise UserError(
                    f"has no effect with {mention('mode', self.mode)}",
                    hint=f"Use one of the modes {_GATED}.",
                    argument="primary",
                    value=self.primary,
                )
            return self
        if self.decider == "gate":
            object.__setattr__(self, "mode", "veto")
        fixed = {"replace": 0.0, "resample": -1.0, "reject": self._own_gamma}
        if self.gamma != fixed.get(self.mode, self.gamma):
            writes = f", where {self.primary} writes" if self.mode == "reject" else ""
            other = "veto" if self.mode == "reject" else "extrapolate"
            raise UserError(
                f"is not allowed with {mention('mode', self.mode)}{writes}",
                hint=f"Use {mention('mode', other)}.",
                argument="gamma",
                value=self.gamma,
            )
        if self.mode == "extrapolate" and self.gamma in (0.0, -1.0):
            object.__setattr__(self, "mode", "replace" if self.gamma == 0 else "resample")
        if self.decider == self._other and self.gamma == self._own_gamma:
            object.__setattr__(self, "mode", "reject")
        if self.decider is not None and self.gate.redraws:
            raise UserError(
                f"is not allowed with {mention('criterion', self.gate.name)}, which says itself what is resampled",
                argument="mode" if self.mode in SHORT else "decider",
                value=self.mode if self.mode in SHORT else self.decider,
                accepted="another criterion",
            )
        if isinstance(self.gate, Threshold) and (doubt := self.gate.doubt()):
            warnings.warn(doubt, stacklevel=2)
        return self

    @model_serializer(mode="plain")
    def _flat(self) -> dict[str, Any]:
        """Write what the mode has, the criterion and its parameters flat."""
        if self.gate is None:
            return {"mode": self.mode, "primary": self.primary}
        left_out = ("gate",) if self.names_decider else ("gate", "decider")  # as before there was a decider
        fields = {name: getattr(self, name) for name in type(self).model_fields if name not in left_out}
        return fields | self.gate.plain()

    @property
    def names_decider(self) -> bool:
        """Return whether it has a decider that no short name (veto, reject) stands for."""
        return self.decider is not None and self.mode not in SHORT

    def replace(self, **changes: Any) -> "Decoding":
        """Return a validated copy with some fields changed; another mode has no decider, unless one is given.

        Raises:
            UserError: the changed decoding is not valid.
        """
        return super().replace(**{**({"decider": None} if "mode" in changes else {}), **changes})

    @property
    def gated(self) -> bool:
        """Whether a criterion is asked at all (every mode but `base` and `rl`)."""
        return self.gate is not None

    @property
    def _other(self) -> Primary:
        """The model that does not propose."""
        return "base" if self.primary == "rl" else "rl"

    def cell(self, decider: Decider | float | None, writer: Primary) -> "Decoding":
        """Return the decoding with the same gate in which `decider` decides and `writer` writes."""
        mode, gamma = ("replace", 0.0) if writer == "rl" else ("resample", -1.0)
        return self.replace(mode=mode, gamma=gamma, decider=decider)

    @property
    def contrasts(self) -> dict[str, "Decoding"]:
        """The decodings that this one differs from in exactly one thing, by the name of the contrast.

        Write (d, w) for decider d and writer w, and own for the model that proposes. `decision` is (other, own) -
        (own, own), what the other model's decision adds; `token` is (other, other) - (other, own), what its token adds.
        In the other order they are `token first`, (own, other) - (own, own), and `decision last`, (other, other) -
        (own, other). `rate` is a coin less (own, own), with own as the writer. `cut of own` and `cut of other` are what
        it changes that the flagged token is removed before top-p cuts, where one model decides and writes.

        Each is 0 if its cause is absent, at any top-p and greedily: `decision` if both models draw the flagged token
        equally often, `token` if both distributions are equal without it.
        """
        if not isinstance(self.gate, Threshold) or self.gamma not in (0.0, -1.0):
            return {}
        own, other = self.primary, self._other
        writer = "rl" if self.gamma == 0 else "base"
        cells: dict[tuple[object, str], dict[str, tuple[Any, Any]]] = {
            (other, own): {"decision": (own, own)},
            (other, other): {"token": (other, own), "decision last": (own, other)},
            (own, other): {"token first": (own, own)},
            (own, own): {"cut of own": (None, own)},
            (None, other): {"cut of other": (other, other)},
        }
        references: dict[str, tuple[Any, Any]] = cells.get((self.decider, writer), {})
        if isinstance(self.decider, float) and writer == own:
            references = {"rate": (own, own)}
        return {name: self.cell(*cell) for name, cell in references.items()}

    @property
    def _own_gamma(self) -> float:
        """The gamma of the policy that proposes."""
        return 0.0 if self.primary == "rl" else -1.0

    @property
    def strength(self) -> str:
        """What tells its writer from that of others of its mode: `γ0.1` of extrapolations, `by RL` of a veto."""
        if self.mode == "veto" and self.gamma in (0.0, -1.0):
            return "" if self.gamma == self._own_gamma else "by RL" if self.gamma == 0 else "by base"
        return f"γ{self.gamma:g}" if self.mode in ("extrapolate", "veto") else ""

    @property
    def tau(self) -> float | None:
        """The threshold of its criterion; None where there is none."""
        return getattr(self.gate, "tau", None)

    @property
    def criterion(self) -> str:
        """The criterion in words, with its side, where that is not its own, and window: `delta_logp above @0:16`.

        With its own parameters: `NAME/32`. Empty where none is asked.
        """
        return "" if self.gate is None else f"{self.gate.words}{self._at_window}"

    @property
    def caption(self) -> str:
        """What its criterion is called in tables and figures: `Δ log p above`, `LABEL (span 32)`."""
        return "" if self.gate is None else f"{self.gate.caption}{self._at_window}"

    @property
    def _at_window(self) -> str:
        return f" @{self.window}" if self.window else ""

    @property
    def everywhere(self) -> bool:
        """Whether every token is redrawn."""
        return self.gate is not None and self.gate.everywhere and not self.window

    def tokens(self, max_tokens: int) -> tuple[int, int | None]:
        """Return the tokens of a response at which the criterion is asked: the first, and the first that is not.

        A share is one of `max_tokens`, rounded up; how long the response will be is not known while it is written.
        """
        since, _, until = (self.window or ":").partition(":")
        return _place(since, max_tokens) or 0, _place(until, max_tokens)

    @property
    def reads_base(self) -> bool:
        """Whether base's logits are read; RL alone needs none of them."""
        return self.mode != "rl"

    def forwards(self, models: int = 2) -> int:
        """Return how many models' forwards one token costs, of a pair (2 `models`) or a pair with a third (3).

        Base, or the third model in its place, is one model, and so is RL of a pair.
        """
        alone = self.mode == "base" or (models == 2 and not self.gated)
        return 1 if alone else models

    def control(self) -> "Decoding":
        """Return what it is compared with, which differs from it in one thing; what has no control is its own.

        An extrapolation's is the replacement (gamma = 0): what is beyond RL adds to RL's token. Where base proposes, a
        replacement's is reject, RL's decision with base's token: what RL's token adds; and reject's is the veto, where
        the gate decides alone: what RL's decision adds to it. Where RL proposes, a replacement draws RL again, and its
        control is the veto by which RL cannot draw the same; reject is the control of base's tokens, `resample`.
        Without a threshold there is none: every token is flagged, or the gate says itself what is redrawn.
        """
        if self.mode == "extrapolate":
            return self.replace(mode="replace", gamma=0.0, decider=self.decider)
        if not isinstance(self.gate, Threshold) or self.names_decider:  # see `contrasts`
            return self
        if self.mode == ("replace" if self.primary == "base" else "resample"):
            return self.replace(mode="reject", gamma=self._own_gamma)
        if self.mode == "reject" or (self.mode == "replace" and self.primary == "rl"):
            return self.replace(mode="veto", gamma=self._own_gamma)
        return self

    def own_draw(self) -> "Decoding":
        """Return, of reject, the same gate where the proposing model's second draw decides: base's is *resample*.

        Reject is the other model's decision with the proposing model's tokens, this the latter's own with its own. Of
        base's second draw it is base alone (RL alone is what everything is compared with), and of another mode the
        decoding itself.
        """
        if self.names_decider:
            return self
        if self.mode == "resample" and self.primary == "base":
            return Decoding(mode="base")
        mode = "resample" if self.primary == "base" else "replace"
        return self.replace(mode=mode, gamma=self._own_gamma) if self.mode == "reject" else self

    def controls(self) -> tuple["Decoding", ...]:
        """Return its control and the control's own, the last first; none where it has none."""
        control = self.control()
        return () if control == self else (*control.controls(), control)

    def label(self, threshold: str = "") -> str:
        """Return a short name: `base`, `rl`, `replace τ-0.3`, `extrapolate τ-0.3 γ0.05 on rl`.

        Args:
            threshold: Text to print in place of τ, for a threshold that is not known yet (`at 2 % flagged`).
        """
        if self.gate is None:
            return self.mode
        words = [self.mode] if self.tau is None else [self.mode, threshold or f"τ{self.tau:.3g}"]
        words += [self.strength] if self.strength else []
        if self.names_decider:
            words.append(f"coin {self.decider:g}" if isinstance(self.decider, float) else f"{self.decider} decides")
        if self.criterion != "delta_logp":
            words.append(self.criterion)
        if self.primary == "rl":
            words.append("on rl")
        return " ".join(words)


def _read_alone(data: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the fields of a mode in which one model writes.

    Raises:
        UserError: a setting is given that only the other modes have.
    """
    others = {"gate", *Decoding.options()} - {"mode", "primary"}
    for name, value in data.items():
        if name in others and value not in _UNSET:
            raise UserError(
                f"has no effect with {mention('mode', mode)}",
                argument=name,
                value=value,
                hint=f"Use one of the modes {_GATED}.",
            )
    return {"primary": mode, **{name: value for name, value in data.items() if name not in others}}


def _read_gated(data: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the fields of a mode with a criterion, its gate made of what is written flat.

    Raises:
        UserError: the criterion, one of its parameters or the strength is refused or missing.
    """
    fields = dict(data)
    if fields.get("source") is None:  # else it is somebody's own, as it was written down
        fields = {name: value for name, value in fields.items() if value is not None}
    if mode == "extrapolate" and "gamma" not in fields:
        raise UserError(
            f"{mention('mode', 'extrapolate')} needs a strength: gamma is missing",
            argument="gamma",
            hint=f"For example {mention('gamma', 0.05)} (0 is replace).",
        )
    rl_proposes = fields.get("primary") == "rl"
    if mode in ("resample", *SHORT):
        fields.setdefault("gamma", 0.0 if mode == "reject" and rl_proposes else -1.0)
    if mode in SHORT:
        decider = "gate" if mode == "veto" else "base" if rl_proposes else "rl"
        if fields.setdefault("decider", decider) not in (decider, None):
            raise UserError(
                f"contradicts {mention('mode', mode)}, which is decider={decider}",
                argument="decider",
                value=fields["decider"],
                accepted="one of the two",
            )
        fields["decider"] = decider
    gate = fields.get("gate")
    if not isinstance(gate, Gate):
        flat = {name: fields.pop(name) for name in list(fields) if name not in Decoding.model_fields}
        fields["gate"] = _gate({**(gate if isinstance(gate, Mapping) else {}), **flat}, mode)
    return fields


def _gate(fields: Mapping[str, Any], mode: str) -> Gate:
    """Make a gate of a criterion and its parameters.

    Raises:
        UserError: there is no such criterion, or it has no such parameter, or does not have its threshold.
    """
    written = fields.get("criterion", "delta_logp")
    named = split(written) if isinstance(written, str) else {"criterion": written}
    criterion, source = named["criterion"], fields.get("source")
    gate_class = None
    if isinstance(criterion, str):
        gate_class = imported(criterion, source) if ":" in criterion else gates().get(criterion)
        if gate_class is None and source is not None:  # as a record or a result tells of it
            others = {name: value for name, value in fields.items() if name not in ("criterion", "source")}
            return NotLoaded(criterion=criterion, digest=str(source), **others)
    if gate_class is None:
        raise unknown("criterion", criterion, (*gates(), "package.module:CLASS in a command or a file that you run"))
    for name, value in named.items():
        if name != "criterion" and fields.get(name) not in (None, value) and str(fields[name]) != value:
            raise UserError(f"contradicts {mention('criterion', written)}", argument=name, value=fields[name])
    fields = {name: value for name, value in {**fields, **named}.items() if name != "source"}
    for name, value in fields.items():
        if name != "criterion" and name not in gate_class.model_fields:
            if name not in parameters():
                raise unknown_key(name, Decoding.options(), "the decoding", SYNONYMS)
            accepted = ", ".join(gate_class.model_fields) or "no parameters"
            raise UserError(
                f"has no effect with {mention('criterion', criterion)}",
                argument=name,
                value=value,
                accepted=f"{accepted}",
            )
        if name in gate_class.model_fields and truth_for_number(value, gate_class.model_fields[name].annotation):
            raise UserError(
                "is not allowed: a truth value is no number", argument=name, value=value, accepted="a number"
            )
    if issubclass(gate_class, Threshold) and "tau" not in fields:
        raise UserError(
            f"{mention('mode', mode)} needs a threshold: tau is missing",
            argument="tau",
            hint=f"For example {mention('tau', -0.3)} with {mention('criterion', criterion)}.",
        )
    gate = gate_class.model_validate({name: value for name, value in fields.items() if name != "criterion"})
    if gate.written:  # what is written down of it must be read where it is not loaded, too
        plain = gate.plain()
        NotLoaded(criterion=plain.pop("criterion"), digest=plain.pop("source"), **plain)
    return gate


def _decider(value: Any) -> Any:
    """Return a decider as it is always written: a probability as a number, and 1 as the gate, which always drops.

    Raises:
        UserError: The value is neither a decider's name nor a probability.
    """
    if value is None or value in get_args(Decider):
        return value
    try:
        probability = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        probability = float("nan")
    if not 0 <= probability <= 1:  # also for NaN
        near = nearest(value, get_args(Decider), 1)
        hint = f"Did you mean {near[0]!r}?" if near else ""
        accepted = f"{', '.join(get_args(Decider))}, or a probability from 0 to 1"
        raise UserError("is not a decider", argument="decider", value=value, accepted=accepted, hint=hint)
    return "gate" if probability == 1 else probability


def _normal_window(window: Any) -> Any:
    """Return a window as it is always written; None for all tokens.

    Raises:
        ValueError: it is no slice, or has no token, or its shares are not within 0% and 100%.
    """
    if not isinstance(window, str):
        return window
    unit = "%" if "%" in window else ""
    match = (_SHARES if unit else _WINDOW).fullmatch(window)
    since, until = (int(end.strip("%")) if end else None for end in match.groups()) if match else (1, 0)
    if unit and (since or 0) < 100 and until == 100:
        until = None
    if (until is not None and until <= (since or 0)) or (unit and max(since or 0, until or 0) >= 100):
        raise UserError(
            argument="window",
            value=window,
            accepted=(
                "a slice of tokens, as 0:16, 16: or 16:64, or of shares of max_tokens, as 0:25%, 25%: or 25%:50%"
            ),
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
    options = Decoding.options()
    for i, part in enumerate(text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            name, value = "mode", name
            if i:
                raise UserError(
                    f": {part!r} has no value", argument="decoding", value=text, accepted="MODE,key=value,key=value,…"
                )
        if name not in options:
            raise unknown_key(name, options, f"the decoding {text!r}", SYNONYMS)
        if name in fields:
            raise UserError(f"sets {name} twice", argument="decoding", value=text)
        fields[name] = value
    return parse(Decoding, fields)


def with_controls(decodings: Sequence[Decoding]) -> tuple[Decoding, ...]:
    """Put base and RL first, and before each decoding its controls: reject and veto of a replacement, and before these
    of an extrapolation the replacement.
    """
    with_references = [Decoding(mode="base"), Decoding(mode="rl")]
    for decoding in decodings:
        with_references += [*decoding.controls(), decoding]
    return tuple(dict.fromkeys(with_references))


def check_together(decoding: Decoding, sampling: SamplingSettings) -> None:
    """Refuse a decoding that this sampling cannot serve.

    Raises:
        UserError: the random criterion in greedy decoding, whose tokens are a function of the prompt.
    """
    if sampling.greedy and isinstance(decoding.decider, float):
        raise UserError(
            f"is a coin, which is not allowed with {mention('temperature', 0)}, because greedy decoding leaves nothing "
            "to chance",
            argument="decider",
            value=decoding.decider,
            accepted="gate, base or rl",
        )
    if sampling.greedy and isinstance(decoding.gate, Threshold) and decoding.gate.statistic == "random":
        raise UserError(
            f"is not allowed with {mention('temperature', 0)}: nothing is left to chance there",
            argument="criterion",
            value="random",
            accepted=(
                f"another criterion, or {mention('temperature', LEAST_TEMPERATURE)}, which draws the "
                "most likely token but for near-ties"
            ),
        )
