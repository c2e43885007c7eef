"""A spanloop over hosts, set up by the commands of a page, beside the servers that an operator has already."""

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from spanloop.embedded_clickhouse.config import MALLOC_ENV, MALLOC_SETTINGS

from ...clickhouse_cluster import PROGRAM, write_configuration
from ...training.jobs.postgresql_server import find_programs
from .network import HOME, Host, Network, missing
from .page import Block, on_hosts, read_blocks
from .services import RayNode, Service, Supervisor

PAGE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "use-a-cluster.md"
CLICKHOUSE: Final = ("ch1", "ch2", "ch3", "ch4")
SERVERS: Final = (*CLICKHOUSE, "db", "bucket", "app")
"""Hosts that do not mount the network file system."""
CLUSTER: Final = "spans"
CLICKHOUSE_PORT, NATIVE_PORT, POSTGRESQL_PORT, BUCKET_PORT = 8123, 9000, 5432, 5000
PORTS: Final = {"collector": 4318, "gateway": 8010, "dashboard": 8501}
BIN: Final = Path(sys.executable).parent
# Debian's server lets its user postgres in by the socket, and others by a password.
_POSTGRESQL: Final = (
    "fsync=off", "shared_buffers=16MB", "max_connections=200", "autovacuum=off", "jit=off", "listen_addresses=*",
    "unix_socket_directories=/tmp",
)  # fmt: skip
_SUDO: Final = """#!/bin/sh
# stands for `sudo -u USER COMMAND`, which this machine may lack
user=$2
shift 2
exec runuser -u "$user" -- "$@"
"""
# Small processes: the hosts share two cores.
SMALL: Final = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "2", "TORCHDYNAMO_DISABLE": "1", "COLUMNS": "250"}


def cannot_run() -> str:
    """Return why a deployment cannot be made here, empty if it can."""
    without_postgresql = "" if find_programs() else "needs PostgreSQL's server (apt-get install postgresql)"
    return missing() or without_postgresql


