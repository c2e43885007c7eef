"""Run the front and Streamlit's pages in this process, on one port, and announce the dashboard once it listens.

This module sets all of Streamlit's options, so that a stray ``.streamlit/config.toml`` changes neither the address nor
the privacy of a running spanloop.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportPrivateUsage=false

import asyncio
import errno
import logging
import os
import socket
import threading
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette

from spanloop.foundation.errors import ConfigurationError, PortInUseError
from spanloop.foundation.keys.exposure import check_dashboard_exposure, reachable_url, warn_without_tls
from spanloop.foundation.keys.tls import TlsFiles
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Dashboard
from spanloop.foundation.telemetry.http_server import HttpServer, start_server
from spanloop.semconv.environment import DATA_DIR_ENV

from .front.authentication import Authentication

APP: Final = Path(__file__).parent / "app" / "streamlit_app.py"

_log: Final = logging.getLogger(__name__)
_GRACE_S: Final = 2
_MAX_MESSAGE_BYTES: Final = 200 * 2**20
"""Of a WebSocket's message, as Streamlit's own server."""

OPTIONS: Final[dict[str, object]] = {
    "browser.gatherUsageStats": False,
    "server.headless": True,
    "server.fileWatcherType": "none",
    "server.runOnSave": False,
    "server.showEmailPrompt": False,
    "server.enableAgentApi": False,
    "server.enableStaticServing": False,
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "type",
    # Streamlit's default accent is red, which means failure on these pages.
    # Both variants are set, because a theme without variants stays light in a dark browser.
    "theme.light.primaryColor": "#2563eb",
    "theme.dark.primaryColor": "#3b82f6",
    "theme.headingFontSizes": ["1.35rem", "1.1rem", "1rem"],
    "theme.metricValueFontSize": "1.35rem",
}


def serve(
    data_dir: DataDir, *, host: str, port: int, tls: TlsFiles | None = None, configuration: Dashboard | None = None
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        data_dir: The data directory that the pages show.
        host: Address to listen on. Any other than the loopback needs users, or a proxy that names them.
        port: TCP port.
        tls: The certificate; None is plain HTTP.
        configuration: Which proxy is trusted; None trusts none.

    Raises:
        PortInUseError: Another process listens on the port.
        ConfigurationError: The host is not an address of this machine, nobody would have to log in there, a page
            or its options cannot be used, or the dashboard extra is not installed.
        DataDirectoryError: The data directory is unusable.
    """
    configuration = configuration or Dashboard()
    check_port(host, port)
    data_dir.open()
    check_dashboard_exposure(data_dir, host, configuration)
    warn_without_tls(host, "dashboard", is_tls=tls is not None)
    authentication = Authentication(data_dir, host=host, port=port, proxy=configuration.trusted_proxy)
    os.environ[DATA_DIR_ENV] = str(data_dir.path)
    config = uvicorn.Config(
        create_application(data_dir, authentication, host=host, port=port),
        host=host,
        port=port,
        lifespan="on",
        log_config=None,
        access_log=False,
        # Forwarding headers are read by the front, from the trusted proxy only.
        proxy_headers=False,
        server_header=False,
        ws="websockets-sansio",
        ws_max_size=_MAX_MESSAGE_BYTES,
        ws_ping_interval=30,
        ws_ping_timeout=30,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.private_key,
    )
    if configuration.pages:
        from .navigation import check_pages  # noqa: PLC0415 - streamlit, whose absence is an error of its own above

        check_pages(configuration.pages)
    asyncio.run(_run(HttpServer(config), data_dir, reachable_url(host, port, is_tls=tls is not None)))


def create_application(data_dir: DataDir, authentication: Authentication, *, host: str, port: int) -> Starlette:
    """Create the front with Streamlit's pages behind it; once in a process, because Streamlit's settings are global.

    Raises:
        ConfigurationError: The dashboard extra is not installed.
    """
    try:
        # Takes 0.5 s, which a port error need not wait for.
        from streamlit.file_util import get_static_dir  # noqa: PLC0415
        from streamlit.starlette import App  # noqa: PLC0415
        from streamlit.web import bootstrap  # noqa: PLC0415

        from .front.app import create_front  # noqa: PLC0415
        from .front.document import PageDocument  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "streamlit":
            raise
        raise ConfigurationError(
            "The dashboard needs Streamlit, which is not installed.",
            next_step="pip install '/path/to/spanloop[dashboard]'",
        ) from error
    flags = {name.replace(".", "_"): value for name, value in OPTIONS.items()} | {
        "server_address": host,
        "server_port": port,
    }
    bootstrap.load_config_options(flags)
    pages = App(str(APP))
    document = PageDocument(pages, Path(get_static_dir()))
    return create_front(data_dir, authentication, document, pages.lifespan())


async def _run(server: HttpServer, data_dir: DataDir, url: str) -> None:
    """Serve, and announce the dashboard once it listens."""
    serving = await start_server(server, "dashboard")
    with data_dir.announce("dashboard", url):
        _log.info("the dashboard listens on %s", url)
        from .navigation import preload  # noqa: PLC0415 - streamlit, which is installed when this runs

        threading.Thread(target=preload, args=(data_dir.path,), name="preload", daemon=True).start()
        await serving


def check_port(host: str, port: int) -> None:
    """Check that the dashboard can listen on ``host:port``.

    Raises:
        PortInUseError: Another process listens on the port.
        ConfigurationError: The host is not an address of this machine, or the port needs privileges.
    """
    try:
        address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(address[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address[4])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"Port {port} on {host} is in use, so the dashboard cannot listen there.",
                next_step=f"Stop what uses it, or choose another: --port {port + 1 if port < 65_535 else 8502}.",
            ) from error
        raise ConfigurationError(
            f"The dashboard cannot listen on {host}:{port}: {error.strerror}.",
            next_step="Give an address of this machine with --host and a port above 1023 with --port.",
        ) from error
