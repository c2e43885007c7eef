"""OTLP over gRPC, by the same road as HTTP.

Invariant: OK means what 200 means. A refusal has the gRPC code of its reason and, when trying again is of use, a
RetryInfo in ``grpc-status-details-bin``, which is what exporters look for. Size limits hold after decompression. The
only module that knows grpcio, which ships no type information.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, NoReturn

import grpc

from spanloop.authentication.api_keys import Scope

from .otlp_http import NO_METRICS, protobuf_answer, rpc_status
from .receiver import Receiver
from .request_errors import RefusedError, RpcCode
from .validation import PROTOBUF, Signal

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
async def serve_grpc(receiver: Receiver, host: str, port: int) -> AsyncGenerator[int]:
    """Answer on a port, 0 for one that the system chooses, for as long as the block lasts; gives the port.

    Calls under way at the end get a few seconds.

    Raises:
        OSError: The port cannot be had.
    """
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", receiver.settings.body_limit_bytes),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", 128),
        ]
    )
    exports = {_SERVICES[signal]: _export(receiver, signal) for signal in Signal} | {_METRICS_SERVICE: _no_metrics}
    for service, export in exports.items():
        method = grpc.unary_unary_rpc_method_handler(export)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound: int = server.add_insecure_port(where)
    except RuntimeError as error:
        raise OSError(f"gRPC cannot listen on {where}") from error
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(_STOP_GRACE_S)


def _export(receiver: Receiver, signal: Signal) -> _Export:
    async def export(body: bytes, context: _Context) -> bytes:
        try:
            receiver.guard.check(_authorization_of(context), Scope.INGEST)
            with receiver.budget.share() as share:
                share.grow_to(len(body))
                return protobuf_answer(signal, await receiver.receive(signal, body, PROTOBUF))
        except RefusedError as refused:
            receiver.refused(signal, refused)
            await _abort(context, refused)

    return export


def _authorization_of(context: _Context) -> str:
    sent = dict(context.invocation_metadata() or ())
    return str(sent.get("authorization", ""))


async def _no_metrics(_: bytes, context: _Context) -> bytes:
    await _abort(context, RefusedError(HTTPStatus.NOT_FOUND, RpcCode.UNIMPLEMENTED, NO_METRICS))


async def _abort(context: _Context, refused: RefusedError) -> NoReturn:
    await context.abort(_CODES[refused.code], refused.message, (("grpc-status-details-bin", rpc_status(refused)),))
    raise AssertionError("abort does not return")
