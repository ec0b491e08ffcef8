"""Small random pairs with a real tokenizer, for tests of the engines.

A flat random model makes every truncation rule look alarming. The output layer is therefore scaled up and the RL
model is base plus a small step, so that entropy, KL and replacement ratio are like an LLM pair's.
"""

from pathlib import Path

import torch

from harness.spec import Pair

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(vocab=300):
    """A byte-level BPE of `vocab` tokens, trained on this file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    specials = ["<pad>", "<eos>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    bpe.train_from_iterator(Path(__file__).read_text().splitlines(), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = TEMPLATE
    return fast


def model(seed, vocab=320, hidden=64, layers=2, sharpen=6.0):
    """A random Qwen3 whose output layer is `sharpen` times its usual size; 20 outputs are padding."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, intermediate_size=3 * hidden, max_position_embeddings=1024, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=1, pad_token_id=0, initializer_range=0.15,
    )  # fmt: skip
    lm = Qwen3ForCausalLM(config).float()
    with torch.no_grad():
        lm.lm_head.weight *= sharpen
    return lm


def save(directory, lm, tok, eos=1):
    """Writes a checkpoint and gives its path."""
    lm.config.eos_token_id = lm.generation_config.eos_token_id = eos
    lm.save_pretrained(directory)
    tok.save_pretrained(directory)
    return str(directory)


def random_pair(directory, step=0.0075, **sizes):
    """Base and RL = base + `step` times another random model; RL also stops at <|im_end|>."""
    base, other = model(0, **sizes), model(1, **sizes)
    tok = tokenizer()
    saved = save(directory / "base", base, tok)
    with torch.no_grad():
        for ours, theirs in zip(base.parameters(), other.parameters(), strict=True):
            ours += step * theirs
    return Pair(base=saved, rl=save(directory / "rl", base, tok, eos=[1, 3]))
