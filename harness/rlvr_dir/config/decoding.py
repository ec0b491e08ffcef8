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
SHORT = ("veto", "reject")  # short names of decodings with a decider
ALONE = ("base", "rl")  # modes in which one model writes alone, without a criterion
MODES: tuple[Mode, ...] = get_args(Mode)
_GATED = ", ".join(mode for mode in MODES if mode not in ALONE)
_WINDOW = re.compile(r"([0-9]{0,9}):([0-9]{0,9})")
_WINDOW_SHARES = re.compile(r"(0|[0-9]{1,3}%)?:([0-9]{1,3}%)?")  # of max_tokens
SYNONYMS = {"threshold": "tau", "cutoff": "tau", "strength": "gamma", "metric": "criterion", "gate": "criterion"}
_UNSET = (None, 0, 0.0, "0")  # values that have no effect in a mode without the setting


class Decoding(Spec, frozen=True):
    """Choose which model proposes a token, when it is resampled, and from which policy (Algorithm 1 of the paper).

    base, rl: one model writes, and nothing is flagged. All others: `primary` proposes, and the criterion flags tokens.
    The mode selects the writer at a flagged token: replace RL, resample base (gamma -1), extrapolate pi_extra,
    proportional to exp(lr + gamma (lr - lb)). Without a `decider` the writer's sample is written, which may be the same
    token. With a decider, the decider chooses whether the token is dropped, and the writer samples from its
    distribution without it; top-p is applied to what is left.

    | decider | a flagged token is dropped              | writes base          | writes RL          |
    |---------|-----------------------------------------|----------------------|--------------------|
    | gate    | always                                  | resample (veto)      | replace            |
    | base    | unless base samples the same token      | resample             | replace            |
    | rl      | unless RL samples the same token        | resample (reject)    | replace            |
    | 0 to 1  | with this probability                   | resample             | replace            |

    `veto` and `reject` are short names. `veto` is decider gate, with gamma (-1 by default) for the writer. `reject` is
    the other model's decision with the proposing model's tokens: `resample,decider=rl`, or if RL proposes
    `replace,decider=base`. These decodings have their short names, whichever form was given. A decoding whose writer is
    RL is called replace, and one whose writer is base resample. The criterion and its parameters are written flat:
    `criterion: kl, tau: 0.1`. Outside the `window` nothing is flagged.
    """

    called: ClassVar[str] = "decoding"

    mode: Mode = Field(
        default="rl",
        description="How to decode. `base`, `rl`: that model alone. `replace`: resample flagged tokens from RL. "
        "`extrapolate`: resample them from a distribution past RL's (see gamma). `resample`: resample them from base. "
        "`veto`: drop every flagged token; base writes another. `reject`: drop a flagged token if RL samples another "
        "one; base writes.",
    )
    primary: Primary = Field(
        default="base",
        description="Which model proposes each token: base or rl.",
    )
    gate: InstanceOf[Gate] | None = None
    decider: Annotated[Decider | float | None, BeforeValidator(lambda value: _decider(value))] = Field(
        default=None,
        description="Who decides whether a flagged token is dropped: gate (always), base or rl (if it samples another "
        "token), or a probability. The mode's model then writes another token. If not set, that model's own sample "
        "decides.",
    )
    gamma: float = Field(
        default=0.0,
        ge=-1.0,
        le=100.0,
        description="Strength of extrapolation: 0 is RL, above 0 goes past RL, between -1 (base) and 0 interpolates.",
    )
    window: Annotated[str | None, BeforeValidator(lambda value: _normal_window(value))] = Field(
        default=None,
        description="Positions where tokens may be flagged, as a slice (0:16 or 16:), or as a share of max_tokens "
        "(0:25% or 25%:).",
    )

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the fields, with the criterion and the parameters of all criteria instead of the gate."""
        criterion: Any = Field(
            default="delta_logp", description=f"Criterion that flags tokens: {', '.join(gates())} (kl is the mean of "
            "kl_rl_base and kl_base_rl), or your own as package.module:CLASS.",
        )  # fmt: skip
        criterion.annotation = str
        fields = {name: info for name, info in cls.model_fields.items() if name != "gate"}
        mode: Any = Field(
            default=None, description=f"{fields['mode'].description} Default: rl; with tau replace, and with "
            "tau and gamma extrapolate.",
        )  # fmt: skip
        mode.annotation = str
        return fields | {"mode": mode, "criterion": criterion} | parameters()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        """Reject settings that the mode does not have, and collect the criterion and its parameters, which are written
        flat."""
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
                f"is not allowed with {mention('criterion', self.gate.name)}, which has its own distribution",
                argument="mode" if self.mode in SHORT else "decider",
                value=self.mode if self.mode in SHORT else self.decider,
                accepted="another criterion",
            )
        if isinstance(self.gate, Threshold) and (doubt := self.gate.doubt()):
            warnings.warn(doubt, stacklevel=2)
        return self

    @model_serializer(mode="plain")
    def _flat(self) -> dict[str, Any]:
        """Return the fields that the mode has, with the criterion and its parameters flat."""
        if self.gate is None:
            return {"mode": self.mode, "primary": self.primary}
        left_out = ("gate",) if self.names_decider else ("gate", "decider")  # as in versions without a decider
        fields = {name: getattr(self, name) for name in type(self).model_fields if name not in left_out}
        return fields | self.gate.plain()

    @property
    def names_decider(self) -> bool:
        """Return whether it has a decider that no short name (veto, reject) stands for."""
        return self.decider is not None and self.mode not in SHORT

    def replace(self, **changes: Any) -> "Decoding":
        """Return a validated copy with some fields changed. If the mode changes, the decider is removed unless one is
        given.

        Raises:
            UserError: The changed decoding is not valid.
        """
        return super().replace(**{**({"decider": None} if "mode" in changes else {}), **changes})

    @property
    def gated(self) -> bool:
        """Return whether it has a criterion (every mode but `base` and `rl`)."""
        return self.gate is not None

    @property
    def _other(self) -> Primary:
        """Return the model that does not propose."""
        return "base" if self.primary == "rl" else "rl"

    def cell(self, decider: Decider | float | None, writer: Primary) -> "Decoding":
        """Return the decoding with the same gate in which `decider` decides and `writer` writes."""
        mode, gamma = ("replace", 0.0) if writer == "rl" else ("resample", -1.0)
        return self.replace(mode=mode, gamma=gamma, decider=decider)

    @property
    def contrasts(self) -> dict[str, "Decoding"]:
        """Return the decodings that differ from this one in exactly one respect, by the name of the contrast.

        Write (d, w) for decider d and writer w, and own for the model that proposes. `decision` is (other, own) - (own,
        own): the effect of the other model's decision. `token` is (other, other) - (other, own): the effect of its
        token. In the other order they are `token first`, (own, other) - (own, own), and `decision last`, (other, other)
        - (own, other). `rate` is a coin minus (own, own), with own as the writer. `cut of own` and `cut of other` are
        the effect of removing the flagged token before top-p is applied, if the same model decides and writes.

        Each is 0 if its cause is absent, at any top-p and in greedy decoding: `decision` if both models sample the
        flagged token equally often, `token` if both distributions are equal without it.
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
        """Return the gamma of the policy that proposes."""
        return 0.0 if self.primary == "rl" else -1.0

    @property
    def strength(self) -> str:
        """Return what distinguishes its writer from others of its mode: `γ0.1` for extrapolations, `by RL` for a
        veto."""
        if self.mode == "veto" and self.gamma in (0.0, -1.0):
            return "" if self.gamma == self._own_gamma else "by RL" if self.gamma == 0 else "by base"
        return f"γ{self.gamma:g}" if self.mode in ("extrapolate", "veto") else ""

    @property
    def tau(self) -> float | None:
        """Return the threshold of its criterion; None if there is none."""
        return getattr(self.gate, "tau", None)

    @property
    def criterion(self) -> str:
        """Return the criterion with its side, if that is not the usual one, and window: `delta_logp above @0:16`.

        Its own parameters are included: `NAME/32`. The text is empty without a criterion.
        """
        return "" if self.gate is None else f"{self.gate.words}{self._at_window}"

    @property
    def caption(self) -> str:
        """Return the name of its criterion in tables and figures: `Δ log p above`, `LABEL (span 32)`."""
        return "" if self.gate is None else f"{self.gate.caption}{self._at_window}"

    @property
    def _at_window(self) -> str:
        return f" @{self.window}" if self.window else ""

    @property
    def everywhere(self) -> bool:
        """Return whether every token is flagged."""
        return self.gate is not None and self.gate.everywhere and not self.window

    def tokens(self, max_tokens: int) -> tuple[int, int | None]:
        """Return the window in tokens of a response: its first token, and the first one after it.

        A share is one of `max_tokens`, rounded up, because the length of a response is unknown while it is written.
        """
        since, _, until = (self.window or ":").partition(":")
        return _place(since, max_tokens) or 0, _place(until, max_tokens)

    @property
    def reads_base(self) -> bool:
        """Return whether base's logits are needed. RL alone needs none of them."""
        return self.mode != "rl"

    def forwards(self, models: int = 2) -> int:
        """Return how many forward passes one token costs, for a pair (2 `models`) or a pair with a third model (3).

        Base, or the third model instead, is one model, and so is RL in a pair.
        """
        alone = self.mode == "base" or (models == 2 and not self.gated)
        return 1 if alone else models

    def control(self) -> "Decoding":
        """Return the decoding that it is compared with, which differs in one respect. Without a control it is the
        decoding itself.

        The control of an extrapolation is the replacement (gamma = 0): their difference is the effect of going past RL.
        If base proposes, the control of a replacement is reject, RL's decision with base's token, and the difference is
        the effect of RL's token. The control of reject is the veto, in which the gate alone decides, and the difference
        is the effect of RL's decision. If RL proposes, a replacement samples RL again, and its control is the veto by
        which RL cannot sample the same token; that of reject is `resample`, the control for base's tokens. Without a
        threshold there is no control, because every token is flagged or the gate itself defines the distribution.
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
        """Return, for reject, the decoding with the same gate in which the proposing model decides: for base,
        *resample*.

        Reject is the other model's decision with the proposing model's tokens, and this is the proposing model's own
        decision with its own tokens. For base's resample it is base alone (everything is compared with RL alone), and
        for another mode the decoding itself.
        """
        if self.names_decider:
            return self
        if self.mode == "resample" and self.primary == "base":
            return Decoding(mode="base")
        mode = "resample" if self.primary == "base" else "replace"
        return self.replace(mode=mode, gamma=self._own_gamma) if self.mode == "reject" else self

    def controls(self) -> tuple["Decoding", ...]:
        """Return its control and the control's own control, the last first; empty if there is none."""
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
        UserError: A setting is given that only other modes have.
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
    """Return the fields of a mode with a criterion, with a gate made from the flat settings.

    Raises:
        UserError: The criterion, one of its parameters or the strength is not valid or missing.
    """
    fields = dict(data)
    if fields.get("source") is None:  # otherwise a stored user-defined criterion
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
    """Make a gate from a criterion and its parameters.

    Raises:
        UserError: The criterion is unknown, or does not have a parameter, or its threshold is missing.
    """
    written = fields.get("criterion", "delta_logp")
    named = split(written) if isinstance(written, str) else {"criterion": written}
    criterion, source = named["criterion"], fields.get("source")
    gate_class = None
    if isinstance(criterion, str):
        gate_class = imported(criterion, source) if ":" in criterion else gates().get(criterion)
        if gate_class is None and source is not None:  # as in a record or a result
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
                "is not allowed: a truth value is not a number", argument=name, value=value, accepted="a number"
            )
    if issubclass(gate_class, Threshold) and "tau" not in fields:
        raise UserError(
            f"{mention('mode', mode)} needs a threshold: tau is missing",
            argument="tau",
            hint=f"For example {mention('tau', -0.3)} with {mention('criterion', criterion)}.",
        )
    gate = gate_class.model_validate({name: value for name, value in fields.items() if name != "criterion"})
    if gate.written:  # its stored form must be readable without importing the criterion
        plain = gate.plain()
        NotLoaded(criterion=plain.pop("criterion"), digest=plain.pop("source"), **plain)
    return gate


