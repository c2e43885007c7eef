"""Faults of the surroundings, told by the text of an error: time, load, network, rights, or somebody who stopped it.

Nobody who calls can help them, and the same call may work at another time.
"""

import re
from typing import Final

from .base import ErrorClass

_ENVIRONMENT: Final = (
    (
        ErrorClass.TIMEOUT,
        re.compile(
            r"time[d]?[ -]?out|\bETIMEDOUT\b|deadline.?exceeded|took too long|no response (?:within|after)"
            r"|did(?: not|n't) respond\b|\bnot responding\b",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorClass.RATE_LIMIT,
        re.compile(
            r"rate.?limit|\b(?:HTTP|status|code|error)\D{0,8}429\b|too.?many.?requests|exceeded your (?:\w+ )?quota"
            r"|quota exceeded for|RESOURCE_EXHAUSTED|throttl(?:ed|ing)|insufficient_quota",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorClass.SERVER_ERROR,
        re.compile(
            r"\b(?:HTTP|status|code)\D{0,8}5\d\d\b|\berror:? 50[0-4]\b|internal.?server.?error|bad.?gateway"
            r"|service (?:is )?(?:temporarily |currently )?unavailable|ServiceUnavailable|\boverloaded\b"
            r"|temporarily unavailable"
            r"|\b(?:service|server|api) is (?:currently |temporarily )?(?:down|offline|unavailable)\b",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorClass.PERMISSION_DENIED,
        re.compile(
            r"\b(?:HTTP|status|code|error)\D{0,8}40[13]\b|\b40[13] (?:Client Error|Forbidden|Unauthorized)"
            r"|PermissionError|permission.?denied|access.?(?:is )?denied|\bEACCES\b|\bforbidden\b"
            r"|\b(?:un|not )authori[sz]ed\b|invalid.{0,5}api.?key|\b(?:api.?key|token) (?:is |has )?expired",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorClass.CONNECTION_ERROR,
        re.compile(
            r"connection (?:refused|reset|error|aborted|closed|lost|failed)"
            r"|Connect(?:ion)?(?:Refused|Reset|Aborted)?Error"
            r"|name resolution|getaddrinfo|unreachable|\bE(?:CONN(?:REFUSED|RESET|ABORTED)|NOTFOUND)\b|socket hang up"
            r"|broken pipe|max retries exceeded|remote(?:disconnected| end closed)|server disconnected|SSLError"
            r"|\bnetwork error\b|\bdns (?:\w+ )?(?:failed|failure|error)\b"
            r"|certificate verify failed|could not resolve host"
            r"|\b(?:(?:failed|unable) to|could(?: not|n't)|can(?: ?not|'t)) (?:connect\b"
            r"|establish a (?:new )?connection|reach (?:the )?(?:server|service|host|api|database)\b)"
            r"|\b(?:server|service|host|api|database|tool) (?:could(?: not|n't)|can(?: ?not|'t)) be reached\b",
            re.IGNORECASE,
        ),
    ),
)
"""In order of precedence."""


def environment_fault(text: str) -> ErrorClass | None:
    """The class of a fault of the surroundings that an error's text tells of."""
    return next((error_class for error_class, pattern in _ENVIRONMENT if pattern.search(text)), None)


_STOPPED: Final = re.compile(
    r"KeyboardInterrupt|CancelledError|Cancelled\b|SIGINT|GeneratorExit|ClientDisconnect|AbortError"
    r"|(?:interrupted|aborted|stopped|cancelled|canceled) by (?:the )?user|client (?:has )?(?:disconnected|closed)"
    r"|user (?:has )?(?:left|aborted|cancelled|canceled|disconnected|abandoned)"
)


def was_stopped(text: str) -> bool:
    """Whether an error's text tells of somebody who stopped the program, or went away."""
    return _STOPPED.search(text) is not None
