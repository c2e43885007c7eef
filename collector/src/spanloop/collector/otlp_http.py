"""OTLP over HTTP: reading a request's body and writing the specified answers.

Invariant: a body that `read_body` returns is complete, decompressed and within the limits of size, memory and time,
whatever the peer sent. Every answer, errors included, is in the encoding of the request where we speak it: JSON for a
JSON sender, else protobuf.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Final, NamedTuple, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .decompress import DECODERS
from .otlp.wire import encode_field, serialize, write_varint
from .receiver import Receiver, reasons
from .request_errors import RefusedError, Reservation, RpcCode, unavailable
from .validation import JSON, PROTOBUF, Signal, Validation

NO_METRICS: Final = (
    "spanloop keeps traces and logs, no metrics: send metrics elsewhere, or turn them off with "
    "OTEL_METRICS_EXPORTER=none"
)
_PROTOBUF_HEADER: Final = (b"content-type", PROTOBUF.encode())
_JSON_HEADER: Final = (b"content-type", JSON.encode())
_PATIENCE_S: Final = 10.0
_LEAST_BYTES_PER_S: Final = 32 * 1024


class Head(NamedTuple):
    """What counts of a request's head."""

    content_type: str
    """The media type without its parameters."""
    content_encoding: str
    authorization: str
    """The header that holds the key; empty without one."""
    content_bytes: int
    """What the sender says of the body's size, compressed; 0 when it does not say."""

    @classmethod
    def of(cls, scope: Scope) -> Self:
        """Read it from the connection's scope."""
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


async def read_body(head: Head, receive: Receive, receiver: Receiver, share: Reservation) -> bytes:
    """The decompressed body.

    Args:
        head: The request's.
        receive: Gives the body, of which nothing was read yet.
        receiver: Knows the size limit, and whether there is room.
        share: Grows with what is held.

    Raises:
        RefusedError: Other content type or encoding, too large, too slow, too much at once, or not what its encoding
            says.
        ClientDisconnect: The sender went away in the middle.
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
        receiver.check_room(head.content_bytes)
    except RefusedError as refused:
        refused.is_hanging = not await _drop_body(receive)
        raise
    decoder = DECODERS[head.content_encoding](receiver.settings.body_limit_bytes)
    end_s = asyncio.get_running_loop().time() + _PATIENCE_S
    try:
        async with asyncio.timeout_at(end_s) as limit:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                piece = message.get("body", b"")
                if piece:
                    share.grow_to(decoder.feed(piece))
                if not message.get("more_body", False):
                    return decoder.finish()
                # A sender that trickles holds memory for as long as it likes, so time is earned by bytes.
                end_s += len(piece) / _LEAST_BYTES_PER_S
                limit.reschedule(end_s)
    except TimeoutError as error:
        raise unavailable(
            f"the body came too slowly: after {_PATIENCE_S:.0f} s at least {_LEAST_BYTES_PER_S} bytes/s are expected",
            is_hanging=True,
        ) from error


async def send_accepted(send: Send, signal: Signal, validation: Validation, content_type: str) -> None:
    """200, with the partial success that the specification asks for when items were rejected."""
    if content_type == JSON:
        body, named = _json_answer(signal, validation), _JSON_HEADER
    else:
        body, named = protobuf_answer(signal, validation), _PROTOBUF_HEADER
    headers = [named, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def protobuf_answer(signal: Signal, validation: Validation) -> bytes:
    """The Export…ServiceResponse."""
    message = _message(validation)
    if not message:
        return b""
    answer: ExportTraceServiceResponse | ExportLogsServiceResponse
    if signal is Signal.TRACES:
        answer = ExportTraceServiceResponse(
            partial_success=ExportTracePartialSuccess(rejected_spans=validation.rejected_total, error_message=message)
        )
    else:
        answer = ExportLogsServiceResponse(
            partial_success=ExportLogsPartialSuccess(
                rejected_log_records=validation.rejected_total, error_message=message
            )
        )
    return serialize(answer)


def refused_response(head: Head, refused: RefusedError) -> Response:
    """The google.rpc.Status answer of a refused request."""
    headers = {} if refused.retry_after_s is None else {"Retry-After": str(refused.retry_after_s)}
    if refused.is_hanging:
        headers["Connection"] = "close"
    if refused.status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if head.content_type == JSON:
        body = json.dumps({"code": int(refused.code), "message": refused.message}).encode()
        return Response(body, refused.status, headers, JSON)
    return Response(rpc_status(refused), refused.status, headers, PROTOBUF)


def rpc_status(refused: RefusedError) -> bytes:
    """google.rpc.Status: code (1, varint), message (2), and for what may be tried again a RetryInfo in details (3)."""
    status = write_varint(1 << 3) + write_varint(refused.code) + encode_field(2, refused.message.encode())
    if refused.retry_after_s is None:
        return status
    duration = write_varint(1 << 3) + write_varint(refused.retry_after_s)
    retry_info = encode_field(1, b"type.googleapis.com/google.rpc.RetryInfo") + encode_field(
        2, encode_field(1, duration)
    )
    return status + encode_field(3, retry_info)


def _json_answer(signal: Signal, validation: Validation) -> bytes:
    if not validation.rejected:
        return b"{}"
    name = "rejectedSpans" if signal is Signal.TRACES else "rejectedLogRecords"
    partial = {name: str(validation.rejected_total), "errorMessage": _message(validation)}  # int64 is text in JSON
    return json.dumps({"partialSuccess": partial}).encode()


def _message(validation: Validation) -> str:
    return (
        f"rejected: {reasons(validation)}; kept as dead letters, the others are stored" if validation.rejected else ""
    )


async def _drop_body(receive: Receive) -> bool:
    """Read a body that finds no room and hold nothing, so that its sender hears the answer; whether it came in time."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
    except TimeoutError:
        return False
    return True
