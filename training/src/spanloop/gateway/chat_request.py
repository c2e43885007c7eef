"""One chat-completion request as the caller sent it, lightly checked, and as the engine must see it.

Only the fields that the gateway itself acts on are validated; all others go through untouched and are the engine's
to judge.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, cast

from .api_errors import AnswerError

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_SAMPLING_FIELDS: Final = (
    "temperature", "top_p", "top_k", "min_p", "seed", "n", "max_tokens", "max_completion_tokens", "min_tokens", "stop",
    "stop_token_ids", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "tool_choice",
    "response_format", "structured_outputs", "ignore_eos", "bad_words", "allowed_token_ids",
)  # fmt: skip


class TraceContext(NamedTuple):
    """The caller's place in its trace; both empty when it sent none."""

    trace_id: str = ""
    """32 hex digits."""
    span_id: str = ""
    """16 hex digits: the span that made the HTTP call."""

    @classmethod
    def parse(cls, traceparent: str | None) -> "TraceContext":
        """Read a W3C ``traceparent`` header; a malformed or all-zero one counts as none (W3C Trace Context, 3.2.2)."""
        found = _TRACEPARENT.fullmatch((traceparent or "").strip())
        if found is None or not found[1].strip("0") or not found[2].strip("0"):
            return cls()
        if traceparent is not None and traceparent.strip().startswith("ff"):
            return cls()
        return cls(found[1], found[2])


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request that passed the light checks."""

    document: Mapping[str, Any]
    """The JSON object as sent."""
    model: str
    """What the caller asked for; empty when it named none."""
    is_stream: bool
    choice_count: int
    wants_token_ids: bool
    wants_logprobs: bool
    trace: TraceContext

    @classmethod
    def parse(cls, body: bytes, traceparent: str | None) -> Self:
        """Read a request.

        Raises:
            AnswerError: 400 with the field, what was got and what was expected.
        """
        try:
            document: object = json.loads(body)
        except ValueError as error:
            raise _bad(f"The request body is not JSON: {error}.") from error
        if not isinstance(document, dict):
            raise _bad(f"The request body must be a JSON object, got {type(document).__name__}.")
        fields = cast("dict[str, Any]", document)
        model = fields.get("model")
        if model is not None and not isinstance(model, str):
            raise _bad(f"'model' must be a string, got {_show(model)}.")
        messages: Any = fields.get("messages")
        if not (isinstance(messages, list) and messages):
            raise _bad(f"'messages' must be a list of at least one message, got {_show(fields.get('messages'))}.")
        choice_count = fields.get("n")
        if choice_count is None:
            choice_count = 1
        if not isinstance(choice_count, int) or isinstance(choice_count, bool) or choice_count < 1:
            raise _bad(f"'n' must be a positive integer, got {_show(choice_count)}.")
        wants_logprobs = _flag(fields, "logprobs")
        if fields.get("top_logprobs") and not wants_logprobs:
            raise _bad("'top_logprobs' needs 'logprobs': true.")
        return cls(
            document=fields,
            model=model or "",
            is_stream=_flag(fields, "stream"),
            choice_count=choice_count,
            wants_token_ids=_flag(fields, "return_token_ids"),
            wants_logprobs=wants_logprobs,
            trace=TraceContext.parse(traceparent),
        )

    def for_engine(self, served_name: str) -> bytes:
        """The body for the engine: its own model name, and everything asked for that a capture needs."""
        changed = {"model": served_name, "logprobs": True, "return_token_ids": True}
        return json.dumps({**self.document, **changed}, ensure_ascii=False, separators=(",", ":")).encode()

    def sampling(self) -> dict[str, str]:
        """The sampling parameters that the caller set, as JSON text; unset ones have vLLM's neutral defaults."""
        chosen = ((name, self.document.get(name)) for name in _SAMPLING_FIELDS)
        return {name: v if isinstance(v, str) else json.dumps(v) for name, v in chosen if v is not None}


def _flag(document: Mapping[str, Any], name: str) -> bool:
    value = document.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _bad(f"'{name}' must be true or false, got {_show(value)}.")


def _show(value: object) -> str:
    return repr(value)[:80]


def _bad(message: str) -> AnswerError:
    return AnswerError(400, message, code="invalid_request")
