"""Whether a tool's answer tells of an error, by how it begins.

Invariant: an answer that merely speaks of errors is none. What counts is how programs say that they failed: an
exception's name, a status line, a shell's complaint, or a sentence about the call itself (the tool, the request, the
server), at the beginning of the text. That nothing was found is an answer.
"""

import re
from typing import Final, NamedTuple, cast

from .messages import MalformedMessagesError, dump, parse_json


class ErrorText(NamedTuple):
    """A rule that sees an error in a tool's answer."""

    name: str
    pattern: re.Pattern[str]
    confidence: float


def _rule(name: str, confidence: float, pattern: str, flags: re.RegexFlag = re.IGNORECASE) -> ErrorText:
    return ErrorText(name, re.compile(pattern, flags | re.ASCII), confidence)


_NONE: Final = r"(?!\s*(?:none|null|no|0|false|n/a)\s*(?:$|[.,;)\n]))"
"""Behind a label: ``error: none`` tells of no error."""
_CANNOT: Final = r"(?:could(?: not|n't)|can(?: ?not|'t)|(?:was |were )?(?:unable|not able) to|failed to)"
_CALL: Final = (
    r"(?:tool|function|plugin|command|request|operation|api|server|service|query|execution|invocation|call|connection"
    r"|process|task|script|job)"
)
_STATUS: Final = (
    r"(?:not found|bad request|unauthorized|forbidden|internal server error|bad gateway|service unavailable"
    r"|gateway time-?out|too many requests|conflict|unprocessable|method not allowed|request time-?out"
    r"|payment required"
    r"|client error|server error)"
)

_THING: Final = (
    r"(?:(?:the|a|an|this|your|my|read|write|connect|connection|socket|gateway|upstream|lock|wait|query|statement"
    r"|network|server|response|execution|operation|tool|function|call|api|command|session|idle|http|request|service|backend"
    r"|database|context|job|process|script|task|step|pool|\w+_\w+|has|was) ){0,4}"
)
"""What may break, before the words for how it did."""

CALL_FAILED: Final = _rule(
    "call_failed",
    0.7,
    r"(?:the |this |your |an? )?(?:\w+ )?" + _CALL + r"(?: (?:[`'\"][\w.-]{1,64}[`'\"]|\w{1,32}[_.]\w{1,64}(?:\(\))?))?"
    r"(?: (?:call|execution|request|invocation|run))?(?: (?:to|for|of|from|at) \S{1,200})? "
    r"(?:(?:has )?failed\b|(?:has )?timed out\b|(?:has )?crashed\b"
    r"|(?:could(?: not|n't)|can(?: ?not|'t)) be (?:used|called|executed|run|completed|processed|reached|performed"
    r"|fulfilled|handled|invoked|loaded|established|accessed)\b"
    r"|did(?: not|n't) (?:respond|return|answer|complete|finish|succeed)\b"
    r"|is (?:currently |temporarily )?(?:unavailable|not available|not responding|down|offline|unreachable)\b"
    r"|(?:returned|raised|threw|reported|responded with) an? (?:\w+ ){0,2}(?:error|exception)\b"
    r"|was (?:aborted|interrupted|throttled)\b)",
)
"""The call itself, or what was called, and nothing about what was asked for."""

