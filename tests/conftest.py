"""Shared fixtures: one thread for tiny models, and a peaked random pair that decodes like a real one."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import pytest
import torch

from tests.pairs import random_pair

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def peaked_pair(tmp_path_factory):
    """A `Pair` of random 2-layer models with the entropy and KL of a language model, and its directory."""
    return random_pair(tmp_path_factory.mktemp("peaked"))
