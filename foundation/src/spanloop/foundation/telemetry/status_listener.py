"""A small HTTP listener for roles that have no port of their own: pipeline, scheduler and runner.

Invariant: the listener runs in a thread and never delays the role's work; it ends with its block.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, NamedTuple

import uvicorn
from starlette.applications import Starlette

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.exposure import check_exposure, reachable_url
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import StatusSettings

from .listening import listen
from .metrics import Metrics
from .status import Status, status_routes
from .threaded_server import serving_in_thread

_STOP_S: Final = 1


class StatusAddress(NamedTuple):
    """Where to listen."""

    host: str
    port: int
    """0 lets the system choose; the run file states it."""


def status_address(settings: StatusSettings) -> StatusAddress | None:
    """Return the address of a role's settings; None without a port."""
    return None if settings.status_port is None else StatusAddress(settings.status_host, settings.status_port)


@contextmanager
def serving_status(
    data_dir: DataDir,
    address: StatusAddress | None,
    status: Status,
    metrics: Metrics,
    refresh: Callable[[], None] | None = None,
) -> Generator[str]:
    """Serve `status_routes` while the block runs; yield the URL, empty without an address.

    Raises:
        ConfigurationError: It would listen beyond the loopback without API keys.
        PortInUseError: Another process listens on the port.
    """
    if address is None:
        yield ""
        return
    name = f"{status.role}'s status listener"
    check_exposure(data_dir, address.host, service=name, scope=Scope.READ, allow_anonymous=False)
    app = Starlette(routes=status_routes(status, metrics, KeyRing(data_dir), refresh))
    config = uvicorn.Config(
        app, lifespan="off", proxy_headers=False, access_log=False, log_config=None, timeout_graceful_shutdown=_STOP_S
    )
    with (
        listen(name, address.host, address.port, "--status-port") as listener,
        serving_in_thread(uvicorn.Server(config), listener, name="status"),
    ):
        host, port = listener.getsockname()[:2]
        yield reachable_url(host, port)
