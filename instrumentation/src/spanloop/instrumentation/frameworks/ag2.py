"""AG2 1: every tool call, from whichever toolkit, passes the executor's ``_execute_call``.

A failed tool is an event with the exception, not an exception.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from wrapt import wrap_function_wrapper

from .tool_spans import ToolSpan, tool_span, agent_span


def instrument(executor: ModuleType) -> None:
    """Wrap ``ag2.tools.executor``."""
    wrap_function_wrapper(executor, "_execute_call", _execute_call)


async def _execute_call(
    execute: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    event = named.get("call", args[-1] if args else None)
    call = (getattr(event, "name", ""), getattr(event, "id", ""), getattr(event, "arguments", None))
    with tool_span(call[0], call_id=call[1], arguments=call[2]) as span:
        outcome = await execute(*args, **named)
        _record(span, outcome)
    return outcome


def _record(span: ToolSpan, outcome: Any) -> None:
    if (error := getattr(outcome, "error", None)) is not None:
        span.fail(error)
    elif (result := getattr(outcome, "result", None)) is not None:
        parts = [getattr(part, "content", getattr(part, "data", part)) for part in getattr(result, "parts", ())]
        span.set_result(parts[0] if len(parts) == 1 else parts)


def instrument_agent(module):
    wrap_function_wrapper(module, "Agent._turn_scope", _turn_scope)


@asynccontextmanager
async def _turn_scope(scope, agent, args, named):
    async with scope(*args, **named) as drive:

        async def drive_in_span():
            with agent_span(getattr(agent, "name", "")):
                return await drive()

        yield drive_in_span
