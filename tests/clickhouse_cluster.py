"""A ClickHouse cluster on this machine: servers of the wheel chdb-core, each a process of its own.

A shard has one server, or copies that the Distributed tables write to (`internal_replication` is false), because the
wheel has no Keeper. `remote_servers` is the whole difference from the configuration of such servers in production.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Final, Self

from spanloop.embedded_clickhouse.config import MALLOC_ENV, MALLOC_SETTINGS
from spanloop.store.client import Address

from .ports import free_port

NAME: Final = "two_shards"
USER, PASSWORD = "spanloop", "password of the cluster"
START_TIMEOUT_S: Final = 60
PROGRAM: Final = """
import os, sys
from spanloop.embedded_clickhouse.server import load_extension
os.chdir(sys.argv[1])
query = ("SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; "
         "SELECT sleepEachRow(1) FROM system.numbers SETTINGS max_block_size = 1 FORMAT Null")
print(load_extension().query(query, "TabSeparated", path=sys.argv[1] + "/data").error_message(), flush=True)
os._exit(1)
"""
CONFIG: Final = """<clickhouse>
  <listen_host>{listen}</listen_host><http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>
  <users_config>users.xml</users_config><timezone>UTC</timezone>
  <max_server_memory_usage>1000000000</max_server_memory_usage>
  <mark_cache_size>33554432</mark_cache_size><primary_index_cache_size>33554432</primary_index_cache_size>
  <memory_worker_period_ms>1000</memory_worker_period_ms>
  <shutdown_wait_unfinished>1</shutdown_wait_unfinished>
  <background_processing_pool_thread_sleep_seconds_if_nothing_to_do>2</background_processing_pool_thread_sleep_seconds_if_nothing_to_do>
  <background_processing_pool_task_sleep_seconds_when_no_work_max>10</background_processing_pool_task_sleep_seconds_when_no_work_max>
  <background_merges_mutations_concurrency_ratio>32</background_merges_mutations_concurrency_ratio>
  <log-level>warning</log-level><logger><async>false</async><log>{folder}/clickhouse.log</log></logger>
  {remote_servers}
</clickhouse>"""
USERS: Final = """<clickhouse>
  <profiles><default><http_max_field_value_size>67108864</http_max_field_value_size>
    <log_queries>0</log_queries><compile_expressions>0</compile_expressions>
    <compile_aggregate_expressions>0</compile_aggregate_expressions></default></profiles>
  <quotas><default/></quotas>
  <users>
    <default><password/><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>
      <grants><query>GRANT SYSTEM LISTEN ON *.*</query><query>GRANT SELECT ON system.numbers</query></grants></default>
    {users}
  </users>
</clickhouse>"""

USER_OF_THIS_MACHINE: Final = f"""<{USER}><password>{PASSWORD}</password><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota></{USER}>"""


def write_configuration(
    folder: Path, data: Path, *, listen: str, http: int, tcp: int, servers: str, users: str
) -> None:
    """Write a server's configuration; `PROGRAM` reads it.

    Args:
        folder: Where the files are written.
        data: The folder's path where the server runs.
        listen: The address that it listens on.
        http: Its port of HTTP.
        tcp: Its native port.
        servers: The element ``remote_servers``.
        users: The elements of its users.
    """
    text = CONFIG.format(listen=listen, http=http, tcp=tcp, folder=data, remote_servers=servers)
    (folder / "config.xml").write_text(text)
    (folder / "users.xml").write_text(USERS.format(users=users))


def remote_servers(shards: list[list[int]], *, internal_replication: bool) -> str:
    """Return the configuration of the cluster; a shard is the native ports of its copies."""
    internal = "true" if internal_replication else "false"
    text = ""
    for ports in shards:
        replicas = "".join(f"<replica><host>127.0.0.1</host><port>{port}</port></replica>" for port in ports)
        text += f"<shard><internal_replication>{internal}</internal_replication>{replicas}</shard>"
    return f"<remote_servers><{NAME}><secret>of the servers</secret>{text}</{NAME}></remote_servers>"


class ClusterServer:
    """One server of the cluster."""

    def __init__(self, folder: Path, *, http: int, tcp: int, servers: str) -> None:
        self.folder = folder
        self.http = http
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        write_configuration(
            folder, folder, listen="127.0.0.1", http=http, tcp=tcp, servers=servers, users=USER_OF_THIS_MACHINE
        )

    def start(self) -> None:
        """Start the process, without waiting until it answers."""
        environment = {**os.environ, MALLOC_ENV: MALLOC_SETTINGS}
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
            )

    def wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/ping", timeout=1):
                    return
            except OSError:
                assert time.monotonic() < deadline, (self.folder / "out").read_text()[-2000:]
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill the process (SIGKILL), if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


class ClickHouseCluster:
    """Servers of one cluster. A context manager.

    Args:
        folder: Where the servers store their data.
        shards: Number of shards.
        copies: Number of servers of each shard.
        internal_replication: Whether an insert goes to one copy, as where ClickHouse replicates it to the others.
    """

    def __init__(self, folder: Path, *, shards: int = 2, copies: int = 1, internal_replication: bool = False) -> None:
        ports = [[free_port() for _ in range(copies)] for _ in range(shards)]
        servers = remote_servers(ports, internal_replication=internal_replication)
        self.shards = [
            [ClusterServer(folder / f"{port}", http=free_port(), tcp=port, servers=servers) for port in of_shard]
            for of_shard in ports
        ]
        self.servers = [server for of_shard in self.shards for server in of_shard]

    def urls(self, database: str) -> str:
        """Return the value of SPANLOOP_CLICKHOUSE_URL."""
        password = PASSWORD.replace(" ", "%20")
        return ",".join(f"http://{USER}:{password}@127.0.0.1:{server.http}/{database}" for server in self.servers)

    def address(self, database: str) -> Address:
        """Return the address of a database on the cluster."""
        return Address.parse(self.urls(database), cluster=NAME)

    def __enter__(self) -> Self:
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait()
        return self

    def __exit__(self, *error: object) -> None:
        for server in self.servers:
            server.kill()
