"""Run Streamlit in this process, and announce the dashboard once it is healthy.

This module sets all of Streamlit's options, so that a stray ``.streamlit/config.toml`` changes neither the address nor
the privacy of a running spanloop.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportPrivateUsage=false

import errno
import os
import socket
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from spanloop.datadir import DataDir
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.semconv.errors import ConfigurationError, PortInUseError

APP: Final = Path(__file__).parent / "app" / "streamlit_app.py"

_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 (compared, not bound)
_POLL_S: Final = 0.1

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
    "theme.light.primaryColor": "#3b82f6",
    "theme.dark.primaryColor": "#3b82f6",
    "theme.headingFontSizes": ["1.9rem", "1.4rem", "1.15rem"],
    "theme.metricValueFontSize": "1.6rem",
}


def serve(data_dir: DataDir, *, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        data_dir: The data directory that the pages show.
        host: Address to listen on. Any other than the loopback lets the network read every message of your agents.
        port: TCP port.

    Raises:
        PortInUseError: Another process listens on the port.
        ConfigurationError: The host is not an address of this machine, or the dashboard extra is not installed.
        DataDirectoryError: The data directory is unusable.
    """
    check_port(host, port)
    data_dir.open()
    try:
        from streamlit.web import bootstrap  # noqa: PLC0415 (takes 0.5 s, which a port error need not wait for)
    except ModuleNotFoundError as error:
        if error.name != "streamlit":
            raise
        raise ConfigurationError(
            "The dashboard needs Streamlit, which is not installed.", next_step="pip install 'spanloop[dashboard]'"
        ) from error
    os.environ[DATA_DIR_ENV] = str(data_dir.path)
    flags = {name.replace(".", "_"): value for name, value in OPTIONS.items()} | {
        "server_address": host,
        "server_port": port,
    }
    bootstrap.load_config_options(flags)
    with _AnnouncedWhenHealthy(data_dir, _url(host, port)):
        bootstrap.run(str(APP), False, [], flags)


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


class _AnnouncedWhenHealthy:
    """Writes the run file once the server is healthy, and removes it on exit."""

    def __init__(self, data_dir: DataDir, url: str) -> None:
        self._data_dir = data_dir
        self._url = url
        self._stopped = threading.Event()
        self._announcement = ExitStack()
        self._thread = threading.Thread(target=self._announce_when_healthy, name="announce", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._announcement.close()

    def _announce_when_healthy(self) -> None:
        while not self._stopped.wait(_POLL_S):
            try:
                with urllib.request.urlopen(f"{self._url}/_stcore/health", timeout=1) as response:  # noqa: S310 (http only)
                    if response.status == 200:
                        self._announcement.enter_context(self._data_dir.announce("dashboard", self._url))
                        return
            except (urllib.error.URLError, OSError):
                continue


def _url(host: str, port: int) -> str:
    address = _WILDCARDS.get(host, host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
