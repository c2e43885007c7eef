"""AgentScope 2: each reply passes ``Agent._reply``, and each tool call ``Toolkit.call_tool``; both are generators.

A failed tool is a response in the state "error"; the exception itself passes ``ToolBase.__call__``.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, Final

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan, record_tool_error, start_agent_span, start_tool_span, stream_in_span

_FAILED: Final = "error"

Stream = AsyncGenerator[Any, None]


def trace_runs(module: ModuleType) -> None:
    """Wrap ``agentscope.agent``."""
    wrap_function_wrapper(module, "Agent._reply", _reply)


def _reply(reply: Callable[..., Stream], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Stream:
    return stream_in_span(start_agent_span(getattr(agent, "name", "")), reply(*args, **named))


def trace_tools(module: ModuleType) -> None:
    """Wrap ``agentscope.tool``."""
    wrap_function_wrapper(module, "Toolkit.call_tool", _call_tool)
    wrap_function_wrapper(module, "ToolBase.__call__", _call)


def _call_tool(call_tool: Callable[..., Stream], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Stream:
    block = named.get("tool_call", args[0] if args else None)
    span = start_tool_span(
        getattr(block, "name", ""), call_id=getattr(block, "id", ""), arguments=getattr(block, "input", None)
    )
    return stream_in_span(span, _recorded(span, call_tool(*args, **named)))


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
    text = "\n".join(str(getattr(block, "text", block)) for block in getattr(response, "content", ()))
    if getattr(getattr(response, "state", None), "value", "") == _FAILED:
        span.fail(text)
    else:
        span.set_result(text)


async def _call(call: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    try:
        return await call(*args, **named)
    except Exception as error:
        record_tool_error(error)
        raise
