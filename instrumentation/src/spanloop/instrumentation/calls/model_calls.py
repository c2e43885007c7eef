"""Spans of model calls, and the newest one of each thread and asyncio task.

Invariant: a thread that is started, or a task that is given to a pool, after a model call has the same newest one.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

from spanloop.semconv import attributes as names

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_MODEL_ATTRIBUTES: Final = frozenset(
    {
        names.GEN_AI_REQUEST_MODEL,
        names.GEN_AI_RESPONSE_MODEL,
        "llm.model_name",
        "llm.request.type",
    }
)
_OTHER_OPERATIONS: Final = frozenset({"create_agent", "execute_tool", "invoke_agent", "invoke_workflow"})
_OPENINFERENCE_KIND: Final = "openinference.span.kind"
_MODEL_KINDS: Final = frozenset({"LLM", "EMBEDDING"})
_WITHOUT_MESSAGES: Final = frozenset({"com.anthropic.sdk.python"})
"""Scopes of SDKs that trace themselves, and never say what a model was asked."""


def is_model_call(span: ReadableSpan) -> bool:
    """Whether an instrumentor recorded a model call as this span."""
    attributes = span.attributes or {}
    if attributes.get(names.GEN_AI_OPERATION_NAME) in _OTHER_OPERATIONS:
        return False
    return not _MODEL_ATTRIBUTES.isdisjoint(attributes) or attributes.get(_OPENINFERENCE_KIND) in _MODEL_KINDS


def can_hold_messages(span: ReadableSpan) -> bool:
    """Whether the span of a model call is of a tracer that records messages, unless the user switched that off."""
    return span.instrumentation_scope is None or span.instrumentation_scope.name not in _WITHOUT_MESSAGES


class ModelCall:
    """A model call that has ended, and the tool calls in its answer that were not made yet."""

    def __init__(self, span: ReadableSpan) -> None:
        self.span = span
        self._waiting: list[dict[str, Any]] | None = None

    def take_call_id(self, name: str, arguments: object) -> str:
        """Return the id of the tool call, which is made now; empty where the answer has none.

        Args:
            name: The tool's name.
            arguments: Its arguments, as they are read from JSON.
        """
        if self._waiting is None:
            self._waiting = _asked(self.span)
        named = [call for call in self._waiting if call.get("name") == name]
        equal = [call for call in named if call.get("arguments") in (arguments, None)]
        call = equal[0] if equal else named[0] if len(named) == 1 else None
        if call is None:
            return ""
        self._waiting.remove(call)
        return str(call.get("id") or "")


def _asked(span: ReadableSpan) -> list[dict[str, Any]]:
    """The tool calls in a model's answer, as OpenTelemetry's conventions write them."""
    text = (span.attributes or {}).get(names.GEN_AI_OUTPUT_MESSAGES)
    messages: list[dict[str, Any]] = json.loads(str(text)) if text else []
    parts = [part for message in messages for part in cast("list[dict[str, Any]]", message.get("parts") or ())]
    return [part | {"arguments": _value(part.get("arguments"))} for part in parts if part.get("type") == "tool_call"]


def _value(arguments: object) -> object:
    return json.loads(arguments) if isinstance(arguments, str) and arguments else arguments


_newest: Final[ContextVar[ModelCall | None]] = ContextVar("spanloop_newest_model_call", default=None)


def newest_model_call() -> ModelCall | None:
    """Return the newest model call of this thread or asyncio task; None before the first one."""
    return _newest.get()


def remember(call: ModelCall | None) -> None:
    """Let ``call`` be the newest one of this thread."""
    _newest.set(call)
