"""Every role of a spanloop as a process with a data directory of its own, that can be killed and started again."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from spanloop.datadir import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONTROL_URL_ENV, SHARED_DIR_ENV
from spanloop.store.discovery import embedded_address

from ..control.postgresql_server import PostgreSqlServer
from ..faults.support import url_of
from ..ports import free_port

RUNNER = Path(__file__).parents[1] / "control" / "tiny_runner.py"
TIMEOUT_S = 120.0


class Killable(Protocol):
    """What the storm kills."""

    name: str

    def kill(self) -> None:
        """Send kill -9 and wait for the end."""
        ...

    def start(self) -> None:
        """Start it, again."""
        ...


class Role:
    """One process.

    Args:
        name: Also of its data directory.
        folder: The folder of all data directories and logs.
        module: Below ``spanloop``.
        options: Further options.
        environment: Besides the test's own.
    """

    def __init__(
        self, name: str, folder: Path, module: str, options: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.data_dir = DataDir(folder / name).open()
        self.log = folder / f"{name}.log"
        self.starts = 0
        command = [sys.executable, "-m", f"spanloop.{module}", "--data-dir", str(self.data_dir.path)]
        self._command = [*command, *options]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start it; does not wait until it is ready."""
        self.starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def kill(self) -> None:
        """Send kill -9 and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """Send SIGTERM and return the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(TIMEOUT_S)


class PostgreSql:
    """The control database's server."""

    name = "postgresql"

    def __init__(self, server: PostgreSqlServer) -> None:
        self._server = server

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._server.start()

    def kill(self) -> None:
        """Send kill -9 and wait for the end."""
        self._server.kill()


class Roles:
    """All roles: two collectors, two pipelines, two schedulers, two runners, a gateway and ClickHouse.

    Args:
        folder: An empty folder.
        control_url: Of the control database.
        upstream: URL of the server behind the gateway.
        job: Arguments of the script that stands for a training (``tests/control/tiny_runner.py``).
    """

    def __init__(self, folder: Path, control_url: str, upstream: str, job: str) -> None:
        self._folder = folder
        self._ports = {name: free_port() for name in ("clickhouse", "collector-1", "collector-2", "gateway")}
        self.shared = folder / "shared"
        self.shared.mkdir(parents=True)
        self._clickhouse = self._role("clickhouse", "embedded_clickhouse.server", {})
        self._clickhouse.start()
        wait_for(lambda: self._clickhouse.data_dir.running("clickhouse") is not None, "ClickHouse to start")
        self.address = embedded_address(self._clickhouse.data_dir)
        self.environment = {
            CLICKHOUSE_URL_ENV: url_of(self.address),
            CONTROL_URL_ENV: control_url,
            SHARED_DIR_ENV: str(self.shared),
        }
        runner = shlex.join([sys.executable, str(RUNNER), *shlex.split(job)])
        kinds = (
            ("collector", "collector", ("--no-grpc",)),
            ("pipeline", "pipeline", ("--interval-s", "1")),
            ("scheduler", "training.scheduler", ("--slots", "0")),
            ("runner", "training.runner", ("--slots", "2", "--runner", runner)),
        )
        pairs = [
            self._role(f"{name}-{number}", module, self.environment, *options)
            for name, module, options in kinds
            for number in (1, 2)
        ]
        gateway = self._role("gateway", "gateway", self.environment, "--upstream", upstream)
        self.all = (self._clickhouse, *pairs, gateway)

    def url(self, name: str) -> str:
        """Return the address of a role with a port."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def start(self) -> None:
        """Start all but ClickHouse, which runs."""
        for role in self.all[1:]:
            role.start()

    def kill(self) -> None:
        """Kill whatever runs."""
        for role in self.all:
            role.kill()

    def _role(self, name: str, module: str, environment: Mapping[str, str], *options: str) -> Role:
        port = self._ports.get(name)
        port_option = () if port is None else ("--port", str(port))
        return Role(name, self._folder, module, (*port_option, *options), environment)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Poll until the condition holds."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.1)
