"""Imported once by the process from which sweeps are forked: a small evaluation imports all that they need."""

import threading

import mlflow  # noqa: F401
import torch
from tqdm import tqdm

import rlvr_dir.sweep.confirm
import rlvr_dir.sweep.run
import rlvr_dir.train.trl  # noqa: F401
from rlvr_dir.config import EngineSpec, EvalSpec, Sampling
from rlvr_dir.decode import open_engine
from rlvr_dir.evals import evaluate
from rlvr_dir.tiny import tiny_pair

torch.set_num_threads(1)
# tqdm's own lock is one of all forked processes: a child killed while it draws its bar would hold up the next ones.
tqdm.set_lock(threading.RLock())
tqdm.monitor_interval = 0  # its thread could hold that lock in the moment of a fork
with open_engine(tiny_pair(), EngineSpec(backend="transformers")) as engine:
    asked = EvalSpec(tasks=("tiny_easy",), sampling=Sampling(samples=1, max_tokens=8), limit=1)
    evaluate(asked, engine=engine, progress=False)
