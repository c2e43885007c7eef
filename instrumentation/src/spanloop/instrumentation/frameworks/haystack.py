"""Haystack: each tool call ends in ``Tool.invoke`` or ``Tool.invoke_async``; only the agent knows the call's id.

A tool's exception arrives as the cause of ``ToolInvocationError``.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final

from wrapt import wrap_function_wrapper

from .spans import agent_span, tool_span

_call_id: Final[ContextVar[str]] = ContextVar("spanloop_haystack_call_id", default="")
"""Id of the call that runs in this context; the agent gives each call a context of its own."""


def trace_agents(module: ModuleType) -> None:
    """Wrap ``haystack.components.agents.agent``."""
    wrap_function_wrapper(module, "Agent.run", _run)
    wrap_function_wrapper(module, "Agent.run_async", _run_async)


def trace_pipelines(module: ModuleType) -> None:
    """Wrap ``haystack.core.pipeline.pipeline``."""
    wrap_function_wrapper(module, "Pipeline.run", _run)
    wrap_function_wrapper(module, "Pipeline.run_async", _run_async)


def _run(run: Callable[..., Any], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with agent_span(getattr(agent, "name", "")):
        return run(*args, **named)


async def _run_async(
    run: Callable[..., Awaitable[Any]], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    with agent_span(getattr(agent, "name", "")):
        return await run(*args, **named)


def trace_call_ids(module: ModuleType) -> None:
    """Wrap ``haystack.components.agents.tool_calling``."""
    wrap_function_wrapper(module, "_create_tool_span", _create_tool_span)


def _create_tool_span(create: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    call = named.get("tool_call", args[1] if len(args) > 1 else None)
    _call_id.set(getattr(call, "id", None) or "")
    return create(*args, **named)


def trace_tools(module: ModuleType) -> None:
    """Wrap ``haystack.tools.tool``."""
    wrap_function_wrapper(module, "Tool.invoke", _invoke)
    if hasattr(module.Tool, "invoke_async"):
        wrap_function_wrapper(module, "Tool.invoke_async", _invoke_async)


def _invoke(invoke: Callable[..., Any], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with tool_span(getattr(tool, "name", ""), call_id=_take_call_id(), arguments=dict(named)) as span:
        try:
            result = invoke(*args, **named)
        except Exception as error:
            span.fail(error.__cause__ or error)
            raise
        span.set_result(result)
        return result


async def _invoke_async(
    invoke: Callable[..., Awaitable[Any]], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    if getattr(tool, "async_function", None) is None:
        return await invoke(*args, **named)  # it calls invoke() in a thread
    with tool_span(getattr(tool, "name", ""), call_id=_take_call_id(), arguments=dict(named)) as span:
        try:
            result = await invoke(*args, **named)
        except Exception as error:
            span.fail(error.__cause__ or error)
            raise
        span.set_result(result)
        return result


def _take_call_id() -> str:
    """Return the id of this context's call; a tool that its tool calls has another one."""
    call_id = _call_id.get()
    _call_id.set("")
    return call_id
