"""Memory is bounded by a setting: windows, pages, halved batches and cut episodes give what one conversion would."""

import importlib
from typing import Any

import polars as pl
import pytest

from spanloop.pipeline import Report, run, watermark
from spanloop.pipeline.affected_traces import TOO_LARGE
from spanloop.store import Store

from ..converters.converters_world import OPENING, START, answers, asks, loop, text, trace_id
from ..converters.pipeline_feed import Feed
from .test_concurrent import assert_converted

RUN = importlib.import_module("spanloop.pipeline.run")
BATCHES = importlib.import_module("spanloop.pipeline.batches")
CLOSURE = importlib.import_module("spanloop.pipeline.affected_traces")


def text_bytes(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let a run hold about so many bytes of text."""
    monkeypatch.setattr(RUN.Size, "text_bytes", property(lambda _: count))


def test_the_setting_decides_how_much_text_is_held() -> None:
    small, large = (RUN.Size(1, gigabytes << 30).text_bytes for gigabytes in (1, 4))
    assert 0 < small < large < 1 << 30
    assert RUN.Size(1, 0).text_bytes > 0


def test_windows_and_pages_miss_nothing(store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BATCHES, "WINDOW_SPANS", 4)
    monkeypatch.setattr(BATCHES, "_PAGE_TRACES", 2)
    for name in "abcdef":
        loop(feed.world, name, trace=trace_id(name) if name < "d" else "")
        feed.world.score(1.0, trace_id=trace_id(name))
        feed.send()
    seen: list[tuple[int, int]] = []
    report = run(store, progress=lambda done, total: seen.append((done, total)), batch_spans=5)
    assert (report.spans, seen[-1]) == (18, (18, 18))
    assert_converted(feed)


@pytest.mark.slow
def test_one_block_larger_than_a_window_is_paged(store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BATCHES, "WINDOW_SPANS", 4)
    monkeypatch.setattr(BATCHES, "_PAGE_TRACES", 3)
    for number in range(20):
        feed.world.call([text("user", f"{number}")], text("assistant", "x"), trace=f"{number:032x}", start_s=0)
    feed.send()
    assert run(store).episodes == 20
    assert_converted(feed)


def test_a_long_run_that_dies_goes_on_where_it_was(store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BATCHES, "WINDOW_SPANS", 3)
    monkeypatch.setattr(watermark, "OVERLAP_US", 1)
    for name in "abc":
        loop(feed.world, name, trace=trace_id(name))
        feed.send()

    def dies(done: int, _: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(store, progress=dies)
    assert len(feed.episodes()) == 2
    report = run(store)
    assert (report.spans, report.episodes) == (6, 1)
    assert_converted(feed)
    assert run(store) == Report()


def test_a_run_that_is_told_to_stop_ends_its_batch_and_the_next_goes_on(store: Store, feed: Feed) -> None:
    for name in "abc":
        loop(feed.world, name, trace=trace_id(name))
    feed.send()
    stopped = run(store, batch_spans=5, should_stop=lambda: True)
    assert 0 < stopped.episodes < 3
    assert stopped.episodes + run(store).episodes == 3
    assert_converted(feed)
    assert run(store) == Report()


@pytest.mark.slow
def test_a_batch_with_too_much_text_is_halved(store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    text_bytes(monkeypatch, 30_000)
    for name in "abcdef":
        loop(feed.world, name, trace=trace_id(name), opening=[text("user", name * 4_000)])
    feed.send()
    largest: list[int] = []
    original = RUN.load

    def load(store_: Store, closure: Any) -> Any:
        loaded = original(store_, closure)
        largest.append(loaded.spans.height)
        return loaded

    monkeypatch.setattr(RUN, "load", load)
    assert run(store).rejected == {}
    assert max(largest) <= 6
    assert_converted(feed)


@pytest.mark.slow
def test_neighbours_come_in_while_there_is_room(store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    loop(feed.world, "near", steps=2)
    for number in range(10):
        feed.world.call([text("user", f"{number}" * 5_000)], text("assistant", "x"), trace=f"{number:032x}")
    loop(feed.world, "apart", steps=2)
    feed.send()
    text_bytes(monkeypatch, 40_000)
    run(store, batch_spans=2)
    assert sorted(episode["step_count"] for episode in feed.episodes()) == [1] * 10 + [2, 2]


def test_of_a_trace_that_does_not_fit_the_beginning_is_converted(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop(feed.world, "a", steps=30, trace=trace_id("a"))
    loop(feed.world, "b", steps=3, trace=trace_id("b"))
    text_bytes(monkeypatch, 12_000)
    feed.send()
    report = run(store)
    (rejected,) = report.rejected.values()
    assert set(report.rejected) == {TOO_LARGE}
    assert report.transitions + rejected == 33
    by_trace = {episode["trace_ids"][0]: episode["step_count"] for episode in feed.episodes()}
    assert by_trace == {trace_id("a"): 30 - rejected, trace_id("b"): 3}
    assert 0 < rejected < 30
    assert feed.current("transitions").filter(pl.col("episode_id") == trace_id("a"))["step"].to_list() == list(
        range(30 - rejected)
    )


@pytest.mark.slow
def test_a_conversation_id_that_everything_shares_costs_only_what_comes_too_late(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CLOSURE, "EPISODE_SPANS", 5)
    seen = list(OPENING)
    for number in range(8):
        marks = {"gen_ai.conversation.id": "default"}
        feed.world.call(seen, asks(f"c{number}"), trace=trace_id(f"t{number}"), attributes=marks)
        seen += [asks(f"c{number}"), answers(f"c{number}", "x")]
    loop(feed.world, "own", trace=trace_id("own"))
    for positions in (range(3), range(3, 6), range(6, 11)):
        feed.send(positions)
        report = run(store)
    assert report.rejected == {TOO_LARGE: 3}
    assert sorted(episode["step_count"] for episode in feed.episodes()) == [3, 5]
    again = run(store, full=True)
    assert again.rejected == {TOO_LARGE: 3}
    assert sorted(episode["step_count"] for episode in feed.episodes()) == [3, 5]


def test_since_converts_again_what_came_since_then(store: Store, feed: Feed) -> None:
    for name in "ab":
        loop(feed.world, name, trace=trace_id(name))
        feed.send(minutes=10)
    run(store)
    assert run(store) == Report()
    newest = feed.sql("SELECT max(IngestedAt) AS at FROM otel_traces").item()
    assert run(store, since=newest).episodes == 1
    assert run(store, since=START).episodes == 2
    assert run(store) == Report()
