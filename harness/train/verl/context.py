"""Whether a prompt and a response fit into the positions of the base: verl finds out when its engines start."""

import json
from pathlib import Path

from harness.errors import UserError
from harness.train.spec import TrainSpec
from harness.train.verl.spec import Verl


def check_context(spec: TrainSpec, base: str) -> str | None:
    """Refuse a training whose sequences are longer than the base's positions; say why if that is not known here.

    Raises:
        UserError: they are.
    """
    verl = spec.verl or Verl()
    longest = verl.max_prompt_tokens + spec.dapo.max_response_tokens
    positions = verl.max_position_embeddings
    if positions is None:
        try:
            config = json.loads(_config(base).read_text())
        except Exception as error:
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            return f"the configuration of base={base!r} ({reason}); whether {longest} tokens fit is not checked"
        positions = config.get("max_position_embeddings") or config.get("text_config", {}).get(
            "max_position_embeddings"
        )
    if positions is not None and positions < longest:
        raise UserError(
            f"dapo.max_response_tokens={spec.dapo.max_response_tokens} behind verl.max_prompt_tokens="
            f"{verl.max_prompt_tokens} is beyond the {positions} positions of base={base!r}; accepted: up to "
            f"{max(0, positions - verl.max_prompt_tokens)}, or verl.max_position_embeddings={longest} or more"
        )
    return None


def _config(base: str) -> Path:
    """Return the configuration file of a base: in its folder, in the hub's cache, or from the hub."""
    if Path(base).is_dir():
        return Path(base) / "config.json"
    from huggingface_hub import hf_hub_download

    from harness.hub import hub_or_cache

    with hub_or_cache():
        return Path(hf_hub_download(base, "config.json"))
