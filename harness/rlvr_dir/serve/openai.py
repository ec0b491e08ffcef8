"""Extend vLLM's handlers for chats and completions: read a request's decoding, and add its facts to the response.

A handler reads the decoding, stores it where `PairClient.generate` finds it, and continues as vLLM's own: templates,
streams, stop strings and usage are vLLM's. A request that a pair cannot serve gets an error of one sentence.
"""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

from rlvr_dir.checkpoints.chat_template import unread
from rlvr_dir.errors import UserError, mention, nearest, unknown
from rlvr_dir.serve.client import REQUEST_KEY, TokenFacts
from rlvr_dir.serve.request_parser import FIELDS, RequestParser, ServeRequest

_NO_TOOLS = "a pair generates text and calls no tools"
_NO_FORMAT = "the decoding samples every token, so no format can be forced"
# Fields that vLLM's models have and a pair does not, with the reason.
UNSERVED = {
    "tools": _NO_TOOLS,
    "tool_choice": _NO_TOOLS,
    "functions": _NO_TOOLS,
    "response_format": _NO_FORMAT,
    "structured_outputs": _NO_FORMAT,
    "echo": "a response contains only tokens that the pair samples",
    "prompt_logprobs": "only sampled tokens have log-probabilities; `rlvr-dir score` scores given text",
    "min_tokens": "the decoding samples every token, so the end cannot be delayed",
}
# Fields of OpenAI's API that change no response. vLLM does not know them, but clients send them, so a pair accepts
# them.
IGNORED = ("metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier")
EXTENSION = "rlvr"  # the response's field for what OpenAI's API has no field for


def given_fields(request: Any) -> dict[str, Any]:
    """Return which of FIELDS a request has, directly or in `vllm_xargs`. Other fields of OpenAI's API are vLLM's.

    Raises:
        UserError: A field is not known, or is given twice.
    """
    fields: dict[str, Any] = {}
    for name in sorted(request.model_fields_set):  # max_completion_tokens comes before max_tokens, and has priority
        value, called = getattr(request, name), "max_tokens" if name == "max_completion_tokens" else name
        if called in FIELDS:
            fields |= {} if value is None or called in fields else {called: value}
        elif name not in type(request).model_fields and name not in IGNORED:
            near = nearest(name, {*FIELDS, *type(request).model_fields}, 1)
            raise UserError(
                "is not known",
                argument=name,
                value=value,
                accepted=f"{', '.join(FIELDS)}, and the fields of OpenAI's API",
                hint=f"Did you mean {near[0]!r}?" if near else "",
            )
    for name, value in (request.vllm_xargs or {}).items():
        if name in fields:
            raise UserError("is in the request and in vllm_xargs", argument=name, value=value, hint="Send it once.")
        fields[name] = value
    return fields


async def misread(_: Any, error: Any) -> Any:
    """Reply with one sentence to a request whose fields have wrong types; vLLM would print pydantic's report."""
    first = error.errors()[0]
    first = first if isinstance(first, dict) else {"loc": (), "msg": str(first)}
    if first.get("type") == "json_invalid":
        detail = f": {(first.get('ctx') or {}).get('error', first['msg'])} at character {first['loc'][-1]}"
        answer = create_error_response(f"the body is not JSON{detail}", "BadRequestError", HTTPStatus.BAD_REQUEST)
        return JSONResponse(answer.model_dump(), status_code=400)
    field = ".".join(
        str(part) for part in first["loc"] if part not in ("body", "function-wrap[__log_extra_fields__()]")
    )
    reason = first["msg"].removeprefix("Value error, ")
    if not field or isinstance(first.get("input"), dict | list):
        error = UserError(f"{mention(field) if field else 'The body'} is not allowed: {reason}")
    else:
        error = UserError(f"is not allowed: {reason}", argument=field, value=str(first.get("input"))[:60])
    answer = create_error_response(str(error), "BadRequestError", HTTPStatus.BAD_REQUEST, field or None)
    return JSONResponse(answer.model_dump(), status_code=400)


