"""Record Responses API streams that an app takes from a raw response; OpenLLMetry (0.62) records no such call.

openai-agents streams so, to read the request's id. A raw response keeps what it parsed, so the recording stream takes
the stream's place there.

Invariant: the app gets the same response; its stream yields the same events.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

_WRAPPERS: Final = "opentelemetry.instrumentation.openai.v1.responses_wrappers"
_SCOPE: Final = "opentelemetry.instrumentation.openai.v1"
_RESPONSES: Final = "openai.resources.responses"
_NEEDED: Final = ("ResponseStream", "SPAN_NAME", "_set_request_attributes", "_sanitize_sentinel_values")


def record_raw_streams() -> None:
    """Wrap the creation of responses; OpenLLMetry's instrumentor must be on."""
    if all(hasattr(sys.modules.get(_WRAPPERS), name) for name in _NEEDED):
        wrap_function_wrapper(_RESPONSES, "Responses.create", _create)
        wrap_function_wrapper(_RESPONSES, "AsyncResponses.create", _create_async)


def _create(create: Callable[..., Any], api: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    start_ns = time.time_ns()
    response = create(*args, **named)
    _record(response, api, named, start_ns)
    return response


async def _create_async(
    create: Callable[..., Awaitable[Any]], api: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    start_ns = time.time_ns()
    response = await create(*args, **named)
    _record(response, api, named, start_ns)
    return response


@guard("a streamed response is not recorded", None)
def _record(response: Any, api: Any, named: Mapping[str, Any], start_ns: int) -> None:
    from openai import AsyncStream, Stream  # noqa: PLC0415  the app has imported it

    wrappers: Any = sys.modules[_WRAPPERS]
    parsed: Any = getattr(response, "_parsed_by_type", None)  # a raw response has it
    for cast_to, stream in list(parsed.items()) if isinstance(parsed, dict) else ():  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if not isinstance(stream, Stream | AsyncStream):
            continue
        arguments = wrappers._sanitize_sentinel_values(dict(named))  # noqa: SLF001
        span = trace.get_tracer(_SCOPE).start_span(wrappers.SPAN_NAME, kind=SpanKind.CLIENT, start_time=start_ns)
        prepare = getattr(wrappers, "prepare_kwargs_for_shared_attributes", dict)
        wrappers._set_request_attributes(span, prepare(arguments), api)  # noqa: SLF001
        parsed[cast_to] = wrappers.ResponseStream(
            span=span, response=stream, start_time=start_ns, request_kwargs=arguments, tracer=trace.get_tracer(_SCOPE)
        )
