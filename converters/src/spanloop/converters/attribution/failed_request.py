"""A model call that failed: the text of its error says who is to blame.

The policy is never to blame for a request that its service refused, with one exception: it cannot help how long the
history has become either, so a context overflow is the harness's.
"""

from typing import Final

from spanloop.semconv.enums import FaultOwner

from ..failure_patterns import failure_pattern, failure_patterns
from ..spans import Span
from ..steps import Step
from .base import ErrorClass, Finding, ModelCallRule
from .environment import was_stopped

_REQUEST: Final = {pattern.name: pattern for pattern in failure_patterns("request")}
_SERVICE: Final = {pattern.name: pattern for pattern in failure_patterns("environment")}
_PATTERNS: Final = (
    *(_REQUEST["context_overflow"], _REQUEST["content_filter"], _REQUEST["rate_limit"], _SERVICE["rate_limit"]),
    *(failure_pattern("of_time"), _SERVICE["timeout"], _REQUEST["authentication"], _REQUEST["server_error"]),
    *(_SERVICE["server_error"], _REQUEST["connection_error"], _SERVICE["connection_error"]),
    *(pattern for pattern in failure_patterns("language") if pattern.owner is FaultOwner.ENVIRONMENT),
    _REQUEST["invalid_request"],
)
"""In order of precedence."""

_OF_SERVICE: Final = {ErrorClass.PERMISSION_DENIED: (ErrorClass.AUTHENTICATION, FaultOwner.HARNESS)}
"""What a fault of the environment is called where the model's service tells of it."""

_CANCELLED: Final = failure_pattern("request_cancelled")
"""Words that of a request can only mean that its caller gave it up; a tool may say them of what it was asked for."""


def classify(text: str) -> tuple[ErrorClass, FaultOwner, float] | None:
    """Class, owner and confidence for the text of a service's error; None when no pattern knows it."""
    if was_stopped(text) or _CANCELLED.search(text):
        return ErrorClass.CANCELLED, FaultOwner.USER, 0.7
    for pattern in _PATTERNS:
        if pattern.search(text):
            error_class = ErrorClass(pattern.error_class)
            return (*_OF_SERVICE.get(error_class, (error_class, pattern.owner)), pattern.confidence)
    return None


def error_text(span: Span) -> str:
    """All that a failed call says of its error."""
    return f"{span.error_type} {span.exception.type} {span.exception.message or span.status_message or span.error_type}"


def _see(step: Step) -> Finding | None:
    span = step.span
    if not span.has_failed:
        return None
    message = span.exception.message or span.status_message or span.error_type
    text = error_text(span)
    error_class, owner, confidence = classify(text) or (ErrorClass.MODEL_CALL_ERROR, FaultOwner.UNKNOWN, 0.5)
    said = {"error.type": span.error_type, "exception.type": span.exception.type, "status": span.status_message}
    evidence: dict[str, object] = {key: value for key, value in said.items() if value}
    return Finding(error_class, owner, confidence, message, evidence)


FAILED_REQUEST: Final = ModelCallRule("failed_request", _see, needs_sign=True)
