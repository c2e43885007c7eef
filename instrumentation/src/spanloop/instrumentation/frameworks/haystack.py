"""Haystack: every tool call ends in ``Tool.invoke`` or ``Tool.invoke_async``; only the agent knows the call's id."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final

from wrapt import wrap_function_wrapper

from .tool_spans import tool_span, agent_span

_call_id: Final[ContextVar[str]] = ContextVar("spanloop_haystack_call_id", default="")
"""Of the call that the agent runs in this context; it gives each call a context of its own."""


def instrument_tools(module: ModuleType) -> None:
    """Wrap ``haystack.tools.tool``."""
    wrap_function_wrapper(module, "Tool.invoke", _invoke)
    if hasattr(module.Tool, "invoke_async"):
        wrap_function_wrapper(module, "Tool.invoke_async", _invoke_async)


def instrument_agent(module: ModuleType) -> None:
    """Wrap ``haystack.components.agents.tool_calling``."""
    wrap_function_wrapper(module, "_create_tool_span", _create_tool_span)


def _create_tool_span(
    create: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    call = named.get("tool_call", args[1] if len(args) > 1 else None)
    _call_id.set(getattr(call, "id", None) or "")
    return create(*args, **named)


def _invoke(invoke: Callable[..., Any], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with tool_span(tool.name, call_id=_take_call_id(), arguments=dict(named)) as span:
        try:
            result = invoke(*args, **named)
        except Exception as error:
            span.fail(error.__cause__ or error)  # its own error only says that the tool failed
            raise
        span.set_result(result)
        return result


async def _invoke_async(
    invoke: Callable[..., Awaitable[Any]], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    if tool.async_function is None:
        return await invoke(*args, **named)  # it calls invoke() in a thread
    with tool_span(tool.name, call_id=_take_call_id(), arguments=dict(named)) as span:
        try:
            result = await invoke(*args, **named)
        except Exception as error:
            span.fail(error.__cause__ or error)
            raise
        span.set_result(result)
        return result


def _take_call_id() -> str:
    call_id = _call_id.get()
    _call_id.set("")  # a tool that this one calls has another
    return call_id


def instrument_runs(module):
    for name in ("Agent", "Pipeline"):
        if hasattr(module, name) and getattr(module, name).__module__ == module.__name__:
            wrap_function_wrapper(module, f"{name}.run", _run)
            wrap_function_wrapper(module, f"{name}.run_async", _run_async)


def _run(run, agent, args, named):
    with agent_span(getattr(agent, "name", "")):
        return run(*args, **named)


async def _run_async(run, agent, args, named):
    with agent_span(getattr(agent, "name", "")):
        return await run(*args, **named)
