"""Define the base class of all engines: a checked pair, the settings resolved against it, prompts and facts."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, Self

import numpy as np

from rlvr_dir.checkpoints.chat_template import chat_prompt
from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.checkpoints.context import Context, rope_extrapolates
from rlvr_dir.checkpoints.read import Checkpoints, template_digest
from rlvr_dir.checkpoints.rewrite import whole
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode.plan import ALGORITHM, plan_requests, warn_of_cuts
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.types import BrokenLogits, GivenText, Plan, Request, Rollout
from rlvr_dir.errors import UserError
from rlvr_dir.policy.given import Scoring
from rlvr_dir.policy.trace import FACTS
from rlvr_dir.progress import phase

LEAST_CONTEXT = 256  # tokens that the self-test of an engine needs, however short the texts are that it scores
TYPICAL = 128  # expected tokens of a response before any is finished, if its limit is not lower


def expected_tokens(plans: Iterable[Plan]) -> int:
    """Return how many tokens some requests are expected to take."""
    return sum(min(plan.max_new_tokens, TYPICAL) for plan in plans)


class Engine(ABC):
    """Decode requests with both models, each with its own decoding and sampling. Subclasses implement the decoding.

    The constructor reads the checkpoints' configurations and tokenizer, so prompts and `info` are available. The
    weights are loaded by `start`, at the latest in the first `generate`. As a context manager, the engine is closed at
    the end.
    """

    def __init__(self, pair: Pair, spec: EngineSpec, checkpoints: Checkpoints | None = None) -> None:
        """Read and check the checkpoints, unless another engine has done so. No weights are loaded.

        Raises:
            UserError: As for `check_pair`.
        """
        self.pair, self.spec = pair, spec
        self.loaded = pair  # the pair whose weights are loaded; an RL adapter is merged with base by then
        self._whole = ExitStack()  # the folder for RL's weights, if it is an adapter or quantised
        self.started = False
        self.work: int | None = None  # expected tokens of the requests that the weights are loaded for; None: unknown
        self.longest: int | None = None  # tokens of the longest of these responses, with its prompt
        self.scores = False  # whether the weights are loaded to score given text
        with phase("reading the checkpoints"):
            self.checkpoints: Checkpoints = checkpoints or check_pair(pair, spec)
        self.dtype = self.checkpoints.dtype if spec.dtype == "auto" else spec.dtype
        self.context = self.checkpoints.context
        self.max_model_len = self.context.length

    def start(self) -> None:
        """Load the weights, once.

        Raises:
            UserError: The models cannot be loaded, or fail the self-test.
        """
        if self.started:
            return
        self.started = True  # before `load`, whose self-test generates already
        try:
            with phase("loading"):
                self.load()
        except BaseException as error:
            self.started = False
            self.remove_merged()
            if type(error) is UserError and error.argument in self.pair.models:
                raise error.with_hint("`rlvr-dir pair check` reads no weights, so it cannot see this.") from None
            raise

    def merge(self) -> None:
        """Write RL as a whole checkpoint if it is an adapter or quantised. Loading the weights begins with this.

        Raises:
            UserError: As for `whole`.
        """
        if self.checkpoints.rewritten and self.loaded is self.pair:
            with phase("dequantising" if self.checkpoints.quantised else "merging the adapter"):
                self.loaded = self._whole.enter_context(whole(self.pair, self.dtype))

    def remove_merged(self) -> None:
        """Remove the checkpoint that `merge` wrote. Subclasses call this last in `close`."""
        self._whole.close()
        self.loaded = self.pair

    @property
    def tokenizer(self) -> Any:
        """Return the RL model's tokenizer, which both models share."""
        return self.checkpoints.tokenizer

    def chat_prompt(self, messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        """Return the prompt text for a conversation, by the RL model's chat template.

        Raises:
            UserError: The tokenizer has no chat template.
        """
        return chat_prompt(self.tokenizer, messages, add_generation_prompt, self.spec.chat_template_kwargs)

    @property
    def head_dtype(self) -> str:
        """Return the type of the logits: float32, whatever the type of the rest of the model."""
        return "float32"

    def common_info(self, **own: Any) -> dict[str, Any]:
        """Return the entries of `info` that all engines have, with the engine's `own` added."""
        import torch

        return {
            **own,
            "torch": torch.__version__,
            "algorithm": ALGORITHM,
            "dtype": self.dtype,
            **({"head_dtype": self.head_dtype} if self.head_dtype != self.dtype else {}),
            "max_model_len": self.max_model_len,
            **({} if self.context.rl_alone == self.max_model_len else {"max_model_len_rl": self.context.rl_alone}),
            **self._own_context(),
            "pair": self.pair.model_dump(),
            "chat_template": {"from": self.tokenizer.name_or_path, "sha256": template_digest(self.tokenizer)},
            **({"chat_template_kwargs": kwargs} if (kwargs := self.spec.chat_template_kwargs) else {}),
            "eos_token_ids": sorted(self.checkpoints.eos_token_ids),
        }

    def _own_context(self) -> dict[str, int]:
        """Return the models' own context if another one is set, unless the set one changes rotary angles."""
        configs = self.checkpoints.configs
        if not self.context.stated or not all(map(rope_extrapolates, configs.values())):
            return {}
        own = Context.of(self.context.models, None, rope_extrapolates(configs["base"]))
        alone = {} if own.rl_alone == own.length else {"own_max_model_len_rl": own.rl_alone}
        return {"own_max_model_len": own.length, **alone}

    def settled(self) -> EngineSpec:
        """Return the settings, with those filled in that depend on the expected `work`."""
        return self.spec

    def serve(self, waiting: Iterator[Request], progress: Progress) -> Iterator[Rollout]:
        """Decode requests that keep arriving; see `generate`. When `waiting` is exhausted, it is read again while
        others run.

        It ends when nothing waits and nothing runs. Here `max_num_seqs` requests are decoded at a time. Engines whose
        running batch can be extended override this.
        """
        while batch := list(islice(waiting, self.spec.max_num_seqs)):
            yield from self.generate(batch, progress=progress)

    def generate(self, requests: Iterable[Request], *, progress: bool | Progress = False) -> Iterator[Rollout]:
        """Yield rollouts as they finish, in any order. `progress` is a bool, or a `Progress` to report to.

        If the caller stops early, all running requests are cancelled.

        Raises:
            UserError: A request is not supported; nothing has been decoded then.
            BrokenLogits: A model's logits do not form a distribution. Finished rollouts have been yielded.
        """
        plans = plan_requests(requests, self.checkpoints)
        warn_of_cuts(plans, self.context)
        if not self.started:
            self.work = expected_tokens(plans)
            self.longest = max((plan.start + plan.max_new_tokens for plan in plans), default=None)
        self.start()
        return self.decode(plans, progress)

    def score(self, texts: Sequence[GivenText], scoring: Scoring) -> Iterator[tuple[int, np.ndarray]]:
        """Score the tokens of given texts with both models, and yield (place, table) as texts are done, in any order.

        Args:
            texts: each with the tokens that come before it, one at least.
            scoring: what is computed; a table is (tokens, `scoring.width`) float32.

        Raises:
            UserError: a text is longer than the context, or has a token that not both models know. No model is loaded
                then.
            BrokenLogits: a model's logits are no distribution.
        """
        known, shared = self.checkpoints.vocab_size, self.checkpoints.shared
        for text in texts:
            if (length := len(text.before) + len(text.tokens)) > self.longest_text:
                problem, accepted = f"has {length} tokens with its prompt", f"at most {self.longest_text} tokens"
            elif max(text.before) >= known or max(text.tokens) >= shared:
                problem, accepted = "has a token that not both models know", f"token ids 0 to {shared - 1}"
            else:
                continue
            raise UserError(problem, argument="texts", value=text.name, accepted=accepted)
        needed = 1 + max((len(text.before) + len(text.tokens) for text in texts), default=0)
        if not (self.started and self.scores and needed <= (self.longest or 0)):
            self.close()
            self.scores, self.work, self.longest = True, 0, max(needed, min(self.max_model_len, LEAST_CONTEXT))
        for place, table in self.read_given(texts, scoring):
            if np.isnan(table[:, [FACTS.index("logp_base"), FACTS.index("logp_rl")]]).any():
                raise BrokenLogits(f"{texts[place].name}: a model's logits are NaN or infinite")
            if (table[:, FACTS.index("proposed")] != texts[place].tokens).any():
                raise RuntimeError(f"{texts[place].name} was scored at tokens that are not its own")
            yield place, table

    @property
    def longest_text(self) -> int:
        """Return how many tokens a text to score may have, with its prompt."""
        return self.max_model_len

    def read_given(self, texts: Sequence[GivenText], scoring: Scoring) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the scores of checked texts; see `score`."""
        raise UserError("cannot score given text", argument="workers", value=self.spec.workers, accepted="1")

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Return the tokens that end a response: both models' end-of-text tokens."""
        return self.checkpoints.eos_token_ids

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the models that are loaded and read: RL alone if base is the same model."""
        return ("rl",) if self.pair.single else tuple(self.pair.models)

    @abstractmethod
    def decode(self, plans: list[Plan], progress: bool | Progress) -> Iterator[Rollout]:
        """Yield the rollouts of planned requests as they finish. The weights are loaded."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Return what is run: backend, versions, dtype, pair, chat template digest, EOS ids; plain JSON values."""

    @abstractmethod
    def load(self) -> None:
        """Load the weights; see `start`."""

    @abstractmethod
    def close(self) -> None:
        """Release the models. `start` can load them again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
