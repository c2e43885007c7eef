"""Read the fields of a request, and refuse those that an API of the gateway does not have.

Invariant: a field is used, known to change nothing here, or refused by name; none is dropped silently.
"""

from collections.abc import Collection, Mapping
from typing import Any, cast

from ..chat.request_body import invalid_request, read_body
from ..client.json_codec import as_list


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request's body. ApiError: 400, it is none."""
    document = read_body(body)
    if not isinstance(document, dict):
        raise invalid_request(f"The request body must be a JSON object, got {type(document).__name__}.")
    return cast("dict[str, Any]", document)


def refuse_others(document: Mapping[str, Any], known: Collection[str], where: str = "") -> None:
    """Refuse fields that are not known, unless they are null.

    Raises:
        ApiError: 400; names the first of them.
    """
    for name, value in document.items():
        if name not in known and value is not None:
            raise unsupported(f"{where}{name}")


def unsupported(param: str) -> Exception:
    """Return the error of a field that this API of the gateway does not have."""
    return invalid_request(f"{param!r} is not supported by this gateway.", param=param)


def expect_list(value: object, param: str) -> list[Any]:
    """Return a list. ApiError: 400, it is none."""
    values = as_list(value)
    if not isinstance(value, list):
        raise invalid_request(f"{param!r} must be a list, got {value!r:.80}.", param=param)
    return values


def expect_object(value: object, param: str) -> dict[str, Any]:
    """Return an object. ApiError: 400, it is none."""
    if not isinstance(value, dict):
        raise invalid_request(f"{param!r} must be an object, got {value!r:.80}.", param=param)
    return cast("dict[str, Any]", value)


def expect_text(value: object, param: str) -> str:
    """Return a string. ApiError: 400, it is none."""
    if not isinstance(value, str):
        raise invalid_request(f"{param!r} must be a string, got {value!r:.80}.", param=param)
    return value


def set_fields(target: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Set the values that are not None; return the target."""
    target.update({name: value for name, value in values.items() if value is not None})
    return target
