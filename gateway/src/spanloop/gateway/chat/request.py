"""A chat-completion request: validation, and the body sent to the engine.

Only the fields that the gateway uses are validated; all others are passed to the engine unchanged, which validates
them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, cast

from ..client.json_codec import encode_json
from .request_body import invalid_request, nested_too_deep, read_body

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


class TraceContext(NamedTuple):
    """The client's trace context; both empty when it sent none."""

    trace_id: str = ""
    """32 hex digits."""
    span_id: str = ""
    """16 hex digits: the span of the HTTP request."""

    @classmethod
    def parse(cls, traceparent: str | None) -> "TraceContext":
        """Parse a W3C ``traceparent`` header; a malformed or all-zero one counts as none (W3C Trace Context, 3.2.2)."""
        match = _TRACEPARENT.fullmatch((traceparent or "").strip())
        if match is None or not match[1].strip("0") or not match[2].strip("0"):
            return cls()
        if traceparent is not None and traceparent.strip().startswith("ff"):
            return cls()
        return cls(match[1], match[2])


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A validated request."""

    document: Mapping[str, Any]
    """The JSON object as received."""
    model: str
    """The requested model; empty when the request names none."""
    is_stream: bool
    choice_count: int
    wants_token_ids: bool
    wants_logprobs: bool
    trace: TraceContext

    @classmethod
    def parse(cls, body: bytes, traceparent: str | None) -> Self:
        """Parse and validate a request.

        Raises:
            ApiError: 400; names the field, its value and what is expected.
        """
        document = read_body(body)
        if not isinstance(document, dict):
            raise invalid_request(f"The request body must be a JSON object, got {type(document).__name__}.")
        fields = cast("dict[str, Any]", document)
        model = fields.get("model")
        if model is not None and not isinstance(model, str):
            raise invalid_request(f"'model' must be a string, got {_show(model)}.", param="model")
        messages: Any = fields.get("messages")
        if not (isinstance(messages, list) and messages):
            raise invalid_request(
                f"'messages' must be a list of at least one message, got {_show(fields.get('messages'))}.",
                param="messages",
            )
        choice_count = fields.get("n")
        if choice_count is None:
            choice_count = 1
        if not isinstance(choice_count, int) or isinstance(choice_count, bool) or choice_count < 1:
            raise invalid_request(f"'n' must be a positive integer, got {_show(choice_count)}.", param="n")
        wants_logprobs = _read_flag(fields, "logprobs")
        if fields.get("top_logprobs") and not wants_logprobs:
            raise invalid_request("'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
        return cls(
            document=fields,
            model=model or "",
            is_stream=_read_flag(fields, "stream"),
            choice_count=choice_count,
            wants_token_ids=_read_flag(fields, "return_token_ids"),
            wants_logprobs=wants_logprobs,
            trace=TraceContext.parse(traceparent),
        )

    def for_engine(self, served_name: str, fields: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """Return the body for the engine, with its own model name and a request for logprobs and token ids.

        Args:
            served_name: The engine's name for the model.
            fields: Further fields.

        Raises:
            ApiError: 400; the request is nested too deep to be written.
        """
        overrides = {"model": served_name, "logprobs": True, "return_token_ids": True, **fields}
        try:
            return encode_json({**self.document, **overrides})
        except RecursionError as error:
            raise nested_too_deep() from error


def _read_flag(document: Mapping[str, Any], name: str) -> bool:
    value = document.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise invalid_request(f"'{name}' must be true or false, got {_show(value)}.", param=name)


def _show(value: object) -> str:
    return repr(value)[:80]
