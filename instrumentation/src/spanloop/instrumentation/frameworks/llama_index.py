"""LlamaIndex: agents run tools in the workflow step ``call_tool``; ``predict_and_call`` runs those of a selection.

A failed tool is an output with the exception. ``WaitingForEvent`` suspends a step until somebody answers; the step
then runs again.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from types import ModuleType
from typing import Any, Final

from .spans import RunSpan
from .traced import AgentRun, Call, ToolCall, ToolRequest, wrap_functions

_SUSPENDED: Final = "WaitingForEvent"


def trace_agents(module: ModuleType) -> None:
    """Wrap ``llama_index.core.agent.workflow.base_agent``."""
    _trace(module, "BaseWorkflowAgent")


def trace_teams(module: ModuleType) -> None:
    """Wrap ``llama_index.core.agent.workflow.multi_agent_workflow``."""
    _trace(module, "AgentWorkflow")


def _trace(module: ModuleType, name: str) -> None:
    agent = getattr(module, name)
    agent.call_tool = _traced_step(agent.call_tool)
    wrap_functions(module, {f"{name}.run": _RUN.call})


def _traced_step(call_tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(call_tool)  # copies the step's configuration, which is an attribute of the function
    async def traced(*args: Any, **named: Any) -> Any:
        return await _STEP.coroutine(call_tool, None, args, named)

    return traced


def trace_selected_tools(module: ModuleType) -> None:
    """Wrap ``llama_index.core.tools.calling``."""
    wrap_functions(
        module, {"call_tool_with_selection": _SELECTION.call, "acall_tool_with_selection": _SELECTION.coroutine}
    )


def _read(event: Any) -> ToolRequest:
    return ToolRequest(
        getattr(event, "tool_name", ""), getattr(event, "tool_id", ""), getattr(event, "tool_kwargs", None)
    )


def _read_step(call: Call) -> ToolRequest:
    return _read(call.argument("ev", -1))


def _read_selection(call: Call) -> ToolRequest:
    return _read(call.argument("tool_call", 0))


def _record_step(span: RunSpan, outcome: Any) -> None:
    _record(span, getattr(outcome, "tool_output", None))


def _record(span: RunSpan, output: Any) -> None:
    if getattr(output, "is_error", False):
        span.fail(getattr(output, "exception", None) or str(output.content))
    elif output is not None:
        span.set_result(output.content)


_RUN: Final = AgentRun(tasks=("_result_task",))
"""The steps of a workflow are tasks, which keep the context in which the run was started."""
_STEP: Final = ToolCall(read=_read_step, record=_record_step, control_flow=_SUSPENDED)
_SELECTION: Final = ToolCall(read=_read_selection, record=_record)
