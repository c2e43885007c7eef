"""Numbered messages: what is numbered comes back, and an episode's numbers grow by what is new."""

import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from spanloop.converters.tokens.message_numbers import NO_STATE, MessageNumbers, Ranges
from spanloop.messages import MessageLog

from ...stored_states import Histories


class Numbers(MessageNumbers):
    """Numbers of texts."""

    def __init__(self) -> None:
        super().__init__()
        self._histories = Histories()

    def add_texts(self, texts: Sequence[str]) -> Ranges:
        return self.add(self._histories.of(texts))


states = st.lists(st.lists(st.sampled_from("abcd"), max_size=14), max_size=12)


@st.composite
def edited_histories(draw: st.DrawFn) -> list[list[str]]:
    """States of an agent that goes on, goes back, drops messages and writes over them."""
    state, worlds = list[str](), list[list[str]]()
    for number in range(draw(st.integers(1, 25))):
        match draw(st.sampled_from(["extend", "extend", "extend", "branch", "drop", "edit"])):
            case "extend":
                state = [*state, *(f"{number}.{part}" for part in range(draw(st.integers(0, 12))))]
            case "branch":
                state = state[: draw(st.integers(0, len(state)))]
            case "drop":
                start = draw(st.integers(0, len(state)))
                state = state[:start] + state[start + draw(st.integers(0, 5)) :]
            case _:
                at = draw(st.integers(0, len(state)))
                state = [*state[:at], draw(st.sampled_from(["ok", "…"])), *state[at + 1 :]]
        worlds.append(state)
    return worlds


@given(st.one_of(states, edited_histories()))
def test_every_state_comes_back(world: list[list[str]]) -> None:
    numbers = Numbers()
    ranges = [numbers.add_texts(state) for state in world]
    assert [numbers.text(each) for each in ranges] == world
    assert all(start < end for each in ranges for start, end in zip(each[::2], each[1::2], strict=True))
    assert NO_STATE not in ranges
    assert len(numbers.messages) <= sum(map(len, world))


@given(edited_histories())
def test_messages_are_stored_less_often_than_they_are_seen(world: list[list[str]]) -> None:
    """Known text behind an earlier state is new, up to eight messages a state."""
    numbers = Numbers()
    distinct = {text for state in world for text in state}
    for state in world:
        numbers.add_texts(state)
    assert len(numbers.messages) <= len(distinct) + 8 * len(world)


def test_an_extension_is_one_range() -> None:
    numbers = Numbers()
    for length in range(1, 60, 2):
        # Messages repeat: the range stays one all the same.
        assert numbers.add_texts([f"{number % 7}" for number in range(length)]) == (0, length)
    assert len(numbers.messages) == 59


def test_the_same_state_again_adds_nothing() -> None:
    numbers = Numbers()
    assert numbers.add_texts(["a", "b"]) == numbers.add_texts(["a", "b"]) == (0, 2)
    assert numbers.add_texts(["a"]) == (0, 1)
    assert numbers.add_texts([]) == ()
    assert numbers.messages == ["a", "b"]


def test_a_branch_shares_what_comes_before_it() -> None:
    numbers = Numbers()
    numbers.add_texts(["a", "b", "c"])
    assert numbers.add_texts(["a", "b", "x", "y"]) == (0, 2, 3, 5)
    assert numbers.add_texts(["a", "b", "c", "d"]) == (0, 3, 5, 6)


def test_an_edited_history_shares_what_comes_before_and_behind_the_edit() -> None:
    numbers = Numbers()
    numbers.add_texts([f"m{number}" for number in range(40)])
    edited = [*(f"m{number}" for number in range(10)), "new", *(f"m{number}" for number in range(11, 40))]
    assert numbers.add_texts(edited) == (0, 10, 40, 41, 11, 40)
    assert len(numbers.messages) == 41


def test_a_window_over_the_history_stores_each_message_once() -> None:
    numbers = Numbers()
    for start in range(200):
        ranges = numbers.add_texts(["system", *(f"m{number}" for number in range(start, start + 20))])
        assert len(ranges) <= 4
    assert len(numbers.messages) == 220


def test_a_long_episode_is_numbered_in_a_second() -> None:
    log, numbers = MessageLog(), MessageNumbers()
    messages = log.of_objects([{"role": "user", "parts": [{"type": "text", "content": f"{n}"}]} for n in range(2_001)])
    histories = [log.history(messages[: 2 * step + 1]) for step in range(1_000)]
    started = time.process_time()
    assert [numbers.add(history) for history in histories] == [(0, history.length) for history in histories]
    assert len(numbers.messages) == 1_999
    assert time.process_time() - started < 1
