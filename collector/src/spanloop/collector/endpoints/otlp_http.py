"""OTLP over HTTP: read a request's body, acknowledge it, or return an error.

Invariant: a body that `read_body` returns is complete, decompressed and within the limits of size, memory and time,
whatever the client sent. Every response, errors included, is JSON for a JSON request, else protobuf.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Final, NamedTuple, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsPartialSuccess, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from spanloop.foundation.keys.api_keys import Scope as KeyScope
from spanloop.foundation.keys.limits import Admission

from ..otlp.wire import encode_field, serialize, write_varint
from ..receiver import Receiver, describe_rejections
from ..validation import JSON, PROTOBUF, Signal, Validation
from .decompress import DECODERS
from .memory_budget import Reservation
from .request_errors import RefusedError, RpcCode, unavailable

NO_METRICS: Final = (
    "spanloop stores traces and logs, not metrics: send metrics elsewhere, or turn them off with "
    "OTEL_METRICS_EXPORTER=none"
)
_PROTOBUF_HEADER: Final = (b"content-type", PROTOBUF.encode())
_JSON_HEADER: Final = (b"content-type", JSON.encode())
_BODY_TIMEOUT_S: Final = 10.0
_MIN_BYTES_PER_S: Final = 32 * 1024


class RequestHead(NamedTuple):
    """The headers that the collector reads."""

    content_type: str
    """The media type without its parameters."""
    content_encoding: str
    authorization: str
    """The header ``Authorization``; empty when the request has none."""
    content_bytes: int
    """Size of the body as sent, before decompression; 0 when the client does not state it."""

    @classmethod
    def of(cls, scope: Scope) -> Self:
        """Read the headers from an ASGI scope."""
        content_type = content_encoding = authorization = b""
        content_bytes = 0
        for name, value in scope["headers"]:
            if name == b"content-type":
                content_type = value.partition(b";")[0].strip().lower()
            elif name == b"content-encoding":
                content_encoding = value.strip().lower()
            elif name == b"authorization":
                authorization = value
            elif name == b"content-length" and value.isdigit():
                content_bytes = int(value)
        return cls(
            content_type.decode("latin-1"), content_encoding.decode("latin-1"), authorization.decode("latin-1"),
            content_bytes,
        )  # fmt: skip


async def admit(head: RequestHead, scope: KeyScope, receive: Receive, receiver: Receiver) -> Admission:
    """Check a request's API key and the key's limits, before its body is read; the caller ends the admission.

    Raises:
        RefusedError: As `Authenticator.admit`.
    """
    try:
        return receiver.authenticator.admit(head.authorization, scope)
    except RefusedError as error:
        if error.retry_after_s is not None:
            error.closes_connection = not await _discard_body(receive)
        raise


async def read_body(
    head: RequestHead,
    receive: Receive,
    receiver: Receiver,
    reservation: Reservation,
    *,
    limit_bytes: int | None = None,
) -> bytes:
    """Read and decompress a request's body.

    Args:
        head: The request's headers.
        receive: The ASGI callable that returns the body's chunks.
        receiver: Provides the size limit, and checks the spool's capacity.
        reservation: Grows with the bytes in memory.
        limit_bytes: Of the request's API key; None: the receiver's alone.

    Raises:
        RefusedError: Unsupported content type or encoding; too large, too slow, too much at once; or corrupt.
        ClientDisconnect: The client disconnected before the end of the body.
    """
    if head.content_type not in {PROTOBUF, JSON}:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            RpcCode.UNIMPLEMENTED,
            f"content type {head.content_type!r} is not supported; expected {PROTOBUF} or {JSON}",
        )
    if head.content_encoding not in DECODERS:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            RpcCode.UNIMPLEMENTED,
            f"content encoding {head.content_encoding!r} is not supported; send gzip, deflate, zstd or none",
        )
    try:
        receiver.check_capacity(head.content_bytes)
    except RefusedError as error:
        error.closes_connection = not await _discard_body(receive)
        raise
    most_bytes = receiver.settings.body_limit_bytes
    decoder = DECODERS[head.content_encoding](most_bytes if limit_bytes is None else min(limit_bytes, most_bytes))
    deadline_s = asyncio.get_running_loop().time() + _BODY_TIMEOUT_S
    try:
        async with asyncio.timeout_at(deadline_s) as timeout:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk = message.get("body", b"")
                if chunk:
                    reservation.grow_to(decoder.feed(chunk))
                if not message.get("more_body", False):
                    return decoder.finish()
                # The bytes that arrive extend the deadline, so a slow client cannot hold memory indefinitely.
                deadline_s += len(chunk) / _MIN_BYTES_PER_S
                timeout.reschedule(deadline_s)
    except TimeoutError as error:
        raise unavailable(
            f"the body came too slowly: after {_BODY_TIMEOUT_S:.0f} s at least {_MIN_BYTES_PER_S} bytes/s are expected",
            closes_connection=True,
        ) from error


async def acknowledge(send: Send, signal: Signal, validation: Validation, content_type: str) -> None:
    """Acknowledge a stored request with 200, and a partial success when items were rejected."""
    if content_type == JSON:
        body, content_type_header = _json_response(signal, validation), _JSON_HEADER
    else:
        body, content_type_header = protobuf_response(signal, validation), _PROTOBUF_HEADER
    headers = [content_type_header, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def protobuf_response(signal: Signal, validation: Validation) -> bytes:
    """Encode the Export…ServiceResponse that acknowledges a request."""
    message = _error_message(validation)
    if not message:
        return b""
    response: ExportTraceServiceResponse | ExportLogsServiceResponse
    if signal is Signal.TRACES:
        response = ExportTraceServiceResponse(
            partial_success=ExportTracePartialSuccess(rejected_spans=validation.rejected_total, error_message=message)
        )
    else:
        response = ExportLogsServiceResponse(
            partial_success=ExportLogsPartialSuccess(
                rejected_log_records=validation.rejected_total, error_message=message
            )
        )
    return serialize(response)


def error_response(head: RequestHead, error: RefusedError) -> Response:
    """Create the google.rpc.Status response of a refused request."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.closes_connection:
        headers["Connection"] = "close"
    if error.status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if head.content_type == JSON:
        body = json.dumps({"code": int(error.code), "message": error.message}).encode()
        return Response(body, error.status, headers, JSON)
    return Response(encode_rpc_status(error), error.status, headers, PROTOBUF)


