"""Agno: runs pass ``Agent`` and ``Team``, and each tool call ``FunctionCall.execute`` or ``aexecute``.

A failed tool is an outcome with the error's text; the exception itself is only logged.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from inspect import isasyncgen, isawaitable, isgenerator
from types import ModuleType
from typing import Any, cast

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan, iterate_in_span, open_span, start_agent_span, stream_in_span, tool_span

_logged: ContextVar[list[BaseException] | None] = ContextVar("logged", default=None)
"""Exceptions that were logged during the current tool call."""


def trace_agents(module: ModuleType) -> None:
    """Wrap ``agno.agent.agent``."""
    wrap_function_wrapper(module, "Agent.run", _run)
    wrap_function_wrapper(module, "Agent.arun", _arun)


def trace_teams(module: ModuleType) -> None:
    """Wrap ``agno.team.team``."""
    wrap_function_wrapper(module, "Team.run", _run)
    wrap_function_wrapper(module, "Team.arun", _arun)


def _run(run: Callable[..., Any], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    span = start_agent_span(getattr(agent, "name", ""))
    try:
        with span.current():
            outcome = run(*args, **named)
    except Exception as error:
        span.fail(error)
        span.end()
        raise
    if isgenerator(outcome):
        return iterate_in_span(span, cast("Generator[Any]", outcome))
    span.end()
    return outcome


def _arun(run: Callable[..., Any], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    outcome = run(*args, **named)
    if isasyncgen(outcome):
        return stream_in_span(start_agent_span(getattr(agent, "name", "")), cast("AsyncGenerator[Any, None]", outcome))
    return _await_in_span(agent, outcome) if isawaitable(outcome) else outcome


async def _await_in_span(agent: Any, outcome: Awaitable[Any]) -> Any:
    with open_span(start_agent_span(getattr(agent, "name", ""))):
        return await outcome


def trace_tools(module: ModuleType) -> None:
    """Wrap ``agno.tools.function``."""
    wrap_function_wrapper(module, "FunctionCall.execute", _execute)
    wrap_function_wrapper(module, "FunctionCall.aexecute", _aexecute)
    wrap_function_wrapper(module, "log_exception", _log_exception)


def _span_of(call: Any) -> Any:
    _logged.set([])
    return tool_span(
        getattr(getattr(call, "function", None), "name", ""),
        call_id=getattr(call, "call_id", ""),
        arguments=getattr(call, "arguments", None) or {},
        control_flow="AgentRunException",
    )


def _execute(execute: Callable[..., Any], call: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with _span_of(call) as span:
        outcome = execute(*args, **named)
        _record(span, outcome)
        return outcome


async def _aexecute(
    execute: Callable[..., Awaitable[Any]], call: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    with _span_of(call) as span:
        outcome = await execute(*args, **named)
        _record(span, outcome)
        return outcome


@guard("a tool's result was not recorded", None)
def _record(span: RunSpan, outcome: Any) -> None:
    text = getattr(outcome, "error", None)
    if getattr(outcome, "status", "") == "failure":
        raised = next((error for error in reversed(_logged.get() or []) if str(error) == text), None)
        span.fail(raised or str(text))
        return
    result: Any = getattr(outcome, "result", None)
    if not isgenerator(result) and not isasyncgen(result):
        span.set_result(result)


def _log_exception(log: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    if args and isinstance(args[0], BaseException) and (logged := _logged.get()) is not None:
        logged.append(args[0])
    return log(*args, **named)
