"""Services of a spanloop besides ClickHouse: their commands and their ports."""

import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from spanloop.foundation.errors import PortInUseError
from spanloop.semconv.environment import COLLECTOR_PORT, DASHBOARD_PORT, GATEWAY_PORT, configured_address

if TYPE_CHECKING:
    from pathlib import Path

    from spanloop.foundation.paths import DataDir

HOST = "127.0.0.1"


class Service(NamedTuple):
    """One process that ``spanloop up`` starts and watches."""

    name: str
    module: str
    port: int | None
    """None for a service without a port."""
    arguments: tuple[str, ...] = ()
    """Further arguments, after ``--data-dir`` and ``--port``."""

    def command(self, data_dir: "DataDir") -> list[str]:
        """Return the command line."""
        command = [sys.executable, "-m", self.module, "--data-dir", str(data_dir.path)]
        port_option = [] if self.port is None else ["--port", str(self.port)]
        return [*command, *port_option, *self.arguments]


class Ports(NamedTuple):
    """The ports of the services."""

    collector: int = COLLECTOR_PORT
    gateway: int = GATEWAY_PORT
    dashboard: int = DASHBOARD_PORT

    @classmethod
    def configured(cls, data_dir: "Path", *given: int | None) -> "Ports":
        """Return given ports; for each None that of the role's settings, or its default where these say 0."""
        from spanloop.foundation.settings import load_configuration
        from spanloop.foundation.settings.roles import (
            CollectorSettings,
            DashboardSettings,
            GatewaySettings,
            ListeningSettings,
        )
        from spanloop.foundation.settings.sources import resolve

        configuration = load_configuration(data_dir)
        roles: tuple[type[ListeningSettings], ...] = (CollectorSettings, GatewaySettings, DashboardSettings)
        settings = (resolve(role, configuration).settings for role in roles)
        return cls(*(port or each.port or default for port, each, default in zip(given, settings, cls(), strict=True)))

    @classmethod
    def free(cls) -> "Ports":
        """Return three ports that are free now."""
        with socket.socket() as a, socket.socket() as b, socket.socket() as c:
            for probe in (a, b, c):
                probe.bind((HOST, 0))
            return cls(a.getsockname()[1], b.getsockname()[1], c.getsockname()[1])


def services(ports: Ports, *, dashboard: bool = True, pipeline: bool = True, vllm_args: str = "") -> list[Service]:
    """List the services besides ClickHouse that run on this machine, in start order.

    A service is left out when a setting names its address, which is elsewhere, or when its extra is not installed.

    Args:
        ports: Their ports.
        dashboard: Whether to serve the web pages.
        pipeline: Whether to convert new spans.
        vllm_args: Option of the gateway; empty leaves it to the gateway's settings.
    """
    started = [
        Service("collector", "spanloop.collector", ports.collector),
        Service("gateway", "spanloop.gateway", ports.gateway, (f"--vllm-args={vllm_args}",) if vllm_args else ()),
        Service("scheduler", "spanloop.training.run.scheduler", None),
    ]
    if pipeline:
        started.append(Service("pipeline", "spanloop.pipeline", None))
    if dashboard and find_spec("streamlit") is not None:
        started.append(Service("dashboard", "spanloop.dashboard", ports.dashboard))
    return [service for service in started if configured_address(service.name) is None]


def check_ports(services: list[Service]) -> None:
    """Check that every port is free, before anything starts.

    Raises:
        PortInUseError: Names the port, the process that uses it, and the option that chooses another.
    """
    service_by_port: dict[int, str] = {}
    for service in services:
        if service.port is None:
            continue
        first_user = service_by_port.setdefault(service.port, service.name)
        if first_user != service.name:
            raise PortInUseError(
                f"Port {service.port} is requested twice: for the {first_user} and for the {service.name}.",
                next_step=f"Choose another port: spanloop up --{service.name}-port PORT",
            )
        if not is_free(service.port):
            raise PortInUseError(
                f"Port {service.port} on {HOST}, needed by the {service.name}, is in use{_used_by(service.port)}.",
                next_step=f"Stop that process, or choose another port: spanloop up --{service.name}-port PORT",
            )


def is_free(port: int) -> bool:
    """Whether nothing on this machine uses a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _used_by(port: int) -> str:
    for name, pid in _listeners(port):
        return f" by process {pid} ({name})"
    return " by another process"


def _listeners(port: int) -> Iterator[tuple[str, int]]:
    import psutil

    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr[1] == port
            if listens and connection.pid:
                yield psutil.Process(connection.pid).name(), connection.pid