ERROR_TEXTS: Final = (
    _rule("traceback", 0.99, r"Traceback \(most recent call last\)", re.RegexFlag(0)),
    _rule(
        "exception_line",
        0.95,
        r"(?:(?:Uncaught|Unhandled|Exception in thread \S+) )?(?:(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b\s*[:(]"
        r"|(?:\w+\.)+[A-Z]\w*(?:Error|Exception)\b"
        r"|(?:\w+\.)*[A-Z]\w+(?:Timeout|TimeoutExpired|Exceeded|Exhausted|Unavailable|Unauthorized|NotFound|Failure"
        r"|Fault|DoesNotExist|Denied|Refused|Disconnected)\s*[:(]"
        r"|\((?:\w+\.){1,4}(?:errors\.[A-Z]\w*|\w*(?:Error|Exception))\))",
        re.RegexFlag(0),
    ),
    _rule(
        "error_word",
        0.9,
        r"[\[(*]{0,2}(?:tool )?(?:error|exception|failure|failed)\b[\])*]{0,2}(?:\s*:|\s+-\s|-\s)" + _NONE,
    ),
    _rule("error_tag", 0.9, r"<(?:\w+_)?(?:error|exception)>|\[(?:error|exception|failed|failure)\]"),
    _rule(
        "kind_of_error",
        0.9,
        r"(?:(?:execution|unexpected|run-?time|internal|fatal|critical|unhandled|uncaught|unknown|system|server|client"
        r"|network|http|api|database|db|sql|parsing|parser?|syntax|validation|connection|authentication|authorization"
        r"|request|response|tool|function|plugin|command|invoke|invocation|call|query|file|i/?o|processing"
        r"|upstream|remote|gateway|proxy|backend|service|dns|ssl)\s)"
        r"{1,3}(?:error|exception|failure)\b(?:\s(?:in|while|when|during|calling|at|from)\s[^:\n]{1,80})?"
        r"(?:\s*:" + _NONE + r"|\s+-\s|[.!]?\s*$)",
    ),
    _rule(
        "status_line",
        0.9,
        r"http(?:/\d(?:\.\d)?)?(?: error| status| status code)?\W{0,3}[45]\d\d\b|[45]\d\d\W{1,3}" + _STATUS + r"\b"
        r"|(?:client|server) error\W{1,3}[45]\d\d\b|(?:net::)?err_\w"
        r"|(?:(?:got|received|unexpected|returned) (?:an? )?(?:http )?status|http status|status code)"
        r"(?: code)?:? [45]\d\d\b"
        r"|(?:the )?(?:\w+ )?(?:api|server|service|backend|upstream|request) (?:returned|responded with|answered)"
        r" (?:an? )?(?:http )?(?:status |code ){0,2}[45]\d\d\b(?! \w+s\b)"
        r"|<(?:!doctype )?html.{0,200}<title>\s*[45]\d\d\b"
        r"|504 deadline",
    ),
    _rule(
        "shell",
        0.85,
        r"(?:/\S+/)?(?:ba|z|da|k)?sh: \S|exit ?code:? ?[1-9]"
        r"|(?:command|process|script|program)\b[^\n.]{0,40}\bexit(?:ed)? (?:with )?"
        r"(?:non-?zero|(?:code |status ){1,2}[1-9])"
        r"|(?:fatal|panic): \S|(?:connect |read |write )?e(?:conn(?:refused|reset|aborted)|timedout|notfound|acces)\b"
        r"|\[(?:errno|winerror) -?\d+\]|\[ssl\b|curl: \(\d|(?:dial|read|write) (?:tcp|udp)\b|getaddrinfo\b|rpc error\b"
        r"|mcp error -?\d|ora-\d{5}\b|php (?:fatal|parse) error|thread '[^'\n]{1,80}' panicked|segmentation fault\b",
    ),
    _rule(
        "error_start",
        0.75,
        r"(?:error|exception|traceback)\b(?! rate| bar| margin| budget|s\b|-\w)(?!\s*[:=]"
        + _NONE.replace("?!", "?=")
        + r")",
    ),
    _rule(
        "no_such_tool",
        0.85,
        r"(?:[\w.-]{1,64} is not a (?:valid|known|registered|recognized) (?:tool|function)\b"
        r"|(?:unknown|no such) (?:tool|function)\b"
        r"|(?:there is )?no (?:tool|function) (?:named|called|with (?:the )?name)\b"
        r"|could not find (?:the )?(?:tool|function)\b"
        r"|(?:tool|function) [`'\"]?[\w.-]{1,64}[`'\"]? is not defined\b"
        r"|(?:tool|function) (?:[`'\"]?[\w.-]{1,64}[`'\"]? )?(?:is )?(?:not found|not available|does not exist)\b)",
    ),
    _rule(
        "failed_to",
        0.7,
        r"(?:failed to\b|tool execution failed|invalid (?:tool )?argument|(?:\w+ )?fetch failed\b"
        r"|lost connection to (?:the )?(?:\w+ ){0,2}(?:server|service|host|api|database|backend)\b|"
        + _CANNOT
        + r" (?:be )?(?:connect|reach|execute"
        r"|call|invoke|run|access|open|load|process|complete|retrieve|fetch|get|read|parse|perform|contact|resolve"
        r"|authenticate|communicate|download)\b)",
    ),
    CALL_FAILED,
    _rule(
        "error_occurred",
        0.8,
        r"(?:there (?:was|is|has been) |(?:i |we )?(?:have |has )?(?:encountered |hit |got |ran into ))?"
        r"(?:an?|some|the following) (?:\w+ ){0,2}(?:error|exception|problem|failure)\b"
        r"(?: (?:has |have |had )?(?:occurred|happened|was (?:raised|thrown|encountered))"
        r"| (?:while|when) | with (?:the|your|this) (?:\w+ )?" + _CALL + r"\b"
        r"| (?:calling|executing|running|invoking) )"
        r"|encountered (?:an? )?(?:\w+ )?(?:error|exception)\b",
    ),
    _rule(
        "said_to_be_down",
        0.75,
        r"(?:" + _THING + r"timed[- ]out\b(?! of)"
        r"|" + _THING + r"time-?out(?: of \d+ ?\w{1,12})?"
        r"(?=\s*(?:$|[.!(]|after |while |waiting |exceeded|expired|error))"
        r"|" + _THING + r"(?:deadline|time limit) (?:was )?exceeded\b"
        r"|" + _THING + r"exceeded the (?:time limit|deadline)\b"
        r"|no response (?:was )?(?:received\b"
        r"|(?:from|within|after) (?:the )?(?:\w+ )?(?:server|service|host|api|backend|\d))"
        r"|" + _THING + r"took too long\b"
        r"|(?:the )?(?:request|operation|call|tool|query) took longer than\b"
        r"|" + _THING + r"did(?: not|n't) (?:complete|finish|respond|return) within\b|canceling statement due to\b"
        r"|(?:all )?(?:connection|connection attempts) (?:error|refused|reset|closed|lost|aborted|failed)\b"
        r"(?=\s*(?:$|[.!:;,(-]|by |to |from |while |when ))"
        r"|\W{0,2}connection aborted\b|connection to .{1,60} (?:was )?(?:lost|closed|refused|reset)\b"
        r"|(?:\w+ )?server (?:has )?(?:disconnected|closed the connection)\b|socket hang up\b|remote end closed\b"
        r"|name or service not known\b|temporary failure in name resolution\b|unexpected eof\b"
        r"|(?:\w+ )?authentication (?:failed|required|error)\b(?=\s*(?:$|[.!:;,(-]|for ))|not authenticated\b"
        r"|bad credentials\b"
        r"|(?:your |the )?(?:\w+ )?(?:api.?key|access token|auth token|jwt|credentials?)(?: is| are| has| have)?"
        r"(?: been)? (?:invalid|expired|revoked|missing|not valid)\b|missing authorization\b|invalid_(?:grant|token)\b"
        r"|insufficient (?:permissions?|privileges)\b|access denied\b|accessdenied\b"
        r"|permission denied\b|access (?:is |was )?denied\b|not authorized\b(?=\s*(?:$|[.!:,(]|to ))"
        r"|(?:unauthorized|forbidden)(?=\s*(?:$|[.!:]))|(?:\w+ )?rate limit(?:ed| exceeded| reached| hit)\b"
        r"|too many requests\b"
        r"|(?:(?:the|your|api|daily|hourly|monthly|request|usage|user) ){0,3}(?:quota|rate limit)"
        r" (?:was |is |has been )?exceeded\b|rate limited\b"
        r"|you(?:'ve| have)? exceeded your (?:\w+ ){0,3}(?:quota|limit|rate)\b"
        r"|(?:api |usage |request |call ){1,2}limit (?:reached|exceeded)\b"
        r"|(?:the |your )?request was throttled\b|max(?:imum)? requests per \w+ exceeded\b|slow ?down: "
        r"|(?:service )?(?:temporarily|currently) unavailable\b|service unavailable\b"
        r"|(?:[\w'-]+ ){0,4}(?:backend|server|service|system|api|database|endpoint|host|network|gateway)(?: is)?"
        r" (?:currently |temporarily )?(?:down|offline|unavailable|unreachable|not responding)"
        r"(?=\s*(?:$|[.!;,:]|for maintenance))"
        r"|the (?:server|service|system|backend|api) is (?:temporarily unable to|under (?:heavy|high) load)\b"
        r"|command .{1,200} timed out after\b|operation not (?:allowed|permitted)\b"
        r"|(?:internal (?:server )?error|bad (?:gateway|request))\b(?=\s*(?:$|[.!:(]))"
        r"|gateway time-?out\b|dns \w+ failed\b|network (?:is )?unreachable\b|no route to host\b|broken pipe\b"
        r"|(?:oops\W{1,3})?something (?:went|has gone) wrong\b)",
    ),
    _rule(
        "refused_arguments",
        0.8,
        r"(?:[\w.]{1,64}\(\) (?:got an unexpected|missing \d+ required|takes \d+ positional)\b"
        r"|\d+ validation errors? for\b"
        r"|[`'\"]?[\w.]{1,64}[`'\"]? (?:is a required (?:property|parameter|argument|field)|must (?:be of type|be an? "
        r"(?:string|number|integer|boolean|array|object|list))|is not of type)\b"
        r"|additional properties are not allowed\b"
        r"|extra inputs are not permitted\b|unrecognized (?:key|field|argument|parameter)"
        r"|unknown (?:argument|parameter|field)\b"
        r"|(?:missing )?required (?:argument|parameter|field|property)\b.{0,80}(?:missing|not provided|required|:)"
        r"|(?:argument|parameter) [`'\"]?\w{1,64}[`'\"]? (?:(?:is|was) )?(?:not provided|missing|required|invalid)\b"
        r"|missing required\b|input should be an?\b|json: cannot unmarshal\b|cannot deserialize\b"
        r"|schema validation failed\b"
        r"|type mismatch for\b|expected \w{1,20}(?: for [`'\"]?\w{1,64}[`'\"]?)?, (?:got|received|but got)\b)",
    ),
    _rule(
        "bare_exception",
        0.8,
        r"(?:[`'\"]\w{1,64}[`'\"] object (?:has no attribute|is not (?:subscriptable|iterable|callable))"
        r"|(?:list|string|tuple) index out of range\b|cannot read propert(?:y|ies) of (?:undefined|null)"
        r"|undefined method [`'\"]|[`'\"]?[\w-]{1,20}[`'\"]? codec can't (?:de|en)code\b|deadlock (?:detected|found)\b"
        r"|unsupported operand type|(?:unique|foreign key|not null|check) constraint failed\b"
        r"|database (?:is locked|disk image)"
        r"|(?:this|the) (?:tool|function|feature|method) is not (?:yet )?implemented\b)",
    ),
    _rule(
        "invalid_input",
        0.75,
        r"(?:invalid|missing|malformed|unsupported|unrecognized) (?:\w+ )?(?:arguments?|inputs?|parameters?|requests?"
        r"|values?|formats?|json|syntax|types?|credentials|(?:api )?(?:key|token))\b"
        r"(?=\s*(?:$|[.!:;,('\"`]|for |in |provided|given|error|format))",
    ),
)
"""In order of precedence. Extend by adding a line, and ``plain.screen`` by a word of it; a pattern is matched at the
start of the text."""

