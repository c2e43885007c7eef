"""AG2 1: each turn of an agent passes ``Agent._turn_scope``, and each tool call the executor's ``_execute_call``.

A failed tool is an event with the exception.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan, agent_span, tool_span


def trace_runs(module: ModuleType) -> None:
    """Wrap ``ag2.agent``."""
    wrap_function_wrapper(module, "Agent._turn_scope", _turn_scope)


@asynccontextmanager
async def _turn_scope(
    scope: Callable[..., AbstractAsyncContextManager[Callable[[], Awaitable[Any]]]],
    agent: Any,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
) -> AsyncGenerator[Callable[[], Awaitable[Any]]]:
    async with scope(*args, **named) as drive:

        async def drive_in_span() -> Any:
            with agent_span(getattr(agent, "name", "")):
                return await drive()

        yield drive_in_span


def trace_tools(module: ModuleType) -> None:
    """Wrap ``ag2.tools.executor``."""
    wrap_function_wrapper(module, "_execute_call", _execute_call)


async def _execute_call(
    execute: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    call = named.get("call", args[-1] if args else None)
    with tool_span(
        getattr(call, "name", ""), call_id=getattr(call, "id", ""), arguments=getattr(call, "arguments", None)
    ) as span:
        outcome = await execute(*args, **named)
        _record(span, outcome)
        return outcome


@guard("a tool's result was not recorded", None)
def _record(span: RunSpan, outcome: Any) -> None:
    if (error := getattr(outcome, "error", None)) is not None:
        span.fail(error)
    elif (result := getattr(outcome, "result", None)) is not None:
        parts = [getattr(part, "content", getattr(part, "data", part)) for part in getattr(result, "parts", ())]
        span.set_result(parts[0] if len(parts) == 1 else parts)
