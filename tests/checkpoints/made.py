"""Checkpoints in other shapes than a library saves them, with files edited, or in the hub's cache."""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

COMMIT = "0" * 40
HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"


def variant(source, place, tied=None, change=lambda tensors: None, shards=1):
    """Copies a checkpoint of one file.

    Args:
        source, place: directories.
        tied: what its configuration says of its head; None leaves it.
        change: edits the dictionary of tensors.
        shards: into how many files they go, with an index where there are several.

    Returns:
        `place` as a string.
    """
    place = Path(place)
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors = load_file(Path(source, "model.safetensors"))
    change(tensors)
    if tied is not None:
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
    names = sorted(tensors)
    files = {name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(names)}
    if shards == 1:
        files = dict.fromkeys(names, "model.safetensors")
    else:
        (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, place / file, {"format": "pt"})
    return str(place)


def drop(*names):
    """A `change` that leaves tensors out."""
    return lambda tensors: [tensors.pop(name) for name in names]


def head_of_embeddings(factor):
    """A `change` that makes the head the input embeddings times `factor`; 1 makes the two equal."""
    return lambda tensors: tensors.update({HEAD: tensors[EMBEDDINGS] * factor})


def edit(folder, change, file="config.json"):
    """Changes a file of JSON, by a function of its content or by entries."""
    place = Path(folder, file)
    content = json.loads(place.read_text())
    if callable(change):
        change(content)
    else:
        content.update(change)
    place.write_text(json.dumps(content))


def copied(pair, place, change, file="config.json", role="rl"):
    """The pair with a copy in place of one checkpoint, a file of which is edited."""
    edit(shutil.copytree(getattr(pair, role), place), change, file)
    return pair.replace(**{role: str(place)})


def swap_ids(content):
    """A change of `tokenizer.json`: two tokens have each other's ids."""
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def in_the_hubs_cache(cache, **places):
    """Lays checkpoints where the hub's cache would have `someone/NAME`."""
    for name, source in places.items():
        place = Path(cache, f"models--someone--{name}")
        shutil.copytree(source, place / "snapshots" / COMMIT)
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text(COMMIT)


# As Qwen3's: an empty thought is written before the answer where thinking is turned off.
THINKING = (
    "{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% generation %}{{ m['content'] }}{% endgeneration %}"
    "{{ '<|im_end|>\n' }}{%- if loop.last %}{% break %}{% endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)


def thinking(pair, folder):
    """The pair with copies of its checkpoints whose chat template has the argument `enable_thinking`."""
    for role in ("base", "rl"):
        place = shutil.copytree(getattr(pair, role), Path(folder, role))
        (place / "chat_template.jinja").write_text(THINKING)
    return pair.replace(base=str(Path(folder, "base")), rl=str(Path(folder, "rl")))
