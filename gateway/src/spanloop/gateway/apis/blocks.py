"""The blocks of an answer in order: thinking, text and tool calls.

Invariant: the blocks of a stream, put together, are those of the same answer in one response.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..client.json_codec import as_list, as_object


class BlockKind(StrEnum):
    """What a block holds."""

    THINKING = "thinking"
    TEXT = "text"
    TOOL_CALL = "tool_call"


@dataclass(slots=True)
class Block:
    """One block."""

    kind: BlockKind
    call_id: str = ""
    name: str = ""
    """Of the tool."""
    parts: list[str] = field(default_factory=list[str])
    logprobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Log-probabilities of the tokens that came with a text, in order; with a whole answer those of all its blocks."""

    @property
    def text(self) -> str:
        """Text, thinking or arguments."""
        return "".join(self.parts)


@dataclass(slots=True)
class BlockChange:
    """What one piece of an answer does to its blocks."""

    index: int
    block: Block
    is_new: bool
    delta: str
    logprobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Log-probabilities of the tokens of a text."""


@dataclass(slots=True)
class Blocks:
    """Collects the first choice of one answer, whole or chunk by chunk."""

    items: list[Block] = field(default_factory=list[Block])
    finish_reason: str = ""
    stop_reason: str = ""
    """The stop string that ended the answer; empty for none."""
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    _call_index: int | None = None

    def add(self, document: Mapping[str, Any]) -> Iterator[BlockChange]:
        """Yield the changes by a whole response or one chunk."""
        self.usage = document.get("usage") or self.usage
        choices: list[dict[str, Any]] = document.get("choices") or []
        for choice in choices[:1]:
            message: dict[str, Any] = choice.get("message") or choice.get("delta") or {}
            if thinking := message.get("reasoning") or message.get("reasoning_content"):
                yield self._append(BlockKind.THINKING, str(thinking))
            if text := message.get("content"):
                change = self._append(BlockKind.TEXT, str(text))
                change.logprobs = as_list(as_object(choice.get("logprobs")).get("content"))
                change.block.logprobs += change.logprobs
                yield change
            calls: list[dict[str, Any]] = message.get("tool_calls") or []
            for position, call in enumerate(calls):
                yield self._append_call(call, int(call.get("index", position)))
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            stop = choice.get("stop_reason")
            self.stop_reason = stop if isinstance(stop, str) else self.stop_reason

    def _append(self, kind: BlockKind, text: str) -> BlockChange:
        is_new = not self.items or self.items[-1].kind is not kind
        if is_new:
            self.items.append(Block(kind))
        self.items[-1].parts.append(text)
        return BlockChange(len(self.items) - 1, self.items[-1], is_new, text)

    def _append_call(self, call: Mapping[str, Any], index: int) -> BlockChange:
        function: dict[str, Any] = call.get("function") or {}
        last = self.items[-1] if self.items else None
        is_new = last is None or last.kind is not BlockKind.TOOL_CALL or index != self._call_index
        if last is None or is_new:
            last = Block(BlockKind.TOOL_CALL, str(call.get("id") or ""), str(function.get("name") or ""))
            self.items.append(last)
        self._call_index = index
        arguments = str(function.get("arguments") or "")
        last.parts.append(arguments)
        return BlockChange(len(self.items) - 1, last, is_new, arguments)


def text_logprobs(block: Block) -> list[dict[str, Any]]:
    """Return the log-probabilities of the tokens that a text consists of; empty where its tokens are not told apart.

    Tokens beside the text are the end of the turn, and those of thinking and calls in a whole answer.
    """
    tokens = [str(entry.get("token") or "") for entry in block.logprobs]
    begin = "".join(tokens).find(block.text)
    if begin < 0 or not block.text:
        return []
    end, position, entries = begin + len(block.text), 0, list[dict[str, Any]]()
    for token, entry in zip(tokens, block.logprobs, strict=True):
        if token and position < end and position + len(token) > begin:
            entries.append(entry)
        position += len(token)
    return entries
