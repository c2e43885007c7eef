"""OTLP over gRPC, through the request pipeline that HTTP uses.

Invariant: OK acknowledges a request as HTTP's 200 does. An error has the gRPC code of its reason and, when a retry is
useful, a RetryInfo in ``grpc-status-details-bin``, which exporters read. Size limits apply after decompression. The
only module that imports grpcio, which ships no type information.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, NoReturn

import grpc

from spanloop.foundation.keys.api_keys import Scope
from spanloop.foundation.keys.tls import TlsFiles
from spanloop.foundation.telemetry.logs import set_traceparent

from ..receiver import Receiver
from ..validation import PROTOBUF, Signal
from .otlp_http import NO_METRICS, encode_rpc_status, protobuf_response
from .request_errors import RefusedError, RpcCode, too_large

_SERVICES: Final = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
}
_METRICS_SERVICE: Final = "opentelemetry.proto.collector.metrics.v1.MetricsService"
_STOP_GRACE_S: Final = 1.0
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_Context = Any
_Export = Callable[[bytes, _Context], Awaitable[bytes]]


@asynccontextmanager
async def serve_grpc(receiver: Receiver, host: str, port: int, tls: TlsFiles | None = None) -> AsyncGenerator[int]:
    """Serve on a port until the block ends, and yield the port; 0 lets the system choose one.

    Calls in progress at the end have `_STOP_GRACE_S` to finish. With ``tls`` clients must speak TLS.

    Raises:
        OSError: The port is not available.
    """
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", receiver.settings.body_limit_bytes),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", 128),
        ]
    )
    exports = {_SERVICES[signal]: _export(receiver, signal) for signal in Signal}
    exports[_METRICS_SERVICE] = _metrics_export(receiver)
    for service, export in exports.items():
        method = grpc.unary_unary_rpc_method_handler(export)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound_port: int = (
            server.add_insecure_port(address) if tls is None else server.add_secure_port(address, _credentials(tls))
        )
    except RuntimeError as error:
        raise OSError(f"gRPC cannot listen on {address}") from error
    await server.start()
    try:
        yield bound_port
    finally:
        await server.stop(_STOP_GRACE_S)


def _credentials(tls: TlsFiles) -> Any:
    return grpc.ssl_server_credentials([(tls.private_key.read_bytes(), tls.certificate.read_bytes())])


def _export(receiver: Receiver, signal: Signal) -> _Export:
    async def export(body: bytes, context: _Context) -> bytes:
        """Store a request and acknowledge it."""
        metadata = dict(context.invocation_metadata() or ())
        set_traceparent(str(metadata.get("traceparent", "")))
        try:
            with (
                receiver.authenticator.admit(str(metadata.get("authorization", "")), Scope.INGEST) as admission,
                receiver.memory_budget.reserve() as reservation,
            ):
                if admission.body_bytes is not None and len(body) > admission.body_bytes:
                    raise too_large(admission.body_bytes)
                reservation.grow_to(len(body))
                return protobuf_response(signal, await receiver.receive(signal, body, PROTOBUF))
        except RefusedError as error:
            receiver.record_refused(signal, error)
            await _abort(context, error)

    return export


def _authorization_of(context: _Context) -> str:
    metadata = dict(context.invocation_metadata() or ())
    return str(metadata.get("authorization", ""))


def _metrics_export(receiver: Receiver) -> _Export:
    async def refuse(_: bytes, context: _Context) -> bytes:
        try:
            receiver.authenticator.authenticate(_authorization_of(context), Scope.INGEST)
        except RefusedError as error:
            await _abort(context, error)
        await _abort(context, RefusedError(HTTPStatus.NOT_FOUND, RpcCode.UNIMPLEMENTED, NO_METRICS))

    return refuse


async def _abort(context: _Context, error: RefusedError) -> NoReturn:
    await context.abort(_CODES[error.code], error.message, (("grpc-status-details-bin", encode_rpc_status(error)),))
    raise AssertionError("abort does not return")
