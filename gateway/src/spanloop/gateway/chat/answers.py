"""What a model answered, as text and tool calls, and how two answers compare.

Invariant: an answer is put together from a whole response or from the chunks of a stream with the same result.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable

from spanloop.foundation.surrogates import dump_json


class Agreement(StrEnum):
    """How a candidate's answer compares with the champion's."""

    SAME = "same"
    """Equal text up to white space, or equal tool calls."""
    SAME_TOOLS = "same_tools"
    """Calls of the same tools with other arguments."""
    DIFFERENT = "different"


class ToolCall(NamedTuple):
    """One call as the model wrote it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The first choice of a response."""

    text: str
    tool_calls: tuple[ToolCall, ...]

    def to_json(self) -> str:
        """Return the answer as a JSON object."""
        calls = [call._asdict() for call in self.tool_calls]
        return dump_json({"text": self.text, "tool_calls": calls})

    def agreement(self, other: "Answer") -> Agreement:
        """Return how the answer compares with another one."""
        ours, theirs = ([(call.name, _parsed(call.arguments)) for call in each.tool_calls] for each in (self, other))
        if not ours and not theirs:
            return Agreement.SAME if self.text.split() == other.text.split() else Agreement.DIFFERENT
        if ours == theirs:
            return Agreement.SAME
        same_tools = [name for name, _ in ours] == [name for name, _ in theirs]
        return Agreement.SAME_TOOLS if same_tools else Agreement.DIFFERENT

    def has_valid_calls(self, tools: object) -> bool:
        """Return whether each tool call names one of the request's tools, with arguments that its schema allows."""
        schemas = _schemas(tools)
        return all(call.name in schemas and _is_valid(call.arguments, schemas[call.name]) for call in self.tool_calls)


@dataclass(slots=True)
class _PartialCall:
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class AnswerBuilder:
    """Puts the first choice of a response together."""

    _text: list[str] = field(default_factory=list[str])
    _calls: dict[int, _PartialCall] = field(default_factory=dict[int, _PartialCall])

    def add(self, document: Mapping[str, Any]) -> None:
        """Add a whole response or one chunk of a stream."""
        choices: list[dict[str, Any]] = document.get("choices") or []
        for choice in choices:
            if choice.get("index", 0) != 0:
                continue
            message: dict[str, Any] = choice.get("message") or choice.get("delta") or {}
            if isinstance(text := message.get("content"), str):
                self._text.append(text)
            calls: list[dict[str, Any]] = message.get("tool_calls") or []
            for position, call in enumerate(calls):
                partial = self._calls.setdefault(int(call.get("index", position)), _PartialCall())
                function: dict[str, Any] = call.get("function") or {}
                partial.name += str(function.get("name") or "")
                partial.arguments += str(function.get("arguments") or "")

    def build(self) -> Answer:
        """Return the answer so far."""
        calls = tuple(ToolCall(**asdict(self._calls[index])) for index in sorted(self._calls))
        return Answer("".join(self._text), calls)


def _schemas(tools: object) -> dict[str, object]:
    schemas: dict[str, object] = {}
    for tool in cast("Sequence[object]", tools) if isinstance(tools, list) else ():
        function = cast("dict[str, Any]", tool).get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict):
            fields = cast("dict[str, Any]", function)
            schemas[str(fields.get("name"))] = fields.get("parameters") or {}
    return schemas


def _is_valid(arguments: str, schema: object) -> bool:
    value = _parsed(arguments or "{}")
    if not isinstance(value, dict):
        return False
    try:
        validator: Any = Draft202012Validator
        validator.check_schema(schema)
        return bool(validator(schema).is_valid(value))
    except (SchemaError, Unresolvable, RecursionError, re.error):
        return True  # the caller's schema cannot be used: nothing can be said against the call


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
