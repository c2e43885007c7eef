"""An answer that was not recorded is what the next call was sent, where it can be nothing else."""

from collections.abc import Sequence
from typing import Any

from spanloop.converters import Converted

from .converters_world import OPENING, World, answers, asks, text, trace_id
from .test_dialects import steps_of

Row = dict[str, Any]
Call = tuple[Sequence[Row], Row | None]


def converted(*calls: Call) -> Converted:
    """Calls of one trace, each with what it was sent and what it said, None where nobody recorded it."""
    world = World()
    for seen, answer in calls:
        world.call(seen, answer, trace=trace_id("t"))
    return world.convert()


def said(found: Converted) -> list[list[str]]:
    return [[part["type"] for part in step["action"]["parts"]] for step in steps_of(found, 0)]


AFTER = [*OPENING, asks("c1"), answers("c1", "ValueError: no such city")]


def test_the_next_call_tells_what_was_asked_and_how_the_tool_fared() -> None:
    found = converted((OPENING, None), (AFTER, text("assistant", "done")))
    first, second = steps_of(found, 0)
    assert [call["id"] for call in first["action"]["parts"]] == ["c1"]
    assert [(one["tool_call_id"], one["status"]) for one in first["tool_results"]] == [("c1", "error")]
    assert (first["untrainable_reason"], second["untrainable_reason"]) == ("missing_content", "")
    assert found.failures["error_class"].to_list() == ["tool_error"]


def test_an_answer_that_may_be_another_calls_is_none() -> None:
    twice = converted((OPENING, None), (OPENING, text("assistant", "done")), (AFTER, text("assistant", "done")))
    assert said(twice)[0] == []
    again = [*AFTER, asks("c2"), answers("c2", "57F")]
    apart = converted((OPENING, None), (again, text("assistant", "done")))
    assert said(apart)[0] == []


def test_a_history_that_goes_on_otherwise_tells_nothing() -> None:
    other = converted((OPENING, None), ([*OPENING, text("user", "and now?")], text("assistant", "done")))
    assert said(other)[0] == []
    differing = converted(
        (OPENING, None),
        (AFTER, text("assistant", "done")),
        ([*OPENING, asks("c2"), answers("c2", "57F")], text("assistant", "done")),
    )
    assert said(differing)[0] == []
