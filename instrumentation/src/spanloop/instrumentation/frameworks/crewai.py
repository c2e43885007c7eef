"""CrewAI: runs pass ``Crew.kickoff`` and ``Agent.execute_task``; a tool call passes its executor, and ``invoke``.

A failed tool is a text for the model; the exception itself passes the tool's function.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan, agent_span, record_tool_error, tool_span


def trace_crews(module: ModuleType) -> None:
    """Wrap ``crewai.crew``."""
    wrap_function_wrapper(module, "Crew.kickoff", _run)
    wrap_function_wrapper(module, "Crew.akickoff", _arun)


def trace_agents(module: ModuleType) -> None:
    """Wrap ``crewai.agent.core``."""
    wrap_function_wrapper(module, "Agent.execute_task", _run)
    wrap_function_wrapper(module, "Agent.aexecute_task", _arun)


def _run(run: Callable[..., Any], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with agent_span(_name(agent)):
        return run(*args, **named)


async def _arun(run: Callable[..., Awaitable[Any]], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with agent_span(_name(agent)):
        return await run(*args, **named)


@guard("an agent's name was not recorded", "")
def _name(agent: Any) -> str:
    return str(getattr(agent, "role", None) or getattr(agent, "name", None) or "")


def trace_native_calls(module: ModuleType) -> None:
    """Wrap ``crewai.agents.agent_executor``."""
    wrap_function_wrapper(module, "AgentExecutor._execute_single_native_tool_call", _call)


def trace_planned_calls(module: ModuleType) -> None:
    """Wrap ``crewai.utilities.agent_utils``."""
    wrap_function_wrapper(module, "execute_single_native_tool_call", _call)


def _call(call: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    call_id, name, arguments = _read(named.get("tool_call", args[0] if args else None))
    with tool_span(name, call_id=call_id, arguments=arguments) as span:
        outcome = call(*args, **named)
        _record(span, outcome)
        return outcome


@guard("a tool call was not read", ("", "", None))
def _read(tool_call: Any) -> tuple[Any, Any, Any]:
    """Return id, name and arguments; CrewAI's own function knows the forms of all providers."""
    utilities: Any = sys.modules["crewai.utilities.agent_utils"]
    return utilities.extract_tool_call_info(tool_call) or ("", "", None)


@guard("a tool's result was not recorded", None)
def _record(span: RunSpan, outcome: Any) -> None:
    values: Any = getattr(outcome, "__dict__", outcome)  # a result object, or a plain dict
    if (failure := values.get("tool_failure")) is not None:
        span.fail(str(getattr(failure, "message", failure)))
    span.set_result(values.get("result"))


def trace_tools(module: ModuleType) -> None:
    """Wrap ``crewai.tools.structured_tool``: the tools of models whose answers CrewAI parses as text."""
    wrap_function_wrapper(module, "CrewStructuredTool.invoke", _invoke)
    wrap_function_wrapper(module, "CrewStructuredTool.ainvoke", _ainvoke)


def _span_of(tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    return tool_span(getattr(tool, "name", ""), arguments=named.get("input", args[0] if args else None))


def _invoke(invoke: Callable[..., Any], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with _span_of(tool, args, named) as span:
        result = invoke(*args, **named)
        span.set_result(result)
        return result


async def _ainvoke(
    invoke: Callable[..., Awaitable[Any]], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    with _span_of(tool, args, named) as span:
        result = await invoke(*args, **named)
        span.set_result(result)
        return result


def trace_errors(module: ModuleType) -> None:
    """Wrap ``crewai.tools.base_tool``, whose tools the executor calls inside the span of the call."""
    for name in ("BaseTool.run", "Tool.run"):
        wrap_function_wrapper(module, name, _pass)


def _pass(run: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    try:
        return run(*args, **named)
    except Exception as error:
        record_tool_error(error)
        raise
