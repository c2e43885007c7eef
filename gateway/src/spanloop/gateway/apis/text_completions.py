"""Text completions: the prompt is text or token ids, and the engine's own ``/v1/completions`` answers.

Invariant: a capture has the ids and log-probabilities of the tokens as with a chat.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from ..api_errors import ApiError
from ..chat.request import ChatRequest, TraceContext, read_choice_count, read_flag, read_model
from ..chat.request_body import invalid_request
from ..client.json_codec import as_list, as_object, encode_json
from .fields import read_object, unsupported


@dataclass(frozen=True, slots=True)
class TextRequest(ChatRequest):
    """A validated request."""

    path = "/v1/completions"

    @classmethod
    def parse(cls, body: bytes, traceparent: str | None) -> Self:
        """Parse and validate a request. ApiError: 400; names the field."""
        document = read_object(body)
        prompt = document.get("prompt")
        ids = as_list(prompt)
        if not isinstance(prompt, str) and not (ids and all(type(token_id) is int for token_id in ids)):
            raise invalid_request(
                f"'prompt' must be one text or one list of token ids, got {prompt!r:.80}.", param="prompt"
            )
        logprobs = document.get("logprobs")
        if logprobs is not None and (not isinstance(logprobs, int) or isinstance(logprobs, bool) or logprobs < 0):
            raise invalid_request(f"'logprobs' must be a number of tokens, got {logprobs!r:.80}.", param="logprobs")
        for name in ("echo", "suffix", "best_of", "prompt_logprobs"):
            if document.get(name):
                raise unsupported(name)
        return cls(
            document=document,
            model=read_model(document),
            is_stream=read_flag(document, "stream"),
            choice_count=read_choice_count(document),
            wants_token_ids=read_flag(document, "return_token_ids"),
            wants_logprobs=logprobs is not None,
            trace=TraceContext.parse(traceparent),
        )

    def for_engine(
        self,
        served_name: str,
        fields: Mapping[str, Any] = MappingProxyType({}),
        refused: Collection[str] = (),
    ) -> bytes:
        """Return the body for the engine."""
        added = {"logprobs": self.document.get("logprobs") or 0, "return_token_ids": True}
        accepted = {name: value for name, value in added.items() if name not in refused}
        return encode_json({**self.document, "model": served_name, **accepted, **fields})

    def to_capture(self, document: dict[str, Any]) -> Mapping[str, Any]:
        """Return the engine's document in the form of a chat's."""
        choices: list[dict[str, Any]] = document.get("choices") or []
        prompt = next((choice["prompt_token_ids"] for choice in choices if choice.get("prompt_token_ids")), None)
        return {"id": document.get("id"), "prompt_token_ids": prompt, "choices": [_to_chat(each) for each in choices]}


def _to_chat(choice: Mapping[str, Any]) -> dict[str, Any]:
    logprobs = as_list(as_object(choice.get("logprobs")).get("token_logprobs"))
    return {
        "index": choice["index"],
        "token_ids": choice.get("token_ids"),
        "logprobs": {"content": [{"logprob": value} for value in logprobs]},
        "finish_reason": choice.get("finish_reason"),
    }


class TextFormat:
    """The engine's documents, without what the client did not request.

    Args:
        request: The client's request.
    """

    def __init__(self, request: TextRequest) -> None:
        self._request = request

    def response_id(self, engine_id: str) -> str:
        """Return the engine's id."""
        return engine_id

    def whole(self, document: dict[str, Any], model: str) -> bytes:
        """Return the document as JSON."""
        return encode_json(self._for_client(document, model))

    def events(self, document: dict[str, Any], model: str) -> bytes:
        """Return the chunk as one event."""
        return b"data: %b\n\n" % encode_json(self._for_client(document, model))

    def done(self) -> bytes:
        """Return the event ``[DONE]``."""
        return b"data: [DONE]\n\n"

    def error_body(self, error: ApiError) -> bytes:
        """Return OpenAI's error."""
        return encode_json(error.body())

    def error_event(self, error: ApiError) -> bytes:
        """Return the error as an event."""
        return b"data: %b\n\n" % self.error_body(error)

    def engine_error(self, body: bytes, status: int) -> bytes:  # noqa: ARG002 - as in the protocol
        """Return the engine's error unchanged."""
        return body

    def _for_client(self, document: dict[str, Any], model: str) -> dict[str, Any]:
        if "model" in document:
            document["model"] = model
        choices: list[dict[str, Any]] = document.get("choices") or []
        for choice in choices:
            if not self._request.wants_token_ids:
                choice.pop("token_ids", None)
                choice.pop("prompt_token_ids", None)
            if not self._request.wants_logprobs and "logprobs" in choice:
                choice["logprobs"] = None
        return document
