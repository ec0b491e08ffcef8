"""Compare settings side by side, paired by problem, if they can be compared.

    settings = settings_of(read_results(["runs/demo"]))
    print(markdown(compare(settings)))

Results that differ in grader, gold answers, data, problems or sampling (`rlvr_dir.results.matching`) are not compared,
unless that is requested by name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from rlvr_dir import stats
from rlvr_dir.errors import UserError
from rlvr_dir.markdown import interval, markdown_table
from rlvr_dir.results.matching import conflicting_weights, engine_facts, mismatches, partition
from rlvr_dir.results.settings import Setting, cut_unlike, few_families, taken_alone
from rlvr_dir.text import visible

Comparison = stats.Comparison[Setting]
ComparisonKind = Literal[
    "trained", "against rl", "against control", "token", "decision", "own draw", "second draw", "other"
]
_Pairs = list[tuple[Setting, Setting]]


def comparison_kind(row: Comparison) -> ComparisonKind:
    """Return the purpose of a comparison of `comparisons`: RL's gain over base, or a decoding's over RL or its control.

    Base's replacements have several controls. Replace minus reject is the effect of RL's token ("token"). Reject minus
    veto is the effect of RL's decision beyond the gate's ("decision"), and reject minus resample that beyond base's own
    ("own draw"). Resample minus base is the effect of resampling from base ("second draw"). If RL proposes, base and RL
    are exchanged.
    """
    decoding, other = row.result.decoding, row.reference.decoding
    if other == decoding.own_draw() != decoding:
        return "own draw" if decoding.mode == "reject" else "second draw"
    if other == decoding.control() != decoding:
        if other.mode == "reject":
            return "token"
        return "decision" if decoding.mode == "reject" else "against control"
    if other.mode == "rl":
        return "against rl"
    return "trained" if (decoding.mode, other.mode) == ("rl", "base") else "other"


def contrast_name(row: Comparison) -> str | None:
    """Return the name of a comparison in `Decoding.contrasts`; None if it has none."""
    contrasts = row.result.decoding.contrasts
    return next((name for name, reference in contrasts.items() if reference == row.reference.decoding), None)


# The five parts of the effect of replacing base's tokens, which add up to replace - base.
PARTS = {
    "second draw": "resample − base: base resamples flagged tokens",
    "cut of own": "base decides and writes − resample: the flagged token is removed before top-p is applied",
    "decision": "RL decides − base decides, base writes: RL's decision",
    "token": "RL writes − base writes, RL decides: RL's token",
    "cut of other": "replace − RL decides and writes: the flagged token is removed after top-p was applied",
}


def five_parts(rows: Sequence[Comparison]) -> list[dict[str, Comparison]]:
    """Return the five parts, by the names of `PARTS`, of each replacement whose cells were all decoded.

    Each part is the effect of one change. So `decision` and `token` are exactly 0 if both models decide alike, or would
    write alike. In order, they lead from base to the replacement and add up.
    """
    whole = []
    for row in rows:
        decoding = row.result.decoding
        if contrast_name(row) != "cut of other" or decoding.primary != "base":
            continue
        parts = {"cut of other": row}
        for name in ("token", "decision", "cut of own", "second draw"):
            last = [*parts.values()][-1].reference
            of_base = name == "second draw"  # resample - base, which is not a contrast of deciders
            matching = [
                candidate
                for candidate in rows
                if candidate.result is last
                and (candidate.reference.decoding.mode == "base" if of_base else contrast_name(candidate) == name)
            ]
            if matching:
                parts[name] = matching[0]
        if len(parts) == len(PARTS):
            whole.append({name: parts[name] for name in PARTS})
    return whole


# Further contrasts: the other order, the difference between both orders, and the parts of the decision.
OTHERS = {
    "token first": "RL writes − base writes, base decides: RL's token, in the other order",
    "decision last": "RL decides − base decides, RL writes: RL's decision, in the other order",
    "interaction": "RL's token where RL decides − RL's token where base decides",
    "rate": "a coin decides − base decides, base writes: how often the coin drops",
    "choice": "RL decides − the coin decides, base writes: which tokens RL drops",
}


def other_contrasts(parts: Mapping[str, Comparison], rows: Sequence[Comparison]) -> dict[str, stats.Comparison]:
    """Return the contrasts of `OTHERS` that were decoded, for the gate of one replacement's `five_parts`.

    The interaction is a difference of two differences, paired by problem like all others. p is corrected over the
    contrasts returned (Holm).
    """
    other_own, own_own = parts["decision"].result, parts["decision"].reference
    sides = {name: row.result for row in rows if row.reference is own_own and (name := contrast_name(row))}
    pairs: dict[str, tuple[stats.Scores, stats.Scores]] = {}
    if (own_other := sides.get("token first")) is not None:
        other_other = parts["token"].result
        pairs |= {"token first": (own_other, own_own), "decision last": (other_other, own_other)}
        pairs["interaction"] = _gain(other_other, other_own), _gain(own_other, own_own)
    if (coin := sides.get("rate")) is not None:
        pairs |= {"rate": (coin, own_own), "choice": (other_own, coin)}
    return dict(zip(pairs, stats.corrected(pairs.values()), strict=True))


def _gain(setting: Setting, reference: Setting) -> stats.Scores:
    """Return the difference of two settings, problem by problem."""
    gains = setting.by_unit - reference.by_unit
    label = f"{setting.label} − {reference.label}"
    families = stats.common_families([setting.families, reference.families])
    return stats.Scores(label, setting.task, setting.units, gains, families=families)


def comparisons(settings: Sequence[Setting], across: Collection[str] = ()) -> list[Comparison]:
    """Compare RL with base, and every other decoding with RL and with its control.

    Its control is `Decoding.control`, which differs in one respect. Reject is also compared with the resample of the
    proposing model, if that was decoded, and that with the model alone (`Decoding.own_draw`).

    Only settings of one pair of models that can be compared are paired, and others are left out. All comparisons form
    one set for Holm's correction.
    """
    tasks = dict.fromkeys(setting.task for setting in settings)
    return stats.corrected(
        pair
        for task in tasks
        for pair in _default_pairs([setting for setting in settings if setting.task == task], across)
    )


def compare(settings: Sequence[Setting], against: str | None = None, across: Collection[str] = ()) -> list[Comparison]:
    """Compare settings benchmark by benchmark, with one correction over all, where they match except in `across`.

    Args:
        settings: Those of `settings_of`.
        against: The reference: a label as printed, a decoding's label, a mode, a model's name, or the first digits of a
            result's config hash (six or more). With None the pairs are those of `comparisons`; if no matching setting
            is RL alone, the first setting is the reference, and controls are added.
        across: Names of `MATCH_FIELDS` in which the two of a pair may differ.

    Raises:
        UserError: The reference does not exist or is ambiguous, or there is nothing to compare.
    """
    pairs: _Pairs = []
    for task in dict.fromkeys(setting.task for setting in settings):
        of_task = [setting for setting in settings if setting.task == task]
        pairs += _against(of_task, against, across) if against is not None else ()
        for group in matching_groups(of_task, across) if against is None else ():
            pairs += _default_pairs(group, across, first=True)
    if not pairs:
        reasons = unmatched_reasons(settings, [], across)
        if reasons:
            raise UserError(reasons[0])
        raise UserError("There is nothing to compare", accepted="at least two settings of one benchmark")
    return stats.corrected(pairs)


def matching_groups(settings: Sequence[Setting], across: Collection[str] = ()) -> list[list[Setting]]:
    """Divide settings of one benchmark into groups that match the first setting of each."""
    return partition(settings, lambda setting, first: not unlike(setting, first, across))


def unlike(setting: Setting, reference: Setting, across: Collection[str] = ()) -> list[str]:
    """Return the names of `MATCH_FIELDS` in which two settings differ, except those of `across`."""
    return mismatches(setting.first, reference.first, across)


def _default_pairs(settings: Sequence[Setting], across: Collection[str], first: bool = False) -> _Pairs:
    """Return the pairs of `comparisons` on one benchmark; without RL, if `first`, all minus the first."""
    pairs: _Pairs = []
    for setting in settings:
        mode = {"rl": "base", "base": ""}.get(setting.decoding.mode, "rl")
        pairs += _nearest(setting, [other for other in settings if other.decoding.mode == mode], across)
    controlled: _Pairs = []
    for setting in settings:
        decoding = setting.decoding
        for control in dict.fromkeys((decoding.control(), decoding.own_draw(), *decoding.contrasts.values())):
            references = [other for other in settings if other.decoding == control != setting.decoding]
            controlled += _nearest(setting, references, across)
    if first and not pairs and not (controlled and any(setting.decoding.mode == "rl" for setting in settings)):
        controlled_pairs = [
            {id(result), id(other)} for result, other in controlled
        ]  # a pair and its reverse are one comparison
        pairs = [
            (setting, settings[0]) for setting in settings[1:] if not _same_path_other_weights(setting, settings[0])
        ]
        pairs = [pair for pair in pairs if {*map(id, pair)} not in controlled_pairs]
    return pairs + controlled


def _nearest(setting: Setting, references: Sequence[Setting], across: Collection[str]) -> _Pairs:
    """Pair a setting with its pair's reference that matches; of several, the one with the nearest engine and seeds."""
    first = setting.first
    matching = [
        reference
        for reference in references
        if reference.first.pair == first.pair and reference.first.name == first.name
    ]
    matching = [
        reference
        for reference in matching
        if not unlike(setting, reference, across) and not other_weights(setting, reference)
    ]
    last = {
        id(reference): (engine_facts(reference.first) != engine_facts(first), reference.seeds != setting.seeds)
        for reference in matching
    }
    return [
        (setting, reference)
        for reference in sorted(matching, key=lambda reference: _distance(setting, reference) + last[id(reference)])[:1]
    ]