_ANY_ERROR: Final = re.compile(
    "|".join(f"(?{'i' if rule.pattern.flags & re.IGNORECASE else ''}:{rule.pattern.pattern})" for rule in ERROR_TEXTS),
    re.ASCII,
)
"""All of them in one: most answers tell of none."""

_TYPE_IN_TEXT: Final = re.compile(r"\b([A-Z]\w*(?:Error|Exception))\b")
_ERROR_KEYS: Final = (
    *("error", "errors", "exception", "isError", "is_error", "errorMessage", "error_message", "errorType"),
    *("stackTrace", "traceback"),
)
_STATUS_KEYS: Final = ("status_code", "statusCode", "http_status", "httpStatus", "status")
_SAYS_WHY: Final = frozenset({"message", "msg", "detail", "description"})
"""Beside a mere ``code``, which may be anything's."""
_TEXT_KEYS: Final = ("message", "detail", "details", "msg", "result", "output", "content", "response", "text", "reason")
_OUTCOME_KEYS: Final = frozenset({"status", "success", "ok", "succeeded"})
"""What would have told of an error where there was one."""
_MOST_KEYS: Final = 3
"""An object of so few keys is an envelope around its text."""
_LEAST_STATUS: Final = 400
_SIGNS: Final = "\u274c\u26a0\u2757\u2716\u2717\U0001f6ab\ufe0f"
"""Crosses and warning signs before the words."""


