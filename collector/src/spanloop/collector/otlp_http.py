"""OTLP over HTTP: reading a request's body and writing the specified answers.

Invariant: a body that `read_body` returns is complete, decompressed and within the limits of size, memory and time,
whatever the peer sent. Every answer, errors included, is in the encoding of the request where we speak it: JSON for a
JSON sender, else protobuf.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from starlette.requests import Request
from starlette.responses import Response

from .admission import JSON, PROTOBUF, Admission, Signal
from .decompress import DECODERS
from .intake import reasons
from .refusal import BodyShare, RefusedError, RpcCode, unavailable
from .settings import Settings
from .wire import encode_field, serialize, write_varint

NO_METRICS: Final = (
    "spanloop keeps traces and logs, no metrics: send metrics elsewhere, or turn them off with "
    "OTEL_METRICS_EXPORTER=none"
)
_PATIENCE_S: Final = 10.0
_LEAST_BYTES_PER_S: Final = 32 * 1024


async def read_body(request: Request, settings: Settings, share: BodyShare) -> bytes:
    """The decompressed body.

    Args:
        request: Its head was read, its body not yet.
        settings: The size limit.
        share: Grows with what is held.

    Raises:
        RefusedError: Other content type or encoding, too large, too slow, too much at once, or not what its encoding
            says.
        ClientDisconnect: The sender went away in the middle.
    """
    _check_content_type(request)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in DECODERS:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            RpcCode.UNIMPLEMENTED,
            f"content encoding {encoding!r} is not supported; send gzip, zstd or none",
        )
    decoder = DECODERS[encoding](settings.body_limit_bytes)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _PATIENCE_S
    try:
        async with asyncio.timeout_at(end_s) as limit:
            async for piece in request.stream():
                share.grow_to(decoder.feed(piece))
                # A sender that trickles holds memory for as long as it likes, so time is earned by bytes.
                end_s += len(piece) / _LEAST_BYTES_PER_S
                limit.reschedule(end_s)
    except TimeoutError as error:
        raise unavailable(
            f"the body came too slowly: after {_PATIENCE_S:.0f} s at least {_LEAST_BYTES_PER_S} bytes/s are expected",
            is_hanging=True,
        ) from error
    return decoder.finish()


def accepted_response(signal: Signal, admission: Admission, content_type: str) -> Response:
    """200, with the partial success that the specification asks for when items were rejected."""
    return Response(
        _json_answer(signal, admission) if content_type == JSON else protobuf_answer(signal, admission),
        media_type=content_type,
    )


def protobuf_answer(signal: Signal, admission: Admission) -> bytes:
    """The Export…ServiceResponse."""
    message = _message(admission)
    answer: ExportTraceServiceResponse | ExportLogsServiceResponse
    if signal is Signal.TRACES:
        answer = ExportTraceServiceResponse()
        if message:
            answer.partial_success.CopyFrom(
                ExportTracePartialSuccess(rejected_spans=admission.rejected_total, error_message=message)
            )
    else:
        answer = ExportLogsServiceResponse()
        if message:
            answer.partial_success.CopyFrom(
                ExportLogsPartialSuccess(rejected_log_records=admission.rejected_total, error_message=message)
            )
    return serialize(answer)


def refused_response(request: Request, refused: RefusedError) -> Response:
    """The google.rpc.Status answer of a refused request."""
    headers = {} if refused.retry_after_s is None else {"Retry-After": str(refused.retry_after_s)}
    if refused.is_hanging:
        headers["Connection"] = "close"
    if refused.status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if content_type_of(request) == JSON:
        body = json.dumps({"code": int(refused.code), "message": refused.message}).encode()
        return Response(body, refused.status, headers, JSON)
    return Response(rpc_status(refused), refused.status, headers, PROTOBUF)


def content_type_of(request: Request) -> str:
    """The media type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def authorization_of(request: Request) -> str:
    """The header that holds the key; empty without one."""
    return request.headers.get("authorization", "")


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


def _json_answer(signal: Signal, admission: Admission) -> bytes:
    if not admission.rejected:
        return b"{}"
    name = "rejectedSpans" if signal is Signal.TRACES else "rejectedLogRecords"
    partial = {name: str(admission.rejected_total), "errorMessage": _message(admission)}  # int64 is text in JSON
    return json.dumps({"partialSuccess": partial}).encode()


def _message(admission: Admission) -> str:
    return f"rejected: {reasons(admission)}; kept as dead letters, the others are stored" if admission.rejected else ""


def _check_content_type(request: Request) -> None:
    found = content_type_of(request)
    if found not in {PROTOBUF, JSON}:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            RpcCode.UNIMPLEMENTED,
            f"content type {found!r} is not supported; expected {PROTOBUF} or {JSON}",
        )