def _distance(setting: Setting, other: Setting) -> tuple[int | bool, ...]:
    """Measure how different two settings are, as a tuple. The first entry that differs decides; less is nearer.

    The entries are: what must match, the pair, its weights, and what should be equal: prompt, chat template, and every
    fact of the engine.
    """
    shared = setting.first.provenance.get("shared") == other.first.provenance.get("shared")
    return (
        len(unlike(setting, other)),
        setting.first.pair != other.first.pair,
        bool(other_weights(setting, other)),
        not shared,
    )


def other_weights(setting: Setting, reference: Setting) -> list[str]:
    """Return the roles in which a reference was decoded with other weights, possibly at the same place."""
    return conflicting_weights(setting.first.weights, reference.first.read_weights)


def _same_path_other_weights(setting: Setting, reference: Setting) -> bool:
    """Return whether the reference had other weights at the same place, so that both have the same name."""
    return setting.first.pair == reference.first.pair and bool(other_weights(setting, reference))


def _against(settings: Sequence[Setting], against: str, across: Collection[str]) -> _Pairs:
    """Pair each setting with the reference that it matches.

    Raises:
        UserError: No setting has this name, or a setting matches several.
    """
    kinds: tuple[Callable[[Setting], bool], ...] = (
        lambda setting: setting.label == against,
        lambda setting: setting.decoding.label() == against,
        lambda setting: setting.decoding.mode == against,
        lambda setting: setting.first.name == against,
        lambda setting: len(against) >= 6 and any(result.config_hash.startswith(against) for result in setting.results),
    )
    references = next((named for kind in kinds if (named := [*filter(kind, settings)])), [])
    if not references:
        labels = ", ".join(repr(setting.label) for setting in settings)
        raise UserError(
            f"names no result of {settings[0].task}", argument="against", value=against, accepted=f"one of {labels}"
        )
    pairs: _Pairs = []
    for setting in settings:
        if any(setting is reference for reference in references):
            continue
        own = [reference for reference in references if not unlike(setting, reference, across)]
        nearest = min((_distance(setting, reference) for reference in own), default=())
        own = [reference for reference in own if _distance(setting, reference) == nearest]
        if len(own) > 1:
            labels = " or ".join(repr(reference.label) for reference in own)
            raise UserError(
                f"matches {len(own)} results of {setting.task} that {setting.label!r} could be compared with",
                argument="against",
                value=against,
                accepted=f"one of them, by its label: {labels}",
            )
        pairs += [(setting, reference) for reference in own]
    return pairs


