"""Whatever the order in which rows arrive and runs read them, the store ends in what one conversion of all gives."""

import random
from typing import Any

import pytest

from spanloop.pipeline import run
from spanloop.store import Store

from ..converters.converters_world import OPENING, World, answers, asks, text, trace_id
from ..converters.pipeline_feed import Feed
from .test_concurrent import assert_converted


def fill(world: World, chance: random.Random) -> None:
    """Interleaved loops of all kinds: bare, in one trace, named, with a conversation or session, tools, failures."""
    loops: list[tuple[str, str, dict[str, str], list[dict[str, Any]]]] = []
    for number in range(6):
        name = f"l{number}"
        marks = chance.choice(
            [
                {},
                {"spanloop.episode.id": f"e{number}"},
                {"gen_ai.conversation.id": f"c{number}"},
                {"session.id": f"s{number % 2}"},
            ]
        )
        opening = [OPENING[0], text("user", chance.choice(["same", name]))]
        loops.append((name, chance.choice(["", trace_id(name)]), marks, opening))
    for step in range(20):
        name, trace, marks, seen = chance.choice(loops)
        identity = f"{name}-{step}"
        said = chance.choice([asks(identity), asks(identity), text("assistant", "done"), None])
        where: dict[str, Any] = {
            "trace": trace or trace_id(identity),
            "attributes": marks,
            "response_id": f"r-{identity}",
        }
        world.call(seen, said, error="" if said else "Error code: 429", **where)
        if said is not None:
            seen += [said, answers(identity, chance.choice(["ok", "Error: boom"]))]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_any_order_of_arrival_ends_in_the_same_store(store: Store, feed: Feed, seed: int) -> None:
    chance = random.Random(seed)
    fill(feed.world, chance)
    count = len(feed.world.spans)
    order = chance.sample(range(count), count)
    while order:
        size = chance.randint(1, 6)
        feed.send(order[:size])
        order = order[size:]
        if chance.random() < 0.4:
            response_id = f"r-l{chance.randrange(6)}-{chance.randrange(20)}"
            feed.world.capture([1, 2], [3], response_id=response_id, generation_id=response_id)
        if chance.random() < 0.4:
            ids = chance.choice([{"session_id": "s0"}, {"episode_key": "e1"}, {"trace_id": trace_id("l2")}])
            feed.world.score(chance.choice([0.0, 1.0]), **ids)
        run(store, batch_spans=chance.choice([1, 7, 100]))
    feed.send([0])
    run(store)
    assert_converted(feed)
