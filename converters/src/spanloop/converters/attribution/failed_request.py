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
        r"context.?(?:length|window|limit)|maximum (?:context|model length)|too many tokens(?!, please wait)"
        r"|(?:prompt|input|request)\b(?: \([^)]{1,40}\))? is too (?:long|large)|request_?too_?large"
        r"|reduce the length of the (?:messages|prompt|input)|maximum number of (?:input )?tokens"
        r"|string.?(?:is )?too long"
        r"|(?:decoder|input) prompt \(length|longer than the maximum|max_(?:new_)?tokens`? must be <|string_above_max",
    ),
    _pattern(
        ErrorClass.CONTENT_FILTER,
        FaultOwner.POLICY,
        0.5,
        r"content.?(?:management.?)?(?:filter|policy)|safety system|(?:reason|category)\W{1,4}SAFETY"
        r"|Blocked(?:Prompt|Response)"
        r"|StopCandidate|guardrail|usage polic(?:y|ies)|ResponsibleAI|flagged as ",
    ),
    _pattern(
        ErrorClass.RATE_LIMIT,
        FaultOwner.ENVIRONMENT,
        0.95,
        r"rate.?limit|\b429\b|too.?many.?requests|insufficient.?(?:quota|balance|credits?|funds)|throttl"
        r"|resource.?exhausted"
        r"|quota.?exceeded|exceeded your (?:\w+ )?quota|credit balance is too low|\b402\b",
    ),
    _pattern(ErrorClass.TIMEOUT, FaultOwner.ENVIRONMENT, 0.95, r"time[d]?.?out|deadline|took too long"),
    _pattern(
        ErrorClass.AUTHENTICATION,
        FaultOwner.HARNESS,
        0.9,
        r"authentication|(?:permission|access).?denied|unauthori[sz]ed|\b40[13]\b|\bforbidden\b"
        r"|(?:locate|invalid|missing|expired|determine) credentials|CredentialsError"
        r"|api.?key (?:is )?(?:not valid|invalid|missing|expired)|(?:invalid|incorrect|missing).{0,5}api.?key"
        r"|\bapi_key\b"
        r"|security token|Expired.?Token|UnrecognizedClient|do(?:es)?(?: not|n't) have access to (?:the )?model",
    ),
    _pattern(
        ErrorClass.SERVER_ERROR,
        FaultOwner.ENVIRONMENT,
        0.9,
        r"internal.?server|\b5\d\d\b|overloaded|unavailable|bad gateway|server_error|internal error|\bat capacity\b"
        r"|EngineDead|EngineCore|out of memory|not ready for inference|ModelNotReady"
        r"|unexpected error during processing",
    ),
    _pattern(
        ErrorClass.CONNECTION_ERROR,
        FaultOwner.ENVIRONMENT,
        0.9,
        r"connect|connection|\bdns\b|peer closed|remoteprotocol|incomplete.?read|certificate verify|name resolution"
        r"|name or service not known|getaddrinfo|gaierror|\bECONN|\bENOTFOUND|hang up|fetch failed|\bSSL"
        r"|Read(?:Error|Failure)\b"
        r"|ended prematurely|ChunkedEncoding|ProxyError|broken pipe|network error|unexpected EOF|EOF occurred",
    ),
    _pattern(
        ErrorClass.INVALID_REQUEST,
        FaultOwner.HARNESS,
        0.85,
        r"not.?found|bad.?request|unprocessable|\b4\d\d\b|invalid_request|invalid.?argument|ValidationException"
        r"|unsupported (?:parameter|value)|must be followed by tool|without `?tool_result|tool_?result|does not exist"
        r"|could not resolve the \w+ model",
    ),
)
"""In order of precedence."""


_CANCELLED: Final = re.compile(
    r"\bcancell?ed(?: on client)?\W*$|context canceled|UserAbort|\bwas aborted\b", re.IGNORECASE
)
"""Words that of a request can only mean that its caller gave it up; a tool may say them of what it was asked for."""


def classify(text: str) -> tuple[ErrorClass, FaultOwner, float] | None:
    """Class, owner and confidence for the text of a service's error; None when no pattern knows it."""
    if was_stopped(text) or _CANCELLED.search(text):
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
    error_class, owner, confidence = classify(text) or (ErrorClass.MODEL_CALL_ERROR, FaultOwner.UNKNOWN, 0.5)
    said = {"error.type": span.error_type, "exception.type": span.exception.type, "status": span.status_message}
    evidence: dict[str, object] = {key: value for key, value in said.items() if value}
    return Finding(error_class, owner, confidence, message, evidence)


FAILED_REQUEST: Final = ModelCallRule("failed_request", _see, needs_sign=True)
