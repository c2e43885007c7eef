"""Law: pipelines in any interleaving, with kills and hangs, leave the tables of one."""

import random
import time
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloop.foundation.leases import lease
from spanloop.pipeline import run_lease
from spanloop.pipeline.sharing import sharing
from spanloop.store import Store
from spanloop.store.client import Connection

from ..converters.converters_world import OPENING, World, answers, asks, loop, text, trace_id
from ..converters.pipeline_feed import Feed
from ..pipeline.test_concurrent import assert_converted
from .interleaving import Scheduled, SleepInSteps

LEASE_S: Final = 1.5
KILL, HANG, SEND = "kill", "hang", "send"

Action = tuple[str, int, int]
"""What happens, to which pipeline, and how many steps."""

steps = st.tuples(st.just("step"), st.integers(0, 1), st.integers(1, 30))
events = st.tuples(st.sampled_from([KILL, HANG, SEND]), st.integers(0, 1), st.just(1))
schedules = st.lists(st.one_of(steps, steps, steps, events), min_size=3, max_size=14)


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that end while a test waits, and waits that are steps."""
    monkeypatch.setattr(run_lease, "LEASE_TIMEOUT_S", LEASE_S)
    monkeypatch.setattr(run_lease, "RENEW_S", 0.2)
    for module in (lease, sharing):
        monkeypatch.setattr(module, "time", SleepInSteps)


def fill(world: World, seed: int) -> None:
    """Loops of which one call continues another, named ones, and a call that failed; in several orders."""
    chance = random.Random(seed)
    names = chance.sample("abcdef", 4)
    for name in names[:2]:
        loop(world, name, steps=3)
    loop(world, names[2], steps=3, attributes={"spanloop.episode.id": f"e{names[2]}"})
    for number in range(3):
        key = {"spanloop.episode.id": f"e{number % 2}"}
        world.call([text("user", f"{number}")], text("assistant", "x"), trace=trace_id(f"k{number}"), attributes=key)
    seen = [*OPENING, asks("shared"), answers("shared", "ok")]
    world.call(seen, text("assistant", "done"), trace=trace_id("after"))
    world.score(1.0, trace_id=trace_id("k0"))


class Story:
    """Two pipelines, and what happens to them."""

    def __init__(self, store: Store, feed: Feed, folder: Path, seed: int) -> None:
        self._store = store
        self._feed = feed
        self._folder = folder
        chance = random.Random(seed)
        count = len(feed.world.spans)
        self._unsent = chance.sample(range(count), count)
        self._batch_spans = chance.choice([2, 4])
        self._send(count // 2)
        self.pipelines = [self._start(), self._start()]

    def play(self, actions: list[Action]) -> None:
        """Let it happen, then send the rest and let the pipelines end."""
        for what, which, count in actions:
            pipeline = self.pipelines[which]
            if what == KILL:
                pipeline.kill()
                self.pipelines[which] = self._start()
            elif what == HANG:
                pipeline.hang()
                self._step_others(pipeline)
                pipeline.resume()
            elif what == SEND:
                self._send(3)
            else:
                for _ in range(count):
                    pipeline.step()
        self._send(len(self._unsent))
        for each in self.pipelines:
            each.may_end = True
        while any(each.is_alive() for each in self.pipelines):
            for each in self.pipelines:
                each.step()
        assert [each.error for each in self.pipelines] == [None, None]

    def end(self) -> None:
        """Kill what still runs."""
        for each in self.pipelines:
            each.kill()

    def _step_others(self, hanging: Scheduled) -> None:
        deadline_s = time.monotonic() + 1.2 * LEASE_S
        while time.monotonic() < deadline_s:
            for each in self.pipelines:
                if each is not hanging:
                    each.step()
            time.sleep(0.005)

    def _start(self) -> Scheduled:
        pipeline = Scheduled(self._store, self._folder, batch_spans=self._batch_spans)
        pipeline.start()
        return pipeline

    def _send(self, count: int) -> None:
        if count and self._unsent:
            self._feed.send(self._unsent[:count])
            self._unsent = self._unsent[count:]


def play(store: Store, feed: Feed, folder: Path, actions: list[Action], seed: int) -> None:
    fill(feed.world, seed)
    story = Story(store, feed, folder, seed)
    try:
        story.play(actions)
    finally:
        story.end()
    assert_converted(feed)


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize(
    "actions",
    [
        [("step", 0, 60), ("step", 1, 40), (KILL, 0, 1), ("step", 1, 30)],
        [("step", 0, 45), (HANG, 0, 1), (SEND, 0, 1), ("step", 0, 20), ("step", 1, 20)],
    ],
    ids=["killed", "hung"],
)
def test_a_pipeline_that_ends_or_hangs_changes_nothing(
    store: Store, feed: Feed, tmp_path: Path, actions: list[Action]
) -> None:
    play(store, feed, tmp_path, actions, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("short_leases")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(actions=schedules, seed=st.integers(0, 1_000))
def test_any_interleaving_of_two_pipelines_leaves_the_tables_of_one(
    store: Store, connection: Connection, tmp_path_factory: pytest.TempPathFactory, actions: list[Action], seed: int
) -> None:
    feed = Feed(store, connection)
    feed.execute(f"TRUNCATE TABLES FROM `{store.database}` NOT LIKE 'schema_migrations'")
    play(store, feed, tmp_path_factory.mktemp("interleaving"), actions, seed)
