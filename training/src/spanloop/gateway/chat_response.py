"""The engine's response as the client receives it: with the policy version as its model.

Token ids and logprobs that only the capture requested are removed; all other fields stay.
"""

import json
from typing import Any

from .chat_request import ChatRequest


def for_client(document: dict[str, Any], request: ChatRequest, model: str) -> dict[str, Any]:
    """Rewrite a response, or one chunk of a stream, in place.

    Args:
        document: The engine's JSON object; modified.
        request: The client's request.
        model: The policy version, ``name@version``.

    Returns:
        The same object.
    """
    if "model" in document:
        document["model"] = model
    if not request.wants_token_ids:
        document.pop("prompt_token_ids", None)
    choices: list[dict[str, Any]] = document.get("choices") or []
    for choice in choices:
        if not request.wants_token_ids:
            choice.pop("token_ids", None)
        if not request.wants_logprobs and "logprobs" in choice:
            choice["logprobs"] = None
    return document


def to_json(document: dict[str, Any]) -> bytes:
    """Return compact UTF-8 JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
