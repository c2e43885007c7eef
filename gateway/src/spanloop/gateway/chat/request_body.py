"""Read the JSON of a request's body.

Invariant: strings of a body that is accepted can be encoded as UTF-8, so no later part fails on one: the body for the
engine, a response that names a value, a file of the data directory.
"""

import json
from typing import Final, cast

import msgspec

from spanloop.foundation.surrogates import is_utf8

from ..api_errors import ApiError

_DECODE: Final = msgspec.json.Decoder().decode


def read_body(body: bytes) -> object:
    """Return the JSON value of a body.

    Raises:
        ApiError: 400; the body is not JSON or nested too deep, or a field holds an unpaired surrogate.
    """
    try:
        return _decode(body)
    except RecursionError as error:
        raise nested_too_deep() from error


def _decode(body: bytes) -> object:
    """Return the value by ``msgspec``, and by ``json`` what it refuses, such as another encoding than UTF-8."""
    try:
        return _DECODE(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        value: object = json.loads(body)
    except ValueError as error:
        raise invalid_request(f"The request body is not JSON: {error}.") from error
    if (field := _unpaired_surrogate(value)) is not None:
        raise invalid_request(
            f"{field!r} holds an unpaired surrogate, such as half of an emoji that was cut: UTF-8 cannot encode it and "
            "no tokenizer takes it. Cut texts between characters, or replace it by U+FFFD.",
            param=field,
        )
    return value


def invalid_request(message: str, *, param: str | None = None) -> ApiError:
    """Return the error of a request with an invalid field, ``param``."""
    return ApiError(400, message, code="invalid_request", param=param)


def nested_too_deep() -> ApiError:
    """Return the error of a body whose lists and objects are in one another too often."""
    return invalid_request("The request body is nested too deep: too many lists and objects in one another.")


def _unpaired_surrogate(value: object) -> str | None:
    """Return the path of the first string or key with an unpaired surrogate, such as ``messages[0].content``."""
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, str) and not is_utf8(item):
            return path
        if isinstance(item, list):
            items = cast("list[object]", item)
            waiting += [(f"{path}[{place}]", each) for place, each in reversed(list(enumerate(items)))]
        elif isinstance(item, dict):
            fields = cast("dict[str, object]", item)
            prefix = f"{path}." if path else ""
            if not all(map(is_utf8, fields)):
                return f"{path or 'body'} (a key)"
            waiting += [(f"{prefix}{name}", each) for name, each in reversed(fields.items())]
    return None
