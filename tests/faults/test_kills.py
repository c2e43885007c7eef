"""kill -9 of a real collector, at every failpoint and at random instants; one ledger covers all restarts."""

import random
import time
from typing import Final

import pytest

from .support import SMALL_SPOOL, TIMEOUT_S, FailpointCollector, Scene, Senders, wait_for

WRITES: Final = ("before", "torn", "after")
EDGES: Final = ("before", "after")
POINTS: Final = {
    "create segment": EDGES, "sync directory": EDGES, "write segment": WRITES, "sync segment": EDGES,
    "answer": EDGES, "read segment": EDGES, "write cursor": WRITES, "sync cursor": EDGES,
    "send insert": ("before", "torn"), "answer insert": EDGES, "delete segment": EDGES,
}  # fmt: skip
EVERY_FAILPOINT: Final = [f"{point}:{phase}" for point, phases in POINTS.items() for phase in phases]
RECOVERY: Final = ["read segment:before", "read segment:after", "delete segment:before", "delete segment:after"]
WORST: Final = ["write segment:torn", "answer:before", "answer insert:before", "sync cursor:before"]


def wait_for_the_end(collector: FailpointCollector) -> None:
    try:
        collector.process.wait(TIMEOUT_S)
    finally:
        collector.kill()
    assert collector.process.returncode == -9, collector.log.read_text()


def die_at(scene: Scene, failpoint: str, nth: int) -> None:
    """Run a collector that dies at the n-th passing of a failpoint, possibly while it recovers the spool."""
    collector = scene.launch(*SMALL_SPOOL, trap=f"{failpoint}:{nth}")
    if collector.is_listening():
        with Senders(collector.url, scene.ledger):
            wait_for_the_end(collector)
    assert collector.process.wait() == -9, collector.log.read_text()
    assert collector.died.read_text().splitlines()[-1] == failpoint


def test_kill_9_at_the_worst_points(scene: Scene) -> None:
    for failpoint in WORST:
        die_at(scene, failpoint, nth=2)
    scene.launch().finish()
    assert scene.settle("kills-at-the-worst-points").acknowledged > 0


@pytest.mark.slow
def test_kill_9_at_every_failpoint(scene: Scene, times: int) -> None:
    for nth in range(1, 2 * times + 1):
        for failpoint in EVERY_FAILPOINT:
            die_at(scene, failpoint, nth)
    scene.launch().finish()
    balance_of_run = scene.settle(f"kills-at-{len(EVERY_FAILPOINT)}-failpoints")
    assert balance_of_run.acknowledged > 0
    assert balance_of_run.unknown > 0


@pytest.mark.slow
def test_kill_9_at_random_instants(scene: Scene, times: int) -> None:
    rng = random.Random(20261120)
    kills = 50 * times
    for _ in range(kills):
        collector = scene.launch(*SMALL_SPOOL)
        # A quarter of the kills during start and recovery, the rest under load.
        if rng.random() < 0.25:
            time.sleep(rng.uniform(0.0, 1.5))
        elif collector.is_listening():
            with Senders(collector.url, scene.ledger):
                time.sleep(rng.uniform(0.0, 1.5))
                collector.kill()
        collector.kill()
        assert collector.process.returncode == -9, collector.log.read_text()
    scene.launch().finish()
    balance_of_run = scene.settle(f"kills-at-{kills}-random-instants")
    assert balance_of_run.acknowledged > 0
    assert balance_of_run.unknown > 0


@pytest.mark.slow
def test_kill_9_while_it_recovers(scene: Scene) -> None:
    """Without ClickHouse the segments accumulate; then each collector dies while it reads or deletes them."""
    collector = scene.launch("--no-grpc", "--spool-limit-bytes", "200000", url="")
    assert collector.is_listening()
    with Senders(collector.url, scene.ledger) as senders:
        wait_for(lambda: senders.statuses[503] > 0, "a full spool")
        collector.kill()
    for failpoint in RECOVERY:
        dying = scene.launch(*SMALL_SPOOL, trap=f"{failpoint}:1")
        assert dying.process.wait(TIMEOUT_S) == -9, dying.log.read_text()
        assert dying.died.read_text().splitlines()[-1] == failpoint
    scene.launch().finish()
    assert scene.settle("kills-while-recovering").refused > 0
