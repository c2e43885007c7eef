"""Compare an attempt's tool calls with the calls that a task asks for.

A task has reference calls when its record has the field ``reference_calls``: a list of ``{"name": …, "arguments": …}``
in order. A reference call without arguments is matched by its name alone.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from pydantic import JsonValue

from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError

FIELD: Final = "reference_calls"


class ToolCall(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]
    """Of a reference call: those that the call must have; it may have others."""


ReferenceCalls = Mapping[str, tuple[ToolCall, ...]]
"""Task id → its reference calls, in order; tasks without any are left out."""

NO_REFERENCES: Final[ReferenceCalls] = MappingProxyType({})


class CallFigures(NamedTuple):
    """How an attempt's calls compare with the reference calls."""

    tool_selection: float
    """Calls of the tools of the reference calls, each counted as often as it is a reference call, by the larger number
    of both kinds of calls."""
    plan_success: float
    """1 when all reference calls were made in their order, whatever was called between them; else 0."""
    step_efficiency: float
    """Number of reference calls by the larger number of both where the attempt succeeded, else 0: success weighted by
    path length (Anderson et al. 2018, "On Evaluation of Embodied Navigation Agents")."""


NO_CALLS: Final = CallFigures(0.0, 0.0, 0.0)
"""Of an attempt that crashed, ran out of time or has no score."""


def reference_calls_of(tasks: Iterable[Task]) -> ReferenceCalls:
    """Return the reference calls of the tasks that have some.

    Raises:
        ConfigurationError: A task's are not a list of calls.
    """
    return {task.id: _parse(task.id, task.fields[FIELD]) for task in tasks if task.fields.get(FIELD) is not None}


def compare_calls(calls: Sequence[ToolCall], reference: Sequence[ToolCall], *, is_success: bool) -> CallFigures:
    """Return the figures of an attempt that made ``calls``."""
    longest = max(len(calls), len(reference))
    if longest == 0:
        return CallFigures(1.0, 1.0, float(is_success))
    common = Counter(call.name for call in calls) & Counter(call.name for call in reference)
    left = iter(calls)
    makes_all = all(any(_matches(call, wanted) for call in left) for wanted in reference)
    return CallFigures(common.total() / longest, float(makes_all), is_success * len(reference) / longest)


def parse_calls(texts: Iterable[str]) -> tuple[ToolCall, ...]:
    """Return stored calls, each a JSON object with ``name`` and ``arguments``; what is no JSON object has no name."""
    return tuple(_call_of(_json(text)) for text in texts)


def _matches(call: ToolCall, wanted: ToolCall) -> bool:
    if call.name != wanted.name:
        return False
    missing = object()
    return all(call.arguments.get(name, missing) == value for name, value in wanted.arguments.items())


def _parse(task_id: str, value: JsonValue) -> tuple[ToolCall, ...]:
    calls = tuple(_call_of(item) for item in value) if isinstance(value, list) else (ToolCall("", {}),)
    if not all(call.name for call in calls):
        raise ConfigurationError(
            f"Field {FIELD!r} of task {task_id!r} is {json.dumps(value)[:200]}, expected a list of calls.",
            next_step='Write each call as {"name": "lookup", "arguments": {"id": 7}}.',
        )
    return calls


def _call_of(value: object) -> ToolCall:
    if not isinstance(value, dict):
        return ToolCall("", {})
    call = cast("dict[str, Any]", value)
    function = call.get("function")
    call = cast("dict[str, Any]", function) if isinstance(function, dict) else call
    name, arguments = call.get("name"), call.get("arguments")
    if isinstance(arguments, str):
        arguments = _json(arguments)
    return ToolCall(
        name if isinstance(name, str) else "",
        cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {},
    )


def _json(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return value
