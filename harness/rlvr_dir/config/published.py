"""Store configurations of published models, so that they need not be downloaded for plans, the zoo and the paper's
tables."""

from typing import Any

_QWEN25 = {"vocab_size": 152_064, "tie_word_embeddings": False, "dtype": "bfloat16"}
_QWEN3 = {"vocab_size": 151_936, "tie_word_embeddings": False, "dtype": "bfloat16", "head_dim": 128}

_OLMO3 = {"vocab_size": 100_278, "tie_word_embeddings": False, "dtype": "bfloat16"}
_LLAMA = {"vocab_size": 128_264, "tie_word_embeddings": False, "dtype": "bfloat16", "head_dim": 128}


def _shape(layers: int, hidden: int, inner: int, heads: int, kv_heads: int, positions: int) -> dict[str, int]:
    return {
        "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "max_position_embeddings": positions,
    }  # fmt: skip


# By hub id: the model type, and the content of config.json.
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen/Qwen2.5-7B": ("qwen2", _QWEN25 | _shape(28, 3584, 18_944, 28, 4, 131_072)),
    "Qwen/Qwen2.5-Math-7B": ("qwen2", _QWEN25 | _shape(28, 3584, 18_944, 28, 4, 4096)),
    "Qwen/Qwen2.5-32B": ("qwen2", _QWEN25 | _shape(64, 5120, 27_648, 40, 8, 131_072)),
    "Qwen/Qwen2.5-14B": ("qwen2", _QWEN25 | _shape(48, 5120, 13_824, 40, 8, 131_072)),
    "Qwen/Qwen3-8B-Base": ("qwen3", _QWEN3 | _shape(36, 4096, 12_288, 32, 8, 32_768)),
    "Qwen/Qwen3-14B-Base": ("qwen3", _QWEN3 | _shape(40, 5120, 17_408, 40, 8, 32_768)),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": (
        "qwen2",
        _QWEN25 | {"vocab_size": 151_936} | _shape(28, 1536, 8960, 12, 2, 131_072),
    ),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": ("qwen2", _QWEN25 | _shape(28, 3584, 18_944, 28, 4, 131_072)),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": ("qwen2", _QWEN25 | _shape(48, 5120, 13_824, 40, 8, 131_072)),
    "Qwen/QwQ-32B": ("qwen2", _QWEN25 | _shape(64, 5120, 27_648, 40, 8, 131_072)),
    "Qwen/Qwen2.5-Math-1.5B": (
        "qwen2",
        _QWEN25 | {"vocab_size": 151_936, "tie_word_embeddings": True} | _shape(28, 1536, 8960, 12, 2, 4096),
    ),
    "Qwen/Qwen3-4B": ("qwen3", _QWEN3 | {"tie_word_embeddings": True} | _shape(36, 2560, 9728, 32, 8, 40_960)),
    "Qwen/Qwen3-14B": ("qwen3", _QWEN3 | _shape(40, 5120, 17_408, 40, 8, 40_960)),
    "allenai/Olmo-3-1025-7B": ("olmo3", _OLMO3 | _shape(32, 4096, 11_008, 32, 32, 65_536)),
    "allenai/Olmo-3-7B-Think-DPO": ("olmo3", _OLMO3 | _shape(32, 4096, 11_008, 32, 32, 65_536)),
    "allenai/Llama-3.1-Tulu-3-8B-DPO": ("llama", _LLAMA | _shape(32, 4096, 14_336, 32, 8, 131_072)),
}
