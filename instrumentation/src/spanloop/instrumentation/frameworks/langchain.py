"""LangChain and LangGraph: each tool call passes ``BaseTool.run`` or ``arun``, and each run of a graph ``Pregel``.

A tool that handles its own error returns a text for the model; the exception passes the function that makes this text.
"""

from types import ModuleType
from typing import Any, Final

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan
from .traced import AgentRun, Call, ToolCall, ToolRequest, record_error_argument, wrap_functions

_CONTROL_FLOW: Final = "GraphBubbleUp"
"""Base of the exceptions by which a tool interrupts its graph or jumps to another node."""


def trace_graphs(module: ModuleType) -> None:
    """Wrap ``langgraph.pregel.main``, or ``langgraph.pregel`` of older releases; ``invoke`` calls ``stream``."""
    wrap_functions(module, {"Pregel.stream": _RUN.stream, "Pregel.astream": _RUN.stream})


def _name(call: Call) -> str:
    name = str(call.instance.get_name())
    return "" if name == "LangGraph" else name


def trace_tools(module: ModuleType) -> None:
    """Wrap ``langchain_core.tools.base``."""
    wrap_functions(
        module,
        {
            "BaseTool.run": _TOOL.call,
            "BaseTool.arun": _TOOL.coroutine,
            "_handle_tool_error": record_error_argument("e", 0),
            "_handle_validation_error": record_error_argument("e", 0),
        },
    )


def _read(call: Call) -> ToolRequest:
    arguments = _arguments(call.instance, call.argument("tool_input", 0))
    return ToolRequest(getattr(call.instance, "name", ""), call.named.get("tool_call_id") or "", arguments)


@guard("a tool's arguments were not recorded", None)
def _arguments(tool: Any, values: Any) -> Any:
    """Leave out what the framework adds (state, store, runtime) to the model's arguments."""
    without_added: Any = getattr(tool, "_filter_injected_args", None)
    return without_added(values) if hasattr(values, "keys") and without_added is not None else values


def _record(span: RunSpan, result: Any) -> None:
    content = getattr(result, "content", result)
    if getattr(result, "status", "") == "error":
        span.fail(str(content))
    span.set_result(content)


_RUN: Final = AgentRun(name=_name)
_TOOL: Final = ToolCall(read=_read, record=_record, control_flow=_CONTROL_FLOW)
