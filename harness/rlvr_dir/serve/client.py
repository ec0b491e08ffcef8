"""Connect vLLM's server to the pair: decode its requests with the requested decoding.

To vLLM's handlers this looks like any other engine. Each of a request's n samples becomes a separate request, with its
own noise key. The result contains RL's log-probabilities instead of the channel's numbers in the engine's output.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, replace
from itertools import count
from threading import Event
from typing import Any

import numpy as np
from vllm import RequestOutput, SamplingParams
from vllm.exceptions import GenerationError, RetryableRequestError
from vllm.logprobs import Logprob
from vllm.tokenizers.detokenizer_utils import convert_ids_list_to_tokens
from vllm.utils.async_utils import merge_async_iterators

from rlvr_dir.decode.trace import MAX_TOP, Trace, columns
from rlvr_dir.decode.types import Plan, Request
from rlvr_dir.decode.vllm_pair import channel
from rlvr_dir.digest import digest
from rlvr_dir.errors import UserError
from rlvr_dir.policy.trace import FACTS, TOP_FACTS
from rlvr_dir.serve.engine import ServedPair
from rlvr_dir.serve.request_parser import ServeRequest

REQUEST_KEY = "rlvr_asked"  # where a handler stores the parsed request, in SamplingParams.extra_args
LEAST = -9999.0  # OpenAI's value for an unknown log-probability
# Settings of a request that vLLM would sample by; those for a pair are in `extra_args`.
_PLAIN = SamplingParams()
READ = {
    "n", "max_tokens", "logprobs", "flat_logprobs", "detokenize", "output_kind", "stream_interval", "extra_args",
    "skip_clone", "output_text_buffer_length", *(name for name in SamplingParams.__struct_fields__ if name[0] == "_"),
}  # fmt: skip
OFF = {"top_k": -1}  # other values that switch a setting off
LAST_WORDS = 5.0  # seconds for clients to receive the message that their request was ended
ENDED = "the server is shutting down, and this request was cancelled; nothing of its response is kept"


EXTENDED = (
    "base_logprob", "delta_logp", "replaced", "changed", "proposed", "proposed_id", "delta_logp_written",
)  # fmt: skip


@dataclass
class TokenFacts(Logprob):
    """Hold the log p that RL gives the written token, with the facts of its decision.

    `base_logprob` is base's log p of the written token. It is None if the token changed and is not among base's most
    likely ones. `delta_logp` is for the proposed token, which the criterion used, and `delta_logp_written` for the
    written one. `proposed` is the text of the proposed token, and `proposed_id` its id. `most_likely` lists the most
    likely tokens of `base` and `rl` as [id, text, log p], if the request has `top_logprobs`.
    """

    base_logprob: float | None = None
    delta_logp: float = 0.0
    replaced: bool = False
    changed: bool = False
    proposed: str = ""
    proposed_id: int = -1
    delta_logp_written: float = 0.0
    most_likely: dict[str, list[tuple[int, str, float]]] | None = None

    def extension(self) -> dict[str, Any]:
        """Return what has no field in OpenAI's API."""
        fields = {name: getattr(self, name) for name in EXTENDED}
        return fields if self.most_likely is None else {**fields, "most_likely": self.most_likely}


