"""Run one collector process: port, spool, app and writer, from start to a clean stop.

Order matters. Start: port, spool, writer, HTTP, and then the run file. Stop: refuse new connections, finish requests in
flight, remove the run file, drain the spool for `Settings.drain_timeout_s`, and close the spool last.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import socket
from collections.abc import AsyncGenerator
from typing import Final

from spanloop.foundation.errors import PortInUseError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.exposure import check_exposure, reachable_url, warn_without_tls
from spanloop.foundation.keys.limits import KeyLimiter
from spanloop.foundation.keys.tls import TlsFiles
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Limits
from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.foundation.telemetry.http_server import HttpServer, start_server
from spanloop.foundation.telemetry.listening import listen
from spanloop.foundation.telemetry.logs import traced
from spanloop.semconv.environment import COLLECTOR_PORT
from spanloop.spool import Spool
from spanloop.store import Store, connect

from .blocks.insert_errors import RefusedRanges
from .blocks.protobuf_blocks import ProtobufStrategy
from .endpoints.app import create_app
from .endpoints.authentication import Authenticator
from .endpoints.connections import raise_open_file_limit, uvicorn_config
from .endpoints.otlp_grpc import serve_grpc
from .health import Health
from .metrics import Metrics
from .receiver import Receiver
from .redaction.redactor import Redactor
from .redaction.rules import load_rules
from .writer import Writer

_log = logging.getLogger(__name__)
_SERVICE: Final = "collector"
_GRPC_PORT: Final = 4317
_STOP_GRACE_S: Final = 1.0


def run(
    data_dir: DataDir, settings: CollectorSettings, *, limits: Limits = Limits(), tls: TlsFiles | None = None
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        data_dir: The data directory.
        settings: The collector's.
        limits: Limits of rate, concurrency and body size by API key.
        tls: The certificate of HTTP and gRPC; None is plain HTTP.

    Raises:
        PortInUseError: Another process listens on the port.
        AlreadyRunningError: Another collector uses this data directory's spool.
        DataDirectoryError: The directory has another version, is not writable or is full.
        ConfigurationError: It would listen beyond loopback without API keys, or the redaction rules are invalid.
    """
    keep_freed_memory()
    data_dir.open()
    check_exposure(
        data_dir, settings.host, service="collector", scope=Scope.INGEST, allow_anonymous=settings.allow_anonymous
    )
    warn_without_tls(settings.host, "collector", is_tls=tls is not None)
    redactor = Redactor(load_rules(data_dir, settings.redact))
    if redactor.rules:
        _log.info("redaction rules: %s", ", ".join(rule.name for rule in redactor.rules))
    listener = listen(_SERVICE, settings.host, settings.port, "--port")
    with listener, Spool(data_dir.spool, max_bytes=settings.spool_limit_bytes) as spool:
        asyncio.run(_serve(data_dir, settings, listener, spool, redactor, limits=limits, tls=tls))


async def _serve(
    data_dir: DataDir,
    settings: CollectorSettings,
    listener: socket.socket,
    spool: Spool,
    redactor: Redactor,
    *,
    limits: Limits,
    tls: TlsFiles | None,
) -> None:
    metrics, health = Metrics(), Health(data_dir.spool)
    authenticator = Authenticator(KeyRing(data_dir), KeyLimiter(limits))
    receiver = Receiver(spool, metrics, health, settings, authenticator, redactor=redactor)

    def open_store() -> Store:
        return connect(data_dir)

    strategy = ProtobufStrategy(RefusedRanges(data_dir.spool / "refused"))
    writer = Writer(spool, open_store, metrics, health, settings=settings, strategy=strategy)
    raise_open_file_limit()
    server = HttpServer(uvicorn_config(traced(create_app(receiver)), tls))
    address: tuple[str, int] = listener.getsockname()[:2]
    url = reachable_url(*address, is_tls=tls is not None)
    writer_task = asyncio.create_task(writer.run())
    writer_task.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        server_task = await start_server(server, "collector", listener)
        # Imported objects stay alive: freeze them, so that garbage collections skip them.
        gc.collect()
        gc.freeze()
        async with _grpc(data_dir, settings, receiver, tls):
            with data_dir.announce("collector", url):
                _log.info("collector listens at %s, spool %s", url, data_dir.spool)
                await server_task
    finally:
        writer.stop()
        receiver.close()
        await asyncio.wait({writer_task}, timeout=settings.drain_timeout_s + _STOP_GRACE_S)
        waiting = spool.stats.records
        spool_state = f"{waiting} requests wait in the spool" if waiting else "the spool is empty"
        if not writer_task.done():
            _log.warning("collector stops although ClickHouse has not confirmed an insert; %s", spool_state)
            # A thread may wait for ClickHouse for minutes, and Python would wait for the thread. The spool survives an
            # exit at any time, and the block is inserted again under the same deduplication tokens.
            logging.shutdown()
            os._exit(0)
        await writer_task
    _log.info("collector stopped; %s", spool_state)


@contextlib.asynccontextmanager
async def _grpc(
    data_dir: DataDir, settings: CollectorSettings, receiver: Receiver, tls: TlsFiles | None
) -> AsyncGenerator[None]:
    """Serve gRPC beside HTTP, announced in its own run file, until the block ends."""
    if settings.no_grpc:
        yield
        return
    async with serve_grpc(receiver, settings.host, _grpc_port(settings), tls) as port:
        url = reachable_url(settings.host, port, is_tls=tls is not None)
        receiver.health.grpc_url = url
        with data_dir.announce("collector-grpc", url):
            _log.info("collector listens for gRPC at %s", url)
            yield


def _grpc_port(settings: CollectorSettings) -> int:
    """Return the port to listen on; a requested port has to be free."""
    if settings.grpc_port is not None:
        listen(_SERVICE, settings.host, settings.grpc_port, "--grpc-port").close()
        return settings.grpc_port
    if settings.port != COLLECTOR_PORT:
        return 0
    try:
        listen(_SERVICE, settings.host, _GRPC_PORT, "--grpc-port").close()
    except PortInUseError:
        _log.warning("port %d is in use, so gRPC listens on another port", _GRPC_PORT)
        return 0
    return _GRPC_PORT


_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of ``malloc.h``, mallopt(3)."""
_RETAINED_BYTES: Final = 16 * 2**20
"""Per arena: one for the event loop, one for each validation or writer thread."""
_MMAP_BYTES: Final = 8 * 2**20
"""Larger buffers are still mapped separately and returned, so that one large body does not keep its memory."""


def keep_freed_memory() -> bool:
    """Let malloc keep some freed memory for the next request; False when the C library has no such setting.

    By default malloc returns buffers of a few megabytes to the kernel, and a new page costs more than writing into it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _RETAINED_BYTES)) and bool(mallopt(_MMAP_THRESHOLD, _MMAP_BYTES))