def unmatched_reasons(
    settings: Sequence[Setting], rows: Sequence[Comparison], across: Collection[str] = ()
) -> list[str]:
    """Explain for each setting without a comparison how it differs from the others of its benchmark."""
    compared, tasks = [id(side) for row in rows for side in (row.result, row.reference)], {s.task for s in settings}
    sentences = []
    for setting in settings:
        others = [other for other in settings if other.task == setting.task and other is not setting]
        if not others and len(tasks) > 1:
            sentences.append(f"{setting.label!r} is the only result on {setting.task}, so it is not compared")
        if id(setting) in compared or not others:
            continue
        nearest = min(others, key=lambda other: len(unlike(setting, other, across)))
        other = "those above" if id(nearest) in compared else repr(nearest.label)
        if differing := unlike(setting, nearest, across):
            hint = " (--grader grades records again)" if "grader" in differing else ""
            sentences.append(
                f"{setting.label!r} and {other} on {setting.task} differ in {' and '.join(differing)}, so "
                f"they are not compared; give results that are alike{hint}, or ask for it "
                f"(--across {','.join(differing)})"
            )
        elif moved := [other for other in others if _same_path_other_weights(setting, other)]:
            roles = " and ".join(other_weights(setting, moved[0]))
            other = "those above" if id(moved[0]) in compared else repr(moved[0].label)
            sentences.append(
                f"{setting.label!r} and {other} on {setting.task} were decoded by other weights of {roles}, "
                "which lay at the same place, so they are not compared; ask for it by name (--against)"
            )
    return [*dict.fromkeys(sentences)]