async def refused(_: Any, error: Any) -> Any:
    """Reply to a request that vLLM rejects, in our words if it has a field that a pair does not support."""
    name = error.parameter
    sentence = str(_unserved(name)) if name in UNSERVED else str(error)
    answer = create_error_response(sentence, "BadRequestError", HTTPStatus.BAD_REQUEST, name)
    return JSONResponse(answer.model_dump(), status_code=400)


def _unserved(name: str) -> UserError:
    return UserError(f"{mention(name)} is not served, because {UNSERVED[name]}", argument=name, hint="Leave it out.")


def read_chat(parser: RequestParser, request: ChatCompletionRequest) -> ServeRequest:
    """Read a chat request; raises UserError."""
    completion = _read(parser, request, (request.top_logprobs or 0) if request.logprobs else None)
    if completion.begun:
        raise UserError(
            "is not allowed in a chat",
            argument="begun",
            value=completion.begun,
            hint="Use /v1/completions with the prompt as token ids.",
        )
    return replace(
        completion, chat_template_kwargs={**parser.chat_template_kwargs, **(request.chat_template_kwargs or {})}
    )


def read_completion(parser: RequestParser, request: CompletionRequest) -> ServeRequest:
    """Read a completion request; raises UserError."""
    completion = _read(parser, request, request.logprobs)
    many = isinstance(request.prompt, list) and len(request.prompt) > 1 and not isinstance(request.prompt[0], int)
    if many and completion.problem is not None:
        raise UserError(
            "is not allowed with several prompts",
            argument="problem",
            value=completion.problem,
            hint="Send one prompt a request.",
        )
    return completion


def _read(parser: RequestParser, request: Any, top: int | None) -> ServeRequest:
    for name in UNSERVED:
        value = getattr(request, name, None)
        is_set = name in request.model_fields_set and value not in (None, "none", False, 0)
        if is_set and getattr(value, "type", None) != "text":
            raise _unserved(name)
    stop = request.stop or ()
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stop:
        raise UserError(argument="stop", value="", accepted="texts that are not empty")
    try:
        json.dumps(
            [request.model_dump(mode="json", include={"messages", "prompt", "stop"})], ensure_ascii=False
        ).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UserError(
            f"The prompt has {half!r}, half a surrogate pair", accepted="text that UTF-8 can write"
        ) from None
    n = 1 if request.n is None else request.n
    completion = parser.read(request.model, given_fields(request), n=n, stop=stop, top=top)
    # From here on vLLM's handler receives only what determines the form of the response.
    request.model, request.vllm_xargs = parser.name, {REQUEST_KEY: completion}
    request.max_tokens = 1  # as offline, the rest of the context is the limit; this placeholder passes vLLM's checks
    request.stop = []
    for name in {*FIELDS} & type(request).model_fields.keys() - {"max_tokens"}:
        setattr(request, name, None)
    return completion


def asked_of(request: Any) -> ServeRequest:
    """Return what `_read` has read from a request."""
    return request.vllm_xargs[REQUEST_KEY]


class _Adopted:
    """Take over the state of vLLM's handler."""

    pair_parser: RequestParser

    @classmethod
    def of(cls, handler: Any, parser: RequestParser) -> Any:
        """Return our handler as a replacement for vLLM's `handler`."""
        adopted = cls.__new__(cls)
        vars(adopted).update(vars(handler), pair_parser=parser)
        return adopted

    def stranger(self, model: str | None) -> Any:
        """Return the error for a model that is not ours; None if it is ours."""
        if self.pair_parser.knows(model):
            return None
        sentence = str(unknown("model", model, self.pair_parser.models))
        return create_error_response(sentence, "NotFoundError", HTTPStatus.NOT_FOUND, "model")


