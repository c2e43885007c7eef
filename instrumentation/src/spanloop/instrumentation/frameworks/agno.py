"""Agno: runs pass ``Agent`` and ``Team``, and each tool call ``FunctionCall.execute`` or ``aexecute``.

A failed tool is an outcome with the error's text; the exception itself is only logged.
"""

from contextvars import ContextVar
from inspect import isasyncgen, isgenerator
from types import ModuleType
from typing import Any, Final

from .spans import RunSpan
from .traced import AgentRun, Call, ToolCall, ToolRequest, before, wrap_functions

_logged: ContextVar[list[BaseException] | None] = ContextVar("logged", default=None)
"""Exceptions that were logged during the current tool call."""


def trace_agents(module: ModuleType) -> None:
    """Wrap ``agno.agent.agent``."""
    wrap_functions(module, {"Agent.run": _RUN.call, "Agent.arun": _RUN.stream})


def trace_teams(module: ModuleType) -> None:
    """Wrap ``agno.team.team``."""
    wrap_functions(module, {"Team.run": _RUN.call, "Team.arun": _RUN.stream})


def trace_tools(module: ModuleType) -> None:
    """Wrap ``agno.tools.function``."""
    wrap_functions(
        module,
        {
            "FunctionCall.execute": _TOOL.call,
            "FunctionCall.aexecute": _TOOL.coroutine,
            "log_exception": before(_remember_exception),
        },
    )


def _read(call: Call) -> ToolRequest:
    _logged.set([])
    tool = call.instance
    name = getattr(getattr(tool, "function", None), "name", "")
    return ToolRequest(name, getattr(tool, "call_id", ""), getattr(tool, "arguments", None) or {})


def _record(span: RunSpan, outcome: Any) -> None:
    text = getattr(outcome, "error", None)
    if getattr(outcome, "status", "") == "failure":
        raised = next((error for error in reversed(_logged.get() or []) if str(error) == text), None)
        span.fail(raised or str(text))
        return
    result: Any = getattr(outcome, "result", None)
    if not isgenerator(result) and not isasyncgen(result):
        span.set_result(result)


def _remember_exception(call: Call) -> None:
    if call.args and isinstance(call.args[0], BaseException) and (logged := _logged.get()) is not None:
        logged.append(call.args[0])


_RUN: Final = AgentRun()
_TOOL: Final = ToolCall(read=_read, record=_record, control_flow="AgentRunException")
