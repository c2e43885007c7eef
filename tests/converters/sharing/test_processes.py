"""Pipelines as processes on one store and one control database; kill -9 of the leader and of a worker."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spanloop.foundation.control.pipelines import PipelineState, running_pipelines
from spanloop.foundation.control.sessions import ControlSessions
from spanloop.pipeline import run_lease
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONTROL_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ...training.training_running import url_of
from ..converters.converters_world import loop
from ..converters.pipeline_feed import Feed
from ..pipeline.test_concurrent import assert_converted
from ..pipeline.test_service import eventually

EPISODES = 120


@contextmanager
def processes(address: Address, folder: Path, count: int) -> Generator[list["subprocess.Popen[bytes]"]]:
    """Pipelines of their own data directories, which take batches of forty spans."""
    environment = {**os.environ, CLICKHOUSE_URL_ENV: url_of(address), CONTROL_URL_ENV: f"sqlite:///{folder}/control.db"}
    options = ["--interval-s", "0.2", "--batch-spans", "40"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            command = [sys.executable, "-m", "spanloop.pipeline", "--data-dir", str(folder / f"{number}"), *options]
            with (folder / f"{number}.log").open("wb") as log:
                started.append(subprocess.Popen(command, env=environment, stderr=log))
        yield started
    finally:
        for each in started:
            each.kill()
            each.wait()


def running(folder: Path) -> list[PipelineState]:
    return running_pipelines(ControlSessions(folder / "control.db"))


def lease_owner(store: Store) -> str:
    rows = store.query("pipeline_run_lease", name=run_lease.NAME)
    return "" if rows.is_empty() else str(rows.item(0, "owner"))


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["leader", "worker", "nobody"])
def test_pipelines_share_a_run_and_survive_each_other(
    address: Address, store: Store, feed: Feed, tmp_path: Path, killed: str
) -> None:
    for number in range(EPISODES):
        loop(feed.world, f"n{number}", steps=4, attributes={"spanloop.episode.id": f"e{number}"})
    with processes(address, tmp_path, 2) as started:
        assert eventually(lambda: len(running(tmp_path)) == 2)
        feed.send()
        while not (holder := lease_owner(store)).startswith("shared"):
            time.sleep(0.005)
        if killed != "nobody":
            leader = next(each for each in started if f":{each.pid}:" in holder)
            victim = leader if killed == "leader" else next(each for each in started if each is not leader)
            victim.send_signal(signal.SIGKILL)
        began_s = time.monotonic()
        assert eventually(lambda: len(feed.episodes()) == EPISODES)
        took_s = time.monotonic() - began_s
        spans = [each.spans for each in running(tmp_path)]
        print(f"{killed} killed: converted {took_s:.1f} s later, by each {spans}")  # noqa: T201 - `pytest -rP` shows it
        assert took_s < 60
        if killed == "nobody":
            assert eventually(lambda: sum(each.spans for each in running(tmp_path)) == 4 * EPISODES)
            assert all(each.spans for each in running(tmp_path))
            for each in started:
                each.terminate()
            assert [each.wait(60) for each in started] == [0, 0]
            assert running(tmp_path) == []
    assert_converted(feed)
