"""Test that a second pipeline takes over from one that died or hangs, with the rows that one alone would store."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import this_machine
from spanloop.pipeline import run_lease
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ...training.training_running import url_of
from ..converters.converters_world import loop
from ..converters.pipeline_feed import Feed
from .test_concurrent import assert_converted, is_converted
from .test_service import eventually

EPISODES = 40
CONTAINER = ("unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Runs a command with a pid namespace of its own, as a container does."""


class Pipeline:
    """A pipeline's process, and what it printed."""

    def __init__(self, address: Address, folder: Path, *container: str) -> None:
        self.data_dir = DataDir(folder)
        self.log = folder.with_suffix(".log")
        command = [sys.executable, "-m", "spanloop.pipeline", "--data-dir", str(folder), "--interval-s", "0.2"]
        with self.log.open("wb") as log:
            environment = {**os.environ, CLICKHOUSE_URL_ENV: url_of(address)}
            self._process = subprocess.Popen([*container, *command], stderr=log, env=environment)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the pipeline, in its container if it has one."""
        children = psutil.Process(self._process.pid).children()
        (children[0] if children else self._process).send_signal(number)

    def is_up(self) -> bool:
        """Whether it has announced itself."""
        return (self.data_dir.run / "pipeline.json").exists()

    def end(self) -> int:
        """Send SIGTERM and return the exit status."""
        self._process.terminate()
        return self._process.wait(60)

    def kill(self) -> None:
        """Send kill -9."""
        self._process.kill()
        self._process.wait()


@contextmanager
def pipelines() -> Generator[Callable[..., Pipeline]]:
    started: list[Pipeline] = []

    def start(address: Address, folder: Path, *container: str) -> Pipeline:
        started.append(Pipeline(address, folder, *container))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.kill()


def owner(store: Store) -> str:
    rows = store.query("pipeline_run_lease", name=run_lease.NAME)
    return "" if rows.is_empty() else str(rows.item(0, "owner"))


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "hanging", "killed in another container"])
def test_a_second_pipeline_takes_over_with_the_rows_of_one(
    *, address: Address, store: Store, feed: Feed, tmp_path: Path, end: str
) -> None:
    is_elsewhere = end == "killed in another container"
    if is_elsewhere and (not shutil.which("unshare") or subprocess.run([*CONTAINER, "true"], check=False).returncode):
        pytest.skip("no rights to make a pid namespace")
    for number in range(EPISODES):
        loop(feed.world, f"episode {number}", steps=4)
    with pipelines() as start:
        first = start(address, tmp_path / "first", *(CONTAINER if is_elsewhere else ()))
        assert eventually(first.is_up)
        feed.send()
        while not owner(store):
            time.sleep(0.005)
        first.send_signal(signal.SIGSTOP)
        holder = owner(store)
        assert holder, "it was stopped while it converted"
        assert holder.startswith(this_machine()) is not is_elsewhere
        second = start(address, tmp_path / "second")
        assert eventually(second.is_up)
        began_s = time.monotonic()
        if end != "hanging":
            first.kill()
        assert eventually(lambda: is_converted(feed))
        took_s = time.monotonic() - began_s
        print(f"{end}: converted {took_s:.1f} s later")  # noqa: T201 - `pytest -rP` shows it
        assert took_s < 30
        if end == "hanging":
            first.send_signal(signal.SIGCONT)
        loop(feed.world, "later", steps=4)
        feed.send()
        assert eventually(lambda: is_converted(feed))
        assert second.end() == 0
        if end == "hanging":
            assert first.end() == 0
    assert_converted(feed)
