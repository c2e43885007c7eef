"""Answers in the format of OpenAI's Responses API, whole and as events
(https://platform.openai.com/docs/api-reference/responses-streaming).
"""  # noqa: D205 - the address is long

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..api_errors import ApiError
from ..client.json_codec import as_list, encode_json
from .blocks import Block, BlockChange, BlockKind, Blocks, text_logprobs
from .responses_request import namespaces

_ECHOED: Final = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id", "reasoning",
    "store", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
)  # fmt: skip
_DEFAULTS: Final[Mapping[str, Any]] = {
    "metadata": {}, "parallel_tool_calls": True, "store": True, "text": {"format": {"type": "text"}},
    "tool_choice": "auto", "tools": [], "top_logprobs": 0, "truncation": "disabled",
}  # fmt: skip
LOGPROBS_INCLUDE: Final = "message.output_text.logprobs"
"""The value of ``include`` that asks for log-probabilities."""
Store = Callable[[dict[str, Any]], None]


class ResponsesFormat:
    """Converts the chat of one Responses request.

    Args:
        document: The request.
        store: Stores the finished response, before its last part leaves.
    """

    def __init__(self, document: Mapping[str, Any], store: Store) -> None:
        self._document = document
        self._store = store
        self._namespaces = namespaces(document)
        self._blocks = Blocks()
        self._created_s = int(time.time())
        self._number = 0
        self._id = ""
        self._model = ""
        self._open: int | None = None
        included = as_list(document.get("include"))
        self._wants_logprobs = bool(document.get("top_logprobs")) or LOGPROBS_INCLUDE in included

    def response_id(self, engine_id: str) -> str:
        """Return the id of the response."""
        return f"resp_{engine_id.removeprefix('chatcmpl-')}"

    def whole(self, document: dict[str, Any], model: str) -> bytes:
        """Return the response."""
        self._id, self._model = str(document.get("id")), model
        for _ in self._blocks.add(document):
            pass
        return encode_json(self._finished())

    def events(self, document: dict[str, Any], model: str) -> bytes:
        """Return the events for one chunk."""
        events: list[bytes] = []
        if not self._id:
            self._id, self._model = str(document.get("id")), model
            response = self._response("in_progress")
            events += [self._event(f"response.{kind}", response=response) for kind in ("created", "in_progress")]
        for change in self._blocks.add(document):
            events += self._change(change)
        return b"".join(events)

    def done(self) -> bytes:
        """Return the events that end a response."""
        events = self._close()
        response = self._finished()
        return b"".join([*events, self._event(f"response.{response['status']}", response=response)])

    def error_body(self, error: ApiError) -> bytes:
        """Return OpenAI's error."""
        return encode_json(error.body())

    def error_event(self, error: ApiError) -> bytes:
        """Return the error as an event."""
        return self._event("error", code=error.code, message=error.message, param=error.param)

    def engine_error(self, body: bytes, status: int) -> bytes:  # noqa: ARG002 - as in the protocol
        """Return the engine's error unchanged."""
        return body

    def _finished(self) -> dict[str, Any]:
        is_cut = self._blocks.finish_reason == "length"
        response = self._response("incomplete" if is_cut else "completed")
        response["output"] = [self._item(index, block) for index, block in enumerate(self._blocks.items)]
        response["incomplete_details"] = {"reason": "max_output_tokens"} if is_cut else None
        response["usage"] = _usage(self._blocks.usage)
        self._store(response)
        return response

    def _response(self, status: str) -> dict[str, Any]:
        echoed = {name: self._document.get(name, _DEFAULTS.get(name)) for name in _ECHOED}
        echoed |= {name: value for name, value in _DEFAULTS.items() if echoed[name] is None}
        head = {"id": self._id, "object": "response", "created_at": self._created_s, "status": status}
        return {
            **head, "error": None, "incomplete_details": None, "model": self._model, "output": [], "usage": None,
            "background": False, **echoed,
        }  # fmt: skip

    def _change(self, change: BlockChange) -> list[bytes]:
        events = self._begin(change) if change.is_new else []
        if not change.delta:
            return events
        place = {"item_id": self._item_id(change.index), "output_index": change.index}
        if change.block.kind is BlockKind.TOOL_CALL:
            return [*events, self._event("response.function_call_arguments.delta", **place, delta=change.delta)]
        place["content_index"] = 0
        if change.block.kind is BlockKind.THINKING:
            return [*events, self._event("response.reasoning_text.delta", **place, delta=change.delta)]
        logprobs = change.logprobs if self._wants_logprobs else []
        return [*events, self._event("response.output_text.delta", **place, delta=change.delta, logprobs=logprobs)]

    def _begin(self, change: BlockChange) -> list[bytes]:
        events = self._close()
        self._open = change.index
        empty = Block(change.block.kind, change.block.call_id, change.block.name)
        item = self._item(change.index, empty, status="in_progress")
        events.append(self._event("response.output_item.added", output_index=change.index, item=item))
        if change.block.kind is not BlockKind.TOOL_CALL:
            events.append(self._part_event("added", change.index, empty))
        return events

    def _close(self) -> list[bytes]:
        """Return the events that end the open item."""
        if self._open is None:
            return []
        index, self._open = self._open, None
        block = self._blocks.items[index]
        place: dict[str, Any] = {"item_id": self._item_id(index), "output_index": index}
        if block.kind is BlockKind.TOOL_CALL:
            done = {**self._name(block), "arguments": block.text or "{}"}
            events = [self._event("response.function_call_arguments.done", **place, **done)]
        else:
            is_text = block.kind is BlockKind.TEXT
            kind = "response.output_text.done" if is_text else "response.reasoning_text.done"
            extra: dict[str, Any] = {"logprobs": self._logprobs(block)} if is_text else {}
            events = [self._event(kind, **place, content_index=0, text=block.text, **extra)]
            events.append(self._part_event("done", index, block))
        item = self._item(index, block)
        return [*events, self._event("response.output_item.done", output_index=index, item=item)]

    def _part_event(self, change: str, index: int, block: Block) -> bytes:
        place = {"item_id": self._item_id(index), "output_index": index, "content_index": 0}
        return self._event(f"response.content_part.{change}", **place, part=self._part(block))

    def _item_id(self, index: int) -> str:
        prefix = {BlockKind.THINKING: "rs", BlockKind.TEXT: "msg", BlockKind.TOOL_CALL: "fc"}
        kind = self._blocks.items[index].kind
        return f"{prefix[kind]}_{self._id.removeprefix('resp_')}_{index}"

    def _item(self, index: int, block: Block, *, status: str = "completed") -> dict[str, Any]:
        identity = self._item_id(index)
        if block.kind is BlockKind.TOOL_CALL:
            # The call begins without arguments and never ends without any.
            arguments = block.text or ("{}" if status == "completed" else "")
            call = {"call_id": block.call_id, **self._name(block), "arguments": arguments}
            return {"id": identity, "type": "function_call", "status": status, **call}
        content = [self._part(block)] if status == "completed" else []
        if block.kind is BlockKind.THINKING:
            return {"id": identity, "type": "reasoning", "summary": [], "content": content, "status": status}
        return {"id": identity, "type": "message", "role": "assistant", "status": status, "content": content}

    def _name(self, block: Block) -> dict[str, str]:
        """Return the name of a called tool, and its namespace if it is in one."""
        namespace, name = self._namespaces.get(block.name, ("", block.name))
        return {"name": name, **({"namespace": namespace} if namespace else {})}

    def _part(self, block: Block) -> dict[str, Any]:
        if block.kind is BlockKind.THINKING:
            return {"type": "reasoning_text", "text": block.text}
        return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": self._logprobs(block)}

    def _logprobs(self, block: Block) -> list[dict[str, Any]]:
        return text_logprobs(block) if self._wants_logprobs else []

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_json(event))


def _usage(usage: Mapping[str, Any]) -> dict[str, Any] | None:
    if not usage:
        return None
    prompt: Mapping[str, Any] = usage.get("prompt_tokens_details") or {}
    completion: Mapping[str, Any] = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": usage.get("prompt_tokens", 0),
        "input_tokens_details": {"cached_tokens": prompt.get("cached_tokens") or 0},
        "output_tokens": usage.get("completion_tokens", 0),
        "output_tokens_details": {"reasoning_tokens": completion.get("reasoning_tokens") or 0},
        "total_tokens": usage.get("total_tokens", 0),
    }
