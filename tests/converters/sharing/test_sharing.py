"""Pipelines that share a run on the real store: what each converts, and what becomes of one that stops or dies."""

import importlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from sqlalchemy import select

from spanloop.foundation.control.engines import dispose_engines
from spanloop.foundation.control.pipelines import running_pipelines
from spanloop.foundation.control.sessions import ControlSessions
from spanloop.foundation.errors import LateInsertError
from spanloop.foundation.leases import LeaseLostError
from spanloop.pipeline import Report, load, run, run_lease
from spanloop.pipeline.affected_traces import AffectedTraces
from spanloop.pipeline.batches import Batch
from spanloop.pipeline.sharing import Sharing
from spanloop.pipeline.sharing import registration as registration_module
from spanloop.pipeline.sharing.plan import Plan, PutBackError, TakenBatch
from spanloop.pipeline.sharing.positions import choose_position
from spanloop.pipeline.sharing.registration import Registration
from spanloop.pipeline.sharing.tables import BatchRow
from spanloop.store import Store

from ...training.jobs.postgresql_server import PostgreSqlServer, find_programs
from ..converters.converters_world import loop
from ..converters.pipeline_feed import Feed
from ..pipeline.test_concurrent import assert_converted
from ..pipeline.test_service import eventually
from .interleaving import doubled_traces

RUN = importlib.import_module("spanloop.pipeline.run")
WAIT_S = 30


class Pipeline(threading.Thread):
    """A registered pipeline as a thread, which runs once."""

    def __init__(self, store: Store, folder: Path, *, batch_spans: int = 4) -> None:
        super().__init__()
        sessions = ControlSessions(folder / "control.db")
        self.registration = Registration(sessions)
        self.sharing = Sharing(sessions, self.registration)
        self.report = Report()
        self._store = store
        self._batch_spans = batch_spans
        self.registration.ensure()

    def run(self) -> None:
        with self.registration.renewed_by_thread():
            self.report = run(self._store, batch_spans=self._batch_spans, sharing=self.sharing)

    @property
    def spans(self) -> int:
        """New spans that it converted itself."""
        return self.registration.spans


def named_loops(feed: Feed, count: int) -> None:
    for number in range(count):
        loop(feed.world, f"n{number}", steps=2, attributes={"spanloop.episode.id": f"e{number}"})


def await_shared_lease(store: Store) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        rows = store.query("pipeline_run_lease", name=run_lease.NAME)
        if not rows.is_empty() and str(rows.item(0, "owner")).startswith("shared"):
            return
        time.sleep(0.02)
    raise AssertionError("nobody shares its lease")


def meet_at_first_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each of two threads load its first closed set when the other does."""
    barrier, met = threading.Barrier(2), set[int]()

    def load_together(store: Store, affected: AffectedTraces) -> load.Loaded:
        if threading.get_ident() not in met:
            met.add(threading.get_ident())
            barrier.wait(WAIT_S)
        return load.load(store, affected)

    monkeypatch.setattr(RUN, "load", load_together)


def test_two_pipelines_convert_a_page_together(
    store: Store, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_loops(feed, 12)
    feed.send()
    meet_at_first_load(monkeypatch)
    leader, worker = Pipeline(store, tmp_path), Pipeline(store, tmp_path)
    leader.start()
    await_shared_lease(store)
    worker.start()
    for each in (leader, worker):
        each.join(WAIT_S)
    assert_converted(feed)
    assert leader.spans + worker.spans == 24
    assert min(leader.spans, worker.spans) > 0
    assert (leader.report.spans, worker.report.spans) == (24, 0), "the leader counts all"
    assert len(running_pipelines(ControlSessions(tmp_path / "control.db"))) == 2
    assert run(store) == Report(), "the watermark has moved"


def test_a_late_insert_is_refused_by_the_server(store: Store, feed: Feed) -> None:
    """So a process that hung between its check and its request stores nothing."""
    rows = pl.DataFrame({"episode_id": ["e"], "revision": [1]})
    with run_lease.acquire(store) as lease:
        store.insert("replaced_revisions", rows, until_us=lease.to_server_us(lease.ends_s))
        with pytest.raises(LateInsertError):
            store.insert("replaced_revisions", rows, until_us=lease.to_server_us(time.monotonic() - 1))
    assert feed.sql("SELECT count() FROM replaced_revisions").item() == 1


def test_an_older_view_is_not_written_beside_a_newer_one(
    store: Store, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late calls join what one pipeline still has as two episodes, while another one converts."""
    loop(feed.world, "a", steps=4)
    feed.send([1, 3])
    leader, worker = (Pipeline(store, tmp_path, batch_spans=1) for _ in range(2))
    doubled: list[str] = []

    def is_put_back_or_done() -> bool:
        with ControlSessions(tmp_path / "control.db").read() as session:
            rows = session.scalars(select(BatchRow)).all()
            return any(row.blocked_by is not None or row.is_done for row in rows)

    def load_then_stall(store_: Store, affected: AffectedTraces) -> load.Loaded:
        loaded = load.load(store_, affected)
        if threading.current_thread() is leader and not worker.is_alive():
            feed.send([0, 2])
            worker.start()
            assert eventually(is_put_back_or_done)
        return loaded

    original = store.insert

    def insert(table: str, frame: pl.DataFrame, **options: Any) -> int:
        count = original(table, frame, **options)
        if table == "episodes":
            doubled.extend(doubled_traces(store))
        return count

    monkeypatch.setattr(RUN, "load", load_then_stall)
    monkeypatch.setattr(store, "insert", insert)
    leader.start()
    leader.join(WAIT_S)
    worker.join(WAIT_S)
    assert doubled == []
    assert run(store) is not None
    assert_converted(feed)


