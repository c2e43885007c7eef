# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Notice that a node of a job was lost, and end the job's attempt.

A node that is killed takes ranks with it. The others may then wait for them for ever, within a collective operation
or for rows. Invariant: an attempt ends within a minute after a reserved node, or the one of this process, has stopped
answering; its failure names the node and passes, so that the job goes on from its last checkpoint.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple

import ray

from spanloop.foundation.errors import JobError

from ..early_stopping import describe_failure
from ..train_plan import TrainPlan
from .placement import node_of

_EVERY_S = 2.0
_CONNECT_S = 5.0
_FAILURES = 3
"""A node is lost when it did not answer so many times in a row."""
_SETTLE_S = 5.0
"""A node whose loss ended its ranks stops answering within this time after their exception."""
_GRACE_S = 20.0
"""After a node was lost, verl has this time to end by itself and to mark its last checkpoint."""


class NodeLostError(JobError):
    """A node of the job does not answer any more."""

    is_transient = True


class Node(NamedTuple):
    """A node, by the address of its Ray daemon."""

    id: str
    host: str
    port: int

    def answers(self) -> bool:
        """Whether its daemon accepts connections."""
        try:
            with socket.create_connection((self.host, self.port), timeout=_CONNECT_S):
                return True
        except OSError:
            return False


class NodeWatch:
    """Looks at nodes from a thread of its own.

    Args:
        plan: Of the job.
        nodes: The nodes.
    """

    def __init__(self, plan: TrainPlan, nodes: Iterable[Node]) -> None:
        self._plan = plan
        self._failures = dict.fromkeys(nodes, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_until_ended, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(_CONNECT_S)

    def look(self) -> Node | None:
        """Look once; return a node that was lost."""
        for node, failures in self._failures.items():
            self._failures[node] = 0 if node.answers() else failures + 1
        silent = (node for node, failures in self._failures.items() if failures >= _FAILURES)
        return next(silent, None) or self._dead_node()

    def lost_node(self) -> Node | None:
        """Return the node whose loss caused an exception; None where none is lost within some seconds."""
        until = time.monotonic() + _SETTLE_S
        node = self.look()
        while node is None and time.monotonic() < until:
            time.sleep(_SETTLE_S / 10)
            node = self.look()
        return node

    def _dead_node(self) -> Node | None:
        """Return a node that Ray has given up, because it hangs or the network is interrupted."""
        dead = {str(node["NodeID"]) for node in ray.nodes() if not node["Alive"]} if ray.is_initialized() else set()
        return next((node for node in self._failures if node.id in dead), None)

    def _look_until_ended(self) -> None:
        while not self._ended.wait(_EVERY_S):
            node = self.look()
            if node is not None and not self._ended.wait(_GRACE_S):
                self._end_process(node)

    def _end_process(self, node: Node) -> None:
        """End this process, whose main thread waits for something that the node had."""
        error = node_lost(self._plan, node)
        print(error, file=sys.stderr, flush=True)  # noqa: T201 - the job's log
        self._plan.failure_path.write_text(json.dumps(describe_failure(error)))
        os._exit(1)


def node_lost(plan: TrainPlan, node: Node) -> NodeLostError:
    """Return the failure of a job that lost ``node``."""
    return NodeLostError(
        f"the Ray node {node.host} of {plan.run.ray_address} does not answer any more.",
        next_step="Start the node again, or add another one: the job waits in the queue, and goes on from its last "
        "checkpoint.",
    )


@contextmanager
def watched_nodes(plan: TrainPlan, groups: Iterable[Any]) -> Generator[None]:
    """Watch the nodes of a job's placement groups, and the one of this process, until the context ends.

    Raises:
        NodeLostError: In place of an exception that came of a lost node.
    """
    reserved = {node_of(group) for group in groups} | {ray.get_runtime_context().get_node_id()}
    watch = NodeWatch(
        plan,
        [
            Node(str(node["NodeID"]), str(node["NodeManagerAddress"]), int(node["NodeManagerPort"]))
            for node in ray.nodes()
            if node["NodeID"] in reserved
        ],
    )
    watch.start()
    try:
        yield
    except Exception as error:
        lost = watch.lost_node()
        if lost is None:
            raise
        raise node_lost(plan, lost) from error
    finally:
        watch.stop()
