"""Which processes make a spanloop, and the command of each."""

import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from spanloop.semconv.environment import COLLECTOR_PORT, DASHBOARD_PORT, GATEWAY_PORT
from spanloop.semconv.errors import PortInUseError

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

HOST = "127.0.0.1"


class Service(NamedTuple):
    """One process that ``up`` starts and watches."""

    name: str
    module: str
    port: int | None
    """None when it listens nowhere."""
    arguments: tuple[str, ...] = ()
    """Of its own, after those that all have."""

    def command(self, data_dir: "DataDir") -> list[str]:
        """The command line."""
        command = [sys.executable, "-m", self.module, "--data-dir", str(data_dir.path)]
        listens = [] if self.port is None else ["--port", str(self.port)]
        return [*command, *listens, *self.arguments]


class Ports(NamedTuple):
    """Where the services listen."""

    collector: int = COLLECTOR_PORT
    gateway: int = GATEWAY_PORT
    dashboard: int = DASHBOARD_PORT

    @classmethod
    def free(cls) -> "Ports":
        """Three ports that nobody listens on right now."""
        with socket.socket() as a, socket.socket() as b, socket.socket() as c:
            for each in (a, b, c):
                each.bind((HOST, 0))
            return cls(a.getsockname()[1], b.getsockname()[1], c.getsockname()[1])


def services(ports: Ports, *, dashboard: bool = True, pipeline: bool = True, vllm_args: str = "") -> list[Service]:
    """Every service besides ClickHouse that the installed extras allow, in the order of their start."""
    engine = (f"--vllm-args={vllm_args}",) if vllm_args else ()
    found = [
        Service("collector", "spanloop.collector", ports.collector),
        Service("gateway", "spanloop.gateway", ports.gateway, engine),
        Service("scheduler", "spanloop.training.scheduler", None),
    ]
    if pipeline:
        found.append(Service("pipeline", "spanloop.pipeline", None))
    if dashboard and find_spec("streamlit") is not None:
        found.append(Service("dashboard", "spanloop.dashboard", ports.dashboard))
    return found


def check_ports(wanted: list[Service]) -> None:
    """Refuse before anything starts when a port is taken.

    Raises:
        PortInUseError: Names the port, who holds it, and the option that moves it.
    """
    claimed: dict[int, str] = {}
    for service in wanted:
        if service.port is None:
            continue
        other = claimed.setdefault(service.port, service.name)
        if other != service.name:
            raise PortInUseError(
                f"Port {service.port} is asked for twice: for the {other} and for the {service.name}.",
                next_step=f"Choose another port: spanloop up --{service.name}-port PORT",
            )
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, service.port))
            except OSError as error:
                raise PortInUseError(
                    f"Port {service.port} on {HOST}, wanted for the {service.name}, is taken{_holder(service.port)}.",
                    next_step=f"Stop that process, or choose another port: spanloop up --{service.name}-port PORT",
                ) from error


def _holder(port: int) -> str:
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
