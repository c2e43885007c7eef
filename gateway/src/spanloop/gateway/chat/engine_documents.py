"""The documents that engines answer: JSON objects, and errors that name the model."""

import re
from typing import Any, cast

from ..api_errors import ApiError
from ..client.json_codec import as_object, decode_json, encode_json
from ..engine.gate import EngineSlot


def with_label(error: bytes, slot: EngineSlot) -> bytes:
    """Return an engine's error with the caller's name of the model instead of the engine's own."""
    served, label = slot.endpoint.served_name, slot.endpoint.deployment.label
    try:
        document = as_object(decode_json(error))
    except (ValueError, RecursionError):
        return error
    fields = as_object(document.get("error"))
    message = fields.get("message")
    if not isinstance(message, str) or served not in message:
        return error
    named = re.sub(rf"(?<![\w@/-]){re.escape(served)}(?![\w@/-])", lambda _: label, message)
    return encode_json({**document, "error": {**fields, "message": named}})


def decode_document(data: bytes) -> dict[str, Any]:
    """Return an engine's document. ApiError: 502, it is no JSON object, or nested too deep."""
    try:
        document = decode_json(data)
    except (ValueError, RecursionError) as error:
        raise ApiError(502, f"The engine's response is not JSON, or nested too deep: {data[:200]!r}") from error
    if not isinstance(document, dict):
        raise ApiError(502, f"The engine's response is JSON of type {type(document).__name__}, expected an object.")
    return cast("dict[str, Any]", document)
