"""The floor of the token rows: what they are of two models with the same weights, because computers round.

Base scores the audited responses beside itself, in another type and in another batch. A row that is no larger than its
floor says nothing about training.
"""

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from rlvr_dir.audit.claim import Frame
from rlvr_dir.audit.tokens import TOP, traced_tokens
from rlvr_dir.config import EngineSpec, Pair, parse
from rlvr_dir.decode import open_engine
from rlvr_dir.records import Row

RESPONSES, BATCH = 200, 8  # of each model, which are scored; and how many of them at a time in another batch
NEAR_ZERO = ("delta_logp", "kl_rl_base", "kl_base_rl", "js")  # what is 0 if two models are the same
SPREADS = "floor.json"  # beside the records: by base and type, twice the root mean square of each of these


def floors(
    pair: Pair, dtype: str, device: str | None, rows: Mapping[str, Iterable[Row]], temperature: float
) -> dict[str, Frame]:
    """Return what `traced_tokens` makes of base beside itself, by the name of the column; intervals are over problems.

    Args:
        pair: The audited pair, of which base is loaded twice with transformers.
        dtype: The type in which the pair is decoded.
        device: Where to compute; None takes a GPU if there is one.
        rows: Responses by who wrote them, of which the first `RESPONSES` of each are scored.
        temperature: At which they were sampled.

    Raises:
        UserError: Base does not fit into memory twice.
    """
    same = Pair(base=pair.base, rl=pair.base, base_revision=pair.base_revision, rl_revision=pair.base_revision)
    types = dtype, "bfloat16" if dtype == "float32" else "float32"
    specs = [parse(EngineSpec, {"backend": "transformers", "dtype": each, "device": device}) for each in types]
    names = f"same weights, {types[1]}", f"same weights, batch of {BATCH}"
    tables: dict[str, dict[str, list[Any]]] = {name: {owner: [] for owner in rows} for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that both models are one
        engines = [open_engine(same, each) for each in specs]
    with closing(engines[0]) as own, closing(engines[1]) as other:
        for owner, of_owner in rows.items():
            chosen = list(islice(of_owner, RESPONSES))
            for group in (chosen[at : at + BATCH] for at in range(0, len(chosen), BATCH)):
                alone, cast = ([_scores(engine, [row], temperature)[0] for row in group] for engine in (own, other))
                for name, scores in zip(names, (cast, _scores(own, group, temperature)), strict=True):
                    tables[name][owner] += map(_traced, group, alone, scores)
    return {name: traced_tokens(of_name) for name, of_name in tables.items()}


def spreads(columns: Iterable[Frame]) -> dict[str, float]:
    """Return twice the root mean square of each of `NEAR_ZERO` over tokens, in that column where it is largest."""
    return {name: max(2 * float(np.sqrt(tokens[name].pow(2).mean())) for tokens in columns) for name in NEAR_ZERO}


def stored_spreads(records: Path) -> dict[str, dict[str, float]]:
    """Return the spreads that audits have written beside a folder of records; none if there is no such file."""
    file = records.parent / SPREADS
    return json.loads(file.read_text()) if file.is_file() else {}


def _scores(engine: Any, rows: Sequence[Row], temperature: float) -> list[Any]:
    """Return the log-probabilities of an engine's one model at each token of responses that it reads in one batch."""
    import torch

    texts = [[*row.prompt_token_ids, *row.token_ids] for row in rows]
    longest, [model] = max(map(len, texts)), engine.models.values()
    ids, mask = (
        torch.tensor([[*(each if own else [1] * len(each)), *[0] * (longest - len(each))] for each in texts])
        for own in (True, False)
    )
    with torch.inference_mode():
        logits = model(input_ids=ids.to(engine.device), attention_mask=mask.to(engine.device)).logits
    places = [slice(len(row.prompt_token_ids) - 1, len(text) - 1) for row, text in zip(rows, texts, strict=True)]
    return [
        torch.log_softmax(of_row[place, : engine.checkpoints.vocab_size].float() / temperature, dim=-1)
        for of_row, place in zip(logits, places, strict=True)
    ]


def _traced(row: Row, lb: Any, lr: Any) -> Any:
    """Return a row whose trace is that of these log-probabilities."""
    import torch

    from rlvr_dir.policy.trace import trace

    table = trace(lb, lr.to(lb.device), torch.tensor(row.token_ids, device=lb.device), TOP).cpu().numpy()
    return SimpleNamespace(problem=row.problem, sample=row.sample, n_tokens=row.n_tokens, trace=table)
