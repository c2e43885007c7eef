"""Spans of agent runs and tool calls, by OpenTelemetry's conventions for generative AI.

Invariant: nothing here raises into the app; an exception of the app passes unchanged. A span is current only while
the framework runs, not while the consumer of its generator does.
"""

import json
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from spanloop.instrumentation.content_capture import captures_content
from spanloop.instrumentation.exception_guard import guard
from spanloop.semconv import attributes as names

SCOPE_NAME: Final = "spanloop.instrumentation.frameworks"
UNKNOWN_ERROR: Final = "tool_error"
"""The type of an error of which the framework keeps only the text."""

_EXECUTE_TOOL: Final = "execute_tool"
_INVOKE_AGENT: Final = "invoke_agent"
_KIND_ATTRIBUTES: Final = (names.GEN_AI_OPERATION_NAME, "openinference.span.kind", "traceloop.span.kind")
_TOOL_KINDS: Final = frozenset({_EXECUTE_TOOL, "tool"})
_NAME_ATTRIBUTES: Final = (names.GEN_AI_TOOL_NAME, "tool.name", "traceloop.entity.name")


class RunSpan:
    """An open span of a run or tool call."""

    def __init__(self, span: Span, *, is_borrowed: bool = False) -> None:
        """Wrap ``span``; one that another instrumentor opened (borrowed) gets errors only, and is not ended."""
        self._span = span
        self._is_borrowed = is_borrowed

    def current(self) -> AbstractContextManager[Span]:
        """Make it the current span of a block."""
        return trace.use_span(self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    @guard("a tool's result was not recorded", None)
    def set_result(self, result: object) -> None:
        """Record what the tool returned."""
        if not self._is_borrowed and self._span.is_recording() and captures_content():
            self._span.set_attribute(names.GEN_AI_TOOL_CALL_RESULT, _as_text(result))

    def fail(self, error: BaseException | str) -> None:
        """Record that it failed; only the first error counts.

        Args:
            error: The exception, or its text where the framework keeps no more.
        """
        record_error(self._span, error)

    def end(self) -> None:
        """End it."""
        if not self._is_borrowed:
            self._span.end()


@guard("an error was not recorded", None)
def record_error(span: Span, error: BaseException | str) -> None:
    """Record an error on ``span``, unless it has one."""
    status: Status | None = getattr(span, "status", None)
    if status is not None and status.status_code is StatusCode.ERROR:
        return
    if isinstance(error, str):
        span.set_attribute(names.ERROR_TYPE, UNKNOWN_ERROR)
        span.set_status(Status(StatusCode.ERROR, error if captures_content() else UNKNOWN_ERROR))
        return
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.record_exception(error)
    span.set_attribute(names.ERROR_TYPE, name)
    span.set_status(Status(StatusCode.ERROR, f"{kind.__qualname__}: {error}"))


def record_tool_error(error: BaseException) -> None:
    """Record an error on the current span, if it is a tool call's."""
    span = trace.get_current_span()
    if _is_tool_span(span):
        record_error(span, error)


def _is_tool_span(span: Span, name: str = "") -> bool:
    """Whether ``span`` is open and of a call of the tool ``name`` (empty: of any), whoever opened it."""
    title = str(getattr(span, "name", ""))
    if span.is_recording() and (title == f"{_EXECUTE_TOOL} {name}" or (not name and title.startswith(_EXECUTE_TOOL))):
        return True  # Google ADK sets the attributes when the tool is done
    attributes: Mapping[str, Any] = getattr(span, "attributes", None) or {}
    kinds = (str(attributes.get(key, "")).lower() for key in _KIND_ATTRIBUTES)
    if not span.is_recording() or _TOOL_KINDS.isdisjoint(kinds):
        return False
    titles = [str(attributes.get(key, "")) for key in _NAME_ATTRIBUTES]
    return not name or name in titles or title.startswith(name)


def start_tool_span(name: object, *, call_id: object = "", arguments: object = None) -> RunSpan:
    """Start the span of a tool call.

    Args:
        name: The tool's name.
        call_id: The id that the model gave the call; empty where the framework does not know it.
        arguments: The call's arguments: an object, or its JSON.

    Returns:
        The span; inside another instrumentor's span of the same call, that one.
    """
    current = trace.get_current_span()
    if _is_tool_span(current, str(name)):
        return RunSpan(current, is_borrowed=True)
    attributes = {names.GEN_AI_OPERATION_NAME: _EXECUTE_TOOL, names.GEN_AI_TOOL_NAME: str(name)}
    if call_id:
        attributes[names.GEN_AI_TOOL_CALL_ID] = str(call_id)
    if arguments is not None and captures_content():
        attributes[names.GEN_AI_TOOL_CALL_ARGUMENTS] = _as_text(arguments)
    return _start(f"{_EXECUTE_TOOL} {name}", attributes)


def start_agent_span(name: object) -> RunSpan:
    """Start the span of an agent's run."""
    attributes = {names.GEN_AI_OPERATION_NAME: _INVOKE_AGENT}
    if name:
        attributes[names.GEN_AI_AGENT_NAME] = str(name)
    return _start(f"{_INVOKE_AGENT} {name or ''}".strip(), attributes)


def _start(name: str, attributes: Mapping[str, str]) -> RunSpan:
    return RunSpan(trace.get_tracer(SCOPE_NAME).start_span(name, attributes=attributes))


@guard("a value was not recorded", "")
def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@contextmanager
def end_on_error(span: RunSpan, *, control_flow: str = "", fails_by_cause: bool = False) -> Generator[RunSpan]:
    """Run a block in ``span``, which ends with it only where an exception leaves it.

    Args:
        span: A started span.
        control_flow: Name of an exception (or of a base of it) that ends the block without being an error.
        fails_by_cause: Whether to record the exception's cause, where it has one, in its place.
    """
    try:
        with span.current():
            yield span
    except BaseException as error:
        if isinstance(error, Exception) and control_flow not in {base.__name__ for base in type(error).__mro__}:
            span.fail((error.__cause__ if fails_by_cause else None) or error)
        span.end()
        raise


@contextmanager
def open_span(span: RunSpan) -> Generator[RunSpan]:
    """Run a block in ``span``, which ends with it."""
    with end_on_error(span):
        yield span
    span.end()


def tool_span(name: object, *, call_id: object = "", arguments: object = None) -> AbstractContextManager[RunSpan]:
    """Run a block in the span of a tool call; see `start_tool_span` and `open_span`."""
    return open_span(start_tool_span(name, call_id=call_id, arguments=arguments))


def agent_span(name: object) -> AbstractContextManager[RunSpan]:
    """Run a block in the span of an agent's run."""
    return open_span(start_agent_span(name))


async def stream_in_span(
    span: RunSpan, items: AsyncGenerator[Any, None], record: Callable[[Any], None]
) -> AsyncGenerator[Any, None]:
    """Run each step of a generator in ``span``, which ends with the generator; ``record`` gets the last item."""
    item: Any = None
    try:
        while True:
            with span.current():
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    record(item)
                    return
            yield item
    except Exception as error:
        span.fail(error)
        raise
    finally:
        span.end()
        await items.aclose()


def iterate_in_span(span: RunSpan, items: Generator[Any]) -> Generator[Any]:
    """Run each step of a plain generator in ``span``, which ends with the generator."""
    try:
        while True:
            with span.current():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
    except Exception as error:
        span.fail(error)
        raise
    finally:
        span.end()
        items.close()