def encode_rpc_status(error: RefusedError) -> bytes:
    """Encode google.rpc.Status: code (1, varint), message (2), and when a retry is useful, RetryInfo in details (3)."""
    status = write_varint(1 << 3) + write_varint(error.code) + encode_field(2, error.message.encode())
    if error.retry_after_s is None:
        return status
    duration = write_varint(1 << 3) + write_varint(error.retry_after_s)
    retry_info = encode_field(1, b"type.googleapis.com/google.rpc.RetryInfo") + encode_field(
        2, encode_field(1, duration)
    )
    return status + encode_field(3, retry_info)


def _json_response(signal: Signal, validation: Validation) -> bytes:
    if not validation.rejected:
        return b"{}"
    name = "rejectedSpans" if signal is Signal.TRACES else "rejectedLogRecords"
    partial = {
        name: str(validation.rejected_total),
        "errorMessage": _error_message(validation),
    }  # int64 is text in JSON
    return json.dumps({"partialSuccess": partial}).encode()


def _error_message(validation: Validation) -> str:
    if not validation.rejected:
        return ""
    return f"rejected: {describe_rejections(validation)}; kept as dead letters, the others are stored"


async def _discard_body(receive: Receive) -> bool:
    """Read and drop a body, after which clients read the response; return whether it ended in time."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
    except TimeoutError:
        return False
    return True
