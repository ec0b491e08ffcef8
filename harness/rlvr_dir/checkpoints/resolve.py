"""Resolve names of the tiny pair, which ships with rlvr-dir, to the folders of its checkpoints."""

from rlvr_dir.config import TINY, Pair
from rlvr_dir.tiny import checkpoint, tiny_pair


def resolve(pair: Pair | str) -> Pair:
    """Return a pair with the places of its checkpoints. The pair, or one of its models, may be named `tiny` or
    `tiny@STEP`.

    Raises:
        UserError: This installation has no tiny weights.
    """
    if pair == TINY:
        return tiny_pair()
    named = Pair.model_validate(pair)
    return named.replace(base=checkpoint(named.base), rl=checkpoint(named.rl))
