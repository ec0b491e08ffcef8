"""Tell whether a key of a model's configuration can change what is computed, by reading the code that could use it.

Checkpoints of one model differ in keys that no code of theirs reads: tools leave them behind (`use_mrope`,
`unsloth_fixed`, `_attn_implementation_autoset`). Some keys are read although no configuration class knows them
(`logit_scale`, ...), so the class alone does not tell.
"""

import inspect
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# What only training reads, or heads that write no text.
TRAINING = {
    "classifier_dropout", "embd_pdrop", "gradient_checkpointing", "hidden_dropout", "id2label", "label2id",
    "output_router_logits", "problem_type", "resid_pdrop", "router_aux_loss_coef",
}  # fmt: skip


def may_be_read(key: str, config: Any) -> bool:
    """Tell whether a key can change what a model computes.

    It cannot where only training reads it; nor where the configuration's class does not know it and neither
    transformers' code for this type of model nor vLLM's for any names it, but to set it.
    """
    if key in TRAINING:
        return False
    if key in type(config)().to_dict():
        return True
    named = re.compile(rf"""["']{re.escape(key)}["']|config\.{re.escape(key)}\b(?!\s*=[^=])""")
    return any(named.search(text) for text in _code(Path(inspect.getfile(type(config))).parent))


@cache
def _code(own: Path) -> tuple[str, ...]:
    """Read what all models of transformers share, the folder of one type of model, and vLLM's models."""
    import transformers

    library = Path(transformers.__file__).parent
    found = [library.glob("mod*.py"), library.glob("masking*.py"), library.glob("integrations/*.py"), own.glob("*.py")]
    if (vllm := find_spec("vllm")) is not None and vllm.origin:
        folders = ("config", "model_executor/models", "transformers_utils")
        found += [Path(vllm.origin).parent.glob(f"{folder}/**/*.py") for folder in folders]
    return tuple(file.read_text(errors="replace") for files in found for file in files)
