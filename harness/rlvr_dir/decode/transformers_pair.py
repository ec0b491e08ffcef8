"""Implement the reference engine: two Hugging Face models, one batch after the other (see `lock_step`)."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from logging import ERROR, getLogger
from typing import Any

import numpy as np
import torch

from rlvr_dir.checkpoints.beside_vllm import beside_vllm
from rlvr_dir.checkpoints.compat import other_shape
from rlvr_dir.checkpoints.memory import ModelShape, check_rows, check_weights
from rlvr_dir.checkpoints.precision import exact_float32
from rlvr_dir.checkpoints.weights import PICKLE
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode.engine import Engine
from rlvr_dir.decode.lock_step import LockStep, as_known
from rlvr_dir.decode.progress import Progress, reporting
from rlvr_dir.decode.types import GivenText, Plan, Rollout
from rlvr_dir.errors import UserError, mention
from rlvr_dir.policy.combine import combination_of
from rlvr_dir.policy.given import ROWS, Scoring, scored
from rlvr_dir.progress import phase


class TransformersPair(Engine):
    """Run both models as `transformers` causal language models on one device; implements `Engine`."""

    def __init__(self, pair: Pair, spec: EngineSpec | None = None) -> None:
        """Check the checkpoints. `start` loads them.

        Raises:
            UserError: The checkpoints do not fit together, or a setting needs vLLM.
        """
        spec = spec or EngineSpec()
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            if getattr(spec, name) != 1:
                problem = "is not supported by backend='transformers'"
                raise UserError(problem, argument=name, value=getattr(spec, name), accepted="1")
        if spec.deterministic:
            raise UserError(
                "is not supported by backend='transformers', whose kernels sum in an order that depends on the batch",
                argument="deterministic",
                value=True,
                accepted="backend=vllm on an NVIDIA GPU",
            )
        super().__init__(pair, spec)
        for role, config in self.checkpoints.configs.items() if spec.draft else ():
            text = config.get_text_config()
            if getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True):
                problem = f"is not supported by {role}, whose attention has a sliding window"
                raise UserError(problem, argument="draft", value=spec.draft, accepted="0")
        self.device = _device(spec.device)
        self.models: dict[str, Any] = {}  # by role, once they are loaded

    def load(self) -> None:
        """Load the models; see `start`.

        Raises:
            UserError: The models do not fit into a GPU's memory; or as for `load_model`.
        """
        check_weights(self.shapes, self.dtype, self.device)
        self.merge()
        for role in self.roles:
            with phase(f"loading {role}"):
                self.models[role] = self.load_model(role)

    def load_model(self, role: str) -> Any:
        """Load a model by its role.

        Raises:
            UserError: Its files cannot be read, do not contain a weight (transformers would initialise it randomly), or
                contain one of another shape, NaN or infinity.
        """
        from transformers import AutoModelForCausalLM

        if self.dtype == "float32":
            exact_float32()
        name, revision = self.loaded.models[role]
        with _quiet(self.checkpoints.small), beside_vllm(self.checkpoints.configs[role]):
            try:
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    name,
                    revision=revision,
                    dtype=getattr(torch, self.dtype),
                    trust_remote_code=self.pair.trust_remote_code,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,  # an error below, with the names
                )
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # of many types, depending on the library that reads the files
                lines = (str(error).strip() or type(error).__name__).splitlines()[0]
                lines = PICKLE if "weights_only" in lines else lines
                raise UserError(f"cannot be loaded: {lines}", argument=role, value=name) from None
        model, loading_info = loaded
        for weight, stored_shape, wanted in sorted(loading_info["mismatched_keys"])[:1]:
            raise other_shape(mention(role, name), weight, tuple(stored_shape), tuple(wanted))
        if missing := sorted(loading_info["missing_keys"]):
            raise UserError(
                f"has no {missing[0]} in its files",
                argument=role,
                value=name,
                accepted="a checkpoint with every weight of its model",
            )
        if unknown := sorted(loading_info["unexpected_keys"]):
            warnings.warn(
                f"{role}={name!r}: its files contain {len(unknown)} weights that its model does not have, such as "
                f"{unknown[0]}. They are ignored",
                stacklevel=3,
            )
        model = self.prepare(model.to(self.device).eval())
        _check_finite(model, f"{role}={name!r}")
        if self.dtype != self.head_dtype:
            _widen_head(model)
        return model

    def prepare(self, model: Any) -> Any:
        """Return a loaded model as it is used."""
        from rlvr_dir.decode.caches import group_heads

        group_heads(model)
        return model

    def new_cache(self) -> Any:
        """Make an empty cache for one model and batch."""
        from rlvr_dir.decode.caches import growing_cache

        return growing_cache()

    def decode(self, plans: list[Plan], progress: bool | Progress) -> Iterator[Rollout]:
        """Yield rollouts as they finish, `max_num_seqs` requests at a time; see `Engine.decode`."""
        size = self._rows(plans)
        with reporting(progress, plans) as bar:
            for start in range(0, len(plans), size):
                for done in self._batch(plans[start : start + size]).decode(bar):
                    bar.finished(done)
                    yield done

    def _batch(self, plans: list[Plan]) -> LockStep:
        """Return what decodes a batch: in lock-step, or with drafts. A single model has nothing to draft for."""
        if not self.spec.draft or len(self.models) == 1:
            return LockStep(self, plans)
        from rlvr_dir.decode.drafts import Drafting

        return Drafting(self, plans, self.spec.draft)

    def _rows(self, plans: list[Plan]) -> int:
        """Return the rows of a batch: `max_num_seqs`, or as many as the device has memory for."""
        if not plans:
            return 1
        prompt = max(len(plan.token_ids) for plan in plans)
        new = max(plan.max_new_tokens for plan in plans)
        wanted = min(self.spec.max_num_seqs, len(plans))
        return check_rows(self.shapes, prompt, new, self.dtype, self.device, wanted)

    @cached_property
    def shapes(self) -> tuple[ModelShape, ...]:
        """Return the shape of each model that is loaded."""
        shapes = self.checkpoints.shapes
        return tuple(shapes[role] for role in self.roles if role in shapes)

    @torch.inference_mode()
    def logits(self, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return teacher-forced logits of base and RL after each token: (tokens,) -> two (tokens, vocab) float32.

        `vocab` is that of the narrower output layer, so padding that only one model has is left out. For three models
        these are the two policies that replace base and RL (`TransferredPair`).
        """
        self.start()
        ids = torch.tensor([token_ids], device=self.device)
        read = {role: model(as_known(self.checkpoints, role, ids)) for role, model in self.models.items()}
        return combination_of(read).policies({role: output.logits[0].float() for role, output in read.items()})

    def read_given(self, texts: Sequence[GivenText], scoring: Scoring) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the scores of one text after the other; see `Engine.score`."""
        for place, text in enumerate(texts):
            logits = self.logits([*text.before, *text.tokens])
            start = len(text.before) - 1  # the logits after a token are about the next one
            base, rl = (each[start:-1, : self.checkpoints.shared].split(ROWS) for each in logits)
            tokens = torch.tensor(text.tokens, device=self.device).split(ROWS)
            parts = [scored(*rows, scoring) for rows in zip(base, rl, tokens, strict=True)]
            yield place, torch.cat(parts).cpu().numpy()

    def info(self) -> dict[str, Any]:
        """Return what is run; see `Engine.info`."""
        import transformers

        return self.common_info(backend="transformers", transformers=transformers.__version__, device=self.device.type)

    def close(self) -> None:
        """Drop both models; see `Engine.close`."""
        self.models = {}
        self.started = False
        self.remove_merged()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _check_finite(model: Any, where: str) -> None:
    """Check that all weights are finite.

    Raises:
        UserError: A weight contains NaN or infinity.
    """
    names, weights = zip(*model.named_parameters(), strict=True)
    finite = torch.stack([weight.detach().sum(dtype=torch.float32).isfinite() for weight in weights]).tolist()
    for name, weight, fine in zip(names, weights, finite, strict=True):
        if not fine:
            raise UserError(
                f"{where}: its files contain NaN or infinity in {name}, as {str(weight.dtype).removeprefix('torch.')}",
                accepted="a checkpoint whose weights are finite",
            )


def _widen_head(model: Any) -> None:
    """Let a model compute its logits in float32. In bfloat16, logits between 16 and 32 would be multiples of 0.125."""
    head = model.get_output_embeddings()

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        bias = getattr(head, "bias", None)
        if hidden.is_cuda and hidden.dtype != torch.float32:  # as vLLM does: without a float32 copy of the weight
            flat = torch.mm(hidden.flatten(0, -2), head.weight.t(), out_dtype=torch.float32)
            logits = flat.unflatten(0, hidden.shape[:-1])
            return logits if bias is None else logits + bias.float()
        return torch.nn.functional.linear(hidden.float(), head.weight.float(), None if bias is None else bias.float())

    head.forward = forward


@contextmanager
def _quiet(quiet: bool) -> Iterator[None]:
    """Hide transformers' output about weights that do not fit, which we report ourselves; with `quiet` also its
    bars."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    loggers = [getLogger(f"transformers.{name}") for name in ("modeling_utils", "distributed.tensor_parallel")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(ERROR)
    if quiet:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if quiet and enabled:
            logging.enable_progress_bar()


def _device(name: str | None) -> torch.device:
    """Return the device of that name. Without a name it is a GPU, if there is one.

    Raises:
        UserError: torch does not know this device, or has none here.
    """
    has_gpu = torch.cuda.is_available()
    kind, _, number = (name or ("cuda" if has_gpu else "cpu")).partition(":")
    if kind not in ("cpu", *(["cuda"] if has_gpu else [])) or not (number.isdecimal() or not number):
        here = "cpu, cuda or cuda:N" if has_gpu else "cpu; torch sees no GPU here"
        raise UserError("is not available to backend='transformers'", argument="device", value=name, accepted=here)
    return torch.device(name or kind)
