"""A key that the app gives a whole trace, by its root, which comes late: the store ends as if all had come at once."""

import importlib
import random
from typing import Any

import pytest

from spanloop.pipeline import load, run
from spanloop.pipeline.affected_traces import AffectedTraces
from spanloop.store import Store

from ..converters.converters_world import OPENING, World, answers, asks, text, trace_id
from ..converters.pipeline_feed import Feed
from .test_concurrent import assert_converted


def fill(world: World, chance: random.Random) -> None:
    """Loops that say the same, so that one could go on with another, in one trace or in a trace for each call.

    The roots of some traces name an episode, and so take their calls out of the loop; some calls were recorded twice,
    in a trace of its own the second time.
    """
    told: list[list[dict[str, Any]]] = [list(OPENING) for _ in range(6)]
    for step in range(18):
        number = chance.randrange(6)
        seen = told[number]
        trace = trace_id(f"l{number}" if number % 3 == 0 else f"l{number}-{step}")
        said = asks(f"c{len(seen)}", content=chance.choice(["", "hm"]))
        where: dict[str, Any] = {"start_s": world.clock_s, "response_id": f"r{step}"}
        root = f"{step + 1000:016x}" if chance.random() < 0.5 else ""
        world.call(seen, said, trace=trace, parent=root, scope="one", **where)
        if chance.random() < 0.25:
            world.call(seen, said, trace=trace_id(f"t{step}"), scope="two", duration_s=0.4, **where)
        if root:
            name = chance.choice([f"e{number}", f"e{number}", f"e{number}-{step}"])
            world.span("task", {"spanloop.episode.id": name}, trace=trace, span_id=root, start_s=where["start_s"])
        seen += [said, answers(f"c{len(seen)}", "ok")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 5])
def test_any_order_of_calls_and_keys_ends_in_the_same_store(store: Store, feed: Feed, seed: int) -> None:
    chance = random.Random(seed)
    fill(feed.world, chance)
    count = len(feed.world.spans)
    order = chance.sample(range(count), count)
    while order:
        size = chance.randint(1, 8)
        feed.send(order[:size])
        order = order[size:]
        run(store, batch_spans=chance.choice([4, 100]))
    assert_converted(feed)


def held(world: World, number: int) -> None:
    """One call, under a root that names its episode."""
    trace, root = trace_id(f"held-{number}"), f"{number + 1:016x}"
    world.call([text("user", f"{number}")], text("assistant", "x"), trace=trace, parent=root, scope="one")
    world.span("task", {"spanloop.episode.id": f"e{number}"}, trace=trace, span_id=root)


def test_a_trace_that_its_root_names_is_converted_by_itself(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("spanloop.pipeline.run")
    read: list[int] = []

    def counting(store_: Store, closure: AffectedTraces) -> load.Loaded:
        loaded = load.load(store_, closure)
        read.append(loaded.spans.height)
        return loaded

    monkeypatch.setattr(module, "load", counting)
    for number in range(10):
        held(feed.world, number)
    feed.send()
    run(store, batch_spans=4)
    assert read == [4] * 5
    assert_converted(feed)


def send_late(store: Store, feed: Feed, late: int) -> None:
    """Convert all spans but one, then that one alone: the run that reads it reads no earlier row again."""
    count = len(feed.world.spans)
    feed.world.span("task", {}, trace=trace_id("between"))
    feed.send([position for position in range(count) if position != late])
    run(store)
    for position in (count, late):
        feed.send([position], minutes=60)
        run(store)


@pytest.mark.parametrize("late", [0, 1, 2], ids=["call", "root", "twin"])
@pytest.mark.parametrize("attributes", [{}, {"spanloop.episode.id": "e"}], ids=["root-named", "call-named"])
def test_a_call_that_another_scope_recorded_in_a_trace_of_its_own_counts_once(
    store: Store, feed: Feed, attributes: dict[str, str], late: int
) -> None:
    trace, root = trace_id("held"), "f" * 16
    asked, said = [text("user", "?")], text("assistant", "!")
    common: dict[str, Any] = {"trace": trace, "parent": root, "scope": "one", "attributes": attributes}
    feed.world.call(asked, said, start_s=1, response_id="r", **common)
    feed.world.span("task", {"spanloop.episode.id": "e"}, trace=trace, span_id=root, start_s=0, duration_s=2)
    feed.world.call(asked, said, trace=trace_id("twin"), scope="two", start_s=1.1, duration_s=0.2, response_id="r")
    send_late(store, feed, late)
    assert [(episode["episode_id"], episode["step_count"]) for episode in feed.episodes()] == [("e", 1)]
    assert_converted(feed)


@pytest.mark.parametrize("is_named", [False, True], ids=["root-named", "call-named"])
def test_a_late_call_does_not_join_its_twins_successor_to_another_calls_twin(
    store: Store, feed: Feed, *, is_named: bool
) -> None:
    """The twin of the late call leaves its episode, whose other call is converted with all that is near in time."""
    asked, said = [text("user", "?")], asks("c")
    for number in (1, 2):
        trace, root = trace_id(f"held-{number}"), f"{number:016x}"
        key = {"spanloop.episode.id": f"e{number}"}
        common: dict[str, Any] = {"response_id": f"r{number}", "start_s": number + 0.1, "duration_s": 0.2}
        feed.world.span("task", key, trace=trace, span_id=root, start_s=number)
        feed.world.call(
            asked, said, trace=trace, parent=root, scope="one", attributes=key if is_named else {}, **common
        )
        feed.world.call(asked, said, trace=trace_id(f"twin-{number}"), scope="two", **common)
    after = [*asked, said, answers("c", "ok")]
    feed.world.call(after, text("assistant", "!"), trace=trace_id("successor"), scope="two", start_s=4)
    send_late(store, feed, 4)
    assert [episode["step_count"] for episode in feed.episodes()] == [1, 1, 1]
    assert_converted(feed)
