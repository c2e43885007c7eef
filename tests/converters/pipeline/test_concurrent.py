"""Two runs at once, as a service and a manual ``spanloop convert`` are, end in what one run would have stored."""

import importlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.foundation.leases import StoredLease
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.foundation.tables.episodes import STEP_MEASURES
from spanloop.pipeline import load, run, run_lease
from spanloop.pipeline.affected_traces import AffectedTraces
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ..converters.converters_world import OPENING, loop, trace_id
from ..converters.pipeline_feed import Feed
from .test_service import eventually


def content(feed: Feed) -> list[pl.DataFrame]:
    """What a reader sees, less the numbers of the revisions: they count how often something was rewritten."""
    episodes = feed.sql("SELECT * EXCEPT converted_at FROM episodes FINAL WHERE is_deleted = 0 ORDER BY episode_id")
    tables = [episodes, *(feed.current(table) for table in ("transitions", "trajectories", "failures"))]
    return [table.drop("revision") for table in tables]


def assert_converted(feed: Feed) -> None:
    """The store holds what the converters make of all that was fed."""
    expected = feed.world.convert()
    for got, frame in zip(content(feed), expected[:4], strict=True):
        keys = [name for name in ("episode_id", "step", "row_number", "failure_id") if name in frame.columns]
        only_stored = {column.name for column in STEP_MEASURES} & set(frame.columns)
        converted = frame.drop("revision", *only_stored).sort(keys)
        assert_frame_equal(got.select(converted.columns).cast(converted.schema).sort(keys), converted)


def is_converted(feed: Feed) -> bool:
    try:
        assert_converted(feed)
    except AssertionError:
        return False
    return True


def service(address: Address, directory: DataDir) -> "subprocess.Popen[str]":
    """A pipeline of its own process on the store at ``address``; it announces itself in ``directory``."""
    user = f"{address.user}:{address.password}@" if address.user else ""
    url = f"{address.scheme}://{user}{address.host}:{address.port}/{address.database}"
    command = [sys.executable, "-m", "spanloop.pipeline", "--data-dir", str(directory.path), "--interval-s", "0.05"]
    environment = {**os.environ, CLICKHOUSE_URL_ENV: url}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_services_and_manual_runs_end_where_one_would(
    address: Address, store: Store, feed: Feed, tmp_path: Path
) -> None:
    for name in "abc":
        loop(feed.world, name, steps=4)
    feed.world.call(OPENING, None, trace=trace_id("broken"), error="Error code: 429")
    order = random.Random(7).sample(range(len(feed.world.spans)), len(feed.world.spans))
    directories = [DataDir(tmp_path / name) for name in ("one", "two")]
    services = [service(address, directory) for directory in directories]
    try:
        # One that is asked to stop while it still imports just dies.
        assert eventually(lambda: all(each.running("pipeline") for each in directories))
        for start in range(0, len(order), 2):
            feed.send(order[start : start + 2])
            run(store)
        assert eventually(lambda: is_converted(feed))
    finally:
        for each in services:
            each.send_signal(signal.SIGTERM)
    said = [each.communicate(timeout=60)[1] for each in services]
    assert [each.returncode for each in services] == [0, 0], said
    assert_converted(feed)


def hold(store: Store, holder: ProcessIdentity) -> None:
    """Let another process have the lease from now on."""
    store.insert("pipeline_state", pl.DataFrame({"name": [run_lease.NAME], "value": [f"{holder} 1"]}))


def test_a_turn_of_a_dead_process_is_free(store: Store, feed: Feed) -> None:
    loop(feed.world, "a")
    feed.send()
    hold(store, ProcessIdentity.current()._replace(start_ticks=1))
    assert run(store).episodes == 1


def test_a_turn_of_another_machine_is_free_when_it_was_not_renewed_in_time(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever process has its pid here."""
    loop(feed.world, "a")
    feed.send()
    elsewhere = ProcessIdentity.current()._replace(machine="another", start_ticks=1)
    hold(store, elsewhere)
    monkeypatch.setattr(run_lease, "LEASE_TIMEOUT_S", 1.5)
    waited = threading.Event()

    def renew() -> None:
        hold(store, elsewhere)
        waited.set()

    threading.Timer(0.7, renew).start()
    began_s = time.monotonic()
    assert run(store).episodes == 1
    assert waited.is_set()
    assert time.monotonic() - began_s > 2, "1.5 s after it was renewed"


def test_a_run_keeps_its_turn_however_long_its_batch_takes(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop(feed.world, "a", steps=3)
    feed.send()
    monkeypatch.setattr(run_lease, "LEASE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(run_lease, "RENEW_S", 0.2)
    module = importlib.import_module("spanloop.pipeline.run")
    others: list[threading.Thread] = []
    ended_while_loading: list[bool] = []

    def load_slowly(store_: Store, batch: AffectedTraces) -> load.Loaded:
        if not others:
            others.append(threading.Thread(target=run, args=(store,)))
            others[0].start()
            others[0].join(timeout=2)
            ended_while_loading.append(not others[0].is_alive())
        return load.load(store_, batch)

    monkeypatch.setattr(module, "load", load_slowly)
    assert run(store).episodes == 1
    others[0].join(timeout=60)
    assert ended_while_loading == [False]
    assert_converted(feed)


def test_a_run_that_lost_its_turn_does_its_work_again(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop(feed.world, "a", steps=3)
    feed.send([0, 2])
    stolen: list[str] = []

    def free(_: run_lease.LeaseRow) -> StoredLease:
        return StoredLease("", 0.0)

    def load_and_be_robbed(store_: Store, batch: AffectedTraces) -> load.Loaded:
        loaded = load.load(store_, batch)
        if not stolen:
            feed.send([1])
            stolen.append("another run took over, wrote, and is gone")
            with monkeypatch.context() as other:
                other.setattr(run_lease, "this_owner", lambda: "another")
                other.setattr(run_lease.LeaseRow, "read", free)
                run(store_)
        return loaded

    monkeypatch.setattr(importlib.import_module("spanloop.pipeline.run"), "load", load_and_be_robbed)
    run(store)
    assert_converted(feed)


def test_a_run_with_an_older_view_does_not_undo_a_newer_one(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop(feed.world, "a", steps=3)
    feed.send([0, 2])
    module = importlib.import_module("spanloop.pipeline.run")
    others: list[threading.Thread] = []

    def load_then_stall(store_: Store, batch: AffectedTraces) -> load.Loaded:
        loaded = load.load(store_, batch)
        if not others:
            feed.send([1])
            others.append(threading.Thread(target=run, args=(store,)))
            others[0].start()
            others[0].join(timeout=1)
        return loaded

    monkeypatch.setattr(module, "load", load_then_stall)
    run(store)
    others[0].join(timeout=60)
    assert not others[0].is_alive()
    assert_converted(feed)
