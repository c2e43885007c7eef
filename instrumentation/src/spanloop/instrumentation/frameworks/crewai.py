"""CrewAI: runs pass ``Crew.kickoff`` and ``Agent.execute_task``; a tool call passes its executor, and ``invoke``.

A failed tool is a text for the model; the exception itself passes the tool's function.
"""

import sys
from types import ModuleType
from typing import Any, Final

from .spans import RunSpan
from .traced import AgentRun, Call, ToolCall, ToolRequest, record_raised, wrap_functions


def trace_crews(module: ModuleType) -> None:
    """Wrap ``crewai.crew``."""
    wrap_functions(module, {"Crew.kickoff": _RUN.call, "Crew.akickoff": _RUN.coroutine})


def trace_agents(module: ModuleType) -> None:
    """Wrap ``crewai.agent.core``."""
    wrap_functions(module, {"Agent.execute_task": _RUN.call, "Agent.aexecute_task": _RUN.coroutine})


def _name(call: Call) -> str:
    return str(getattr(call.instance, "role", None) or getattr(call.instance, "name", None) or "")


def trace_native_calls(module: ModuleType) -> None:
    """Wrap ``crewai.agents.agent_executor``."""
    wrap_functions(module, {"AgentExecutor._execute_single_native_tool_call": _TOOL.call})


def trace_planned_calls(module: ModuleType) -> None:
    """Wrap ``crewai.utilities.agent_utils``."""
    wrap_functions(module, {"execute_single_native_tool_call": _TOOL.call})


def _read(call: Call) -> ToolRequest:
    """Return the call; CrewAI's own function knows the forms of all providers."""
    utilities: Any = sys.modules["crewai.utilities.agent_utils"]
    call_id, name, arguments = utilities.extract_tool_call_info(call.argument("tool_call", 0)) or ("", "", None)
    return ToolRequest(name, call_id, arguments)


def _record(span: RunSpan, outcome: Any) -> None:
    values: Any = getattr(outcome, "__dict__", outcome)  # a result object, or a plain dict
    if (failure := values.get("tool_failure")) is not None:
        span.fail(str(getattr(failure, "message", failure)))
    span.set_result(values.get("result"))


def trace_tools(module: ModuleType) -> None:
    """Wrap ``crewai.tools.structured_tool``: the tools of models whose answers CrewAI parses as text."""
    wrap_functions(
        module,
        {"CrewStructuredTool.invoke": _PARSED_TOOL.call, "CrewStructuredTool.ainvoke": _PARSED_TOOL.coroutine},
    )


def trace_errors(module: ModuleType) -> None:
    """Wrap ``crewai.tools.base_tool``, whose tools the executor calls inside the span of the call."""
    wrap_functions(module, {"BaseTool.run": record_raised, "Tool.run": record_raised})


_RUN: Final = AgentRun(name=_name)
_TOOL: Final = ToolCall(read=_read, record=_record)
_PARSED_TOOL: Final = ToolCall(
    read=lambda call: ToolRequest(getattr(call.instance, "name", ""), arguments=call.argument("input", 0))
)