def evidence(rows: Sequence[stats.Comparison[Any]]) -> list[str]:
    """Return a sentence each about few families, and about problems of which none differs, if there are such rows."""
    equal = [row.difference for row in rows if row.nothing_differs]
    units = {d.families or d.n: d.over.split(",")[0] for d in equal}
    still_open = [f"{100 * stats.unseen(n):.1f} % ({words})" for n, words in units.items()]
    sides = [side for row in rows for side in (row.result, row.reference)]
    sentence = f"Where no tested problem differs, up to {', '.join(still_open)} of all problems of this kind may."
    return [*few_families(sides), *([sentence] if equal else [])]


def markdown(rows: Sequence[Comparison], notes: Sequence[str] = ()) -> str:
    """Return the comparisons as a Markdown table in percentage points, with notes below."""
    sides = [side for row in rows for side in (row.result, row.reference)]
    seeds = ", ".join(map(str, sorted({seed for side in sides for seed in side.seeds})))
    lines = [
        _table(rows),
        "",
        f"Paired by problem; Holm's correction over these {len(rows)} comparisons.",
        "95 % interval: for other such problems; sampling only: for other samples of the same problems.",
        *map(visible, evidence(rows)),
        f"A score is the mean of all seeds that its setting has (of {seeds})."
        if any(len(side.seeds) > 1 for side in sides)
        else None,
        "Partial results are in it: they are marked, and will change when the rest is decoded."
        if any(side.partial for side in sides)
        else None,
        *map(visible, cut_unlike([(row.result, row.reference) for row in rows])),
        *(f"Left out: {visible(note)}." for note in notes),
    ]
    return "\n".join(line for line in lines if line is not None)


def _table(rows: Sequence[Comparison]) -> str:
    cells = [
        [
            row.result.benchmark,
            row.result.label,
            f"{row.reference.label} ({100 * row.reference.avg:.2f})",
            f"{100 * row.result.avg:.2f}",
            f"{100 * row.difference.mean:+.2f}",
            interval(row.difference.low, row.difference.high, 2, sign=True),
            "" if row.result.first.sampling.greedy else interval(*row.difference.sampling, 2, sign=True),
            row.p_text,
            row.holm_text,
        ]
        for row in rows
    ]
    head = ["benchmark", "decoding", "minus", "Avg", "difference", "95 % interval", "sampling only", "p", "p (Holm)"]
    return markdown_table(head, cells, left=3)


def problems_needed(rows: Sequence[Comparison], gain: float) -> str:
    """Return how many problems are needed to detect a `gain` (a fraction) with 80 % chance, for each comparison.

    Next to it is the smallest gain that the problems of this table could detect. Both assume the spread of these
    results, and as many samples per problem. Comparisons with one sample, which have no spread, are blank.

    Raises:
        UserError: The gain is not strictly between 0 and 1.
    """
    if not 0 < gain < 1:
        raise UserError(f"gain={100 * gain:g} is not allowed", accepted="percentage points above 0 and below 100")
    cells = []
    for row in rows:
        values, samples = (row.result.values, row.reference.values), min(row.result.samples, row.reference.samples)
        needed = detectable = ""
        if samples > 1 and row.difference.n > 1:
            spread = stats.paired_spread(*values)
            if spread.between + spread.within > 0:
                needed = f"{stats.problems_needed(gain, spread, samples):,}"
                least = 100 * stats.detectable_gain(spread, row.difference.n, samples)
                detectable = f"{least:.1f}" if least <= 100 else "none"
        names = [row.result.benchmark, row.result.label, row.reference.label]
        cells.append([*names, f"{row.difference.n:,}", str(samples), detectable, needed])
    head = ["benchmark", "decoding", "minus", "problems", "samples", "points these show"]
    return (
        f"Problems that would be needed to find a gain of {100 * gain:g} points with 80 % chance, and the gain "
        "that those available would show (paired t test at 5 %, the samples a problem as here):\n\n"
        + markdown_table([*head, f"problems for {100 * gain:g}"], cells, left=3)
        + "".join(
            f"\n\n{sentence}" for sentence in taken_alone(side for row in rows for side in (row.result, row.reference))
        )
    )
