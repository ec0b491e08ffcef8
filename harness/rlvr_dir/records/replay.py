"""A response that was replayed with one of its tokens changed, and its verdict; the response itself is not kept."""

from rlvr_dir.config.stored import Count, Flag, Name, Stored

OWN, PROPOSED = "own", "proposed"  # whose token it is: the response's own model's, drawn again; that of before a gate


class Replay(Stored, frozen=True):
    """Hold what became of a response with another token at one place.

    The token is that of `by`: a rule, by the digest of its settings, `OWN` or `PROPOSED`. `right` is None where the
    rest was not decoded: it is the response itself where the token is its own, else it is still to be done.
    """

    problem: Name
    sample: Count
    response: Name  # the digest of the response that was changed
    at: Count  # the place of the token
    by: Name
    noise: Count  # 0: all that follows has the response's own noise; else that of a seed larger by so much
    token: Count
    n_tokens: Count = 0  # of the replayed response
    judge: Name | None = None
    right: Flag | None = None

    @property
    def key(self) -> tuple[str, int, str, int, str, int]:
        """Return what it is a replay of."""
        return self.problem, self.sample, self.response, self.at, self.by, self.noise