class PairChat(_Adopted, OpenAIServingChat):
    """Handle `/v1/chat/completions`."""

    async def create_chat_completion(self, request: ChatCompletionRequest, raw_request: Any = None) -> Any:
        """Reply to a chat; see vLLM's method."""
        if unknown_model := self.stranger(request.model):
            return unknown_model
        try:
            completion = read_chat(self.pair_parser, request)
            if error := unread(request.chat_template_kwargs or {}, self.renderer.tokenizer):
                raise error
            request.max_completion_tokens = None
            answer = await super().create_chat_completion(request, raw_request)
        except UserError as error:
            return self.create_error_response(str(error), param=error.argument or None)
        return _annotated(answer, completion)

    def chat_completion_stream_generator(
        self, request: Any, results: Any, request_id: str, model_name: str, *args: Any, **kwargs: Any
    ) -> Any:
        """Write a stream's chunks under the model name of the request."""
        name = asked_of(request).model
        return super().chat_completion_stream_generator(request, results, request_id, name, *args, **kwargs)

    def _create_chat_logprobs(self, token_ids: Any, top_logprobs: Any, *args: Any, **kwargs: Any) -> Any:
        logprobs = super()._create_chat_logprobs(token_ids, top_logprobs, *args, **kwargs)
        for entry, token, position in zip(logprobs.content or (), token_ids, top_logprobs, strict=True):
            token_facts = position.get(token)
            if isinstance(token_facts, TokenFacts):
                setattr(entry, EXTENSION, token_facts.extension())
        return logprobs


class PairCompletion(_Adopted, OpenAIServingCompletion):
    """Handle `/v1/completions`."""

    async def create_completion(self, request: CompletionRequest, raw_request: Any = None) -> Any:
        """Reply to a completion; see vLLM's method."""
        if unknown_model := self.stranger(request.model):
            return unknown_model
        try:
            completion = read_completion(self.pair_parser, request)
            bos = getattr(self.renderer.tokenizer, "bos_token", None)
            if bos and isinstance(request.prompt, str) and request.prompt.startswith(bos):
                request.add_special_tokens = False  # as offline: the prompt already contains them
            answer = await super().create_completion(request, raw_request)
        except UserError as error:
            return self.create_error_response(str(error), param=error.argument or None)
        return _annotated(answer, completion)

    def completion_stream_generator(
        self,
        request: Any,
        inputs: Any,
        results: Any,
        request_id: str,
        created: int,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Write a stream's chunks under the model name of the request."""
        name = asked_of(request).model
        return super().completion_stream_generator(request, inputs, results, request_id, created, name, *args, **kwargs)

    def _create_completion_logprobs(self, token_ids: Any, top_logprobs: Any, *args: Any, **kwargs: Any) -> Any:
        logprobs = super()._create_completion_logprobs(token_ids, top_logprobs, *args, **kwargs)
        token_facts = [position.get(token) for token, position in zip(token_ids, top_logprobs, strict=True)]
        rows = [fact.extension() for fact in token_facts if isinstance(fact, TokenFacts)]
        if rows and len(rows) == len(token_facts):
            setattr(logprobs, EXTENSION, {name: [row[name] for row in rows] for name in rows[0]})
        return logprobs


def _annotated(answer: Any, request: ServeRequest) -> Any:
    """Add the request's model name, and the fields that reproduce its tokens, to a response or its chunks."""
    if isinstance(answer, AsyncGenerator):
        return _told_chunks(answer, request)
    if hasattr(answer, "choices"):
        answer.model = request.model
        setattr(answer, EXTENSION, request.describe())
    return answer


async def _told_chunks(chunks: AsyncGenerator[str, None], request: ServeRequest) -> AsyncGenerator[str, None]:
    """Add the fields that reproduce the tokens to the first chunk."""
    sent = False
    try:
        async for chunk in chunks:
            if sent:
                yield chunk
                continue
            head, start, body = chunk.partition("data: {")
            if start and '"choices"' in body:
                sent = True
                chunk = f"{head}{start}{json.dumps(EXTENSION)}: {json.dumps(request.describe())}, {body}"
            yield chunk
    finally:
        await chunks.aclose()
