"""Make the tiny pair's tokenizer: one token per word of the task, single digits, and bytes for all other text.

It is a byte-level model without merges, so any text can be encoded, with the words of the task added. Its class is that
of Qwen2 checkpoints (transformers requires that for `model_type: qwen2`). No special tokens are added on encoding: the
one `<bos>` comes from the chat template.
"""

from transformers import Qwen2Tokenizer

from rlvr_dir.tiny import vocabulary as v

# Robust rather than complete: contents in order, whatever the roles; parts of a message are joined.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{%- for message in messages -%}"
    "{%- if message['content'] is string -%}{{ message['content'] }}"
    "{%- else -%}{%- for part in message['content'] -%}{{ part['text'] }}{%- endfor -%}{%- endif -%}"
    "{%- endfor -%}"
)
CONTEXT = 2048  # positions of the model; bounds `max_model_len`


def build_tokenizer() -> Qwen2Tokenizer:
    """Make the tokenizer from `rlvr_dir.tiny.vocabulary`; ids are the order of `VOCABULARY`."""
    from tokenizers import AddedToken

    tokenizer = Qwen2Tokenizer(
        vocab=dict(v.ID),
        merges=[],
        pad_token=v.PAD,
        bos_token=v.BOS,
        eos_token=v.EOS,
        unk_token=v.PAD,  # never produced, because bytes cover everything
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in (*v.WORDS, v.INSTRUCTION)])
    return tokenizer
