"""AG2 1: each turn of an agent passes ``Agent._turn_scope``, and each tool call the executor's ``_execute_call``.

A failed tool is an event with the exception.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any, Final

from .spans import RunSpan, agent_span
from .traced import Call, ToolCall, ToolRequest, wrap_functions


def trace_runs(module: ModuleType) -> None:
    """Wrap ``ag2.agent``."""
    wrap_functions(module, {"Agent._turn_scope": _turn_scope})


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
    wrap_functions(module, {"_execute_call": _TOOL.coroutine})


def _read(call: Call) -> ToolRequest:
    event = call.argument("call", -1)
    return ToolRequest(getattr(event, "name", ""), getattr(event, "id", ""), getattr(event, "arguments", None))


def _record(span: RunSpan, outcome: Any) -> None:
    if (error := getattr(outcome, "error", None)) is not None:
        span.fail(error)
    elif (result := getattr(outcome, "result", None)) is not None:
        parts = [getattr(part, "content", getattr(part, "data", part)) for part in getattr(result, "parts", ())]
        span.set_result(parts[0] if len(parts) == 1 else parts)


_TOOL: Final = ToolCall(read=_read, record=_record)
