"""DSPy: each program and tool is called by ``__call__`` or ``acall``.

Calls of tools have no ids: DSPy reads them from the text of the model's answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final

from wrapt import wrap_function_wrapper

from .spans import agent_span, tool_span

_is_inside: Final[ContextVar[bool]] = ContextVar("spanloop_dspy_is_inside", default=False)
"""Whether a program runs in this context: those that it is made of are no runs of their own."""


def trace_programs(module: ModuleType) -> None:
    """Wrap ``dspy.primitives.module``."""
    wrap_function_wrapper(module, "Module.__call__", _run)
    wrap_function_wrapper(module, "Module.acall", _arun)


def _run(run: Callable[..., Any], program: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    if _is_inside.get():
        return run(*args, **named)
    token = _is_inside.set(True)
    try:
        with agent_span(type(program).__name__):
            return run(*args, **named)
    finally:
        _is_inside.reset(token)


async def _arun(
    run: Callable[..., Awaitable[Any]], program: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    if _is_inside.get():
        return await run(*args, **named)
    token = _is_inside.set(True)
    try:
        with agent_span(type(program).__name__):
            return await run(*args, **named)
    finally:
        _is_inside.reset(token)


def trace_tools(module: ModuleType) -> None:
    """Wrap ``dspy.adapters.types.tool``."""
    wrap_function_wrapper(module, "Tool.__call__", _call)
    wrap_function_wrapper(module, "Tool.acall", _acall)


def _call(call: Callable[..., Any], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with tool_span(getattr(tool, "name", ""), arguments=dict(named)) as span:
        result = call(*args, **named)
        span.set_result(result)
        return result


async def _acall(
    call: Callable[..., Awaitable[Any]], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    with tool_span(getattr(tool, "name", ""), arguments=dict(named)) as span:
        result = await call(*args, **named)
        span.set_result(result)
        return result
