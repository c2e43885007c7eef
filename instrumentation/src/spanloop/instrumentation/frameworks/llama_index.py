"""LlamaIndex: an agent's tools run in the workflow step ``call_tool``, those of ``predict_and_call`` by a selection.

A failed tool is an output with the exception. The exception that suspends a workflow until somebody answers is no
error of the tool, whose step runs again then.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from types import ModuleType
from typing import Any

from wrapt import wrap_function_wrapper

from .tool_spans import ToolSpan, tool_span, start_agent


def instrument_agent(module: ModuleType) -> None:
    """Wrap the step in ``llama_index.core.agent.workflow.base_agent`` or ``….multi_agent_workflow``."""
    for name in ("BaseWorkflowAgent", "AgentWorkflow"):
        agent = getattr(module, name, None)
        if agent is not None and agent.__module__ == module.__name__:
            agent.call_tool = _traced_step(agent.call_tool)
            wrap_function_wrapper(module, f"{name}.run", _run)


def instrument_selection(module: ModuleType) -> None:
    """Wrap ``llama_index.core.tools.calling``."""


def _traced_step(call_tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(call_tool)  # with the step's configuration, which is an attribute of the function
    async def traced(*args: Any, **named: Any) -> Any:
        event = named.get("ev", args[-1] if args else None)
        with tool_span(event.tool_name, call_id=event.tool_id, arguments=event.tool_kwargs) as span:
            outcome = await call_tool(*args, **named)
            _record(span, outcome.tool_output)
        return outcome

    return traced


def _record(span: ToolSpan, output: Any) -> None:
    if output.is_error:
        span.fail(output.exception or output.content)
    else:
        span.set_result(output.content)


def _run(run, agent, args, named):
    span = start_agent(getattr(agent, "name", ""))
    handler = None
    try:
        with span.is_current():
            handler = run(*args, **named)
        return handler
    finally:
        task = getattr(handler, "_result_task", None)
        if task is None:
            span.end()
        else:
            task.add_done_callback(lambda _: span.end())
