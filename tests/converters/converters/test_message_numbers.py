"""Numbered messages: what is numbered comes back, and an episode's numbers grow by what is new."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.converters.message_numbers import NO_STATE, MessageNumbers, message_texts

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
    numbers = MessageNumbers()
    ranges = [numbers.add(state) for state in world]
    assert [numbers.text(each) for each in ranges] == world
    assert all(start < end for each in ranges for start, end in zip(each[::2], each[1::2], strict=True))
    assert NO_STATE not in ranges
    assert len(numbers.messages) <= sum(map(len, world))


@given(edited_histories())
def test_messages_are_stored_less_often_than_they_are_seen(world: list[list[str]]) -> None:
    """Known text behind an earlier state is new, up to eight messages a state."""
    numbers = MessageNumbers()
    distinct = {text for state in world for text in state}
    for state in world:
        numbers.add(state)
    assert len(numbers.messages) <= len(distinct) + 8 * len(world)


def test_an_extension_is_one_range() -> None:
    numbers = MessageNumbers()
    for length in range(1, 60, 2):
        # Messages repeat: the range stays one all the same.
        assert numbers.add([f"{number % 7}" for number in range(length)]) == (0, length)
    assert len(numbers.messages) == 59


def test_the_same_state_again_adds_nothing() -> None:
    numbers = MessageNumbers()
    assert numbers.add(["a", "b"]) == numbers.add(["a", "b"]) == (0, 2)
    assert numbers.add(["a"]) == (0, 1)
    assert numbers.add([]) == ()
    assert numbers.messages == ["a", "b"]


def test_a_branch_shares_what_comes_before_it() -> None:
    numbers = MessageNumbers()
    numbers.add(["a", "b", "c"])
    assert numbers.add(["a", "b", "x", "y"]) == (0, 2, 3, 5)
    assert numbers.add(["a", "b", "c", "d"]) == (0, 3, 5, 6)


def test_an_edited_history_shares_what_comes_before_and_behind_the_edit() -> None:
    numbers = MessageNumbers()
    numbers.add([f"m{number}" for number in range(40)])
    edited = [*(f"m{number}" for number in range(10)), "new", *(f"m{number}" for number in range(11, 40))]
    assert numbers.add(edited) == (0, 10, 40, 41, 11, 40)
    assert len(numbers.messages) == 41


def test_a_window_over_the_history_stores_each_message_once() -> None:
    numbers = MessageNumbers()
    for start in range(200):
        ranges = numbers.add(["system", *(f"m{number}" for number in range(start, start + 20))])
        assert len(ranges) <= 4
    assert len(numbers.messages) == 220


def test_texts_are_split_where_the_messages_are() -> None:
    state = '[{"a":[1,{"b":"],["}]},{"c":"é"}]'
    assert message_texts(state) == ['{"a":[1,{"b":"],["}]}', '{"c":"é"}']
    numbers = MessageNumbers()
    assert numbers.add_text(state) == (0, 2)
    assert numbers.add_text("[]") == ()
    assert numbers.add_text("") == NO_STATE
    assert numbers.text(numbers.add_text("no list")) == ["no list"]


json_values = st.recursive(
    st.none() | st.floats() | st.text(st.characters(categories=None)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(categories=None)), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=6), st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_a_list_of_any_values_is_split_where_they_are(values: list[object], separators: tuple[str, str]) -> None:
    """Surrogates without a partner, NUL and ``NaN`` among them."""
    texts = [json.dumps(value, separators=separators) for value in values]
    assert message_texts("[" + separators[0].join(texts) + "]") == texts


def test_a_list_of_any_depth_is_split() -> None:
    deep = "[" * 5_000 + "]" * 5_000
    assert message_texts(f'[{deep}, "],"]') == [deep, '"],"']


@pytest.mark.parametrize("text", ["[NaN", "[NaN] x", "[NaN}", "[,NaN]", '{"a":NaN}', '"[NaN]"', "x [NaN]"])
def test_a_text_that_is_no_list_is_one_message(text: str) -> None:
    assert message_texts(text) == [text]


def test_a_long_episode_is_numbered_in_a_second() -> None:
    messages = [json.dumps({"role": "user", "content": f"{number}"}) for number in range(2_001)]
    numbers = MessageNumbers()
    started = time.process_time()
    for step in range(1_000):
        numbers.add(messages[: 2 * step + 1])
    assert len(numbers.messages) == 1_999
    assert time.process_time() - started < 1
