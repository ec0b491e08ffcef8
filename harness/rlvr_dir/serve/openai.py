"""vLLM's two handlers, for chats and for completions, with the rule of each request read and its facts in the answer.

A handler reads the rule, leaves it where `PairClient.generate` finds it, and goes on as vLLM's own: the templates, the
streams, the stop strings, the usage are vLLM's. What a pair cannot serve is refused in one sentence, not ignored.
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
from rlvr_dir.errors import UserError, nearest, unknown
from rlvr_dir.serve.client import REQUEST_KEY, TokenFacts
from rlvr_dir.serve.request_parser import FIELDS, RequestParser, ServeRequest

# What a request may ask of vLLM and not of a pair, whose rule draws every token.
UNSERVED = {
    "tools": "a pair writes text and calls no tools",
    "tool_choice": "a pair writes text and calls no tools",
    "functions": "a pair writes text and calls no tools",
    "response_format": "every token is drawn by the rule, so no format can be forced",
    "structured_outputs": "every token is drawn by the rule, so no format can be forced",
}
EXTENSION = "rlvr"  # the field of an answer that has what OpenAI's has no field for


def given_fields(request: Any) -> dict[str, Any]:
    """Return which of FIELDS a request gives, in itself or in `vllm_xargs`; other fields of OpenAI's are vLLM's.

    Raises:
        UserError: a field is not known, or is given twice.
    """
    fields: dict[str, Any] = {}
    for name in sorted(request.model_fields_set):  # max_completion_tokens comes before max_tokens, and counts
        value, called = getattr(request, name), "max_tokens" if name == "max_completion_tokens" else name
        if called in FIELDS:
            fields |= {} if value is None or called in fields else {called: value}
        elif name not in type(request).model_fields:
            near = nearest(name, {*FIELDS, *type(request).model_fields}, 1)
            hint = f"did you mean {near[0]!r}? Accepted" if near else "accepted"
            raise UserError(f"field={name!r} is not known; {hint}: {', '.join(FIELDS)}, and those of OpenAI's API")
    for name, value in (request.vllm_xargs or {}).items():
        if name in fields:
            raise UserError(f"{name} is given twice, in the request and in vllm_xargs; give it once")
        fields[name] = value
    return fields


async def misread(_: Any, error: Any) -> Any:
    """Answer a request whose fields are of other types with one sentence, where vLLM dumps what pydantic says."""
    first = error.errors()[0]
    first = first if isinstance(first, dict) else {"loc": (), "msg": str(first)}
    if first.get("type") == "json_invalid":
        detail = f": {(first.get('ctx') or {}).get('error', first['msg'])} at character {first['loc'][-1]}"
        answer = create_error_response(f"the body is no JSON{detail}", "BadRequestError", HTTPStatus.BAD_REQUEST)
        return JSONResponse(answer.model_dump(), status_code=400)
    field = ".".join(
        str(part) for part in first["loc"] if part not in ("body", "function-wrap[__log_extra_fields__()]")
    )
    value = "" if not field or isinstance(first.get("input"), dict | list) else f"={str(first.get('input'))[:60]!r}"
    sentence = f"{field or 'the body'}{value} is refused: {first['msg'].removeprefix('Value error, ')}"
    answer = create_error_response(sentence, "BadRequestError", HTTPStatus.BAD_REQUEST, field or None)
    return JSONResponse(answer.model_dump(), status_code=400)


async def refused(_: Any, error: Any) -> Any:
    """Answer a request that vLLM refuses: in our words where a pair has nothing that it asks for."""
    name = error.parameter
    sentence = _unserved(name) if name in UNSERVED else str(error)
    answer = create_error_response(sentence, "BadRequestError", HTTPStatus.BAD_REQUEST, name)
    return JSONResponse(answer.model_dump(), status_code=400)


def _unserved(name: str) -> str:
    return f"{name} is refused: {UNSERVED[name]}; accepted: leave it out"


def read_chat(desk: RequestParser, request: ChatCompletionRequest) -> ServeRequest:
    """Return what a chat asks for; raises UserError."""
    completion = _read(desk, request, (request.top_logprobs or 0) if request.logprobs else None)
    if completion.begun:
        raise UserError(
            f"begun={completion.begun} is refused in a chat; accepted: /v1/completions, the prompt as token ids"
        )
    return replace(
        completion, chat_template_kwargs={**desk.chat_template_kwargs, **(request.chat_template_kwargs or {})}
    )


def read_completion(desk: RequestParser, request: CompletionRequest) -> ServeRequest:
    """Return what a completion asks for; raises UserError."""
    completion = _read(desk, request, request.logprobs)
    many = isinstance(request.prompt, list) and len(request.prompt) > 1 and not isinstance(request.prompt[0], int)
    if many and completion.problem is not None:
        raise UserError(
            f"problem={completion.problem!r} is refused with several prompts; accepted: one prompt a request"
        )
    return completion


def _read(desk: RequestParser, request: Any, top: int | None) -> ServeRequest:
    for name in UNSERVED:
        value = getattr(request, name, None)
        given = value is not None and value != "none" and name in request.model_fields_set
        if given and getattr(value, "type", None) != "text":
            raise UserError(_unserved(name))
    stop = request.stop or ()
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stop:
        raise UserError("stop='' is refused; accepted: texts that are not empty")
    try:
        json.dumps(
            [request.model_dump(mode="json", include={"messages", "prompt", "stop"})], ensure_ascii=False
        ).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"the prompt holds {error.object[error.start]!r}, which no UTF-8 text has") from None
    n = 1 if request.n is None else request.n
    completion = desk.read(request.model, given_fields(request), n=n, stop=stop, top=top)
    # From here on vLLM's handler is told nothing of it but what shapes the answer.
    request.model, request.vllm_xargs = desk.name, {REQUEST_KEY: completion}
    request.max_tokens = 1  # what is left of the context decides, as offline; here a placeholder for vLLM's checks
    request.stop = []
    for name in {*FIELDS} & type(request).model_fields.keys() - {"max_tokens"}:
        setattr(request, name, None)
    return completion


def asked_of(request: Any) -> ServeRequest:
    """Return what was read from a request."""
    return request.vllm_xargs[REQUEST_KEY]


class _Adopted:
    """A handler that takes over what vLLM has set up in another one."""

    desk: RequestParser

    @classmethod
    def of(cls, handler: Any, desk: RequestParser) -> Any:
        """Return the handler with the rule, in place of vLLM's `handler`."""
        adopted = cls.__new__(cls)
        vars(adopted).update(vars(handler), desk=desk)
        return adopted

    def stranger(self, model: str | None) -> Any:
        """Return the answer to a request for a model that is not ours; None where it is."""
        if self.desk.knows(model):
            return None
        sentence = str(unknown("model", model, self.desk.models))
        return create_error_response(sentence, "NotFoundError", HTTPStatus.NOT_FOUND, "model")


