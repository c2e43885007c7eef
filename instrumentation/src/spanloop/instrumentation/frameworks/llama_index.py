"""LlamaIndex: agents run tools in the workflow step ``call_tool``; ``predict_and_call`` runs those of a selection.

A failed tool is an output with the exception. ``WaitingForEvent`` suspends a step until somebody answers; the step
then runs again.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial, wraps
from types import ModuleType
from typing import Any, Final

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan, start_agent_span, tool_span

_SUSPENDED: Final = "WaitingForEvent"


def trace_agents(module: ModuleType) -> None:
    """Wrap ``llama_index.core.agent.workflow.base_agent``."""
    _trace(module, "BaseWorkflowAgent")


def trace_teams(module: ModuleType) -> None:
    """Wrap ``llama_index.core.agent.workflow.multi_agent_workflow``."""
    _trace(module, "AgentWorkflow")


def _trace(module: ModuleType, name: str) -> None:
    agent = getattr(module, name)
    agent.call_tool = _traced_step(agent.call_tool)
    wrap_function_wrapper(module, f"{name}.run", _run)


def _run(run: Callable[..., Any], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Start the workflow in a span. Its steps are tasks, which keep the context in which the run was started."""
    span = start_agent_span(getattr(agent, "name", ""))
    task: Any = None
    try:
        with span.current():
            handler = run(*args, **named)
        task = getattr(handler, "_result_task", None)
        return handler
    finally:
        if task is None:
            span.end()
        else:
            task.add_done_callback(partial(_end, span))


def _end(span: RunSpan, task: object) -> None:
    del task
    span.end()


def _traced_step(call_tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(call_tool)  # copies the step's configuration, which is an attribute of the function
    async def traced(*args: Any, **named: Any) -> Any:
        event = named.get("ev", args[-1] if args else None)
        with tool_span(
            getattr(event, "tool_name", ""),
            call_id=getattr(event, "tool_id", ""),
            arguments=getattr(event, "tool_kwargs", None),
            control_flow=_SUSPENDED,
        ) as span:
            outcome = await call_tool(*args, **named)
            _record(span, getattr(outcome, "tool_output", None))
            return outcome

    return traced


def trace_selected_tools(module: ModuleType) -> None:
    """Wrap ``llama_index.core.tools.calling``."""
    wrap_function_wrapper(module, "call_tool_with_selection", _call_selection)
    wrap_function_wrapper(module, "acall_tool_with_selection", _acall_selection)


def _call_selection(call: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with _selected(*args, **named) as span:
        output = call(*args, **named)
        _record(span, output)
        return output


async def _acall_selection(
    call: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    with _selected(*args, **named) as span:
        output = await call(*args, **named)
        _record(span, output)
        return output


def _selected(tool_call: object = None, *_: object, **named: object) -> AbstractContextManager[RunSpan]:
    del named
    return tool_span(
        getattr(tool_call, "tool_name", ""),
        call_id=getattr(tool_call, "tool_id", ""),
        arguments=getattr(tool_call, "tool_kwargs", None),
    )


@guard("a tool's result was not recorded", None)
def _record(span: RunSpan, output: Any) -> None:
    if getattr(output, "is_error", False):
        span.fail(getattr(output, "exception", None) or str(output.content))
    elif output is not None:
        span.set_result(output.content)
