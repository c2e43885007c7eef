"""Answers in the format of Anthropic's Messages API (https://docs.anthropic.com/en/api/messages-streaming)."""

import json
from typing import Any, Final

from ..api_errors import ApiError
from ..client.json_codec import as_object, decode_json, encode_json
from .blocks import Block, BlockChange, BlockKind, Blocks

_STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def messages_error(status: int, message: str) -> bytes:
    """Return the body of an error."""
    error_type = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return encode_json({"type": "error", "error": {"type": error_type, "message": message}})


class MessagesFormat:
    """Converts the chat of one Messages request."""

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._open: int | None = None
        self._has_started = False

    def response_id(self, engine_id: str) -> str:
        """Return the id of the message."""
        return f"msg_{engine_id.removeprefix('chatcmpl-')}"

    def whole(self, document: dict[str, Any], model: str) -> bytes:
        """Return the message."""
        for _ in self._blocks.add(document):
            pass
        content = [_content(block) for block in self._blocks.items]
        message = _message(document, model) | self._ending() | {"content": content, "usage": self._usage()}
        return encode_json(message)

    def events(self, document: dict[str, Any], model: str) -> bytes:
        """Return the events for one chunk."""
        events: list[bytes] = []
        if not self._has_started:
            self._has_started = True
            input_tokens = len(document.get("prompt_token_ids") or ())
            usage = {"input_tokens": input_tokens, "output_tokens": 0}
            message = {**_message(document, model), "usage": usage, "stop_reason": None, "stop_sequence": None}
            events.append(_event("message_start", message=message))
        for change in self._blocks.add(document):
            events += self._change(change)
        return b"".join(events)

    def done(self) -> bytes:
        """Return the events that end a message."""
        events = [*self._close(), _event("message_delta", delta=self._ending(), usage=self._usage())]
        return b"".join([*events, _event("message_stop")])

    def error_body(self, error: ApiError) -> bytes:
        """Return Anthropic's error."""
        return messages_error(error.status, error.message)

    def error_event(self, error: ApiError) -> bytes:
        """Return the error as an event."""
        return b"event: error\ndata: %b\n\n" % self.error_body(error)

    def engine_error(self, body: bytes, status: int) -> bytes:
        """Return the engine's error."""
        return messages_error(status, engine_message(body))

    def _change(self, change: BlockChange) -> list[bytes]:
        events: list[bytes] = []
        if change.is_new:
            events += self._close()
            self._open = change.index
            events.append(
                _event("content_block_start", index=change.index, content_block=_content(change.block, is_empty=True))
            )
        if change.delta:
            delta = _delta(change.block.kind, change.delta)
            events.append(_event("content_block_delta", index=change.index, delta=delta))
        return events

    def _close(self) -> list[bytes]:
        if self._open is None:
            return []
        index, self._open = self._open, None
        return [_event("content_block_stop", index=index)]

    def _ending(self) -> dict[str, Any]:
        stop = self._blocks.stop_reason or None
        reason = "stop_sequence" if stop else _STOP_REASONS.get(self._blocks.finish_reason, "end_turn")
        if reason == "end_turn" and any(block.kind is BlockKind.TOOL_CALL for block in self._blocks.items):
            reason = "tool_use"
        return {"stop_reason": reason, "stop_sequence": stop}

    def _usage(self) -> dict[str, int]:
        usage = self._blocks.usage
        return {
            "input_tokens": int(usage.get("prompt_tokens") or 0),
            "output_tokens": int(usage.get("completion_tokens") or 0),
        }


def engine_message(body: bytes) -> str:
    """Return the message of an engine's error."""
    try:
        document = decode_json(body)
    except (ValueError, RecursionError):
        document = None
    message = as_object(as_object(document).get("error")).get("message")
    return str(message) if message else body.decode(errors="replace")[:2000]


def _message(document: dict[str, Any], model: str) -> dict[str, Any]:
    return {"id": document.get("id"), "type": "message", "role": "assistant", "model": model, "content": []}


def _content(block: Block, *, is_empty: bool = False) -> dict[str, Any]:
    text = "" if is_empty else block.text
    if block.kind is BlockKind.THINKING:
        return {"type": "thinking", "thinking": text, "signature": ""}
    if block.kind is BlockKind.TEXT:
        return {"type": "text", "text": text}
    return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {} if is_empty else _object(text)}


def _object(arguments: str) -> dict[str, Any]:
    """Return the arguments of a call; text that is no object is kept under a name of its own."""
    try:
        value: object = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    is_object, fields = isinstance(value, dict), as_object(value)
    return fields if is_object else {"_invalid_arguments": arguments}


def _delta(kind: BlockKind, text: str) -> dict[str, str]:
    if kind is BlockKind.THINKING:
        return {"type": "thinking_delta", "thinking": text}
    if kind is BlockKind.TEXT:
        return {"type": "text_delta", "text": text}
    return {"type": "input_json_delta", "partial_json": text}


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_json({"type": kind, **fields}))
