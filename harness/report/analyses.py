"""The forms of what `rlvr-dir analyse` writes, as far as a report reads it."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.spec import Sampling
from harness.spec.stored import Count, Name, Number, Stored, Text

Amount = Annotated[Number, Field(ge=0)]
Part = Annotated[Number, Field(ge=0, le=1)]


class Estimate(Stored, frozen=True):
    """A value and its interval; None where there is none."""

    value: Number | None
    low: Number | None
    high: Number | None


class Counted(Stored, frozen=True):
    """What a histogram has counted."""

    tokens: Count
    near_zero: Count
    counts: tuple[Count, ...]


class HistogramForm(Stored, frozen=True):
    """A histogram of a fact."""

    low: Number
    high: Number
    counted: Counted


class Generation(Stored, frozen=True):
    """What was counted of one model's responses."""

    problems: Count
    tokens: Count
    histograms: dict[str, HistogramForm]


class Tail(Stored, frozen=True):
    """The share of tokens beyond an edge, of both models' responses."""

    fact: Text
    side: Literal["below", "above"]
    edge: Number
    more: Literal["base", "rl"]
    base: Estimate
    rl: Estimate
    ratio: Estimate


class DeltaBin(Stored, frozen=True):
    """Tokens of one range of delta log p."""

    tokens: Count
    p_base: Estimate
    p_rl: Estimate


class MassBin(Stored, frozen=True):
    """Tokens of one range of probability."""

    tokens: Estimate
    mass: Estimate


class ByDelta(Stored, frozen=True):
    """Probabilities by delta log p, of both models' responses."""

    edges: Annotated[tuple[Number, ...], Field(min_length=1)]
    base: tuple[DeltaBin, ...]
    rl: tuple[DeltaBin, ...]


class ByProbability(Stored, frozen=True):
    """Gradient mass by probability, of both models' responses."""

    edges: Annotated[tuple[Number, ...], Field(min_length=1)]
    base: tuple[MassBin, ...]
    rl: tuple[MassBin, ...]


class CountedToken(Stored, frozen=True):
    """A token and how often it was met."""

    token: Text
    count: Number


class LikelierToken(CountedToken, frozen=True):
    """A token that RL made likelier."""

    delta_logp: Number
    p_base: Number
    p_rl: Number


class Chosen(Stored, frozen=True):
    """What one criterion picks, and what RL puts there."""

    criterion: Name
    tau: Number
    positions: Count
    picked: tuple[CountedToken, ...]
    placed: tuple[CountedToken, ...]


class Selected(Stored, frozen=True):
    """What each criterion picks of base's tokens."""

    positions: Count
    criteria: Annotated[tuple[Chosen, ...], Field(min_length=1)]


class OfResponses(Stored, frozen=True):
    """What every analysis of responses says of them."""

    pair: dict[str, Any]
    tasks: tuple[Text, ...]
    limited: dict[str, Text] | None = None
    sampling: Sampling


class TokensForm(OfResponses, frozen=True):
    """`tokens.json`."""

    generations: dict[Literal["base", "rl"], Generation]
    tails: tuple[Tail, ...]
    by_delta: ByDelta
    gradient: ByProbability
    selected: Selected
    likelier: tuple[LikelierToken, ...]


class GateShare(Stored, frozen=True):
    """A share of some tokens with its interval, and of how many; None where there are none."""

    value: Part | None
    low: Part | None
    high: Part | None
    of: Count


Two = Annotated[tuple[GateShare, ...], Field(min_length=2, max_length=2)]


class GatedDecoding(Stored, frozen=True):
    """Say where one gate redraws and what follows; `after` has as many tokens for both models."""

    label: Text
    problems: Count
    runs: tuple[Count, ...]
    share: GateShare
    changed: GateShare
    by_token: tuple[GateShare, ...]
    by_tenth: Annotated[tuple[GateShare, ...], Field(min_length=1)]
    entropy: Annotated[tuple[Two, ...], Field(min_length=2, max_length=2)]
    kept: Two
    after: Annotated[tuple[tuple[GateShare, ...], ...], Field(min_length=2, max_length=2)]


