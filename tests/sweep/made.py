"""A small sweep on the tiny pair with the reference engine, as its YAML says it; and what a store holds."""

import json
from pathlib import Path

from harness.spec.sweep import load_sweep


def sweep(**changes):
    """Four points and two references, 18 responses."""
    data = {
        "name": "small",
        "pair": "tiny",
        "tasks": ["tiny_easy"],
        "limit": 3,
        "sampling": {"samples": 2, "max_tokens": 40},
        "parameters": {"decode.tau": {"values": [-0.3, -0.1]}, "decode.gamma": {"values": [0.0, 0.1]}},
        "engine": {"backend": "transformers", "max_num_seqs": 4},
    }
    return load_sweep({**data, **changes})


def decoded(records):
    """How many responses of each record are in its journal: a response that is decoded twice has two lines."""
    found = {}
    for path in Path(records).glob("*/*/journal.jsonl"):
        rows = [json.loads(line)["row"] for line in path.read_text().splitlines()]
        found[path.parent.parent.name] = [(row["problem"], row["sample"]) for row in rows if "problem" in row]
    return found
