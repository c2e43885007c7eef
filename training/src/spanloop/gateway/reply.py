"""What the caller sees of the engine's answer: its own view, with the policy version as the model.

Token ids and logprobs that only the capture asked for are taken out; every other field goes through.
"""

import json
from typing import Any

from .chat_request import ChatRequest


def for_caller(document: dict[str, Any], request: ChatRequest, model: str) -> dict[str, Any]:
    """Rewrite a reply, or one chunk of a stream, in place.

    Args:
        document: The engine's JSON object; consumed.
        request: What the caller asked for.
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


def dump(document: dict[str, Any]) -> bytes:
    """Compact UTF-8 JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