class GatedForm(OfResponses, frozen=True):
    """`gated.json`."""

    tokens: tuple[Count, ...]
    decodings: Annotated[tuple[GatedDecoding, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> "GatedForm":
        for one in self.decodings:
            if len(one.by_token) != len(self.tokens):
                raise ValueError(f"by_token has {len(one.by_token)} places, and tokens names {len(self.tokens)}")
        return self


class ChangedNumbers(Stored, frozen=True):
    """Count how many numbers of two checkpoints differ, and by how much."""

    numbers: Annotated[Count, Field(ge=1)]
    changed: Count
    moved: Count
    norm: Amount
    difference: Amount

    @model_validator(mode="after")
    def _check(self) -> "ChangedNumbers":
        if not self.moved <= self.changed <= self.numbers:
            raise ValueError(f"moved={self.moved}, changed={self.changed}, numbers={self.numbers} do not nest")
        return self


class ChangedTensor(ChangedNumbers, frozen=True):
    """Say what training did to one tensor; the last five are known of matrices."""

    shape: tuple[Count, ...]
    layer: Count | None
    kind: Text
    drift: Amount | None = None
    rotation: Amount | None = None
    principal: Amount | None = None
    chance: Amount | None = None
    stable_rank: Amount | None = None


class WeightsForm(Stored, frozen=True):
    """`weights.json`."""

    pair: dict[str, Any]
    tolerance: Amount
    tensors: Annotated[tuple[ChangedTensor, ...], Field(min_length=1)]
    only_base: tuple[Text, ...] = ()
    only_rl: tuple[Text, ...] = ()
    other_shape: tuple[Text, ...] = ()


class StepScore(Stored, frozen=True):
    """The accuracy of base or of a checkpoint on one benchmark."""

    label: Text
    task: Text
    value: Number
    low: Number | None
    high: Number | None


class StepDifference(Stored, frozen=True):
    """The difference of two checkpoints on one benchmark."""

    task: Text
    label: Text
    minus: Text
    mean: Number
    low: Number | None
    high: Number | None
    holm_p: Part


class StepText(Stored, frozen=True):
    """Say what a checkpoint and base think of one writer's tokens."""

    below: Estimate
    above: Estimate
    delta_logp: Estimate
    kl: Estimate
    entropy_rl: Estimate


class Step(Stored, frozen=True):
    """One checkpoint of a training."""

    name: Text
    step: Amount
    text: Annotated[dict[Literal["base", "rl"], StepText], Field(min_length=1)]
    weights: dict[Literal["base", "before"], ChangedNumbers | None]


class Extent(Stored, frozen=True):
    """How much text was scored."""

    problems: Count
    tokens: Count


class SetOfTokens(Stored, frozen=True):
    """Compare extrapolated logits over one set of the vocabulary."""

    positions: Count
    r2_late: Estimate
    r2: Estimate
    explained: Estimate
    worse: Estimate
    best_gamma: Estimate


class ExtrapolatedTo(Stored, frozen=True):
    """Compare one later checkpoint with what two earlier ones extrapolate to."""

    early: Text
    late: Text
    real: Text
    gamma: Amount
    positions: Count
    kl_late: Estimate
    kl: Estimate
    sets: dict[Literal["all", "top", "nucleus"], SetOfTokens]

    @model_validator(mode="after")
    def _check(self) -> "ExtrapolatedTo":
        if len(self.sets) != 3:
            raise ValueError("sets: accepted: all, top and nucleus, each of them")
        return self


class TrajectoryForm(OfResponses, frozen=True):
    """`trajectory.json`."""

    tau: Number
    texts: dict[Literal["base", "rl"], Extent]
    scores: Annotated[tuple[StepScore, ...], Field(min_length=1)]
    differences: tuple[StepDifference, ...]
    checkpoints: Annotated[tuple[Step, ...], Field(min_length=1)]
    extrapolated: tuple[ExtrapolatedTo, ...]


class BanditTrial(Stored, frozen=True):
    """Bandits that learned from rewards of one level of noise, by gamma."""

    noise: Number
    mean: tuple[Number, ...]
    error: tuple[Number, ...]
    losing: tuple[Number, ...]


class TheoremForm(Stored, frozen=True):
    """`theorem.json`."""

    bandits: Count
    gammas: tuple[Number, ...]
    trials: Annotated[tuple[BanditTrial, ...], Field(min_length=1, max_length=7)]


class TrainingForm(Stored, frozen=True):
    """`training.json`, whose parts are read as they are."""

    curves: dict[str, dict[str, tuple[tuple[tuple[Number, Number], ...], ...]]]
