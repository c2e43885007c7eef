"""A model call that failed: the text of its error says who is to blame.

The policy is never to blame for a request that its service refused, with one exception: it cannot help how long the
history has become either, so a context overflow is the harness's.
"""

from typing import ClassVar, Final

from spanloop.converters.enums import FaultOwner

from ..errors.failure_patterns import failure_pattern, failure_patterns
from ..errors.status_codes import class_of_status, status_in_text
from ..spans import Span
from ..steps import Step
from .base import ErrorClass, Finding, ModelCallRule
from .environment import was_stopped

_REQUEST: Final = {pattern.name: pattern for pattern in failure_patterns("request")}
_ENVIRONMENT: Final = {
    name: [pattern for group in ("environment", "hint") for pattern in failure_patterns(group) if pattern.name == name]
    for name in ("rate_limit", "timeout", "permission_denied", "server_error", "connection_error")
}
_PATTERNS: Final = (
    *(_REQUEST["context_overflow"], _REQUEST["content_filter"], _REQUEST["rate_limit"], *_ENVIRONMENT["rate_limit"]),
    *(failure_pattern("of_time"), *_ENVIRONMENT["timeout"], _REQUEST["authentication"]),
    *(*_ENVIRONMENT["permission_denied"][:1], _REQUEST["server_error"], *_ENVIRONMENT["server_error"]),
    *(_REQUEST["connection_error"], *_ENVIRONMENT["connection_error"], _REQUEST["invalid_request"]),
)
"""In order of precedence."""

_OF_SERVICE: Final = {
    ErrorClass.PERMISSION_DENIED: (ErrorClass.AUTHENTICATION, FaultOwner.HARNESS),
    ErrorClass.INVALID_ARGUMENTS: (ErrorClass.INVALID_REQUEST, FaultOwner.HARNESS),
}
"""Classes of environment faults that mean another error when the model's service reports them."""

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
    shown = next(filter(None, (class_of_status(status_in_text(word)) for word in text.split()[:_FEW_WORDS])), "")
    return (*_OF_SERVICE.get(ErrorClass(shown), (ErrorClass(shown), FaultOwner.ENVIRONMENT)), 0.8) if shown else None


_FEW_WORDS: Final = 20


def error_text(span: Span) -> str:
    """All that a failed call says of its error."""
    return f"{span.error_type} {span.exception.type} {span.exception.message or span.status_message or span.error_type}"


class FailedRequest(ModelCallRule):
    """The model's service failed or refused the request; its error text says who is to blame."""

    needs_sign: ClassVar[bool] = True

    def find(self, step: Step) -> Finding | None:
        """Return the finding; None without one."""
        span = step.span
        if not span.has_failed:
            return None
        message = span.exception.message or span.status_message or span.error_type
        error_class, owner, confidence = classify(error_text(span)) or (
            ErrorClass.MODEL_CALL_ERROR,
            FaultOwner.UNKNOWN,
            0.5,
        )
        attributes = {
            "error.type": span.error_type,
            "exception.type": span.exception.type,
            "status": span.status_message,
        }
        return Finding(
            error_class, owner, confidence, message, {key: value for key, value in attributes.items() if value}
        )
