"""Record streams that an app takes from a raw response, which OpenLLMetry (0.62) leaves out.

openai-agents and LiteLLM stream so, to read headers. A raw response keeps what it parsed, so the recording stream takes
the stream's place there.

Invariant: the app gets the same response; its stream yields the same events.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard

_CHAT_WRAPPERS: Final = "opentelemetry.instrumentation.openai.shared.chat_wrappers"
_WRAPPERS: Final = "opentelemetry.instrumentation.openai.v1.responses_wrappers"
_SCOPE: Final = "opentelemetry.instrumentation.openai.v1"
_RESPONSES: Final = "openai.resources.responses"
_NEEDED: Final = ("ResponseStream", "SPAN_NAME", "_set_request_attributes", "_sanitize_sentinel_values")

_NO_STREAMS: Final[dict[Any, Any]] = {}


def record_raw_streams() -> None:
    """Patch what creates responses and chat completions; OpenLLMetry's instrumentor must be on."""
    chat: Any = sys.modules.get(_CHAT_WRAPPERS)
    if hasattr(chat, "ChatStream") and hasattr(chat, "is_streaming_response"):
        _record_chat_streams(chat)
    if all(hasattr(sys.modules.get(_WRAPPERS), name) for name in _NEEDED):
        wrap_function_wrapper(_RESPONSES, "Responses.create", _create)
        wrap_function_wrapper(_RESPONSES, "AsyncResponses.create", _create_async)


def _record_chat_streams(chat: Any) -> None:
    """Let OpenLLMetry's wrapper of chat completions take a raw response with a stream for a stream."""
    is_streaming, stream_class = chat.is_streaming_response, chat.ChatStream

    def record_stream(span: Any, response: Any, *args: Any, **named: Any) -> Any:
        raw = _raw_streams(response)
        for cast_to, stream in raw.items():
            response._parsed_by_type[cast_to] = stream_class(span, stream, *args, **named)  # noqa: SLF001
        return response if raw else stream_class(span, response, *args, **named)

    chat.is_streaming_response = lambda response: bool(is_streaming(response) or _raw_streams(response))  # pyright: ignore[reportUnknownLambdaType]
    chat.ChatStream = record_stream


@guard("a streamed completion is not recorded", _NO_STREAMS)
def _raw_streams(response: Any) -> dict[Any, Any]:
    """Return the streams that a raw response parsed, by the type that they were parsed for."""
    from openai import AsyncStream, Stream  # noqa: PLC0415  the app has imported it

    if getattr(response, "_stream", False) and not iscoroutinefunction(getattr(response, "parse", None)):
        response.parse()  # keeps what it returns
    parsed: dict[Any, Any] = getattr(response, "_parsed_by_type", None) or {}
    return {cast_to: stream for cast_to, stream in parsed.items() if isinstance(stream, Stream | AsyncStream)}


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
    wrappers: Any = sys.modules[_WRAPPERS]
    for cast_to, stream in _raw_streams(response).items():
        arguments = wrappers._sanitize_sentinel_values(dict(named))  # noqa: SLF001
        span = trace.get_tracer(_SCOPE).start_span(wrappers.SPAN_NAME, kind=SpanKind.CLIENT, start_time=start_ns)
        prepare = getattr(wrappers, "prepare_kwargs_for_shared_attributes", dict)
        wrappers._set_request_attributes(span, prepare(arguments), api)  # noqa: SLF001
        response._parsed_by_type[cast_to] = wrappers.ResponseStream(  # noqa: SLF001
            span=span, response=stream, start_time=start_ns, request_kwargs=arguments, tracer=trace.get_tracer(_SCOPE)
        )
