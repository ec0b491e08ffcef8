"""Measure the floor of the token rows: their values for two models with the same weights, caused by rounding alone.

Base scores the audited responses twice, the second time in another type and in another batch. For equal models a
divergence would be 0 and an agreement 100 %. A row is evidence of training only if it is farther from that value than
its floor.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from rlvr_dir.audit.claim import Frame
from rlvr_dir.audit.tokens import TOP, traced_tokens
from rlvr_dir.config import EngineSpec, Pair, parse
from rlvr_dir.decode import open_engine
from rlvr_dir.policy.trace import trace
from rlvr_dir.records import Row

RESPONSES, BATCH = 200, 8  # responses per model that are scored, and the size of the other batch
NEAR_ZERO = ("delta_logp", "kl_rl_base", "kl_base_rl", "js")  # zero if both models are the same


def floors(
    pair: Pair, dtype: str, device: str | None, rows: Mapping[str, Iterable[Row]], temperature: float
) -> dict[str, Frame]:
    """Return the frame of `traced_tokens` for base compared with itself, by column name; intervals are over problems.

    Args:
        pair: The audited pair. Its base is loaded twice with transformers.
        dtype: The type in which the pair is decoded.
        device: Where to compute. None uses a GPU if there is one.
        rows: Responses by the model that wrote them. The first `RESPONSES` of each model are scored.
        temperature: The sampling temperature of the responses.

    Raises:
        UserError: Base does not fit into memory twice.
    """
    same = Pair(base=pair.base, rl=pair.base, base_revision=pair.base_revision, rl_revision=pair.base_revision)
    types = dtype, "bfloat16" if dtype == "float32" else "float32"
    specs = [parse(EngineSpec, {"backend": "transformers", "dtype": each, "device": device}) for each in types]
    names = f"same weights, {types[1]}", f"same weights, batch of {BATCH}"
    tables: dict[str, dict[str, list[Any]]] = {name: {owner: [] for owner in rows} for name in names}
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore", UserWarning)  # about a pair whose two models are the same
        own, other = (stack.enter_context(open_engine(same, each)) for each in specs)
        for owner, of_owner in rows.items():
            chosen = list(islice(of_owner, RESPONSES))
            for group in (chosen[at : at + BATCH] for at in range(0, len(chosen), BATCH)):
                alone, cast = ([_scores(engine, [row], temperature)[0] for row in group] for engine in (own, other))
                for name, scores in zip(names, (cast, _scores(own, group, temperature)), strict=True):
                    tables[name][owner] += map(_traced, group, alone, scores)
    return {name: traced_tokens(of_name) for name, of_name in tables.items()}


def spreads(columns: Iterable[Frame]) -> dict[str, float]:
    """Return twice the root mean square over tokens of each fact in `NEAR_ZERO`, in the column where it is largest."""
    return {name: max(2 * float(tokens[name].pow(2).mean()) ** 0.5 for tokens in columns) for name in NEAR_ZERO}


def _scores(engine: Any, rows: Sequence[Row], temperature: float) -> list[Any]:
    """Return the log-probabilities of the engine's one model at each token of `rows`, which it reads in one batch."""
    [model], known = engine.models.values(), engine.checkpoints.vocab_size
    texts = [torch.tensor([*row.prompt_token_ids, *row.token_ids], device=engine.device) for row in rows]
    ids, mask = (pad_sequence(parts, batch_first=True) for parts in (texts, [torch.ones_like(text) for text in texts]))
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask).logits[..., :known].float()
    places = [slice(len(row.prompt_token_ids) - 1, len(text) - 1) for row, text in zip(rows, texts, strict=True)]
    return [torch.log_softmax(each[place] / temperature, -1) for each, place in zip(logits, places, strict=True)]


def _traced(row: Row, lb: Any, lr: Any) -> Any:
    """Return `row` with the trace that the log-probabilities `lb` and `lr` make."""
    table = trace(lb, lr.to(lb.device), torch.tensor(row.token_ids, device=lb.device), TOP).cpu().numpy()
    return SimpleNamespace(problem=row.problem, sample=row.sample, n_tokens=row.n_tokens, trace=table)