class PairClient:
    """Implement vLLM's `EngineClient` with a pair's engine; everything else is passed to that engine."""

    def __init__(self, pair: ServedPair) -> None:
        self.pair = pair
        self.inner = pair.async_llm
        vocab_size = pair.checkpoints.vocab_size
        room = vocab_size - 1 - channel.PROPOSAL - len(FACTS)  # a small vocabulary has fewer than others
        self.most_top = min(MAX_TOP, room // len(TOP_FACTS))
        self.ending = False
        self._running: set[str] = set()
        self._numbers = count()
        self._idle = Event()
        self._idle.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    # The methods that vLLM's handlers call ---------------------------------------------------------------------------

    def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, **_: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """Decode one prompt's n samples. A request that cannot be served is rejected before its response begins.

        Raises:
            UserError: The prompt leaves no room, or the request has no decoding.
        """
        completion = (sampling_params.extra_args or {}).get(REQUEST_KEY)
        if self.ending:
            raise RetryableRequestError(ENDED)
        if not isinstance(completion, ServeRequest):
            raise UserError("This path is not served", accepted="/v1/chat/completions, /v1/completions")
        for name in set(SamplingParams.__struct_fields__) - READ:
            value = getattr(sampling_params, name)
            if value != getattr(_PLAIN, name) and value not in ([], {}) and value != OFF.get(name):
                problem = "is not served, because it would change the logits of one model only"
                raise UserError(problem, argument=name, value=value, hint="Leave it out.")
        token_ids = tuple(prompt["prompt_token_ids"])
        plans = self.plans(completion, token_ids)
        params = [self.pair.sampling_params(plan, sampling_params.output_kind) for plan in plans]
        for param in params:
            param.stream_interval = sampling_params.stream_interval
        return self._merged(plans, params, request_id)

    def plans(self, served: ServeRequest, prompt_token_ids: tuple[int, ...]) -> list[Plan]:
        """Plan the samples of a request's prompt. The problem of an unnamed one is the digest of its prompt.

        The given tokens of the response (`begun`) are at the prompt's end, but not part of it.
        """
        if served.begun >= len(prompt_token_ids):
            raise UserError(
                f"is not below {len(prompt_token_ids)}, the number of tokens of the prompt and the begun response",
                argument="begun",
                value=served.begun,
                accepted=f"0 to {len(prompt_token_ids) - 1}",
            )
        at = len(prompt_token_ids) - served.begun
        prompt, begun = prompt_token_ids[:at], prompt_token_ids[at:]
        problem = served.problem or f"prompt/{digest(' '.join(map(str, prompt)))}"
        if served.top is not None and not 0 <= served.top <= self.most_top:
            raise UserError(argument="top_logprobs", value=served.top, accepted=f"0 to {self.most_top}")
        trace = None if served.top is None else max(self.most_top, 0)
        request = Request(
            "", problem, 0, served.decoding, served.sampling, prompt, served.stop, trace, served.top, begun
        )
        plans = self.pair.plans(replace(request, sample=sample) for sample in served.samples(problem))
        if served.most_tokens is not None and (room := plans[0].begun + plans[0].max_new_tokens) < served.most_tokens:
            raise UserError(
                f"does not fit: the prompt has {len(prompt)} tokens, which leaves {room} of the context",
                argument="max_tokens",
                value=served.most_tokens,
                accepted=f"1 to {room}, or no max_tokens",
            )
        return plans

    async def _merged(
        self, plans: list[Plan], params: list[SamplingParams], request_id: str
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield the outputs of all samples as they arrive, each with its own index; only the last one is `finished`.

        A caller that wants only final outputs receives a single one with all of them.
        """
        final_only = params[0].output_kind.name == "FINAL_ONLY"
        parts = [
            self._decode_one(i, plan, param, request_id)
            for i, (plan, param) in enumerate(zip(plans, params, strict=True))
        ]
        remaining, done = len(plans), []
        async for _, output in merge_async_iterators(*parts):
            remaining -= output.finished
            if final_only:
                done.append(output)
                continue
            output.finished = output.finished and not remaining
            yield output
        if final_only:
            done.sort(key=lambda output: output.outputs[0].index)
            done[0].outputs = [output.outputs[0] for output in done]
            yield done[0]

    async def _decode_one(
        self, index: int, plan: Plan, params: SamplingParams, request_id: str
    ) -> AsyncGenerator[RequestOutput, None]:
        prompt = {"type": "token", "prompt_token_ids": list(plan.token_ids)}
        name, written = f"{request_id}-{next(self._numbers)}", 0  # a client may have given two requests the same name
        self._running.add(name)
        self._idle.clear()
        try:
            async for output in self.inner.generate(prompt, params, name):
                for completion in output.outputs:
                    if completion.finish_reason == "abort" and self.ending:
                        raise RetryableRequestError(ENDED)
                    completion.index = index
                    completion.logprobs = self._facts(plan, completion, written)
                    written += len(completion.token_ids)
                yield output
        finally:
            self._running.discard(name)
            if not self._running:
                self._idle.set()

    def _facts(self, plan: Plan, completion: Any, before: int) -> list[dict[int, Logprob]] | None:
        """Return the log-probabilities of a part of a response that has `before` tokens before it.

        Raises:
            GenerationError: A model's logits do not form a distribution.
        """
        token_ids, flat = list(completion.token_ids), completion.logprobs
        if not token_ids or flat is None:
            return []
        logits, returned = channel.unpack(flat, token_ids)
        if (broken := channel.first_broken(logits)) is not None:
            after = before + broken
            raise GenerationError(f"NaN or infinite logits after {after} tokens of the response: no token can be drawn")
        top = plan.request.tag
        if top is None or plan.request.trace is None:
            return None
        replaced, changed, delta = channel.decode(logits)
        trace = Trace(channel.decode_trace(token_ids, returned, columns(plan.request.trace)))
        likeliest = {model: trace.likeliest(model) for model in ("base", "rl")}
        proposed, written = channel.decode_proposals(token_ids, changed, delta, returned)
        texts = self._texts(proposed)
        lists = {model: self._listed(*likeliest[model], top) for model in likeliest} if top else None
        positions: list[dict[int, Logprob]] = []
        for at, token in enumerate(token_ids):
            logp: dict[str, float | None] = {}
            for model, (ids, values) in likeliest.items():
                if proposed[at] == token:
                    logp[model] = float(trace.fact(f"logp_{model}")[at])
                else:
                    where = np.flatnonzero(ids[at] == token)
                    logp[model] = float(values[at][where[0]]) if len(where) else None
            ids, values = likeliest["rl"]
            token_facts = TokenFacts(
                LEAST if logp["rl"] is None else logp["rl"],
                base_logprob=logp["base"],
                delta_logp=float(delta[at]),
                replaced=bool(replaced[at]),
                changed=bool(changed[at]),
                proposed=texts[at],
                proposed_id=int(proposed[at]),
                delta_logp_written=float(written[at]),
                most_likely=None if lists is None else {model: of_model[at] for model, of_model in lists.items()},
            )
            listed = {int(ids[at][i]): Logprob(float(values[at][i]), rank=i + 1) for i in range(top)}
            positions.append(listed | {token: token_facts})
        self._name(positions)
        return positions

    def _texts(self, ids: np.ndarray) -> list[str]:
        """Return the text of each token alone."""
        return list(convert_ids_list_to_tokens(self.pair.tokenizer, ids.tolist()))

    def _listed(self, ids: np.ndarray, logp: np.ndarray, top: int) -> list[list[tuple[int, str, float]]]:
        """Return a model's `top` most likely tokens at each position, in the form of `TokenFacts.most_likely`."""
        rows = zip(ids[:, :top], logp[:, :top], strict=True)
        return [
            [*zip(of_row.tolist(), self._texts(of_row), values.round(4).tolist(), strict=True)]
            for of_row, values in rows
        ]

    def _name(self, positions: Iterable[dict[int, Logprob]]) -> None:
        """Add each token's text to its number."""
        for position in positions:
            words = convert_ids_list_to_tokens(self.pair.tokenizer, list(position))
            for word, entry in zip(words, position.values(), strict=True):
                entry.decoded_token = word

    # Shutdown -------------------------------------------------------------------------------------------------------

    def shutdown(self, timeout: float | None = None) -> None:
        """Let running requests finish for `timeout` seconds, then end the others with a message, and the engine.

        vLLM's server calls it in a thread when it shuts down.
        """
        self.ending = True
        if not self._idle.wait(timeout):
            asyncio.run_coroutine_threadsafe(self.inner.abort(list(self._running)), self.pair.loop)
            self._idle.wait(LAST_WORDS)
        self.pair.close()
