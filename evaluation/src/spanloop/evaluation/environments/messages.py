"""The JSON of the protocol, checked: what an environment answers is used only when it has the documented form.

Invariant: whatever a class or a server answers becomes a typed value, or a sentence that names the field, what was got
and what is expected.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from pydantic import JsonValue

from spanloop.semconv.scores import SCORE_RANGE, is_valid_score

from .base import EnvironmentFailedError, StepResult, Tool

_SHOWN: Final = 80


class Start(NamedTuple):
    """The start of an episode."""

    observation: JsonValue
    tools: tuple[Tool, ...]
    takes_messages: bool = False


def json_object(value: object) -> dict[str, Any] | None:
    """Return a value that is a JSON object; None for another one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def tool_json(tool: Tool) -> dict[str, JsonValue]:
    """Return a tool in the form of OpenAI's API."""
    function: dict[str, JsonValue] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def start_of_json(value: object) -> Start:
    """Return the start of an episode.

    Raises:
        EnvironmentFailedError: It has another form.
    """
    body = _object(value, "reset")
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        raise _wrong("reset", "tools", tools, "a list of tools")
    return Start(
        _observation("reset", body),
        tuple(_tool(tool) for tool in cast("list[object]", tools)),
        _flag("reset", body, "takes_messages"),
    )


def step_of_json(value: object) -> StepResult:
    """Return the result of a step.

    Raises:
        EnvironmentFailedError: It has another form.
    """
    body = _object(value, "step")
    success = body.get("success")
    if not isinstance(success, bool | None):
        raise _wrong("step", "success", success, "true, false or null")
    return checked_step(
        StepResult(
            observation=_observation("step", body),
            reward=body.get("reward"),
            done=_flag("step", body, "done"),
            truncated=_flag("step", body, "truncated"),
            error=_flag("step", body, "error"),
            success=success,
            reason=str(body.get("reason") or ""),
            components=body.get("components") or {},
        )
    )


def checked_step(result: object) -> StepResult:
    """Return what ``step`` returned, when rewards are numbers.

    Raises:
        EnvironmentFailedError: It is no `StepResult`, or a reward is none.
    """
    if not isinstance(result, StepResult):
        raise EnvironmentFailedError(f"step gave {_shown(result)}, expected a StepResult")
    components = cast("object", result.components)  # of a user's code: its type is a promise
    if not isinstance(components, Mapping):
        raise _wrong("step", "components", components, "an object of numbers")
    numbers: dict[str, object] = {
        str(name): value for name, value in cast("Mapping[object, object]", components).items()
    }
    for name, number in {**numbers, "reward": result.reward or 0.0}.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not is_valid_score(number):
            raise _wrong("step", name, number, SCORE_RANGE)
    return result._replace(
        reward=None if result.reward is None else float(result.reward),
        components={name: float(cast("float", value)) for name, value in numbers.items()},
        done=bool(result.done or result.truncated),
    )


def checked_tools(tools: object) -> tuple[Tool, ...]:
    """Return what ``tools`` returned, when each is a `Tool`.

    Raises:
        EnvironmentFailedError: One is not.
    """
    listed = tuple(cast("Sequence[object]", tools)) if isinstance(tools, Sequence) else (tools,)
    for tool in listed:
        if not isinstance(tool, Tool):
            raise EnvironmentFailedError(f"tools gave {_shown(tool)}, expected Tools")
    return cast("tuple[Tool, ...]", listed)


def _tool(value: object) -> Tool:
    outer = json_object(value) or {}
    function = json_object(outer.get("function", outer)) or {}
    name, parameters = function.get("name"), function.get("parameters") or {"type": "object"}
    if not isinstance(name, str) or not name or not isinstance(parameters, dict):
        raise _wrong("reset", "tools", value, '{"type": "function", "function": {"name": …}}')
    return Tool(name, str(function.get("description") or ""), cast("dict[str, JsonValue]", parameters))


def _object(value: object, call: str) -> dict[str, Any]:
    body = json_object(value)
    if body is None:
        raise EnvironmentFailedError(f"{call} answered {_shown(value)}, expected a JSON object")
    return body


def _observation(call: str, body: Mapping[str, Any]) -> JsonValue:
    if "observation" not in body:
        raise EnvironmentFailedError(f"{call} answered {_shown(dict(body))}, expected a field 'observation'")
    return cast("JsonValue", body["observation"])


def _flag(call: str, body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if not isinstance(value, bool | None):
        raise _wrong(call, name, value, "true or false")
    return bool(value)


def _wrong(call: str, name: str, value: object, expected: str) -> EnvironmentFailedError:
    return EnvironmentFailedError(f"{call} gave {name} {_shown(value)}, expected {expected}")


def _shown(value: object) -> str:
    return f"{value!r:.{_SHOWN}}"
