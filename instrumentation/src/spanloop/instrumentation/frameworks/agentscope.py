"""AgentScope 1 and 2.

In 2, each reply passes ``Agent._reply``, and each tool call ``Toolkit.call_tool``; both are generators. A failed tool
is a response in the state "error"; the exception itself passes ``ToolBase.__call__``. In 1, a reply passes
``AgentBase.__call__``, and a tool call ``Toolkit.call_tool_function``, which turns an exception of the registered
function into a text.
"""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from inspect import iscoroutine
from types import ModuleType
from typing import Any, Final

from wrapt import FunctionWrapper, wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan, agent_span, record_tool_error, start_agent_span, start_tool_span, stream_in_span

_FAILED: Final = "error"
_HUMAN: Final = "UserAgent"
"""AgentScope 1's class of agents that ask a person."""

Stream = AsyncGenerator[Any, None]


def trace_runs(module: ModuleType) -> None:
    """Wrap ``agentscope.agent``."""
    if hasattr(module, "Agent"):
        wrap_function_wrapper(module, "Agent._reply", _reply)
    else:
        wrap_function_wrapper(module, "AgentBase.__call__", _run)


async def _run(run: Callable[..., Awaitable[Any]], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    if type(agent).__name__ == _HUMAN or _traces_itself():
        return await run(*args, **named)
    with agent_span(getattr(agent, "name", "")):
        return await run(*args, **named)


def _traces_itself() -> bool:
    """Whether the app switched AgentScope 1's own tracing on."""
    return bool(getattr(getattr(sys.modules.get("agentscope"), "_config", None), "trace_enabled", False))


def _reply(reply: Callable[..., Stream], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Stream:
    return stream_in_span(start_agent_span(getattr(agent, "name", "")), reply(*args, **named))


def trace_tools(module: ModuleType) -> None:
    """Wrap ``agentscope.tool``."""
    if hasattr(module, "ToolBase"):
        wrap_function_wrapper(module, "Toolkit.call_tool", _call_tool)
        wrap_function_wrapper(module, "ToolBase.__call__", _call)
    else:
        wrap_function_wrapper(module, "Toolkit.call_tool_function", _call_function)
        wrap_function_wrapper(module, "Toolkit.register_tool_function", _register)


def _call_tool(call_tool: Callable[..., Stream], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Stream:
    span = _tool_span(args, named)
    return stream_in_span(span, _recorded(span, call_tool(*args, **named)))


def _tool_span(args: tuple[Any, ...], named: Mapping[str, Any]) -> RunSpan:
    block = named.get("tool_call", args[0] if args else None)
    return start_tool_span(_field(block, "name"), call_id=_field(block, "id"), arguments=_field(block, "input", None))


def _field(block: Any, name: str, default: object = "") -> Any:
    """Return a field of a content block: an object in AgentScope 2, a dict in 1."""
    return block.get(name, default) if isinstance(block, dict) else getattr(block, name, default)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


async def _call_function(
    call: Callable[..., Awaitable[Stream]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Stream:
    if _traces_itself():
        return await call(*args, **named)
    span = _tool_span(args, named)
    try:
        with span.current():
            chunks = await call(*args, **named)
    except BaseException as error:
        span.fail(error)
        span.end()
        raise
    return stream_in_span(span, _recorded(span, chunks))


def _register(register: Callable[..., Any], toolkit: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    result = register(*args, **named)
    _wrap_functions(toolkit)
    return result


@guard("a tool's exceptions are not recorded", None)
def _wrap_functions(toolkit: Any) -> None:
    for tool in toolkit.tools.values():
        if not isinstance(tool.original_func, FunctionWrapper):
            tool.original_func = FunctionWrapper(tool.original_func, _call_original)


def _call_original(call: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    try:
        result = call(*args, **named)
    except Exception as error:
        record_tool_error(error)
        raise
    return _recording_errors(result) if iscoroutine(result) else result


async def _recorded(span: RunSpan, chunks: Stream) -> Stream:
    response: Any = None
    try:
        async for response in chunks:
            yield response
        _record(span, response)
    finally:
        await chunks.aclose()


@guard("a tool's result was not recorded", None)
def _record(span: RunSpan, response: Any) -> None:
    """Record the whole response, which is the last thing in the stream."""
    text = "\n".join(str(_field(block, "text", block)) for block in getattr(response, "content", ()))
    if getattr(getattr(response, "state", None), "value", "") == _FAILED:
        span.fail(text)
    else:
        span.set_result(text)


async def _call(call: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    return await _recording_errors(call(*args, **named))


async def _recording_errors(result: Awaitable[Any]) -> Any:
    try:
        return await result
    except Exception as error:
        record_tool_error(error)
        raise
