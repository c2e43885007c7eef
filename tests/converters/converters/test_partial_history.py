"""Calls behind others whose words an instrumentor left out are joined where nothing else can be meant."""

from typing import Any

import pytest

from .converters_world import OPENING, World, answers, text, trace_id
from .test_stitch import shape

Message = dict[str, Any]


def asks_for(*cities: str, words: str = "") -> Message:
    """An answer as it is recorded: the calls have ids."""
    calls = [
        {"type": "tool_call", "id": f"call-{city}", "name": "get_weather", "arguments": {"city": city}}
        for city in cities
    ]
    return {"role": "assistant", "parts": [*([{"type": "text", "content": words}] if words else []), *calls]}


def add(world: World, name: str, seen: list[Message], said: Message | None, **where: Any) -> None:
    world.call(seen, said, trace=trace_id(name), duration_s=0.05, **where)


def history(seen: list[Message], words: str | None, *results: str) -> list[Message]:
    """What an instrumentor leaves of a turn: the words if any, answers without ids, and no calls."""
    said = [] if words is None else [text("assistant", words)]
    return [*seen, *said, *[answers("", result) for result in results]]


def joined(*loops: tuple[str, ...]) -> list[list[str]]:
    return sorted(sorted(trace_id(name) for name in names) for names in loops)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (asks_for("Paris", "Rome", words="Let me look."), None),
        (asks_for("Paris", "Rome", words="Let me look."), "Let me look."),
        (asks_for("Paris", "Rome"), "Let me look."),
        (asks_for("Paris", "Rome"), None),
        (None, None),
        (None, "Let me look."),
    ],
    ids=["no_words_in_history", "words_in_both", "words_in_history", "no_words", "no_answer", "no_answer_and_words"],
)
def test_a_loop_is_one_episode_whatever_of_its_words_is_left(said: Message | None, words: str | None) -> None:
    world = World()
    seen = [*OPENING]
    for turn in range(3):
        add(world, f"t{turn}", seen, said)
        seen = history(seen, words, f"rain {turn}", f"sun {turn}")
    add(world, "t3", seen, text("assistant", "Rain and sun."))
    converted = world.convert()
    assert shape(converted) == joined(("t0", "t1", "t2", "t3"))
    reasons = converted.transitions.sort("step")["untrainable_reason"].to_list()
    assert reasons == ["missing_content" if said is None else "", *["missing_content"] * 3]


def test_runs_of_one_task_one_after_another_are_episodes_of_their_own() -> None:
    world = World()
    for run in range(3):
        add(world, f"{run}a", [*OPENING], asks_for("Paris", words="I look."))
        add(world, f"{run}b", history([*OPENING], None, "rain"), text("assistant", "Rain."))
    assert shape(world.convert()) == joined(*((f"{run}a", f"{run}b") for run in range(3)))


def test_interleaved_loops_that_begin_alike_stay_apart() -> None:
    world = World()
    for name in "ab":
        add(world, f"{name}1", [*OPENING], asks_for("Paris", words="I look."))
    for name in "ab":
        add(world, f"{name}2", history([*OPENING], None, "rain"), text("assistant", "Rain."))
    assert shape(world.convert()) == joined(("a1",), ("b1",), ("a2",), ("b2",))


def test_interleaved_loops_that_begin_otherwise_are_told_apart() -> None:
    world = World()
    seen = {name: [OPENING[0], text("user", f"Weather for {name}?")] for name in "ab"}
    for name in "ab":
        add(world, f"{name}1", seen[name], asks_for("Paris", words="I look."))
    for name in "ba":
        add(world, f"{name}2", history(seen[name], None, "rain"), text("assistant", "Rain."))
    assert shape(world.convert()) == joined(("a1", "a2"), ("b1", "b2"))


@pytest.mark.parametrize("other", ["count", "words", "service", "later", "failed"])
def test_what_does_not_fit_stays_apart(other: str) -> None:
    world = World()
    seen = history([*OPENING], "I wait." if other == "words" else None, *["rain", "sun"][: 1 + (other == "count")])
    service = "another" if other == "service" else "weather"
    first: dict[str, Any] = {"service": "weather", "start_s": 100}
    if other == "failed":
        first["error"] = "Rate limit reached"
    add(world, "t1", [*OPENING], None if other == "failed" else asks_for("Paris", words="I look."), **first)
    start_s = 40 if other == "later" else 200
    add(world, "t2", seen, text("assistant", "Rain."), service=service, start_s=start_s)
    assert shape(world.convert()) == joined(("t1",), ("t2",))


def test_a_call_whose_answer_was_lost_is_continued_by_the_one_that_repeats_it() -> None:
    world = World()
    add(world, "t1", [*OPENING], None)
    said = asks_for("Paris")
    add(world, "t2", [*OPENING, said, answers("call-Paris", "rain")], text("assistant", "Rain."))
    add(world, "t3", [*OPENING, text("assistant", "Who knows?"), text("user", "You.")], text("assistant", "No."))
    converted = world.convert()
    assert shape(converted) == joined(("t1", "t2"), ("t3",))


@pytest.mark.parametrize("hours", [0.1, 1])
def test_a_loop_that_broke_off_long_ago_leaves_no_doubt(hours: float) -> None:
    world = World()
    add(world, "broken", [*OPENING], asks_for("Paris", words="I look."), start_s=0)
    add(world, "t1", [*OPENING], asks_for("Paris", words="I look."), start_s=3600 * hours)
    add(world, "t2", history([*OPENING], None, "rain"), text("assistant", "Rain."))
    expected = (("broken",), ("t1", "t2")) if hours == 1 else (("broken",), ("t1",), ("t2",))
    assert shape(world.convert()) == joined(*expected)