class Verdict(NamedTuple):
    """What a text rule saw."""

    rule: str
    error_type: str
    confidence: float


def error_in_text(content: str) -> Verdict | None:
    """The error that a tool's answer tells of, or None."""
    stripped = content.lstrip()
    if stripped.startswith(("{", '[{"type"')):
        return _error_in_json(stripped)
    if stripped[:1] in _SIGNS:
        stripped = stripped.lstrip(_SIGNS).lstrip()
    if _ANY_ERROR.match(stripped) is None:
        return None
    for rule in ERROR_TEXTS:
        if rule.pattern.match(stripped):
            found = _TYPE_IN_TEXT.search(content[:2_000])
            return Verdict(rule.name, found.group(1) if found else "", rule.confidence)
    return None


def _error_in_json(content: str) -> Verdict | None:
    fields = _fields(content)
    if fields.get("type") == "text" and isinstance(fields.get("text"), str):
        return error_in_text(str(fields["text"]))
    key = next((key for key in _ERROR_KEYS if fields.get(key)), "")
    if key:
        name = _TYPE_IN_TEXT.search(dump(fields[key]))
        return Verdict(f"json_key_{key}", name.group(1) if name else "", 0.9)
    says_so = str(fields.get("status", "")).lower() in _FAILED
    if (
        says_so
        or any(_is_error_status(fields.get(key)) for key in _STATUS_KEYS)
        or (_is_error_status(fields.get("code")) and not _SAYS_WHY.isdisjoint(fields))
    ):
        return Verdict("json_status", "", 0.85)
    if _REFUSED_FIELDS.match(dump(fields.get("detail", ""))):
        return Verdict("json_detail", "", 0.85)
    if any(fields.get(key) is False for key in ("success", "ok", "succeeded")):
        return Verdict("json_success", "", 0.85)
    is_envelope = len(fields) <= _MOST_KEYS and _OUTCOME_KEYS.isdisjoint(fields)
    held = [fields[key] for key in _TEXT_KEYS if key in fields] if is_envelope else []
    said = held[0] if held and isinstance(held[0], str) else ""
    return error_in_text(said) if said and not said.startswith(("{", "[")) else None


def _fields(content: str) -> dict[str, object]:
    """Of the object that ``content`` is, or of the first of a list of parts, as MCP servers answer; none otherwise."""
    try:
        found = parse_json(content)
    except MalformedMessagesError:
        return {}
    if isinstance(found, list):
        found = next(iter(cast("list[object]", found)), None)
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


_REFUSED_FIELDS: Final = re.compile(r'\[\{(?=.*"loc":)(?=.*"msg":)', re.DOTALL)
"""What pydantic says of each argument that it does not take."""
_FAILED: Final = frozenset(
    {"error", "errored", "failed", "failure", "fail", "timeout", "timed_out", "exception", "crashed"}
)


def _is_error_status(value: object) -> bool:
    """Whether a value is the number of an HTTP status of failure."""
    number = int(value) if isinstance(value, str) and len(value) == _DIGITS and value.isdecimal() else value
    return isinstance(number, int) and _LEAST_STATUS <= number < _LEAST_STATUS + 200


_DIGITS: Final = 3