class Deployment:
    """Hosts with services.

    Args:
        network: The hosts, started.
        supervisor: Of the services, started.
        page: The page whose blocks set it up.
    """

    def __init__(self, network: Network, supervisor: Supervisor, page: Path = PAGE) -> None:
        self.network = network
        self.supervisor = supervisor
        absent = [name for name in CLICKHOUSE if name not in network.hosts]
        self.blocks = [without(block, absent) for block in on_hosts(read_blocks(page), network.hosts)]
        self._programs = find_programs()
        for host in network.hosts.values():
            (host.srv / "bin").mkdir()
            path = [str(HOME / "bin"), str(BIN), os.environ["PATH"]]
            if host.name == "db":
                path.insert(1, str(self._programs))
            host.environment |= {"PATH": ":".join(path), **SMALL}

    def walk(self, before: "Callable[[Deployment, Block], None] | None" = None) -> str:
        """Start the servers, then do what all blocks say; return what their commands print.

        Args:
            before: Called before each block, if given.
        """
        self.start_postgresql()
        self.start_bucket()
        printed = ""
        for block in self.blocks:
            if not block.path and "clickhouse" not in {service.role for service in self.supervisor.services.values()}:
                self.start_clickhouse()
            if before is not None:
                before(self, block)
            began_s = time.monotonic()
            output = self.apply(block)
            title = f"{', '.join(block.hosts)}: {block.path or block.text.strip().splitlines()[-1]}"
            sys.stderr.write(f"{title} [{time.monotonic() - began_s:.1f} s]\n{output}\n")
            printed += output
        return printed

    def apply(self, block: Block) -> str:
        """Do what a block says on its hosts; return what its commands print."""
        printed = ""
        for name in block.hosts:
            host = self.network[name]
            if block.path:
                (host.srv / Path(block.path).parent.name).mkdir(exist_ok=True)
                (host.srv / Path(block.path).parent.name / Path(block.path).name).write_text(block.text)
            elif block.services:
                for role, script in block.services:
                    self.serve(host, role, script)
            else:
                printed += host.run(["bash", "-ec", block.text], timeout_s=900)
        return printed

    def serve(self, host: Host, role: str, script: str) -> Service:
        """Start a service, and wait until it is ready."""
        made = RayNode if role == "ray" else Service
        service = made(host, role, ["bash", "-c", script])
        self.supervisor.start(service)
        folder = self.network.shared / host.name if role == "runner" else host.srv / "data"
        if role != "ray":
            self.supervisor.wait((folder / "run" / f"{role}.json").exists, service, timeout_s=300)
        return service

    def start_clickhouse(self) -> None:
        """Start a ClickHouse on each of its hosts, with the page's two files."""
        names = [name for name in CLICKHOUSE if name in self.network.hosts]
        for name in names:
            host = self.network[name]
            servers = _element(host.srv / "config.d" / "spanloop.xml", "remote_servers")
            users = "".join(ET.tostring(user, "unicode") for user in _children(host.srv / "users.d" / "spanloop.xml"))
            write_configuration(
                host.srv, HOME, listen="0.0.0.0", http=CLICKHOUSE_PORT, tcp=NATIVE_PORT, servers=servers, users=users,
            )  # fmt: skip
            command = [sys.executable, "-c", PROGRAM, str(HOME)]
            self.supervisor.start(Service(host, "clickhouse", command, {MALLOC_ENV: MALLOC_SETTINGS}))
        for name in names:
            self._await_port(self.network[name], CLICKHOUSE_PORT)

    def start_postgresql(self) -> None:
        """Start a PostgreSQL as Debian's package makes it, which listens on the network."""
        host = self.network["db"]
        host.environment["PGHOST"] = "/tmp"
        sudo = host.srv / "bin" / "sudo"
        sudo.write_text(_SUDO)
        sudo.chmod(0o755)
        folder = HOME / "postgresql"
        host.run(["install", "-d", "-o", "postgres", str(folder)])
        auth = ["--auth-local=peer", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        host.run(["runuser", "-u", "postgres", "--", "initdb", f"--pgdata={folder}", *auth])
        with (host.srv / "postgresql" / "pg_hba.conf").open("a") as file:
            file.write("host all all samenet scram-sha-256\n")
        options = [word for setting in _POSTGRESQL for word in ("-c", setting)]
        command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "postgres", "-D", str(folder)]
        self.supervisor.start(Service(host, "postgresql", [*command, *options]))
        self._await_port(host, POSTGRESQL_PORT)

    def start_bucket(self) -> None:
        """Start an object storage, which keeps everything in its memory."""
        host = self.network["bucket"]
        command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "0.0.0.0", "-p", str(BUCKET_PORT)]
        self.supervisor.start(Service(host, "bucket", command))
        self._await_port(host, BUCKET_PORT)

    def _await_port(self, host: Host, port: int) -> None:
        service = next(each for each in self.supervisor.services.values() if each.host is host)

        def listens() -> bool:
            with socket.socket() as probe:
                probe.settimeout(1)
                return probe.connect_ex((host.address, port)) == 0

        self.supervisor.wait(listens, service)

    def variables(self) -> dict[str, str]:
        """Return the page's settings for the test's process, which knows hosts by address, and not the bucket."""
        secrets = self.network.shared / "secrets"
        read = {
            "SPANLOOP_CLICKHOUSE_URL": (secrets / "clickhouse-url").read_text().strip(),
            "SPANLOOP_CLICKHOUSE_CLUSTER": CLUSTER,
            "SPANLOOP_CONTROL_URL": (secrets / "control-url").read_text().strip(),
            "SPANLOOP_COLLECTOR_URL": "http://collector1:4318",
            "SPANLOOP_GATEWAY_URL": "http://gateway1:8010",
            "SPANLOOP_KEY": (secrets / "key").read_text().strip(),
        }
        addresses = {name: host.address for name, host in self.network.hosts.items()}
        named = re.compile(rf"\b({'|'.join(addresses)})(?=:\d)")
        of_addresses = {name: named.sub(lambda match: addresses[match[1]], value) for name, value in read.items()}
        return of_addresses | {"SPANLOOP_SHARED_DIR": str(self.network.shared)}

    def url(self, name: str, role: str) -> str:
        """Return the address of a role with a port."""
        return f"http://{self.network[name].address}:{PORTS[role]}"


@contextmanager
def deployment(folder: Path, names: Sequence[str]) -> Generator[Deployment]:
    """Make hosts without services, whose network the block's thread uses as the laptop does."""
    sharing = [name for name in names if name not in SERVERS]
    with Network(folder, names, sharing) as network, Supervisor() as supervisor, network.entered("laptop"):
        yield Deployment(network, supervisor)


def without(block: Block, servers: Sequence[str]) -> Block:
    """Return a block that does not name some servers of ClickHouse, so that a shard has fewer copies."""
    text = block.text
    for name in servers:
        text = re.sub(rf"\s*<replica><host>{name}</host>.*?</replica>", "", text)
        text = re.sub(rf",http://[^,\s]+@{name}:\d+/\w+", "", text)
    return block._replace(text=text)


def _children(path: Path) -> list[ET.Element]:
    users = ET.parse(path).getroot().find("users")
    assert users is not None
    return list(users)


def _element(path: Path, name: str) -> str:
    element = ET.parse(path).getroot().find(name)
    assert element is not None
    return ET.tostring(element, "unicode")
