"""A key that the app gives a whole trace, by its root, which comes late: the store ends as if all had come at once."""

import importlib
import random
from typing import Any

import pytest

from spanloop.pipeline import load, run
from spanloop.pipeline.closure import Closure
from spanloop.store import Store

from ..converters.converters_world import OPENING, World, answers, asks, text, trace_id
from ..converters.pipeline_feed import Feed
from .test_concurrent import assert_converted


def fill(world: World, chance: random.Random) -> None:
    """Loops whose every call is a trace; the roots of some name an episode, and so take their call out of the loop."""
    told: list[list[dict[str, Any]]] = [[OPENING[0], text("user", f"Order {number}")] for number in range(4)]
    for step in range(16):
        number = chance.randrange(4)
        seen = told[number]
        identity = f"c{number}-{len(seen)}"
        root = f"{step + 1:016x}" if chance.random() < 0.4 else ""
        where: dict[str, Any] = {"trace": trace_id(identity), "start_s": float(step)}
        world.call(seen, asks(identity), parent=root, span_id=f"{step + 100:016x}", response_id=f"r{step}", **where)
        if root:
            world.span("task", {"spanloop.episode.id": f"e{step}"}, span_id=root, **where)
        seen += [asks(identity), answers(identity, "ok")]


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_calls_and_keys_ends_in_the_same_store(store: Store, feed: Feed, seed: int) -> None:
    chance = random.Random(seed)
    fill(feed.world, chance)
    count = len(feed.world.spans)
    order = chance.sample(range(count), count)
    while order:
        size = chance.randint(1, 8)
        feed.send(order[:size])
        order = order[size:]
        run(store, batch_spans=chance.choice([1, 7, 100]))
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

    def counting(store_: Store, closure: Closure) -> load.Loaded:
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
