"""A made-up pair whose truth is known: two Markov chains over words that differ in one kind of token only.

    start -> one of F fillers -> left or right -> one of F words of that side -> \\boxed{1} or \\boxed{2} -> end

The gold answer is 1. Left leads to it with probability V, right with 1 - V. Base goes left half the time, RL with
probability RL_LEFT; in all else they are one. The models are transformers whose layers add nothing, so that the next
token depends on this one alone.
"""

import math

from rlvr_dir.config import Pair

F, V, RL_LEFT = 6, 0.8, 0.9
FILLERS = [f"so{i}" for i in range(F)]
SIDES = {"left": [f"l{i}" for i in range(F)], "right": [f"r{i}" for i in range(F)]}
BOXES = ["\\boxed{1}", "\\boxed{2}"]
WORDS = ["<unk>", "<eos>", *FILLERS, *SIDES, *SIDES["left"], *SIDES["right"], *BOXES]


def chain(left):
    """Return what follows each word, with its probability."""
    after = {word: dict.fromkeys(FILLERS, 1 / F) for word in ("<unk>", "<eos>")}
    after |= {filler: {"left": left, "right": 1 - left} for filler in FILLERS}
    for (side, words), p in zip(SIDES.items(), (V, 1 - V), strict=True):
        after[side] = dict.fromkeys(words, 1 / F)
        after |= {word: dict(zip(BOXES, (p, 1 - p), strict=True)) for word in words}
    return after | {box: {"<eos>": 1.0} for box in BOXES}


def write(place, left):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    size = len(WORDS)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="<eos>").save_pretrained(place)
    config = Qwen3Config(
        vocab_size=size, hidden_size=size, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
        head_dim=32, intermediate_size=32, max_position_embeddings=512, tie_word_embeddings=False, eos_token_id=1,
        bos_token_id=None, pad_token_id=None, rms_norm_eps=1e-9,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).float()
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        head = torch.full((size, size), -40.0)
        for word, after in chain(left).items():
            for other, p in after.items():
                head[WORDS.index(other), WORDS.index(word)] = math.log(p)
        model.lm_head.weight.copy_(head / math.sqrt(size))  # a normalised unit vector is sqrt(size) long
    model.save_pretrained(place)
    return str(place)


def made_pair(folder):
    return Pair(base=write(folder / "base", 0.5), rl=write(folder / "rl", RL_LEFT))
