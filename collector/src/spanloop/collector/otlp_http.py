"""OTLP over HTTP: reading a request's body and writing the specified answers.

Invariant: a body that `read_body` returns is complete, decompressed and within the limit, whatever the peer sent.
Every answer, errors included, is in the encoding of the request where we speak it: protobuf, or JSON for a JSON sender.
"""

import json
import zlib
from collections.abc import AsyncIterator
from enum import IntEnum
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

from .admission import Admission, Signal
from .wire import encode_field, serialize, write_varint

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
_GZIP_WINDOW_BITS: Final = 31
_IDENTITY: Final = frozenset({"", "identity"})


class RpcCode(IntEnum):
    """The google.rpc codes that we answer with."""

    INVALID_ARGUMENT = 3
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    UNAVAILABLE = 14


class RefusedError(Exception):
    """A request that is refused as a whole, with the answer's parts."""

    def __init__(self, status: HTTPStatus, code: RpcCode, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        """None tells the sender that trying again is of no use."""


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The decompressed body.

    Raises:
        RefusedError: Other content type or encoding, too large, or not what its encoding says.
        ClientDisconnect: The sender went away in the middle.
    """
    _check_content_type(request)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding == "gzip":
        return await _gunzip(request.stream(), limit_bytes)
    if encoding not in _IDENTITY:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            RpcCode.UNIMPLEMENTED,
            f"content encoding {encoding!r} is not supported; send gzip or none",
        )
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        _check_size(len(body), limit_bytes)
    return bytes(body)


def accepted_response(signal: Signal, admission: Admission) -> Response:
    """200, with the partial success that the specification asks for when items were rejected."""
    message = f"rejected: {reasons(admission)}; the others are stored" if admission.rejected else ""
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
    return Response(serialize(answer), media_type=PROTOBUF)


def reasons(admission: Admission) -> str:
    """Why items were rejected, for a person: ``2 bad_trace_id, 1 undecodable``."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(admission.rejected.items()))


def refused_response(request: Request, refused: RefusedError) -> Response:
    """The google.rpc.Status answer of a refused request."""
    headers = {} if refused.retry_after_s is None else {"Retry-After": str(refused.retry_after_s)}
    if content_type(request) == JSON:
        body = json.dumps({"code": int(refused.code), "message": refused.message}).encode()
        return Response(body, refused.status, headers, JSON)
    return Response(_rpc_status(refused.code, refused.message), refused.status, headers, PROTOBUF)


def content_type(request: Request) -> str:
    """The media type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _rpc_status(code: RpcCode, message: str) -> bytes:
    """google.rpc.Status: its two fields, code (1, varint) and message (2), are all that we use of it."""
    return write_varint(1 << 3) + write_varint(code) + encode_field(2, message.encode())


def _check_content_type(request: Request) -> None:
    found = content_type(request)
    if found == PROTOBUF:
        return
    hint = " (OTLP/JSON is not supported yet: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf)" if found == JSON else ""
    raise RefusedError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        RpcCode.UNIMPLEMENTED,
        f"content type {found!r} is not supported; expected {PROTOBUF}{hint}",
    )


async def _gunzip(stream: AsyncIterator[bytes], limit_bytes: int) -> bytes:
    """Decompress, bounded at every step; several gzip members in a row are one body."""
    body = bytearray()
    received_bytes = 0
    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
    is_started = False
    try:
        async for received in stream:
            received_bytes += len(received)
            _check_size(received_bytes, limit_bytes)
            chunk = received
            while chunk:
                if member.eof:
                    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
                is_started = True
                body += member.decompress(chunk, limit_bytes - len(body) + 1)
                _check_size(len(body), limit_bytes)
                chunk = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, RpcCode.INVALID_ARGUMENT, f"not gzip: {error}") from error
    if is_started and not member.eof:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, RpcCode.INVALID_ARGUMENT, f"gzip ends early, after {received_bytes} bytes"
        )
    return bytes(body)


def _check_size(size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            RpcCode.RESOURCE_EXHAUSTED,
            f"the body is larger than {limit_bytes} bytes after decompression; send smaller batches",
        )
