"""What two conversations of different traces need in common to be one episode: one thing less, and they stay two."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.converters.linking.affected_traces import transitive_traces
from spanloop.converters.linking.union import UnionFind

from .converters_world import Message, World, answers, asks, text

UNIQUE = "call_4vNQ0bLw8mZr2kTqXfHs9dYc"
THREAD = "7f9c1c1e-54a5-4b0e-9f57-52e1f6a3c9d4"


class Store:
    """A store with one case in it; traces are named by letters, calls follow each other by a second."""

    def __init__(self, task: str) -> None:
        self.world = World()
        self.opening = [text("system", "You plan."), text("user", task)]

    def call(self, trace: str, seen: list[Message], said: Message, **where: Any) -> None:
        self.world.call(seen, said, trace=f"{ord(trace):032x}", **where)

    def episodes(self) -> int:
        return self.world.convert().episodes.height


def sub_agent(
    *,
    task: str = "Refund 10 EUR.",
    answer: str = "Refunded.",
    service: str = "app",
    late: float = 0,
    early: bool = False,
) -> Store:
    """A planner's tool call, a conversation that it may have started, and the planner's next call."""
    store = Store("Sort this out.")
    ask = asks(UNIQUE, "ask_worker", {"task": "Refund 10 EUR.", "rounds": 2})
    start_s = 0.0 if early else 10.0 + late
    store.call("a", store.opening, ask, start_s=5)
    worker = [text("system", "You work."), text("user", task)]
    store.call("w", worker, text("assistant", answer), start_s=start_s, service=service)
    store.call("b", [*store.opening, ask, answers(UNIQUE, "Refunded.")], text("assistant", "Done."), start_s=20)
    return store


def counted(*, query: str = "x", minutes: float = 0, name: str = "search", said: str = "") -> Store:
    """A loop whose ids are counted, and whose second call has a history that the harness shortened."""
    store = Store("What is it?")
    store.call("a", store.opening, asks("call_1", arguments={"query": "x"}, content="Let me see."))
    history = [*store.opening, asks("call_1", name, {"query": query}, said), answers("call_1", "r")]
    store.call("b", history, text("assistant", "So."), start_s=60 * minutes + 1)
    return store


def unasked(*, other: bool = False, opening: str = "What is it?", minutes: float = 0) -> Store:
    """A tool's answer of which the history has no call; perhaps two calls that it may answer."""
    store = Store("What is it?")
    store.call("a", store.opening, asks("call_1", arguments={"query": "x"}))
    if other:
        store.call("o", store.opening, asks("call_1", arguments={"query": "x"}))
    history = [store.opening[0], text("user", opening), answers("call_1", "r")]
    store.call("b", history, text("assistant", "So."), start_s=60 * minutes + 2)
    return store


def thread(*, service: str = "app", again: bool = False, answer: str = "So.") -> Store:
    """Two questions under one conversation id; the second history is edited, or the first is asked once more."""
    store, ids = Store("What is it?"), {"gen_ai.conversation.id": THREAD}
    store.call("a", store.opening, text("assistant", "So."), attributes=ids, start_s=0)
    edited = [store.opening[0], text("user", "(summary)"), text("assistant", answer), text("user", "And then?")]
    second = store.opening if again else edited
    store.call("b", second, text("assistant", "Thus."), attributes=ids, start_s=3, service=service)
    return store


ONE: dict[str, Callable[[], Store]] = {
    "an agent behind a tool": sub_agent,
    "an agent behind a tool, with spaces around": lambda: sub_agent(task=" Refund 10 EUR.\n", answer="Refunded.\n"),
    "a counted id with equal arguments": counted,
    "a counted id within half an hour": lambda: counted(minutes=29),
    "an answer without its call": unasked,
    "a conversation id": thread,
}
TWO: dict[str, Callable[[], Store]] = {
    "another task": lambda: sub_agent(task="Refund 20 EUR."),
    "another answer": lambda: sub_agent(answer="Refused."),
    "an agent of another service": lambda: sub_agent(service="other"),
    "an agent that began before it was asked": lambda: sub_agent(early=True),
    "an agent that ended after the answer": lambda: sub_agent(late=9.9),
    "a counted id with other arguments": lambda: counted(query="y"),
    "a counted id of another tool": lambda: counted(name="fetch"),
    "a counted id after half an hour": lambda: counted(minutes=31),
    "an answer without its call, to another question": lambda: unasked(opening="What else?"),
    "an answer without its call, after half an hour": lambda: unasked(minutes=31),
    "a conversation id of another service": lambda: thread(service="other"),
    "a conversation that starts over": lambda: thread(again=True),
    "a conversation id with another answer in the history": lambda: thread(answer="Not so."),
}


@pytest.mark.parametrize("name", ONE)
def test_what_agrees_in_all_is_one_episode(name: str) -> None:
    assert ONE[name]().episodes() == 1


@pytest.mark.parametrize("name", TWO)
def test_what_lacks_one_thing_is_two(name: str) -> None:
    assert TWO[name]().episodes() == 2


def test_an_answer_that_two_calls_may_have_got_joins_neither() -> None:
    assert unasked(other=True).episodes() == 3


def pairs_of(names: str) -> st.SearchStrategy[list[tuple[str, str]]]:
    return st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=8)


HERE, THERE = "abcde", "vwxyz"


@given(here=pairs_of(HERE), there=pairs_of(THERE), start=st.sets(st.sampled_from(HERE)), order=st.randoms())
def test_a_change_reaches_what_is_linked_to_it_and_nothing_else(
    here: list[tuple[str, str]], there: list[tuple[str, str]], start: set[str], order: Random
) -> None:
    links = [*here, *there]
    order.shuffle(links)
    found = transitive_traces(start, links)
    assert start <= found <= set(HERE)
    assert all((one in found) == (other in found) for one, other in here)
    assert found == frozenset[str]().union(*(transitive_traces({one}, links) for one in start))
    assert all(transitive_traces({one}, links) & start for one in found)


@given(pairs=pairs_of(HERE), order=st.randoms())
def test_sets_are_the_same_in_any_order_of_their_unions(pairs: list[tuple[str, str]], order: Random) -> None:
    shuffled = [pair[::-1] for pair in pairs]
    order.shuffle(shuffled)
    partitions: list[set[frozenset[str]]] = []
    for unions in (pairs, shuffled):
        sets = UnionFind(HERE)
        for one, other in unions:
            sets.union(one, other)
        partitions.append({frozenset(each for each in HERE if sets.find(each) == sets.find(one)) for one in HERE})
    assert partitions[0] == partitions[1]
    assert all(any({*pair} <= together for together in partitions[0]) for pair in pairs)
    assert len(partitions[0]) >= len(HERE) - len(pairs)
