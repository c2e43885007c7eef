"""``python -m spanloop.gateway``: one gateway process, until SIGTERM."""

import argparse
import asyncio
import contextlib
import logging
import shlex
import signal
import sys
from collections.abc import Generator, Sequence
from typing import Final

import uvicorn

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.keys.api_keys import Scope
from spanloop.foundation.keys.exposure import check_exposure, reachable_url, warn_without_tls
from spanloop.foundation.keys.tls import add_tls_options, tls_files
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import load_configuration
from spanloop.foundation.telemetry.listening import listen
from spanloop.foundation.telemetry.logs import add_log_option, configure_logging, report_failure, traced
from spanloop.semconv.environment import GATEWAY_PORT, default_data_dir

from .app import Gateway
from .settings import EngineSettings, GatewaySettings

_log: Final = logging.getLogger("spanloop.gateway")
_SERVICE: Final = "gateway"
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

    def _stop(self) -> None:
        if self._drain is None:
            self._drain = asyncio.get_running_loop().create_task(self._gateway.drain.wait(self._grace_s))
            self._drain.add_done_callback(self._exit)
        else:
            self._drain.cancel()

    def _exit(self, _: asyncio.Task[None]) -> None:
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
    parser.add_argument(
        "--grace-s",
        type=float,
        default=default.grace_s,
        help="time for running requests after SIGTERM; new ones get 503; default: %(default)s",
    )
    add_log_option(parser)
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
        grace_s=options.grace_s,
        log_format=options.log_format,
        limits=configuration.limits,
        tls=tls_files(options, configuration.tls),
        engine=EngineSettings(
            dtype=options.dtype,
            kv_cache_gib=options.kv_cache_gib,
            max_model_len=options.max_model_len,
            extra_args=tuple(shlex.split(options.vllm_args)),
        ),
    )


async def serve(settings: GatewaySettings) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Raises:
        SpanloopError: The gateway cannot start.
    """
    data_dir = DataDir(settings.data_dir).open()
    check_exposure(
        data_dir, settings.host, service=_SERVICE, scope=Scope.SERVE, allow_anonymous=settings.allow_anonymous
    )
    is_tls = settings.tls is not None
    warn_without_tls(settings.host, _SERVICE, is_tls=is_tls)
    with listen(_SERVICE, settings.host, settings.port, "--port") as listener:
        gateway = Gateway(settings, data_dir)
        config = uvicorn.Config(
            traced(gateway.drain.wrap(gateway.application())),
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=_CANCEL_S,
            timeout_keep_alive=75,
            ssl_certfile=None if settings.tls is None else settings.tls.certificate,
            ssl_keyfile=None if settings.tls is None else settings.tls.private_key,
        )
        host, port = listener.getsockname()[:2]
        url = reachable_url(host, port, is_tls=is_tls)
        _log.info("the gateway listens on %s", url)
        with data_dir.announce(_SERVICE, url):
            await _Server(config, gateway, settings.grace_s).serve(sockets=[listener])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process.

    Returns:
        The exit status.
    """
    for logger in ("httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    try:
        settings = parse_arguments(arguments)
        configure_logging(_SERVICE, settings.data_dir, requested=settings.log_format)
        asyncio.run(serve(settings))
    except SpanloopError as error:
        return report_failure(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
