"""``python -m spanloop.gateway``: one gateway process, until SIGTERM."""

import argparse
import asyncio
import contextlib
import errno
import logging
import shlex
import signal
import socket
import sys
from collections.abc import Generator, Sequence
from typing import Final

import uvicorn

from spanloop.authentication.api_keys import Scope
from spanloop.authentication.exposure import check_exposure, reachable_url, warn_without_tls
from spanloop.authentication.tls import add_tls_options, tls_files
from spanloop.configuration import load_configuration
from spanloop.datadir import DataDir
from spanloop.semconv.environment import GATEWAY_PORT, default_data_dir
from spanloop.semconv.errors import PortInUseError, ServiceError, SpanloopError

from .app import Gateway
from .settings import EngineSettings, GatewaySettings

_log: Final = logging.getLogger("spanloop.gateway")
_BACKLOG: Final = 2048
_GRACE_S: Final = 1
"""Time for running responses after SIGTERM; stopping the engine needs most of the 10 s."""


class _Server(uvicorn.Server):
    """Uvicorn with its own signal handlers replaced, since those end the process by the signal, not with status 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True


def parse_arguments(arguments: Sequence[str] | None = None) -> GatewaySettings:
    """Parse the command line. ConfigurationError: the configuration or the certificate cannot be used."""
    default, engine = GatewaySettings(data_dir=default_data_dir()), EngineSettings()
    parser = argparse.ArgumentParser(prog="python -m spanloop.gateway", description=__doc__)
    parser.add_argument("--data-dir", default=str(default.data_dir), help="default: %(default)s")
    parser.add_argument("--host", default=default.host, help="beyond loopback with API keys; default: %(default)s")
    parser.add_argument("--allow-anonymous", action="store_true", help="listen beyond loopback without API keys")
    parser.add_argument("--port", type=int, default=GATEWAY_PORT, help="0: a free port; default: %(default)s")
    parser.add_argument(
        "--upstream",
        default="",
        help="URL of a running vLLM server to use instead of starting one; to train on its samples, start it with "
        "--logprobs-mode processed_logprobs --generation-config vllm",
    )
    parser.add_argument(
        "--dtype",
        default=engine.dtype,
        help="as vLLM's; default: %(default)s, which is float32 on a CPU without instructions for bfloat16",
    )
    parser.add_argument(
        "--kv-cache-gib", type=int, default=engine.kv_cache_gib, help="key/value cache on a CPU; default: %(default)s"
    )
    parser.add_argument("--max-model-len", type=int, default=None, help="tokens; default: the model's own")
    parser.add_argument("--vllm-args", default="", help="more arguments for vLLM, as one quoted string")
    parser.add_argument("--drain-timeout-s", type=float, default=default.drain_timeout_s, help="default: %(default)s")
    add_tls_options(parser)
    options = parser.parse_args(arguments)
    data_dir = DataDir(options.data_dir).path
    configuration = load_configuration(data_dir)
    return GatewaySettings(
        data_dir=data_dir,
        host=options.host,
        allow_anonymous=options.allow_anonymous,
        port=options.port,
        upstream=options.upstream.rstrip("/").removesuffix("/v1"),
        drain_timeout_s=options.drain_timeout_s,
        limits=configuration.limits,
        tls=tls_files(options, configuration.tls),
        engine=EngineSettings(
            dtype=options.dtype,
            kv_cache_gib=options.kv_cache_gib,
            max_model_len=options.max_model_len,
            extra_args=tuple(shlex.split(options.vllm_args)),
        ),
    )


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; connections are queued until the server accepts them.

    Raises:
        PortInUseError: Another process listens on the port.
        ServiceError: The address is not an address of this host.
    """
    try:
        listener = socket.create_server((host, port), backlog=_BACKLOG, reuse_port=False)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"The gateway cannot listen on {host}:{port}: another process uses the port.",
                next_step="stop it, or choose another port with --port",
            ) from error
        raise ServiceError(f"The gateway cannot listen on {host}:{port}: {error}.") from error
    # asyncio sets it only on sockets with an explicit protocol number; without it each response waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve(settings: GatewaySettings) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Raises:
        SpanloopError: The gateway cannot start.
    """
    data_dir = DataDir(settings.data_dir).open()
    check_exposure(
        data_dir, settings.host, service="gateway", scope=Scope.SERVE, allow_anonymous=settings.allow_anonymous
    )
    is_tls = settings.tls is not None
    warn_without_tls(settings.host, "gateway", is_tls=is_tls)
    listener = bind(settings.host, settings.port)
    with listener:
        gateway = Gateway(settings, data_dir)
        config = uvicorn.Config(
            gateway.application(),
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=_GRACE_S,
            timeout_keep_alive=75,
            ssl_certfile=None if settings.tls is None else settings.tls.certificate,
            ssl_keyfile=None if settings.tls is None else settings.tls.private_key,
        )
        host, port = listener.getsockname()[:2]
        url = reachable_url(host, port, is_tls=is_tls)
        _log.info("the gateway listens on %s", url)
        with data_dir.announce("gateway", url):
            await _Server(config).serve(sockets=[listener])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process.

    Returns:
        The exit status.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for logger in ("httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    try:
        asyncio.run(serve(parse_arguments(arguments)))
    except SpanloopError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
