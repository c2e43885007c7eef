"""Pipelines that share a run on the real store: what each converts, and what becomes of one that stops or dies."""

import importlib
import threading
import time
from pathlib import Path

import pytest

from spanloop.foundation.control.pipelines import running_pipelines
from spanloop.foundation.control.sessions import ControlSessions
from spanloop.pipeline import Report, load, run, run_lease
from spanloop.pipeline.affected_traces import AffectedTraces
from spanloop.pipeline.sharing import Sharing
from spanloop.pipeline.sharing.registration import Registration
from spanloop.store import Store

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
        return self.registration._row.spans


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
