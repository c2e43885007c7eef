"""Status codes of HTTP and gRPC, which show a failure in every language.

Invariant: a code is the text of an HTTP status (``503``) or the name of a gRPC status (``UNAVAILABLE``); empty without
one.
"""

import re
from collections.abc import Iterator
from typing import Final, cast

import polars as pl

from spanloop.messages import parse_json_or_none

HTTP_ATTRIBUTES: Final = ("http.response.status_code", "http.status_code")
GRPC_ATTRIBUTE: Final = "rpc.grpc.status_code"
STATUS_ATTRIBUTES: Final = (*HTTP_ATTRIBUTES, GRPC_ATTRIBUTE)

_GRPC: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""By number."""

STATUS_KEYS: Final = ("status_code", "statusCode", "http_status", "httpStatus", "status")
_CODE_KEYS: Final = (*STATUS_KEYS, "code")
_CLASSES: Final = {
    "timeout": {"408", "504", "DEADLINE_EXCEEDED"},
    "rate_limit": {"429", "RESOURCE_EXHAUSTED"},
    "permission_denied": {"401", "403", "407", "PERMISSION_DENIED", "UNAUTHENTICATED"},
    "server_error": {"INTERNAL", "UNAVAILABLE", "DATA_LOSS"},
    "invalid_arguments": {"400", "422", "INVALID_ARGUMENT", "OUT_OF_RANGE"},
}
_CLASS_OF: Final = {code: name for name, codes in _CLASSES.items() for code in codes}
_DIGITS: Final = 3


def class_of_status(code: str) -> str:
    """The class of error that a code shows; empty where it shows none."""
    is_server = code.startswith("5") and len(code) == _DIGITS and code.isdecimal()
    return _CLASS_OF.get(code, "server_error" if is_server else "")


def is_error_status(value: object) -> bool:
    """Whether a value is the number of an HTTP status of failure."""
    number = int(value) if isinstance(value, str) and len(value) == _DIGITS and value.isdecimal() else value
    return isinstance(number, int) and 400 <= number < 600


def error_objects(document: object) -> Iterator[dict[str, object]]:
    """A JSON object of an error, and the ones within it: OpenAI's, Anthropic's, Google's, JSON-RPC's, GraphQL's."""
    pending = [document]
    while pending and len(pending) < _MOST_OBJECTS:
        value = pending.pop(0)
        if isinstance(value, list):
            pending += cast("list[object]", value)[:1]
        elif isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            yield fields
            pending += [fields[key] for key in ("error", "errors", "extensions", "data") if key in fields]


_MOST_OBJECTS: Final = 20


def status_in_text(text: str) -> str:
    """The code in a JSON error envelope or in the words of an error; empty without one."""
    if class_of_status(text):
        return text
    if not text.startswith(("{", "[")):
        return status_in_words(text[:_MOST_TEXT])
    objects = list(error_objects(parse_json_or_none(text)))
    codes = [str(fields[key]) for fields in objects for key in _CODE_KEYS if key in fields]
    texts = (fields[key] for fields in objects for key in _TEXT_KEYS if key in fields)
    codes += [status_in_words(text) for text in texts if isinstance(text, str)]
    return next((code for code in codes if class_of_status(code)), "")


def status_in_words(text: str) -> str:
    """The code that a sentence names ("HTTP 503", "Fehler 502", ``StatusCode.UNAVAILABLE``); empty without one."""
    if _MAY_NAME_STATUS.search(text) is None:
        return ""
    match = (_AT_START.match(text) if text[:1] in STATUS_STARTS else None) or STATUS_IN_WORDS.search(text)
    if match is None:
        return ""
    name = match.group(match.lastindex or 0)
    # ``ResourceExhausted``, as Go writes it, is ``RESOURCE_EXHAUSTED``.
    return name if name.isdecimal() or name.isupper() else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


_TEXT_KEYS: Final = ("message", "detail", "title", "error", "msg", "reason")
_MOST_TEXT: Final = 2_000
_CODE: Final = r"\W{0,3}([45]\d\d)\b(?! \w+s\b)"
STATUS_STARTS: Final = frozenset("45")
"""First characters of a text that begins with a code."""
_AT_START: Final = re.compile(r"(4(?:0\d|1[0-8]|2[2-9])|50[0-4])\s?[:\uff1a-](?=\s?[^\s\d])")
STATUS_IN_WORDS: Final = re.compile(
    r"\bStatusCode\.([A-Z_]+)|\bcode = ([A-Z][A-Za-z]+)"
    rf"|(?i:\bhttp(?:/\d(?:\.\d)?)?(?: error| status)?(?: code)?{_CODE}|\b(?:status|error|response) code{_CODE}"
    rf"|\b(?:status|code)[:=]{_CODE}|\b(?:error|erreur|erro|fehler|ошибка){_CODE}|(?:错误|エラー)码?{_CODE}"
    r"|\b(?:returned|responded with|(?:got|received|unexpected) (?:an? )?status)(?: an?)?(?: http)?(?: status)?"
    rf"(?: code)?{_CODE}|\b([45]\d\d) (?:client|server) error)"
)


_MAY_NAME_STATUS: Final = re.compile(r"[45]\d\d|StatusCode\.|code = ")
"""Every match of the patterns above contains one of these."""


def error_status(columns: dict[str, pl.Expr]) -> pl.Expr:
    """The code of each row's error, out of the columns of ``STATUS_ATTRIBUTES``.

    Args:
        columns: Attribute → its column, for those that there are.
    """
    status = pl.lit("")
    for name, column in columns.items():
        text = column.fill_null("")
        if name == GRPC_ATTRIBUTE:
            text = text.replace({str(number): code for number, code in enumerate(_GRPC)} | {"0": ""})
        status = pl.when(text.str.contains(r"^(?:[45]\d\d|[A-Z_]{5,})$")).then(text).otherwise(status)
    return status
