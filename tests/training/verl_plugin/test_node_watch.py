"""A node that does not answer any more ends the attempt, whatever its process waits for."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.foundation.errors import JobError
from spanloop.training.verl_plugin.ray_cluster import node_watch
from spanloop.training.verl_plugin.ray_cluster.node_watch import Node, NodeWatch
from spanloop.training.verl_plugin.ray_cluster.session import cluster_connection

from ...ports import free_port
from ..training_running import a_plan

WAITING = """
import sys, time
from pathlib import Path
from spanloop.training.verl_plugin.ray_cluster import node_watch
from spanloop.training.verl_plugin.train_plan import TrainPlan

node_watch._EVERY_S = node_watch._GRACE_S = 0.05
plan = TrainPlan.model_validate_json(Path(sys.argv[1]).read_bytes())
node_watch.NodeWatch(plan, [node_watch.Node("a", "127.0.0.1", int(sys.argv[2]))]).start()
print("waiting", flush=True)
time.sleep(600)
"""


@pytest.fixture
def daemon() -> Iterator[socket.socket]:
    """What listens as a node's daemon does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_node_is_lost_when_it_did_not_answer_three_times_in_a_row(daemon: socket.socket, tmp_path: Path) -> None:
    node = Node("a", "127.0.0.1", daemon.getsockname()[1])
    watch = NodeWatch(a_plan(tmp_path), [node])
    assert watch.look() is None
    daemon.close()
    assert [watch.look() for _ in range(2)] == [None, None]
    with socket.create_server(("127.0.0.1", node.port)):
        assert watch.look() is None
    assert [watch.look() for _ in range(3)] == [None, None, node]


def test_an_exception_beside_nodes_that_answer_is_its_own(
    daemon: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_watch, "_SETTLE_S", 0.1)
    assert NodeWatch(a_plan(tmp_path), [Node("a", "127.0.0.1", daemon.getsockname()[1])]).lost_node() is None


def test_a_process_that_waits_for_a_lost_node_ends_with_a_report(daemon: socket.socket, tmp_path: Path) -> None:
    plan = a_plan(tmp_path, ray_address="10.0.0.1:6379")
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    command = [sys.executable, "-c", WAITING, str(tmp_path / "plan.json"), str(daemon.getsockname()[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        daemon.close()
        assert process.wait(timeout=60) == 1
    report = json.loads(plan.failure_path.read_text())
    assert (report["type"], report["is_transient"]) == ("NodeLostError", True)
    assert report["message"] == "the Ray node 127.0.0.1 of 10.0.0.1:6379 does not answer any more."


@pytest.mark.parametrize("waits", [True, False])
def test_a_cluster_that_does_not_answer_is_waited_for_or_refused(tmp_path: Path, *, waits: bool) -> None:
    plan = a_plan(tmp_path, ray_address=f"127.0.0.1:{free_port()}", wait_for_nodes=waits)
    with (
        pytest.raises(JobError, match="This host has no connection to the Ray cluster") as caught,
        cluster_connection(plan),
    ):
        pass
    assert caught.value.is_transient == waits


def test_an_address_of_rays_client_is_refused(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, ray_address="ray://10.0.0.1:10001")
    with pytest.raises(JobError, match="expected host:port of the head") as caught, cluster_connection(plan):
        pass
    assert not caught.value.is_transient
