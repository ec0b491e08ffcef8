"""The two checkpoints under study, by path, hub id or the name of a preset."""

import json
from pathlib import Path

from pydantic import Field

from harness.errors import UserError, unknown
from harness.spec.base import Spec, parse


class Pair(Spec):
    """A base checkpoint and its RLVR-trained successor: hub ids or local directories, with optional revisions.

    `rl` may hold a LoRA adapter of base, as PEFT writes it, instead of weights.
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

    @classmethod
    def of_folder(cls, folder: str | Path) -> "Pair":
        """The pair in a directory: what its `pair.json` names (places in it are relative to it), or its `base`, `rl`.

        `rlvr-dir train` and `rlvr-dir tiny build` write such directories.

        Raises:
            UserError: the directory holds no pair.
        """
        folder = Path(folder).expanduser()
        try:
            named = json.loads((folder / "pair.json").read_text())
        except FileNotFoundError:
            named = {role: role for role in ("base", "rl")}
        except (OSError, ValueError) as error:
            raise UserError(f"pair={str(folder)!r}: its pair.json cannot be read ({error})") from None
        if not isinstance(named, dict):
            raise UserError(f"pair={str(folder)!r}: its pair.json is no object; accepted: base and rl, as in Pair")
        for role in ("base", "rl"):
            if (inside := folder / str(named.get(role, role))).is_dir():
                named[role] = str(inside.resolve())
            elif named.get(role) == role:
                raise UserError(
                    f"pair={str(folder)!r} holds neither pair.json nor {role}/; accepted: a folder with both"
                )
        return parse(cls, named, where="pair.json ")


PRESETS: dict[str, Pair] = {
    "dapo-32b": Pair(base="Qwen/Qwen2.5-32B", rl="BytedTsinghua-SIA/DAPO-Qwen-32B"),
    "orz-32b": Pair(base="Qwen/Qwen2.5-32B", rl="Open-Reasoner-Zero/Open-Reasoner-Zero-32B"),
    "unireason-14b": Pair(base="Qwen/Qwen3-14B-Base", rl="ReasoningTransferability/UniReason-Qwen3-14B-RL"),
}
