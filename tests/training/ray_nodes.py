"""A Ray cluster of somebody else's, whose nodes are processes on this machine, each with an address of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from spanloop.foundation.processes.marked import kill_processes
from spanloop.training.jobs.processes.job_processes import JOB_ID_ENV, JOB_TOKEN_ENV, JobMark

from ..ports import free_port

_START_LIMIT_S = 120
_LEFT = """
import json, sys, ray
ray.init(sys.argv[1], logging_level="ERROR")
actors = [actor for actor in ray._private.state.actors().values() if actor["State"] != "DEAD"]
groups = ray.util.placement_group_table().values()
print(json.dumps({
    "actors": [actor["ActorClassName"] for actor in actors],
    "groups": [group["placement_group_id"] for group in groups if group["state"] != "REMOVED"],
    "free": ray.available_resources()["CPU"] == ray.cluster_resources()["CPU"],
}))
"""


class Left(NamedTuple):
    """What jobs have on a cluster."""

    actors: list[str]
    """Classes of the actors that are alive or start."""
    groups: list[str]
    """Ids of the placement groups."""
    free: bool
    """Whether all CPUs are free."""


NOTHING = Left([], [], free=True)


class RayNodes:
    """Nodes with numbers from 0; the first one is the head.

    Args:
        folder: Ray's, with a short path.
        port: Of the head.
        cpus: Of each node.
    """

    def __init__(self, folder: Path, port: int, cpus: int) -> None:
        self._folder = folder
        self._port = port
        self._cpus = cpus
        self._count = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self, number: int) -> None:
        """Start a node; it is found by a mark in its processes' environment."""
        head = ["--head", f"--port={self._port}", "--include-dashboard=false", f"--temp-dir={self._folder}"]
        command = ["start", *(head if number == 0 else [f"--address={self.address}"])]
        command += [f"--node-ip-address=127.0.0.{number + 1}", f"--num-cpus={self._cpus}", "--disable-usage-stats"]
        variables = {JOB_ID_ENV: self._mark(number).job_id, JOB_TOKEN_ENV: "1"}
        # without idle workers
        variables |= {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
        # returns when the node's daemons run
        ray = Path(sys.executable).with_name("ray")
        subprocess.run(
            [ray, *command, "--object-store-memory=100000000"],
            env=os.environ | variables,
            check=True,
            capture_output=True,
            timeout=_START_LIMIT_S,
        )
        self._count = max(self._count, number + 1)

    def kill(self, number: int) -> None:
        """Send kill -9 to all processes of a node."""
        kill_processes(None, self._mark(number))

    def kill_all(self) -> None:
        """End the cluster."""
        for number in range(self._count):
            self.kill(number)

    def left(self) -> Left:
        """Return what jobs have on the cluster."""
        code = [sys.executable, "-W", "ignore", "-c", _LEFT, self.address]
        done = subprocess.run(code, capture_output=True, text=True, check=True, timeout=_START_LIMIT_S)
        return Left(**json.loads(done.stdout.splitlines()[-1]))

    def _mark(self, number: int) -> JobMark:
        return JobMark(f"ray-{self._port}-{number}", 1)


@contextmanager
def ray_nodes(count: int = 1, *, cpus: int = 8) -> Generator[RayNodes]:
    """A running cluster of so many nodes, without authentication."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    nodes = RayNodes(folder, free_port(), cpus)
    try:
        with patch.dict(os.environ, {"RAY_AUTH_MODE": "disabled"}):
            for number in range(count):
                nodes.start(number)
            yield nodes
    finally:
        nodes.kill_all()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def other_trainer(address: str) -> Generator[None]:
    """A program of somebody else's that has its TransferQueue on the cluster at ``address``; it outlives the block."""
    code = (
        f"import sys, ray, transfer_queue; ray.init({address!r}); transfer_queue.init(); print('up'); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"up\n" in process.stdout
        yield
        assert process.poll() is None
