"""The two checkpoints under study, by path, hub id or the name of a preset."""

from pydantic import Field

from harness.errors import unknown
from harness.spec.base import Spec


class Pair(Spec):
    """A base checkpoint and its RLVR-trained successor: hub ids or local directories, with optional revisions.

    `trust_remote_code` stays off unless the user says otherwise.
    """

    base: str = Field(min_length=1)
    rl: str = Field(min_length=1)
    base_revision: str | None = None
    rl_revision: str | None = None
    trust_remote_code: bool = False

    @classmethod
    def preset(cls, name: str) -> "Pair":
        """One of the paper's pairs (its section "Experiment setup" names the checkpoints).

        Raises:
            UserError: no preset has that name.
        """
        if name not in PRESETS:
            raise unknown("pair", name, PRESETS)
        return PRESETS[name]


PRESETS: dict[str, Pair] = {
    "dapo-32b": Pair(base="Qwen/Qwen2.5-32B", rl="BytedTsinghua-SIA/DAPO-Qwen-32B"),
    "orz-32b": Pair(base="Qwen/Qwen2.5-32B", rl="Open-Reasoner-Zero/Open-Reasoner-Zero-32B"),
    "unireason-14b": Pair(base="Qwen/Qwen3-14B-Base", rl="ReasoningTransferability/UniReason-Qwen3-14B-RL"),
}
