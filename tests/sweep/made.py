"""Small sweeps on the tiny pair, of decodings and of trainings, as their YAML says it."""

from rlvr_dir.sweep.specs import load

TRAINING = {
    "name": "trained",
    "train": {
        "dapo": {
            "method": "low_prob", "steps": 3, "prompts": 4, "samples": 4, "minibatches": 2, "learning_rate": 1e-4,
            "max_response_tokens": 40,
        },
        "validation": {
            "tasks": ["tiny_easy"], "limit": 6, "sampling": {"samples": 2, "max_tokens": 40},
            "engine": {"backend": "transformers", "max_num_seqs": 12},
        },
    },
    "seeds": [0, 1],
    "parameters": {"train.alpha": {"values": [0.2, 2.0]}},
}  # fmt: skip
SMALL = {
    "name": "small",
    "pair": "tiny",
    "tasks": ["tiny_easy"],
    "limit": 3,
    "sampling": {"samples": 2, "max_tokens": 40},
    "parameters": {"decode.tau": {"values": [-0.3, -0.1]}, "decode.gamma": {"values": [0.0, 0.1]}},
    "engine": {"backend": "transformers", "max_num_seqs": 4},
}


def sweep(**changes):
    """Four points and two references, 18 responses; with kind=train two points and plain DAPO, two seeds each."""
    if changes.get("kind") == "train":
        return load({**TRAINING, **changes})
    return load({**SMALL, **changes})
