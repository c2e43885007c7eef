"""Haystack: each tool call ends in ``Tool.invoke`` or ``Tool.invoke_async``; only the agent knows the call's id.

A tool's exception arrives as the cause of ``ToolInvocationError``.
"""

from contextvars import ContextVar
from types import ModuleType
from typing import Final

from .traced import AgentRun, Call, ToolCall, ToolRequest, before, wrap_functions

_call_id: Final[ContextVar[str]] = ContextVar("spanloop_haystack_call_id", default="")
"""Id of the call that runs in this context; the agent gives each call a context of its own."""


def trace_agents(module: ModuleType) -> None:
    """Wrap ``haystack.components.agents.agent``."""
    wrap_functions(module, {"Agent.run": _RUN.call, "Agent.run_async": _RUN.coroutine})


def trace_pipelines(module: ModuleType) -> None:
    """Wrap ``haystack.core.pipeline.pipeline``."""
    wrap_functions(module, {"Pipeline.run": _RUN.call, "Pipeline.run_async": _RUN.coroutine})


def trace_call_ids(module: ModuleType) -> None:
    """Wrap ``haystack.components.agents.tool_calling``."""
    wrap_functions(module, {"_create_tool_span": before(_remember_id)})


def _remember_id(call: Call) -> None:
    _call_id.set(getattr(call.argument("tool_call", 1), "id", None) or "")


def trace_tools(module: ModuleType) -> None:
    """Wrap ``haystack.tools.tool``."""
    wrap_functions(module, {"Tool.invoke": _TOOL.call})
    if hasattr(module.Tool, "invoke_async"):
        wrap_functions(module, {"Tool.invoke_async": _ASYNC_TOOL.coroutine})


def _read(call: Call) -> ToolRequest:
    return ToolRequest(getattr(call.instance, "name", ""), _take_call_id(), dict(call.named))


def _take_call_id() -> str:
    """Return the id of this context's call; a tool that its tool calls has another one."""
    call_id = _call_id.get()
    _call_id.set("")
    return call_id


def _is_async(call: Call) -> bool:
    """Return whether a tool is asynchronous; another one's ``invoke_async`` calls ``invoke`` in a thread."""
    return getattr(call.instance, "async_function", None) is not None


_RUN: Final = AgentRun()
_TOOL: Final = ToolCall(read=_read, fails_by_cause=True)
_ASYNC_TOOL: Final = ToolCall(read=_read, fails_by_cause=True, is_traced=_is_async)
