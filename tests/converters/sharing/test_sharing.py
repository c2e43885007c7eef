"""Pipelines that share a run on the real store: what each converts, and what becomes of one that stops or dies."""

import importlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

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
from spanloop.store import Store

from ...training.jobs.postgresql_server import PostgreSqlServer, find_programs
from ..converters.converters_world import loop
from ..converters.pipeline_feed import Feed
from ..pipeline.test_concurrent import assert_converted

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
