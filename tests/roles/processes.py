"""Every role of a spanloop as a process of its own, started by ``spanloop serve`` and found by addresses and a key."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address

from ..dashboard.cli.support import SPANLOOP
from ..faults.support import wait_for
from ..ports import free_port
from ..training.jobs.postgresql_server import PostgreSqlServer
from .load import Reached

STORE_PASSWORD = "a-password-of-the-store"
WITH_PORTS = ("clickhouse", "collector-1", "collector-2", "gateway", "dashboard")
END_TIMEOUT_S = 60.0


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
    """One process, with a data directory of its own.

    Args:
        name: The role, perhaps with a number: ``collector-2``.
        folder: The folder of all data directories and logs.
        options: Of ``spanloop serve``.
        environment: The whole one.
    """

    def __init__(self, name: str, folder: Path, options: Sequence[str], environment: dict[str, str]) -> None:
        self.name = name
        self.role = name.partition("-")[0]
        self.data_dir = DataDir(folder / name).open()
        self.log = folder / f"{name}.log"
        self._command = [str(SPANLOOP), "serve", self.role, "--data-dir", str(self.data_dir.path), *options]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def command_line(self) -> str:
        """What a process list shows."""
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/cmdline").read_text()

    def start(self) -> None:
        """Start it; does not wait until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def await_start(self) -> None:
        """Wait until it has announced itself."""

        def is_announced() -> bool:
            assert not self.has_ended, self.log.read_text()
            running = self.data_dir.running(self.role)
            return running is not None and self._process is not None and running.pid == self._process.pid

        wait_for(is_announced, f"{self.name} to start")

    def kill(self) -> None:
        """Send kill -9 and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """Send SIGTERM and return the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(END_TIMEOUT_S)


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
    """Roles on one configuration file and one key; none is started.

    Args:
        folder: Of the file, the secrets, the shared folder, and each role's data directory and log.
        control_url: Of the control database.
    """

    def __init__(self, folder: Path, control_url: str) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self.key = ""
        self.started: dict[str, Role] = {}
        self._ports = {name: free_port() for name in WITH_PORTS}
        secrets = folder / "secrets"
        for new in (self.shared, secrets):
            new.mkdir(parents=True)
        self._store_url = f"http://spanloop:{STORE_PASSWORD}@127.0.0.1:{self._ports['clickhouse']}/spanloop"
        self._control_url = control_url
        (secrets / "password").write_text(STORE_PASSWORD)
        (secrets / "clickhouse").write_text(self._store_url)
        (secrets / "control").write_text(control_url)
        (folder / "spanloop.toml").write_text(
            f"""
            [services]
            collector_url = "{self.url("collector-1")}"
            gateway_url = "{self.url("gateway")}"
            dashboard_url = "{self.url("dashboard")}"
            clickhouse_url_file = "secrets/clickhouse"
            control_url_file = "secrets/control"
            key_file = "secrets/key"
            [storage]
            shared_dir = "shared"
            [serve.clickhouse]
            port = {self._ports["clickhouse"]}
            password_file = "secrets/password"
            [serve.collector]
            port = {self._ports["collector-1"]}
            [serve.gateway]
            port = {self._ports["gateway"]}
            [serve.dashboard]
            port = {self._ports["dashboard"]}
            """
        )
        self.key = self.run("keys", "create", "operator", "--scope", "admin").stdout.strip()
        (secrets / "key").write_text(self.key)

    @property
    def configuration(self) -> Path:
        """The file of all roles."""
        return self.folder / "spanloop.toml"

    @property
    def operator(self) -> DataDir:
        """The data directory of a host that runs no role."""
        return DataDir(self.folder / "operator").open()

    @property
    def address(self) -> Address:
        """Of the store."""
        return Address.parse(self._store_url)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may read in a process list."""
        return STORE_PASSWORD, self.key

    def variables(self) -> dict[str, str]:
        """Return what the file says, for the test's own process."""
        return {
            "SPANLOOP_CLICKHOUSE_URL": self._store_url,
            "SPANLOOP_CONTROL_URL": self._control_url,
            "SPANLOOP_COLLECTOR_URL": self.url("collector-1"),
            "SPANLOOP_GATEWAY_URL": self.url("gateway"),
            "SPANLOOP_DASHBOARD_URL": self.url("dashboard"),
            "SPANLOOP_KEY": self.key,
            "SPANLOOP_SHARED_DIR": str(self.shared),
        }

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that has all settings from the file."""
        own = self.variables()
        others = {name: value for name, value in os.environ.items() if name not in own}
        return {**others, "SPANLOOP_CONFIG": str(self.configuration), "COLUMNS": "250"}

    def url(self, name: str) -> str:
        """Return the address of a role with a port."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def reached(self) -> Reached:
        """Return where a load finds the roles."""
        collectors = [self.url(name) for name in ("collector-1", "collector-2")]
        return Reached(collectors, [self.url("gateway")], self.url("dashboard"), self.key, self.operator)

    def run(self, *arguments: str, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
        """Run ``spanloop`` on a host that runs no role."""
        command = [str(SPANLOOP), *arguments, "--data-dir", str(self.operator.path)]
        return subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def start(self, name: str, *options: str) -> Role:
        """Start a role, and wait until it has announced itself."""
        port = ("--port", str(self._ports[name])) if name == "collector-2" else ()
        self.started[name] = role = Role(name, self.folder, (*port, *options), self.environment())
        role.start()
        role.await_start()
        return role

    def kill(self) -> None:
        """Kill whatever runs."""
        for role in self.started.values():
            role.kill()

    def stop(self) -> dict[str, int]:
        """Stop all in the order of their start, the newest first; return their exit codes."""
        return {name: role.terminate() for name, role in reversed(self.started.items())}
