"""AgentScope 2: every tool call passes ``Toolkit.call_tool``, which streams chunks and then the whole response.

A failed tool is a response in the state "error"; the exception itself is seen in ``ToolBase.__call__``.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final

from opentelemetry import trace
from wrapt import wrap_function_wrapper

from .tool_spans import start, start_agent, in_span


def instrument(module: ModuleType) -> None:
    """Wrap ``agentscope.tool``."""
    wrap_function_wrapper(module, "Toolkit.call_tool", _call_tool)
    wrap_function_wrapper(module, "ToolBase.__call__", _call)


_failures: Final[ContextVar[list[Exception] | None]] = ContextVar("spanloop_agentscope_failures", default=None)


def _call_tool(
    call_tool: Callable[..., AsyncGenerator[Any, None]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> AsyncGenerator[Any, None]:
    block = named.get("tool_call", args[0] if args else None)
    return _traced(call_tool(*args, **named), block)


async def _traced(chunks: AsyncGenerator[Any, None], block: Any) -> AsyncGenerator[Any, None]:
    span = start(block.name, call_id=block.id, arguments=block.input)
    chunk = None
    try:
        while True:
            with span.is_current():  # not while the consumer runs
                try:
                    chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
            yield chunk
        _record(span, chunk)
    except Exception as error:
        span.fail(error)
        raise
    finally:
        span.end()
        await chunks.aclose()


def _record(span, response):
    content = [getattr(block, "text", None) or str(block) for block in response.content]
    text = "\n".join(content)
    if str(response.state) in ("error", "ToolResultState.ERROR"):
        span.fail(text)
    else:
        span.set_result(text)


async def _call(call: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    try:
        return await call(*args, **named)
    except Exception as error:
        span = trace.get_current_span()
        span.record_exception(error)
        raise


def instrument_agent(module):
    wrap_function_wrapper(module, "Agent._reply", _reply)


def _reply(reply, agent, args, named):
    return in_span(start_agent(agent.name), reply(*args, **named))
