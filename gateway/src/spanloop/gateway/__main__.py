"""``python -m spanloop.gateway``: one gateway process, until SIGTERM."""

import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Final, cast

import uvicorn

from spanloop.foundation.keys.api_keys import Scope
from spanloop.foundation.keys.exposure import check_exposure, reachable_url, warn_without_tls
from spanloop.foundation.keys.tls import tls_files
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.foundation.settings.sources import Process
from spanloop.foundation.telemetry.listening import listen
from spanloop.foundation.telemetry.logs import traced
from spanloop.foundation.telemetry.role_process import run_role

from .app import Gateway

_log: Final = logging.getLogger("spanloop.gateway")
_SERVICE: Final = "gateway"
_COLLECTED_OBJECTS: Final = 10_000
"""New objects before a garbage collection. By default 700, which the answers in progress exceed, so that they would be
looked through again and again; they are freed without it."""
_CANCEL_S: Final = 1
"""Time for the responses that are left after the grace."""


class _Server(uvicorn.Server):
    """Uvicorn with its own signal handlers replaced, since those end the process by the signal, not with status 0.

    The first signal drains the gateway; a second one ends the drain.
    """

    def __init__(self, config: uvicorn.Config, gateway: Gateway, grace_s: float) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._grace_s = grace_s
        self._drain: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Imported objects stay alive: freeze them, so that garbage collections skip them.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_COLLECTED_OBJECTS)

    def _stop(self) -> None:
        if self._drain is None:
            self._drain = asyncio.get_running_loop().create_task(self._gateway.drain.wait(self._grace_s))
            self._drain.add_done_callback(self._exit)
        else:
            self._drain.cancel()

    def _exit(self, _: asyncio.Task[None]) -> None:
        self.should_exit = True


async def serve(process: Process[GatewaySettings]) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Raises:
        SpanloopError: The gateway cannot start.
    """
    settings, tls = process.settings, tls_files(process.settings, process.configuration.tls)
    data_dir = DataDir(process.data_dir).open()
    check_exposure(
        data_dir, settings.host, service=_SERVICE, scope=Scope.SERVE, allow_anonymous=settings.allow_anonymous
    )
    is_tls = tls is not None
    warn_without_tls(settings.host, _SERVICE, is_tls=is_tls)
    with listen(_SERVICE, settings.host, settings.port, "--port") as listener:
        gateway = Gateway(settings, data_dir, process.configuration.limits)
        config = uvicorn.Config(
            traced(gateway.drain.wrap(gateway.application())),
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=_CANCEL_S,
            timeout_keep_alive=75,
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_keyfile=None if tls is None else tls.private_key,
        )
        host, port = listener.getsockname()[:2]
        url = reachable_url(host, port, is_tls=is_tls)
        _log.info("the gateway listens on %s", url)
        with data_dir.announce(_SERVICE, url):
            await _Server(config, gateway, settings.grace_s).serve(sockets=[listener])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process; return the exit status."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return run_role(GatewaySettings, _run, arguments)


def _run(process: Process[GatewaySettings]) -> None:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(process))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory; None where uvloop has no build, which costs CPU time only."""
    try:
        return cast("Callable[[], asyncio.AbstractEventLoop]", importlib.import_module("uvloop").new_event_loop)
    except ImportError:
        return None


if __name__ == "__main__":
    sys.exit(main())
