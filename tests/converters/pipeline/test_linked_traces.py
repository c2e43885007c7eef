"""Traces that span links connect are converted together, whichever arrives first and however far apart they are."""

from typing import Any

import pytest

from spanloop.pipeline import run
from spanloop.store import Store

from ..converters.converters_world import OPENING, answers, asks, text, trace_id
from ..converters.pipeline_feed import Feed
from .test_concurrent import assert_converted

PLANNER, WORKER = trace_id("planner"), trace_id("worker")


def delegate(feed: Feed) -> None:
    """A planner's trace, and that of a worker of another service, which links to the planner's tool call."""
    world = feed.world
    ask = asks("call_1", "send", {"text": "in other words"})
    world.call(OPENING, ask, trace=PLANNER, start_s=10)
    tool = world.tool("call_1", "ok", trace=PLANNER, name="send", start_s=11, duration_s=3)
    world.call([*OPENING, ask, answers("call_1", "ok")], text("assistant", "Done."), trace=PLANNER, start_s=15)
    where: dict[str, Any] = {"trace": WORKER, "service": "worker", "start_s": 12}
    world.call([text("user", "Work.")], text("assistant", "Fine."), links=[(PLANNER, tool)], **where)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (3, 0, 1, 2), (1, 3, 0, 2)])
def test_a_link_joins_whatever_arrives_first(store: Store, feed: Feed, order: tuple[int, ...]) -> None:
    delegate(feed)
    for position in order:
        feed.send([position])
        run(store)
    assert [sorted(episode["trace_ids"]) for episode in feed.episodes()] == [sorted([PLANNER, WORKER])]
    assert_converted(feed)


def test_a_consumer_that_links_to_many_traces_stays_alone(store: Store, feed: Feed) -> None:
    world = feed.world
    links = [(trace_id(f"p{number}"), f"{number + 1:016x}") for number in range(30)]
    for number, (trace, span_id) in enumerate(links):
        world.call([text("user", f"message {number}")], text("assistant", "x"), trace=trace, span_id=span_id)
    world.call([text("user", "Sum up.")], text("assistant", "x"), trace=WORKER, links=links)
    feed.send()
    run(store, batch_spans=4)
    assert len(feed.episodes()) == 31
    assert_converted(feed)
