"""Make random pairs of any size, with a real tokenizer, to measure and test engines (not for accuracy).

In a flat random model every truncation would change much. So the output layer is scaled up, and the RL model is base
plus a small step. Entropy, KL and replacement ratio are then similar to those of a pair of language models.
"""

from pathlib import Path
from random import Random
from typing import Any

from rlvr_dir.config import Pair

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(vocab: int = 300) -> Any:
    """Train a byte-level BPE with at most `vocab` tokens on fixed made-up words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<pad>", "<eos>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    random = Random(0)
    syllables = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "r", "s")]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(600)]
    bpe.train_from_iterator((" ".join(random.choices(words, k=12)) for _ in range(2000)), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = TEMPLATE
    return fast


def random_pair(
    directory: Path,
    *,
    vocab: int = 300,
    hidden: int = 64,
    layers: int = 2,
    step: float = 0.0075,
    padding: int = 20,
    positions: int = 1024,
) -> Pair:
    """Write base and RL = base + `step` times another random model; RL also stops at <|im_end|>.

    Args:
        directory: The folder for `base/` and `rl/`.
        vocab: Tokens of the tokenizer; the models have `padding` more outputs.
        hidden: The width, a multiple of 64; heads have 32 dimensions below 256, and 64 from there.
        layers: The number of layers of each model.
        step: The size of the difference; with 0.0075 a few percent of tokens are resampled at tau = -0.3.
        padding: Outputs that belong to no token.
        positions: The longest text that the models read.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tok = tokenizer(vocab)
    head = 64 if hidden >= 256 else 32

    def model(seed: int) -> Any:
        torch.manual_seed(seed)
        config = Qwen3Config(
            vocab_size=len(tok) + padding, hidden_size=hidden, num_hidden_layers=layers,
            num_attention_heads=hidden // head, num_key_value_heads=max(1, hidden // head // 2), head_dim=head,
            intermediate_size=3 * hidden, max_position_embeddings=positions, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=1, pad_token_id=0, initializer_range=0.15 * (64 / hidden) ** 0.5,
        )  # fmt: skip
        lm = Qwen3ForCausalLM(config).float()
        with torch.no_grad():
            lm.lm_head.weight *= 6.0
        return lm

    def save(role: str, lm: Any, eos: int | list[int]) -> str:
        lm.config.eos_token_id = lm.generation_config.eos_token_id = eos
        lm.save_pretrained(directory / role)
        tok.save_pretrained(directory / role)
        return str(directory / role)

    base, other = model(0), model(1)
    base_path = save("base", base, 1)
    with torch.no_grad():
        for ours, parameter in zip(base.parameters(), other.parameters(), strict=True):
            ours += step * parameter
    return Pair(base=base_path, rl=save("rl", base, [1, 3]))
