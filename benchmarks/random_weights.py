"""Make random weights that behave like a language model's, on the device where they are used, for benchmarks.

vLLM's own `load_format: dummy` draws from ±0.001. Every softmax is then flat over the whole vocabulary, unlike a
language model's, so every nucleus is huge. Here the logits have a standard deviation of SPREAD, and RL is base plus a
small step, so that nuclei, entropies and replacement ratio are similar to a language model's. Nothing is read or
written, so a 7B pair is ready in seconds.

`register` adds the load format `rlvr_random` to vLLM. It has to run in every process of the engine; the checklist does
this (`benchmarks.checklist`, `plugins`).
"""

import json
import zlib
from pathlib import Path
from typing import Any

from rlvr_dir.config import Pair

LOAD_FORMAT = "rlvr_random"
SPREAD = 10.0  # standard deviation of the logits: half of the rows have 0.95 of their probability on 6 tokens or fewer
STEP = 0.005  # RL from base, as a share of the weights: Δ log p below -0.3 at some tokens in a hundred
VOCAB = 151_936
SHAPES = {  # hidden, layers, heads, KV heads, intermediate: of Qwen2.5
    "tiny": (256, 4, 4, 2, 768),
    "1.5b": (1536, 28, 12, 2, 8960),
    "7b": (3584, 28, 28, 4, 18944),
}


def write_shape(folder: Path, shape: str) -> Pair:
    """Write configurations and a tokenizer of VOCAB tokens, but no weights, for engines that generate their own."""
    from transformers import Qwen2Config

    from rlvr_dir.bench.random_pair import tokenizer

    hidden, layers, heads, kv_heads, intermediate = SHAPES[shape]
    for role in ("base", "rl"):
        place = folder / role
        tokenizer(1004).save_pretrained(place)
        file = place / "tokenizer.json"
        data = json.loads(file.read_text())
        vocab = data["model"]["vocab"]
        vocab |= {f"<unused{i}>": i for i in range(len(vocab), VOCAB - 1)}  # <|endoftext|> comes last
        file.write_text(json.dumps(data))
        config = Qwen2Config(
            vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=kv_heads, intermediate_size=intermediate, max_position_embeddings=32768,
            tie_word_embeddings=False, eos_token_id=1, bos_token_id=None, architectures=["Qwen2ForCausalLM"],
        )  # fmt: skip
        config.dtype = "bfloat16"
        config.save_pretrained(place)
    return Pair(base=str(folder / "base"), rl=str(folder / "rl"))


def fill(model: Any) -> None:
    """Set every parameter of a vLLM model: `rl.` and `base.` are RL's and base's, other names base's."""
    import torch

    def noise(name: str, like: torch.Tensor, device: torch.device) -> torch.Tensor:
        generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
        return torch.empty(like.shape, dtype=torch.float32, device=device).normal_(generator=generator)

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shared = name.removeprefix("rl.").removeprefix("base.")
            if parameter.ndim < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            values = noise(shared, parameter, parameter.device)
            if name.startswith("rl."):
                values += STEP * noise(f"step of {shared}", parameter, parameter.device)
            if "embed" not in shared:  # the input of every other matrix has entries of size 1: so has its output
                values *= parameter.shape[-1] ** -0.5 * (SPREAD if "lm_head" in shared else 1.0)
            parameter.copy_(values)


def register() -> None:
    """Add the load format to vLLM, in this process."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    @register_model_loader(LOAD_FORMAT)
    class RandomLoader(BaseModelLoader):
        def download_model(self, model_config: Any) -> None:
            """Do nothing: there is nothing to download."""

        def load_weights(self, model: Any, model_config: Any) -> None:
            """Fill the model that vLLM has built."""
            fill(model)
