"""Conversations that are read all at once come out as those that are read call by call, and most are read so."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloop.converters.plain import reading
from spanloop.converters.plain.chains import Chains, read_chains

from .converters_world import Message, World, answers, asks, text, trace_id
from .test_plain import insist_on

TURNS = 4
Spell = Callable[[Sequence[Message]], str]
BRIEF = '[{"type": "text", "content": "Be brief."}]'


def both(identity: str) -> Message:
    """Two calls at once."""
    return {"role": "assistant", "parts": [*asks(f"{identity}-a")["parts"], *asks(f"{identity}-b")["parts"]]}


def swapped(message: Message) -> Message:
    """The same with its fields in another order."""
    return {"parts": [dict(reversed(part.items())) for part in message["parts"]], "role": message["role"]}


def agent(
    world: World,
    name: str,
    *,
    spell: Spell = json.dumps,
    ask: Callable[[str], Message] = asks,
    result: str = "{}",
    history: Callable[[Message], Message] = dict,
    tool_ids: bool = True,
    finish: str = "",
    attributes: dict[str, str] | None = None,
    answer: str = "Dön\u2028e.",
    user_again: bool = False,
    trace_name: str = "",
    task: str = "",
) -> None:
    """An agent whose every call goes on where the one before it ended; with a trace of its own as a rule."""
    trace = trace_id(trace_name or name)
    seen: list[Message] = [text("system", "Be kind."), text("user", f"Do {task or name}, «please» \x01.")]
    for turn in range(TURNS):
        is_last = turn == TURNS - 1
        said = text("assistant", answer) if is_last else ask(f"{name}-{turn}")
        reason = finish or ("stop" if is_last else "tool_call")
        own: dict[str, Any] = {
            "gen_ai.input.messages": spell(seen),
            "gen_ai.output.messages": spell([{**said, "finish_reason": reason}]),
        }
        span = world.call(seen, said, trace=trace, response_id=f"{name}-{turn}", attributes=own | (attributes or {}))
        world.capture([1] * (3 * turn + 2), [1, 1], response_id=f"{name}-{turn}", trace=trace, parent=span)
        identities = [part["id"] for part in said["parts"] if part["type"] == "tool_call"]
        found = [answers(identity, result.format(identity)) for identity in identities]
        for identity in identities:
            world.tool(identity if tool_ids else "", result.format(identity), trace=trace)
        seen = [*seen, history(said), *found, *([text("user", "And?")] if user_again else [])]
    world.score(1.0, trace_id=trace)


def asks_swapped(identity: str) -> Message:
    return swapped(asks(identity))


def asks_with_words(identity: str) -> Message:
    return asks(identity, content=" Let me see. ")


def asks_oddly(identity: str) -> Message:
    return asks(identity, arguments={"query": 1.5})


def asks_again(identity: str) -> Message:
    return asks(identity, arguments={"query": "again"})


def all_swapped(messages: Sequence[Message]) -> str:
    return json.dumps([{**swapped(message), **message} for message in messages])


def compact(messages: Sequence[Message]) -> str:
    return json.dumps(list(messages), separators=(",", ":"))


def as_written(messages: Sequence[Message]) -> str:
    return json.dumps(list(messages), ensure_ascii=False)


READ_AT_ONCE: dict[str, dict[str, Any]] = {
    "usual": {},
    "compact": {"spell": compact},
    "letters as they are": {"spell": as_written},
    "fields in another order": {"spell": all_swapped},
    "parts in another order": {"ask": asks_swapped},
    "two calls at once": {"ask": both},
    "words beside a call": {"ask": asks_with_words},
    "the same answer again": {"result": "ok"},
    "system prompt beside": {
        "attributes": {"gen_ai.system_instructions": '[{"type": "text", "content": "Be brief."}]'}
    },
    "no tools offered": {"attributes": {"gen_ai.tool.definitions": ""}},
    "a word of the user": {"user_again": True},
    "quotes": {"result": 'say "{}" \\ \n'},
}
LEFT: dict[str, dict[str, Any]] = {
    "told otherwise in the history": {"history": swapped},
    "tools without ids": {"tool_ids": False},
    "an odd argument": {"ask": asks_oddly},
    "a circle": {"ask": asks_again, "result": "nothing"},
}


def indented(messages: Sequence[Message]) -> str:
    return json.dumps(list(messages), indent=1)


def reason_first(messages: Sequence[Message]) -> str:
    return json.dumps([dict(reversed(message.items())) for message in messages])


def one_by_one(spellings: Sequence[Spell]) -> Spell:
    """Spells every list in the next way."""
    left = iter(spellings)

    def spell(messages: Sequence[Message]) -> str:
        return next(left)(messages)

    return spell


SPELLINGS = (json.dumps, json.dumps, compact, as_written, all_swapped, indented, reason_first)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Chains | None]:
    """What is read all at once."""
    calls: list[Chains | None] = []

    def read(*given: pl.DataFrame) -> Chains | None:
        calls.append(read_chains(*given))
        return calls[-1]

    monkeypatch.setattr(reading, "read_chains", read)
    return calls


@pytest.mark.parametrize("kind", READ_AT_ONCE)
def test_usual_conversations_are_read_all_at_once(kind: str, found: list[Chains | None]) -> None:
    world = World()
    for number in range(3):
        agent(world, f"agent {number}", **READ_AT_ONCE[kind])
    converted = insist_on(world)
    assert [read is not None and read.is_read.all() for read in found] == [True]
    assert converted.transitions.height == 3 * TURNS
    assert converted.transitions["is_trainable"].all()


def test_conversations_one_behind_the_other_are_read_all_at_once(found: list[Chains | None]) -> None:
    world = World()
    for number, kind in enumerate(READ_AT_ONCE.values()):
        agent(world, f"agent {number}", trace_name=f"trace {number // 4}", **kind)
    converted = insist_on(world)
    assert [read is not None and read.is_read.all() for read in found] == [True]
    assert converted.episodes.height == 3
    rows = converted.trajectories["row_start"].value_counts().sort("count").rows()
    assert len(rows) == 2  # the same agent again and again begins a row each time, and says so


def test_conversations_that_begin_alike_are_left(found: list[Chains | None]) -> None:
    world = World()
    for number in range(4):
        agent(world, f"agent {number}", trace_name=f"trace {number // 2}", task="it" if number < 2 else "")
    insist_on(world)
    assert [read is not None and read.is_read.tolist() for read in found] == [[False, True]]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from([*READ_AT_ONCE, *LEFT]), st.integers(0, 2), st.integers(0, 3)), max_size=6))
def test_any_conversations_in_any_traces_come_out_the_same_both_ways(kinds: list[tuple[str, int, int]]) -> None:
    world = World()
    for number, (kind, trace, task) in enumerate(kinds):
        agent(world, f"agent {number}", trace_name=f"trace {trace}", task=f"task {task}", **(READ_AT_ONCE | LEFT)[kind])
    insist_on(world)


@pytest.mark.parametrize("kind", LEFT)
def test_unusual_ones_are_left_and_hold_nothing_up(kind: str, found: list[Chains | None]) -> None:
    world = World()
    for number in range(5):
        agent(world, f"agent {number}", **(LEFT[kind] if number % 2 else {}))
    insist_on(world)
    assert [read is not None and read.is_read.sum() for read in found] == [3]


def test_every_way_in_one_conversion_keeps_the_order(found: list[Chains | None]) -> None:
    world = World()
    kinds = [*READ_AT_ONCE.values(), *LEFT.values()]
    for number, kind in enumerate(kinds):
        agent(world, f"agent {number}", **kind)
        world.call([text("user", f"q{number}")], text("assistant", "a"), trace=trace_id(f"alone {number}"))
        silent = {"gen_ai.input.messages": "", "gen_ai.output.messages": ""}
        world.call([], None, trace=trace_id(f"silent {number}"), attributes=silent)
    converted = insist_on(world)
    assert converted.episodes.height == 3 * len(kinds)
    assert [read is not None and read.is_read.sum() for read in found] == [len(READ_AT_ONCE)]


def test_a_tool_that_says_that_it_failed_is_looked_at(found: list[Chains | None]) -> None:
    world = World()
    agent(world, "fine", result="no exceptional error here: {}")
    agent(world, "broken", result="Error: no such file {}")
    insist_on(world)
    assert [read is not None and read.is_read.tolist() for read in found] == [
        [name == "fine" for name in sorted(("fine", "broken"), key=trace_id)]
    ]


def test_an_input_with_a_comma_too_many_is_not_plain() -> None:
    world = World()
    seen, said = [text("user", "Hello.")], text("assistant", "Hello to you.")
    world.call(seen, said, trace=trace_id("t"))
    after = json.dumps([*seen, said]).removesuffix("]") + ", ]"
    world.call(seen, text("assistant", "Hi."), trace=trace_id("t"), attributes={"gen_ai.input.messages": after})
    insist_on(world)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(SPELLINGS), min_size=2 * TURNS, max_size=2 * TURNS), st.integers(0, 2))
def test_however_messages_are_spelled_both_ways_agree(spellings: list[Spell], words: int) -> None:
    world = World()
    for number, ask in enumerate((asks, both, asks_with_words)):
        agent(world, f"agent {number}", spell=one_by_one(spellings), ask=ask, user_again=words > number)
    insist_on(world)
