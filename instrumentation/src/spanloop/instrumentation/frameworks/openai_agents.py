"""openai-agents: each run passes ``AgentRunner``, and each tool call a function of ``agents.tool``.

A failed tool is a text for the model; the exception itself passes the function that makes this text.
"""

from types import ModuleType
from typing import Any, Final

from .spans import RunSpan
from .traced import AgentRun, Call, ToolCall, ToolRequest, record_error_argument, wrap_functions

_INVOKE: Final = ("_invoke_function_tool_with_metadata", "invoke_function_tool")
"""Of newer and of older releases; the first that a release has calls the tool."""


def trace_runs(module: ModuleType) -> None:
    """Wrap ``agents.run``."""
    wrap_functions(module, {"AgentRunner.run": _RUN.coroutine, "AgentRunner.run_streamed": _STREAMED_RUN.call})


def _name(call: Call) -> str:
    return getattr(call.argument("starting_agent", 0), "name", "")


def trace_tools(module: ModuleType) -> None:
    """Wrap ``agents.tool``; other modules import its functions after that."""
    invoke = next((name for name in _INVOKE if hasattr(module, name)), _INVOKE[-1])
    wrap_functions(
        module,
        {
            invoke: _TOOL.coroutine,
            "maybe_invoke_function_tool_failure_error_function": record_error_argument("error"),
        },
    )


def _read(call: Call) -> ToolRequest:
    return ToolRequest(
        getattr(call.argument("function_tool"), "name", ""),
        getattr(call.argument("context"), "tool_call_id", ""),
        call.argument("arguments"),
    )


def _record(span: RunSpan, outcome: Any) -> None:
    span.set_result(getattr(outcome, "output", outcome))


_RUN: Final = AgentRun(name=_name)
_STREAMED_RUN: Final = AgentRun(name=_name, tasks=("run_loop_task", "_run_impl_task"))
"""The run goes on in a task of its own, which inherits the span."""
_TOOL: Final = ToolCall(read=_read, record=_record)