def test_a_shared_lease_that_was_let_go_is_free_for_nobody_before_it_expires(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other pipelines may write under it until then, whoever wants it."""
    monkeypatch.setattr(run_lease, "LEASE_TIMEOUT_S", 1.0)
    with run_lease.acquire(store) as lease:
        lease.share(is_shared=True)
        lease.lose()
    began_s = time.monotonic()
    with run_lease.acquire(store):
        assert time.monotonic() - began_s > 0.7


class Two(NamedTuple):
    """Two pipelines and their views of one plan."""

    registrations: tuple[Registration, Registration]
    plans: tuple[Plan, Plan]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def control(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlSessions]:
    """An empty control database of each kind."""
    if request.param == "sqlite":
        yield ControlSessions(tmp_path / "control.db")
        return
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with PostgreSqlServer.running(programs) as server, server.database() as url:
        yield ControlSessions(tmp_path / "control.db", url=url)
        dispose_engines()


@pytest.fixture
def two(control: ControlSessions) -> Two:
    one, other = Registration(control), Registration(control)
    schema = {"trace_id": pl.String(), "new_spans": pl.Int64()}
    batches = [Batch(pl.DataFrame([(trace, 1)], schema=schema, orient="row")) for trace in "abc"]
    plan = Plan.publish(control, one, batches, "shared run", full=False)
    other.ensure()
    found = Plan.find(control, other, "shared run")
    assert found is not None
    return Two((one, other), (plan, found))


def take(plan: Plan) -> TakenBatch:
    taken = plan.take()
    assert taken is not None
    return taken


def test_an_overlapping_set_waits_until_the_other_claim_ends(two: Two) -> None:
    one, other = two.plans
    first, second = take(one), take(other)
    one.claim(first, ["a", "shared"], since=first.since)
    with pytest.raises(PutBackError):
        other.claim(second, ["c", "shared"], since=second.since)
    assert take(other).position not in {first.position, second.position}
    assert other.take() is None, "the set that was put back waits"
    one.finish(first)
    again = take(other)
    assert again.position == second.position
    other.claim(again, ["c", "shared"], since=again.since)


def test_a_set_that_was_read_before_another_claim_ended_is_put_back(two: Two) -> None:
    one, other = two.plans
    first, second = take(one), take(other)
    one.claim(first, ["a", "shared"], since=first.since)
    one.finish(first)
    with pytest.raises(PutBackError):
        other.claim(second, ["shared"], since=second.since)
    again = take(other)
    other.claim(again, ["shared"], since=again.since)


def test_a_pipeline_whose_lease_ended_loses_its_claim_and_finishes_nothing(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two.plans
    first = take(one)
    one.claim(first, ["a"], since=first.since)
    monkeypatch.setattr(registration_module, "has_ended", bool)
    monkeypatch.setattr(run_lease, "SETTLE_S", 0)
    taken = [take(other) for _ in range(3)]
    assert first.position in {each.position for each in taken}, "seen to have ended, its batch is free"
    with pytest.raises(LeaseLostError):
        one.finish(first)
    with pytest.raises(LeaseLostError):
        one.claim(first, ["x"], since=first.since)
    with pytest.raises(LeaseLostError):
        two.registrations[0].renew()


def test_pipelines_work_through_different_parts_of_a_page() -> None:
    free = list(range(1, 20))
    assert choose_position(free, [0], None) == 19
    assert choose_position([1, 2, 3], [17], 0) == 1
    assert choose_position([8, 9, 12], [10], 7) == 8
    assert choose_position([9, 14], [10], 8) == 14, "beside the batch of another pipeline only at the end"
    assert choose_position([], [10], 8) is None
