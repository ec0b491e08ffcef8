"""Order decodings so that an interrupted evaluation has complete comparisons."""

from collections.abc import Iterable

from rlvr_dir.config import Decoding


def points_first(decodings: Iterable[Decoding]) -> list[Decoding]:
    """Return decodings in the order in which they run: base, RL, then each one before its controls.

    >>> from rlvr_dir.config import parse_decoding
    >>> names = "base", "veto,tau=-0.3", "reject,tau=-0.3", "replace,tau=-0.3", "replace,tau=-0.1", "rl"
    >>> [each.label() for each in points_first(map(parse_decoding, names))]
    ['base', 'rl', 'replace τ-0.3', 'reject τ-0.3', 'veto τ-0.3', 'replace τ-0.1']
    """
    requested = dict.fromkeys(decodings)
    controls = {control for decoding in requested for control in decoding.controls()}
    order = [decoding for decoding in requested if decoding.mode in ("base", "rl")]
    for decoding in requested:
        if decoding not in controls:
            order += [decoding, *(control for control in decoding.controls()[::-1] if control in requested)]
    return list(dict.fromkeys(order))
