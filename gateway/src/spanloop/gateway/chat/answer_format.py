"""The format in which one request is answered: Chat Completions, and what other APIs make of it.

Engines answer in the format of Chat Completions, which is the inner form of every API: a request is converted to a
`ChatRequest`, and its `AnswerFormat` converts what the engine answers.
"""

from typing import Any, Protocol

from ..api_errors import ApiError
from ..client.json_codec import encode_json
from . import sse
from .request import ChatRequest


class AnswerFormat(Protocol):
    """Converts the engine's documents for one request; a stream's chunks come in order."""

    def response_id(self, engine_id: str) -> str:
        """Return the id of the response, by which its capture is joined to the client's span."""
        ...

    def whole(self, document: dict[str, Any], model: str) -> bytes:
        """Return the body for a whole response of the engine; ``model`` is ``name@version``."""
        ...

    def events(self, document: dict[str, Any], model: str) -> bytes:
        """Return the events for one chunk of a stream; empty for none."""
        ...

    def done(self) -> bytes:
        """Return what ends a stream."""
        ...

    def error_body(self, error: ApiError) -> bytes:
        """Return the body of an error."""
        ...

    def error_event(self, error: ApiError) -> bytes:
        """Return the event of an error that ends a stream."""
        ...

    def engine_error(self, body: bytes, status: int) -> bytes:
        """Return the body for an error response of the engine."""
        ...


class ChatFormat:
    """The engine's documents, without what the client did not request.

    Args:
        request: The client's request.
    """

    def __init__(self, request: ChatRequest) -> None:
        self._wants_token_ids = request.wants_token_ids
        self._wants_logprobs = request.wants_logprobs

    def response_id(self, engine_id: str) -> str:
        """Return the engine's id."""
        return engine_id

    def whole(self, document: dict[str, Any], model: str) -> bytes:
        """Return the document as JSON."""
        return encode_json(self.for_client(document, model))

    def events(self, document: dict[str, Any], model: str) -> bytes:
        """Return the chunk as one event."""
        return sse.encode(encode_json(self.for_client(document, model)))

    def done(self) -> bytes:
        """Return the event ``[DONE]``."""
        return sse.encode(sse.DONE)

    def error_body(self, error: ApiError) -> bytes:
        """Return OpenAI's error."""
        return encode_json(error.body())

    def error_event(self, error: ApiError) -> bytes:
        """Return the error as an event, which OpenAI's clients raise."""
        return sse.encode(encode_json(error.body()))

    def engine_error(self, body: bytes, status: int) -> bytes:  # noqa: ARG002 - as in the protocol
        """Return the engine's error unchanged."""
        return body

    def for_client(self, document: dict[str, Any], model: str) -> dict[str, Any]:
        """Rewrite a response, or one chunk of a stream, in place; return it."""
        if "model" in document:
            document["model"] = model
        if not self._wants_token_ids:
            document.pop("prompt_token_ids", None)
        choices: list[dict[str, Any]] = document.get("choices") or []
        for choice in choices:
            if not self._wants_token_ids:
                choice.pop("token_ids", None)
            if not self._wants_logprobs and "logprobs" in choice:
                choice["logprobs"] = None
        return document
