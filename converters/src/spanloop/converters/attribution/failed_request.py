"""A model call that failed: the text of its error says who is to blame.

The policy is never to blame for a request that its service refused, with one exception: it cannot help how long the
history has become either, so a context overflow is the harness's.
"""

import re
from typing import Final, NamedTuple

from spanloop.semconv.enums import FaultOwner

from ..spans import Span
from ..steps import Step
from .base import ErrorClass, Finding, ModelCallRule
from .environment import was_stopped


class _Pattern(NamedTuple):
    error_class: ErrorClass
    owner: FaultOwner
    confidence: float
    regex: re.Pattern[str]


def _pattern(error_class: ErrorClass, owner: FaultOwner, confidence: float, regex: str) -> _Pattern:
    return _Pattern(error_class, owner, confidence, re.compile(regex, re.IGNORECASE))


_PATTERNS: Final = (
    _pattern(
        ErrorClass.CONTEXT_OVERFLOW,
        FaultOwner.HARNESS,
        0.9,
        r"context.?length|maximum context|too many tokens|context window|(?:prompt|input|request) is too long"
        r"|reduce the length of the (?:messages|prompt|input)",
    ),
    _pattern(
        ErrorClass.CONTENT_FILTER, FaultOwner.POLICY, 0.5, r"content.?(?:management.?)?(?:filter|policy)|safety system"
    ),
    _pattern(
        ErrorClass.RATE_LIMIT, FaultOwner.ENVIRONMENT, 0.95, r"rate.?limit|\b429\b|too many requests|insufficient_quota"
    ),
    _pattern(ErrorClass.TIMEOUT, FaultOwner.ENVIRONMENT, 0.95, r"time[d]?.?out|deadline"),
    _pattern(
        ErrorClass.AUTHENTICATION,
        FaultOwner.HARNESS,
        0.9,
        r"authentication|permission.?denied|unauthori[sz]ed|\b40[13]\b|(?:locate|invalid|missing|expired) credentials",
    ),
    _pattern(
        ErrorClass.SERVER_ERROR,
        FaultOwner.ENVIRONMENT,
        0.9,
        r"internal.?server|\b5\d\d\b|overloaded|unavailable|bad gateway",
    ),
    _pattern(
        ErrorClass.CONNECTION_ERROR,
        FaultOwner.ENVIRONMENT,
        0.9,
        r"connect|connection|\bdns\b|peer closed|remoteprotocol|incomplete read|certificate verify|name resolution"
        r"|name or service not known|getaddrinfo",
    ),
    _pattern(
        ErrorClass.INVALID_REQUEST,
        FaultOwner.HARNESS,
        0.85,
        r"not.?found|bad.?request|unprocessable|\b4\d\d\b|invalid_request",
    ),
)
"""In order of precedence."""


def classify(text: str) -> tuple[ErrorClass, FaultOwner, float] | None:
    """Class, owner and confidence for the text of a service's error; None when no pattern knows it."""
    if was_stopped(text):
        return ErrorClass.CANCELLED, FaultOwner.USER, 0.7
    for pattern in _PATTERNS:
        if pattern.regex.search(text):
            return pattern.error_class, pattern.owner, pattern.confidence
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
    error_class, owner, confidence = classify(text) or (ErrorClass.MODEL_CALL_ERROR, FaultOwner.ENVIRONMENT, 0.5)
    said = {"error.type": span.error_type, "exception.type": span.exception.type, "status": span.status_message}
    evidence: dict[str, object] = {key: value for key, value in said.items() if value}
    return Finding(error_class, owner, confidence, message, evidence)


FAILED_REQUEST: Final = ModelCallRule("failed_request", _see)
