"""smolagents: each run passes ``MultiStepAgent.run``, and each tool call of the model ``execute_tool_call``.

The id of a call is known one function further out. A tool's exception is the cause of the agent's own.
"""

from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final

from .traced import AgentRun, Call, ToolCall, ToolRequest, before, wrap_functions

_calls: Final[ContextVar[tuple[Any, ...]]] = ContextVar("spanloop_smolagents_calls", default=())
"""The tool calls of the model's newest answer."""


def trace(module: ModuleType) -> None:
    """Wrap ``smolagents.agents``."""
    wrap_functions(
        module,
        {
            "MultiStepAgent.run": _RUN.call,
            "ToolCallingAgent.process_tool_calls": before(_remember_calls),
            "ToolCallingAgent.execute_tool_call": _TOOL.call,
        },
    )


def _remember_calls(call: Call) -> None:
    _calls.set(tuple(getattr(call.argument("chat_message", 0), "tool_calls", None) or ()))


def _read(call: Call) -> ToolRequest:
    name, arguments = (*call.args, call.named.get("tool_name"), call.named.get("arguments"))[:2]
    return ToolRequest(name, _call_id(name, arguments), arguments)


def _call_id(name: object, arguments: object) -> str:
    """Return the id of the call with these arguments; of the tool's only call where they were replaced."""
    calls = [call for call in _calls.get() if getattr(getattr(call, "function", None), "name", None) == name]
    same = [call for call in calls if call.function.arguments is arguments]
    chosen = same or calls
    return str(chosen[0].id) if len(chosen) == 1 else ""


_RUN: Final = AgentRun()
_TOOL: Final = ToolCall(read=_read, fails_by_cause=True)
