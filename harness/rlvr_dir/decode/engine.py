"""What decodes: the base of all engines, with a checked pair, the settings resolved against it, prompts and facts."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any, Self

from rlvr_dir.checkpoints.chat_template import chat_prompt
from rlvr_dir.checkpoints.compat import check_pair
from rlvr_dir.checkpoints.context import Context, rope_extrapolates
from rlvr_dir.checkpoints.read import Checkpoints, template_digest
from rlvr_dir.checkpoints.rewrite import whole
from rlvr_dir.config import EngineSpec, Pair
from rlvr_dir.decode.plan import ALGORITHM, plan_requests, warn_of_cuts
from rlvr_dir.decode.progress import Progress
from rlvr_dir.decode.types import Plan, Request, Rollout
from rlvr_dir.errors import UserError
from rlvr_dir.progress import phase

TYPICAL = 128  # tokens that a response is taken to be long before any is there, where its limit is no less


def expected_tokens(plans: Iterable[Plan]) -> int:
    """Return how many tokens some requests are expected to take."""
    return sum(min(plan.max_new_tokens, TYPICAL) for plan in plans)


class Engine(ABC):
    """Holds both models and decodes requests, each with its own decoding and sampling; a subclass is one that does.

    Made, it has read the checkpoints' configurations and tokenizer: prompts and `info` are there. The weights are
    loaded by `start`, at the latest by the first `generate`. As a context manager it is closed in the end.
    """

    def __init__(self, pair: Pair, spec: EngineSpec, checkpoints: Checkpoints | None = None) -> None:
        """Read and check the checkpoints, unless another engine has; no weights yet.

        Raises:
            UserError: as `check_pair`.
        """
        self.pair, self.spec = pair, spec
        self.loaded = pair  # whose weights are loaded: where RL is an adapter, it is merged with base by then
        self._whole = ExitStack()  # of the folder that RL is written to, where it is an adapter or quantised
        self.started = False
        self.work: int | None = None  # tokens that are expected of what the weights are loaded for; None: nobody knows
        self.longest: int | None = None  # tokens of the longest response that is asked for then, with its prompt
        with phase("reading the checkpoints"):
            self.checkpoints: Checkpoints = checkpoints or check_pair(pair, spec)
        self.dtype = self.checkpoints.dtype if spec.dtype == "auto" else spec.dtype
        self.context = self.checkpoints.context
        self.max_model_len = self.context.length

    def start(self) -> None:
        """Load the weights, once.

        Raises:
            UserError: the models cannot be loaded, or are found not to compute what they should.
        """
        if self.started:
            return
        self.started = True  # the self-test within `load` generates already
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
        """Write RL as a whole checkpoint if it is an adapter or quantised; called first by what loads weights.

        Raises:
            UserError: as `whole`.
        """
        if self.checkpoints.rewritten and self.loaded is self.pair:
            with phase("dequantising" if self.checkpoints.quantised else "merging the adapter"):
                self.loaded = self._whole.enter_context(whole(self.pair, self.dtype))

    def remove_merged(self) -> None:
        """Remove what `merge` wrote; a subclass calls it last where it closes."""
        self._whole.close()
        self.loaded = self.pair

    @property
    def tokenizer(self) -> Any:
        """The RL model's tokenizer, which both models share."""
        return self.checkpoints.tokenizer

    def chat_prompt(self, messages: list[dict[str, str]], *, add_generation_prompt: bool = True) -> str:
        """Return the prompt text for a conversation, by the RL model's chat template.

        Raises:
            UserError: the tokenizer has no chat template.
        """
        return chat_prompt(self.tokenizer, messages, add_generation_prompt, self.spec.chat_template_kwargs)

    @property
    def head_dtype(self) -> str:
        """What the logits are computed in: float32, whatever the rest of the model is in."""
        return "float32"

    def facts(self, **own: Any) -> dict[str, Any]:
        """Return the facts of `info` that all engines give, with the engine's `own` beside them."""
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
        """Return the models' own context where another one is set, unless the set one changes rotary angles."""
        configs = self.checkpoints.configs
        if not self.context.stated or not all(map(rope_extrapolates, configs.values())):
            return {}
        own = Context.of(self.context.models, None, rope_extrapolates(configs["base"]))
        alone = {} if own.rl_alone == own.length else {"own_max_model_len_rl": own.rl_alone}
        return {"own_max_model_len": own.length, **alone}

    def settled(self) -> EngineSpec:
        """Return the settings, with what depends on the expected `work` decided."""
        return self.spec

    def serve(self, waiting: Iterator[Request], progress: Progress) -> Iterator[Rollout]:
        """Decode requests that keep coming: `waiting`, exhausted, is asked again while others run; see `generate`.

        It ends when nothing waits and nothing runs. Here `max_num_seqs` of them at a time; an engine whose batch can
        be joined does better.
        """
        while batch := list(islice(waiting, self.spec.max_num_seqs)):
            yield from self.generate(batch, progress=progress)

    def generate(self, requests: Iterable[Request], *, progress: bool | Progress = False) -> Iterator[Rollout]:
        """Yield rollouts as they finish, in any order; `progress` is a bool, or a `Progress` to report to.

        A caller that stops early leaves nothing running.

        Raises:
            UserError: a request cannot be served; nothing has been decoded then.
            BrokenLogits: a model's logits are no distribution; what has finished by then has been yielded.
        """
        plans = plan_requests(requests, self.checkpoints)
        warn_of_cuts(plans, self.context)
        if not self.started:
            self.work = expected_tokens(plans)
            self.longest = max((plan.start + plan.max_new_tokens for plan in plans), default=None)
        self.start()
        return self.decode(plans, progress)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """What ends a response: both models' end-of-text tokens."""
        return self.checkpoints.eos_token_ids

    @property
    def roles(self) -> tuple[str, ...]:
        """The models that are loaded and read: RL alone where base is the same model."""
        return ("rl",) if self.pair.single else tuple(self.pair.models)

    @abstractmethod
    def decode(self, plans: list[Plan], progress: bool | Progress) -> Iterator[Rollout]:
        """Yield the rollouts of planned requests as they finish; the weights are loaded."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Return what is run: backend, versions, dtype, pair, chat template digest, EOS ids; plain JSON values."""

    @abstractmethod
    def load(self) -> None:
        """Load the weights; see `start`."""

    @abstractmethod
    def close(self) -> None:
        """Release the models; `start` would load them again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
