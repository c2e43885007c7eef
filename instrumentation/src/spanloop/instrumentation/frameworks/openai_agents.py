"""openai-agents: each run passes ``AgentRunner``, and each tool call a function of ``agents.tool``.

A failed tool is a text for the model; the exception itself passes the function that makes this text.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, Final

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guarded

from .spans import RunSpan, agent_span, record_tool_error, start_agent_span, tool_span

_INVOKE: Final = ("_invoke_function_tool_with_metadata", "invoke_function_tool")
"""Of newer and of older releases; the first that a release has calls the tool."""


def trace_runs(module: ModuleType) -> None:
    """Wrap ``agents.run``."""
    wrap_function_wrapper(module, "AgentRunner.run", _run)
    wrap_function_wrapper(module, "AgentRunner.run_streamed", _run_streamed)


async def _run(run: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with agent_span(_agent_name(args, named)):
        return await run(*args, **named)


def _run_streamed(run: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The run goes on in a task of its own, which inherits the span."""
    span = start_agent_span(_agent_name(args, named))
    try:
        with span.current():
            result = run(*args, **named)
    except Exception as error:
        span.fail(error)
        span.end()
        raise
    task = getattr(result, "run_loop_task", None) or getattr(result, "_run_impl_task", None)
    if task is None:
        span.end()
    else:
        with guarded("a run's end is not recorded"):
            task.add_done_callback(_ender(span))
    return result


def _ender(span: RunSpan) -> Callable[[object], None]:
    def end(task: object) -> None:
        del task
        span.end()

    return end


def _agent_name(args: tuple[Any, ...], named: Mapping[str, Any]) -> object:
    return getattr(named.get("starting_agent", args[0] if args else None), "name", "")


def trace_tools(module: ModuleType) -> None:
    """Wrap ``agents.tool``; other modules import its functions after that."""
    invoke = next((name for name in _INVOKE if hasattr(module, name)), _INVOKE[-1])
    wrap_function_wrapper(module, invoke, _invoke)
    wrap_function_wrapper(module, "maybe_invoke_function_tool_failure_error_function", _handle_error)


async def _invoke(
    invoke: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    call = named.get("context")
    with tool_span(
        getattr(named.get("function_tool"), "name", ""),
        call_id=getattr(call, "tool_call_id", ""),
        arguments=named.get("arguments"),
    ) as span:
        outcome = await invoke(*args, **named)
        span.set_result(getattr(outcome, "output", outcome))
        return outcome


async def _handle_error(
    handle: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    if isinstance(error := named.get("error"), Exception):
        record_tool_error(error)
    return await handle(*args, **named)
