"""Store the verdict of a response that was replayed with one token changed. The response itself is not stored."""

from rlvr_dir.config.stored import Count, Flag, Name, Stored

OWN, PROPOSED = "own", "proposed"  # whose token it is: the response's own model's, drawn again; that of before a gate


class Replay(Stored, frozen=True):
    """Store the result of a response with another token at one position.

    The token is that of `by`: the digest of a decoding's settings, `OWN` or `PROPOSED`. `right` is None if the rest was
    not decoded. If the token is the response's own, the result is the response itself; otherwise the replay is not done
    yet.
    """

    problem: Name
    sample: Count
    response: Name  # the digest of the response that was changed
    at: Count  # the position of the token
    by: Name
    noise: Count  # 0: the rest has the response's own noise; otherwise that of a seed this much larger
    token: Count
    n_tokens: Count = 0  # of the replayed response
    judge: Name | None = None
    right: Flag | None = None

    @property
    def key(self) -> tuple[str, int, str, int, str, int]:
        """Return what identifies it."""
        return self.problem, self.sample, self.response, self.at, self.by, self.noise