class PairChat(_Adopted, OpenAIServingChat):
    """`/v1/chat/completions`."""

    async def create_chat_completion(self, request: ChatCompletionRequest, raw_request: Any = None) -> Any:
        """Answer a chat; see vLLM's."""
        if unknown_model := self.stranger(request.model):
            return unknown_model
        try:
            completion = read_chat(self.desk, request)
            if sentence := unread(request.chat_template_kwargs or {}, self.renderer.tokenizer):
                raise UserError(sentence)
            request.max_completion_tokens = None
            answer = await super().create_chat_completion(request, raw_request)
        except UserError as error:
            return self.create_error_response(str(error))
        return _annotated(answer, completion)

    def chat_completion_stream_generator(
        self, request: Any, results: Any, request_id: str, model_name: str, *args: Any, **kwargs: Any
    ) -> Any:
        """Write a stream's chunks, under the name of the model that was asked for."""
        name = asked_of(request).model
        return super().chat_completion_stream_generator(request, results, request_id, name, *args, **kwargs)

    def _create_chat_logprobs(self, token_ids: Any, top_logprobs: Any, *args: Any, **kwargs: Any) -> Any:
        logprobs = super()._create_chat_logprobs(token_ids, top_logprobs, *args, **kwargs)
        for entry, token, position in zip(logprobs.content or (), token_ids, top_logprobs, strict=True):
            facts = position.get(token)
            if isinstance(facts, TokenFacts):
                setattr(entry, EXTENSION, facts.extension())
        return logprobs


class PairCompletion(_Adopted, OpenAIServingCompletion):
    """`/v1/completions`."""

    async def create_completion(self, request: CompletionRequest, raw_request: Any = None) -> Any:
        """Answer a completion; see vLLM's."""
        if unknown_model := self.stranger(request.model):
            return unknown_model
        try:
            completion = read_completion(self.desk, request)
            bos = getattr(self.renderer.tokenizer, "bos_token", None)
            if bos and isinstance(request.prompt, str) and request.prompt.startswith(bos):
                request.add_special_tokens = False  # as offline: it is written already
            answer = await super().create_completion(request, raw_request)
        except UserError as error:
            return self.create_error_response(str(error))
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
        """Write a stream's chunks, under the name of the model that was asked for."""
        name = asked_of(request).model
        return super().completion_stream_generator(request, inputs, results, request_id, created, name, *args, **kwargs)

    def _create_completion_logprobs(self, token_ids: Any, top_logprobs: Any, *args: Any, **kwargs: Any) -> Any:
        logprobs = super()._create_completion_logprobs(token_ids, top_logprobs, *args, **kwargs)
        facts = [position.get(token) for token, position in zip(token_ids, top_logprobs, strict=True)]
        rows = [fact.extension() for fact in facts if isinstance(fact, TokenFacts)]
        if rows and len(rows) == len(facts):
            setattr(logprobs, EXTENSION, {name: [row[name] for row in rows] for name in rows[0]})
        return logprobs


def _annotated(answer: Any, asked: ServeRequest) -> Any:
    """Put the asked model's name, and what would give the same tokens again, into an answer: whole, or its chunks."""
    if isinstance(answer, AsyncGenerator):
        return _told_chunks(answer, asked)
    if hasattr(answer, "choices"):
        answer.model = asked.model
        setattr(answer, EXTENSION, asked.describe())
    return answer


async def _told_chunks(chunks: AsyncGenerator[str, None], request: ServeRequest) -> AsyncGenerator[str, None]:
    """Put what is asked into the first chunk."""
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
