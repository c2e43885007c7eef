"""smolagents: each run passes ``MultiStepAgent.run``, and each tool call of the model ``execute_tool_call``.

The id of a call is known one function further out. A tool's exception is the cause of the agent's own.
"""

from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final

from wrapt import wrap_function_wrapper

from .spans import agent_span, iterate_in_span, start_agent_span, tool_span

_calls: Final[ContextVar[tuple[Any, ...]]] = ContextVar("spanloop_smolagents_calls", default=())
"""The tool calls of the model's newest answer."""


def trace(module: ModuleType) -> None:
    """Wrap ``smolagents.agents``."""
    wrap_function_wrapper(module, "MultiStepAgent.run", _run)
    wrap_function_wrapper(module, "ToolCallingAgent.process_tool_calls", _process_tool_calls)
    wrap_function_wrapper(module, "ToolCallingAgent.execute_tool_call", _execute_tool_call)


def _run(run: Callable[..., Any], agent: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    name = getattr(agent, "name", None)
    if named.get("stream", args[1] if len(args) > 1 else False):
        return iterate_in_span(start_agent_span(name), run(*args, **named))
    with agent_span(name):
        return run(*args, **named)


def _process_tool_calls(
    process: Callable[..., Generator[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Generator[Any]:
    message = named.get("chat_message", args[0] if args else None)
    _calls.set(tuple(getattr(message, "tool_calls", None) or ()))
    return process(*args, **named)


def _execute_tool_call(execute: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    name, arguments = (*args, named.get("tool_name"), named.get("arguments"))[:2]
    with tool_span(name, call_id=_call_id(name, arguments), arguments=arguments) as span:
        try:
            result = execute(*args, **named)
        except Exception as error:
            span.fail(error.__cause__ or error)
            raise
        span.set_result(result)
        return result


def _call_id(name: object, arguments: object) -> str:
    """Return the id of the call with these arguments; of the tool's only call where they were replaced."""
    calls = [call for call in _calls.get() if getattr(getattr(call, "function", None), "name", None) == name]
    same = [call for call in calls if call.function.arguments is arguments]
    chosen = same or calls
    return str(chosen[0].id) if len(chosen) == 1 else ""
