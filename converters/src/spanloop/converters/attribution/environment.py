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
            r"time[d]?[ -]?out|\bETIMEDOUT\b|deadline.?exceeded|took (?:too long|longer than)"
            r"|no response (?:was )?(?:received )?(?:from .{1,60} )?(?:within|after)|time limit (?:was )?exceeded"
            r"|exceed(?:s|ed|ing)? (?:the |its )?(?:\w+ ){0,2}(?:time limit|deadline)"
            r"|within the (?:allotted|allowed) time"
            r"|\b(?:HTTP|status|code)\D{0,8}(?:408|504)\b|did(?: not|n't) respond\b|\bnot responding\b",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorClass.RATE_LIMIT,
        re.compile(
            r"rate.?limit|\b(?:HTTP|status|code|error)\D{0,8}429\b|too.?many.?requests|exceeded your (?:\w+ )?quota"
            r"|\bquota (?:was |is |has been )?(?:exceeded|exhausted|reached)|resource.?exhausted|throttl(?:ed|ing)"
            r"|insufficient_quota|\b(?:api|usage|request|call|quota|token)s? (?:\w+ )?limit (?:was |is |has been )?"
            r"(?:reached|exceeded|hit)|requests per (?:second|minute|hour|day)|reduce your request rate",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorClass.SERVER_ERROR,
        re.compile(
            r"\b(?:HTTP|status|code)\D{0,8}5\d\d\b|\b(?:returned|responded with|got) (?:an? )?5\d\d\b(?! \w+s\b)"
            r"|\berror:? 50[0-4]\b|internal.?server.?error"
            r"|bad.?gateway|code = (?:Unavailable|Internal)\b|\bunder (?:heavy|high) load\b"
            r"|\b(?:down|closed|offline|undergoing|due to|for|under) (?:\w+ )?maintenance\b"
            r"|\b(?:backend|upstream|gateway|database) (?:is (?:currently |temporarily )?"
            r"(?:down|offline)|(?:is )?unavailable)\b"
            r"|service (?:is )?(?:temporarily |currently )?unavailable|ServiceUnavailable|\boverloaded\b"
            r"|temporarily (?:unavailable|unable to)"
            r"|\b(?:service|server|api) is (?:currently |temporarily )?(?:down|offline|unavailable)\b",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorClass.PERMISSION_DENIED,
        re.compile(
            r"\b(?:HTTP|status|code|error)\D{0,8}40[13]\b|\b40[13] (?:Client Error|Forbidden|Unauthorized)"
            r"|PermissionError|permission.?denied|access.?(?:is )?denied|\bEACCES\b|\bforbidden\b"
            r"|\b(?:un|not )(?:authori[sz]ed|authenticated)\b"
            r"|\binvalid.{0,5}(?:api|access|auth|bearer|security).?(?:key|token)"
            r"|\b(?:api.?key|token|jwt|credentials?)\b (?:is |are |was |has |have )?(?:been )?(?:expired|revoked)"
            r"|\b(?:api.?key|access.?token|credentials?)\b (?:is |are )?(?:invalid|missing|not valid)"
            r"|\bbad credentials\b|invalid_(?:grant|token|client)\b"
            r"|\bauthentication (?:failed|error|required|is required)|\bmissing (?:authorization|credentials|api.?key)"
            r"|insufficient (?:permission|privilege|scope)|code = (?:PermissionDenied|Unauthenticated)"
            r"|permission_denied",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorClass.CONNECTION_ERROR,
        re.compile(
            r"connection (?:refused|reset|error|aborted|closed|lost|failed|attempts? failed)"
            r"|\blost connection\b|connection (?:to|with) .{1,60} (?:lost|closed|refused|reset)\b"
            r"|closed the connection"
            r"|\bfetch failed|\bnetwork request failed|net::ERR_(?:NAME|INTERNET|CONNECTION|NETWORK|ADDRESS|SSL|CERT)"
            r"|UnknownHost|name or service not known|\blookup \S+(?: on \S+)?: no such host"
            r"|unexpected EOF\b(?! while (?:parsing|looking))|EOF occurred"
            r"|\bECONN\w+|Connect(?:ion)?Exception|Network(?:Connection)?Error\b"
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
    r"KeyboardInterrupt|CancelledError|Cancelled\b|SIGINT|SIGTERM|GeneratorExit|ClientDisconnect|AbortError"
    r"|(?:interrupted|aborted|stopped|cancelled|canceled) by (?:the )?user|[Cc]lient (?:has )?(?:disconnected|closed)"
    r"|[Uu]ser (?:has )?(?:left|aborted|cancelled|canceled|disconnected|abandoned|interrupted)"
    r"|[Uu]ser (?:has )?(?:closed"
    r"|ended|stopped|quit) (?:the )?(?:chat|conversation|session|connection|window|tab|browser)"
)
_OF_TIME: Final = re.compile(r"\btime[d]?[ -]?out|deadline", re.IGNORECASE)
"""What is cancelled because of it was stopped by nobody."""


def was_stopped(text: str) -> bool:
    """Whether an error's text tells of somebody who stopped the program, or went away."""
    return _STOPPED.search(text) is not None and _OF_TIME.search(text) is None