def _decider(value: Any) -> Any:
    """Return a decider in its stored form: a probability as a number, and 1 as the gate, which always drops.

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
    """Return a window in its stored form; None for all tokens.

    Raises:
        ValueError: The window is not a slice or contains no token, or its shares are not between 0% and 100%.
    """
    if not isinstance(window, str):
        return window
    unit = "%" if "%" in window else ""
    match = (_WINDOW_SHARES if unit else _WINDOW).fullmatch(window)
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
    """Return one end of a window in tokens; None if it has none."""
    if end.endswith("%"):
        return -(-max_tokens * int(end[:-1]) // 100)
    return int(end) if end else None


def parse_decoding(text: str) -> Decoding:
    """Read a decoding from `rl`, `replace,tau=-0.3` or `mode=extrapolate,tau=-0.3,gamma=0.1`.

    Raises:
        UserError: A name is unknown, or a value is not valid.
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
    """Put base and RL first, and before each decoding its controls.

    The controls of a replacement are reject and veto; those of an extrapolation are the replacement and its controls.
    """
    with_references = [Decoding(mode="base"), Decoding(mode="rl")]
    for decoding in decodings:
        with_references += [*decoding.controls(), decoding]
    return tuple(dict.fromkeys(with_references))


def check_together(decoding: Decoding, sampling: SamplingSettings) -> None:
    """Reject a decoding that does not fit this sampling.

    Raises:
        UserError: The criterion or decider is random and decoding is greedy, which has no randomness.
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
