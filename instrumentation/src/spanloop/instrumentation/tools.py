"""``tool``: record each call of a function as a tool call, in a loop of the app's own around a model.

Invariant: the function behaves as without the decorator; its exceptions pass unchanged. A call has the id that the
model's answer gives it, and belongs to that answer's trace where no other span is open.
"""

from __future__ import annotations

import inspect
import json
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan

from spanloop.instrumentation.calls.model_calls import ModelCall, newest_model_call
from spanloop.instrumentation.exception_guard import guard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractContextManager

    from spanloop.instrumentation.frameworks.spans import RunSpan

P = ParamSpec("P")
R = TypeVar("R")


@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(*, name: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, *, name: str = "") -> Any:
    """Record each call of a function (plain or ``async``) with arguments, result and exception.

    Args:
        function: The function, for use without parentheses.
        name: The tool's name as the model knows it; default: the function's.
    """
    if function is None:
        return partial(_traced, name=name)
    return _traced(function, name)


def _traced(function: Callable[P, R], name: str) -> Callable[P, R]:
    title = name or function.__name__
    if inspect.iscoroutinefunction(function):
        call = cast("Callable[P, Awaitable[Any]]", function)

        @wraps(function)
        async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            with span_of_call(title, _arguments(function, args, kwargs)) as span:
                result = await call(*args, **kwargs)
                span.set_result(result)
                return result

        return cast("Callable[P, R]", call_async)

    @wraps(function)
    def call_plain(*args: P.args, **kwargs: P.kwargs) -> R:
        with span_of_call(title, _arguments(function, args, kwargs)) as span:
            result = function(*args, **kwargs)
            span.set_result(result)
            return result

    return call_plain


@guard("a tool's arguments were not recorded", None)
def _arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the arguments by name, as they are read from JSON."""
    signature = inspect.signature(function)
    try:
        named = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError:  # the call fails in the same way
        named = {"args": args, **kwargs} if args else dict(kwargs)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= named.pop(parameter.name, {})
    named.pop("self", None)
    return json.loads(json.dumps(named, default=str))


def span_of_call(name: str, arguments: object) -> AbstractContextManager[RunSpan]:
    """Run a block in the span of a tool call, with the id that the newest model call gave it."""
    from spanloop.instrumentation.frameworks.spans import open_span, start_tool_span  # noqa: PLC0415  imports wrapt

    call = newest_model_call()
    call_id = _take_id(call, name, arguments) if call else ""
    if call is None or call.span.context is None or trace.get_current_span().get_span_context().is_valid:
        return open_span(start_tool_span(name, call_id=call_id, arguments=arguments))
    token = otel_context.attach(trace.set_span_in_context(NonRecordingSpan(call.span.context)))
    try:
        return open_span(start_tool_span(name, call_id=call_id, arguments=arguments))
    finally:
        otel_context.detach(token)


@guard("a tool call's id was not recorded", "")
def _take_id(call: ModelCall, name: str, arguments: object) -> str:
    return call.take_call_id(name, arguments)
