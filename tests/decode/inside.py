"""Inside a vLLM engine that runs in this process: its pair model, and the logits that both submodels compute."""

import torch

from rlvr_dir.config import Sampling
from rlvr_dir.decode import Request
from tests.decode.requests import DECODINGS, LONG


def worker_model(engine):
    """The pair model."""
    core = engine._engine.engine_core.engine_core
    return core.model_executor.driver_worker.worker.model_runner.model


def computed_logits(engine, n):
    """[(token ids, prompt's length, base's logits, RL's)] of n prompts of several prefill chunks and what follows."""
    model, rows, found = worker_model(engine), [], []
    compute = type(model).compute_logits

    def recording(hidden_states):
        rl = compute(model, hidden_states)
        rows.append((model.logits["base"].clone(), rl.clone()))
        return rl

    model.compute_logits = recording
    try:
        for i in range(n):
            rows.clear()
            prompt, sampling = LONG.format(i) * 4, Sampling(max_tokens=48)
            [done] = engine.generate([Request(prompt, f"logits/{i}", sampling=sampling, decoding=DECODINGS[i])])
            assert len(done.prompt_token_ids) > 2 * 64
            assert len(rows) > done.n_tokens  # chunks of prefill came before
            last = [torch.cat(side) for side in zip(*rows[-done.n_tokens :], strict=True)]
            found.append(([*done.prompt_token_ids, *done.token_ids[:-1]], len(done.prompt_token_ids), *last))
    finally:
        del model.compute_logits
    return found


def furthest(found, reference):
    """By how much these logits differ at most from those of transformers."""
    worst = 0.0
    for ids, length, *both in found:
        for ours, theirs in zip(both, reference.logits(ids), strict=True):
            worst = max(worst, (ours[:, : theirs.shape[1]] - theirs[length - 1 :]).abs().max().item())
    return worst
