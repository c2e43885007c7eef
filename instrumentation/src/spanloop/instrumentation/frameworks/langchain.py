"""LangChain and LangGraph: each tool call passes ``BaseTool.run`` or ``arun``, and each run of a graph ``Pregel``.

A tool that handles its own error returns a text for the model; the exception passes the function that makes this text.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from inspect import isasyncgen, isgenerator
from types import ModuleType
from typing import Any, Final, cast

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

from .spans import RunSpan, iterate_in_span, record_tool_error, start_agent_span, stream_in_span, tool_span

_CONTROL_FLOW: Final = "GraphBubbleUp"
"""Base of the exceptions by which a tool interrupts its graph or jumps to another node."""


def trace_graphs(module: ModuleType) -> None:
    """Wrap ``langgraph.pregel.main``, or ``langgraph.pregel`` of older releases; ``invoke`` calls ``stream``."""
    wrap_function_wrapper(module, "Pregel.stream", _stream)
    wrap_function_wrapper(module, "Pregel.astream", _astream)


def _stream(stream: Callable[..., Any], graph: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    items = stream(*args, **named)
    if not isgenerator(items):
        return items
    return iterate_in_span(start_agent_span(_name(graph)), cast("Generator[Any]", items))


def _astream(stream: Callable[..., Any], graph: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    items = stream(*args, **named)
    if not isasyncgen(items):
        return items
    return stream_in_span(start_agent_span(_name(graph)), cast("AsyncGenerator[Any, None]", items))


@guard("a graph's name was not recorded", "")
def _name(graph: Any) -> str:
    name = str(graph.get_name())
    return "" if name == "LangGraph" else name


def trace_tools(module: ModuleType) -> None:
    """Wrap ``langchain_core.tools.base``."""
    wrap_function_wrapper(module, "BaseTool.run", _run)
    wrap_function_wrapper(module, "BaseTool.arun", _arun)
    wrap_function_wrapper(module, "_handle_tool_error", _handle_error)
    wrap_function_wrapper(module, "_handle_validation_error", _handle_error)


def _span_of(tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    return tool_span(
        getattr(tool, "name", ""),
        call_id=named.get("tool_call_id") or "",
        arguments=_arguments(tool, named.get("tool_input", args[0] if args else None)),
        control_flow=_CONTROL_FLOW,
    )


@guard("a tool's arguments were not recorded", None)
def _arguments(tool: Any, values: Any) -> Any:
    """Leave out what the framework adds (state, store, runtime) to the model's arguments."""
    without_added: Any = getattr(tool, "_filter_injected_args", None)
    return without_added(values) if hasattr(values, "keys") and without_added is not None else values


def _run(run: Callable[..., Any], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with _span_of(tool, args, named) as span:
        result = run(*args, **named)
        _record(span, result)
        return result


async def _arun(run: Callable[..., Awaitable[Any]], tool: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with _span_of(tool, args, named) as span:
        result = await run(*args, **named)
        _record(span, result)
        return result


@guard("a tool's result was not recorded", None)
def _record(span: RunSpan, result: Any) -> None:
    content = getattr(result, "content", result)
    if getattr(result, "status", "") == "error":
        span.fail(str(content))
    span.set_result(content)


def _handle_error(handle: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    if isinstance(error := named.get("e", args[0] if args else None), Exception):
        record_tool_error(error)
    return handle(*args, **named)
