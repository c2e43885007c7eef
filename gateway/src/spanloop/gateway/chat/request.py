"""A chat-completion request: validation, and the body sent to the engine.

Only the fields that the gateway uses are validated; all others are passed to the engine unchanged, which validates
them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Self, cast

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

    path: ClassVar[str] = "/v1/chat/completions"
    """Of the engine's API."""
    document: Mapping[str, Any]
    """The JSON object as received, or as it was converted to."""
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
        return cls.of_document(cast("dict[str, Any]", document), traceparent)

    @classmethod
    def of_document(cls, fields: dict[str, Any], traceparent: str | None) -> Self:
        """Validate a request; it raises as `parse`."""
        model = read_model(fields)
        messages: Any = fields.get("messages")
        if not (isinstance(messages, list) and messages):
            raise invalid_request(
                f"'messages' must be a list of at least one message, got {_show(fields.get('messages'))}.",
                param="messages",
            )
        choice_count = read_choice_count(fields)
        wants_logprobs = read_flag(fields, "logprobs")
        if fields.get("top_logprobs") and not wants_logprobs:
            raise invalid_request("'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
        return cls(
            document=fields,
            model=model,
            is_stream=read_flag(fields, "stream"),
            choice_count=choice_count,
            wants_token_ids=read_flag(fields, "return_token_ids"),
            wants_logprobs=wants_logprobs,
            trace=TraceContext.parse(traceparent),
        )

    def check_choices(self, limit: int) -> None:
        """Refuse a request for more than ``limit`` choices. ApiError: 400."""
        if self.choice_count > limit:
            message = f"'n' must be at most {limit}, got {self.choice_count}. Send several requests."
            raise invalid_request(message, param="n")

    def for_engine(
        self,
        served_name: str,
        fields: Mapping[str, Any] = MappingProxyType({}),
        refused: Collection[str] = (),
    ) -> bytes:
        """Return the body for the engine, with its own model name and a request for logprobs and token ids.

        Args:
            served_name: The engine's name for the model.
            fields: Further fields.
            refused: Fields that the engine does not accept.

        Raises:
            ApiError: 400; the request is nested too deep to be written.
        """
        added = {name: True for name in ("logprobs", "return_token_ids") if name not in refused}
        try:
            return encode_json({**self.document, "model": served_name, **added, **fields})
        except RecursionError as error:
            raise nested_too_deep() from error

    def to_capture(self, document: dict[str, Any]) -> Mapping[str, Any]:
        """Return the engine's document in the form that captures are made of: its own."""
        return document


def read_model(document: Mapping[str, Any]) -> str:
    """Return the requested model; empty for none. ApiError: 400, it is no string."""
    model = document.get("model")
    if model is not None and not isinstance(model, str):
        raise invalid_request(f"'model' must be a string, got {_show(model)}.", param="model")
    return model or ""


def read_choice_count(document: Mapping[str, Any]) -> int:
    """Return the number of choices (``n``). ApiError: 400, it is no positive integer."""
    count = document.get("n")
    if count is None:
        return 1
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise invalid_request(f"'n' must be a positive integer, got {_show(count)}.", param="n")
    return count


def read_flag(document: Mapping[str, Any], name: str) -> bool:
    """Return a field that is true or false; False without it. ApiError: 400, it is neither."""
    value = document.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise invalid_request(f"'{name}' must be true or false, got {_show(value)}.", param=name)


def _show(value: object) -> str:
    return repr(value)[:80]
