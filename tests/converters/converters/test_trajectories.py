"""Token rows: what they train on is what was sampled, once; and why a row begins where it does."""

from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloop.converters.enums import RowStart
from spanloop.converters.tokens.row_starts import by_tokens, common
from spanloop.converters.tokens.trajectories import shared_prompt_tokens

from .converters_world import OPENING, Message, World, answers, asks, text, trace_id

TRACE = trace_id("t")
SAMPLED = 1_000
"""Token ids from here on were sampled, each once; those below are the template's and the environment's."""


class Agent:
    """Calls in one trace whose messages and tokens the test chooses; sampled ids are counted."""

    def __init__(self) -> None:
        self.world = World()
        self.seen: list[Message] = list(OPENING)
        self.prompt = [1, 2, 3]
        self.step = 0
        self.next_id = SAMPLED

    def act(self, *, tokens: int = 2, ends: bool = False, captured: bool = True, dropped: int = 0) -> None:
        """One call; what it was asked, and what it sampled, is then the history."""
        identity = f"c{self.step}"
        said = text("assistant", f"done {self.step}") if ends else asks(identity)
        self.world.call(self.seen, said, trace=TRACE, response_id=identity, dropped=dropped)
        sampled = list(range(self.next_id, self.next_id + tokens))
        self.next_id += tokens
        if captured:
            logprobs = [-token / 10_000 for token in sampled]
            self.world.capture(self.prompt, sampled, response_id=identity, logprobs=logprobs)
        self.seen = [*self.seen, said, text("user", f"more {self.step}") if ends else answers(identity, "x")]
        self.prompt = [*self.prompt, *sampled, 9]
        self.step += 1

    def rows(self) -> list[dict[str, Any]]:
        return list(self.world.convert().trajectories.sort("row_number").iter_rows(named=True))

    def starts(self) -> list[str]:
        return [row["row_start"] for row in self.rows()]


def test_a_retry_and_another_sample_go_back_to_an_earlier_point() -> None:
    agent = Agent()
    agent.act()
    seen, prompt = agent.seen, agent.prompt
    agent.act()
    agent.seen, agent.prompt = seen, prompt
    agent.act(ends=True)
    agent.seen, agent.prompt = list(OPENING), [1, 2, 3]
    agent.act(ends=True)
    assert agent.starts() == ["first", "branch", "branch"]


def test_changed_messages_are_an_edit() -> None:
    agent = Agent()
    agent.act()
    agent.seen = [*agent.seen[:2], text("assistant", "(summary)"), text("user", "go on")]
    agent.prompt = [1, 2, 3, 8]
    agent.act(ends=True)
    assert agent.starts() == ["first", "history_edited"]


def test_a_history_cut_to_fit_is_told_from_an_edit() -> None:
    agent = Agent()
    for _ in range(3):
        agent.act()
    agent.seen, agent.prompt = [*agent.seen[:2], *agent.seen[4:]], [1, 2, 3, *agent.prompt[6:]]
    agent.act(ends=True)
    assert agent.starts() == ["first", "context_truncated"]


def test_the_same_messages_in_other_tokens_are_the_tokenizers_or_the_templates() -> None:
    agent = Agent()
    agent.act(tokens=3)
    agent.prompt = [1, 2, 3, 7, SAMPLED + 2, 9]
    agent.act(tokens=3)
    agent.prompt = [*agent.prompt[:6], 5, 5, *agent.prompt[6:]]
    agent.act(ends=True)
    assert agent.starts() == ["first", "retokenised", "template_changed"]


@pytest.mark.parametrize(
    ("following", "why"),
    [
        ([1, 2, 3, 10, 77, 12, 9], RowStart.RETOKENISED),
        ([1, 2, 3, 77, 78, 79], RowStart.RETOKENISED),
        ([1, 2, 3, 12, 9], RowStart.TEMPLATE_CHANGED),
        ([1, 2, 3, 10], RowStart.TEMPLATE_CHANGED),
        ([1, 2, 3, 50, 51, 10, 11, 12, 9], RowStart.TEMPLATE_CHANGED),
        ([1, 77, 3, 10, 11, 12], RowStart.TEMPLATE_CHANGED),
        ([1, 3, 10, 11, 12, 9], RowStart.CONTEXT_TRUNCATED),
        ([11, 12, 9], RowStart.CONTEXT_TRUNCATED),
        ([1, 2], RowStart.CONTEXT_TRUNCATED),
    ],
)
def test_what_happened_to_the_tokens(following: list[int], why: RowStart) -> None:
    assert by_tokens([1, 2, 3], [10, 11, 12], following) is why


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_counts_equal_items_at_the_beginning(one: list[int], other: list[int]) -> None:
    shared = common(one, other)
    assert one[:shared] == other[:shared]
    assert shared == min(len(one), len(other)) or one[shared] != other[shared]


def test_a_groups_shared_prompt_is_found_and_a_row_alone_shares_nothing() -> None:
    groups = pl.Series(["a", "b", "a", "c", "a", "c"])
    prompts = pl.Series([[1, 2, 3, 4], [1], [1, 2, 5], [4, 4], [1, 2, 3], [4, 4]])
    assert shared_prompt_tokens(groups, prompts).to_list() == [2, 0, 2, 2, 2, 2]


def test_a_row_has_the_fingerprints_that_its_captures_carry() -> None:
    world = World()
    for step, (prompt, response, tokenizer) in enumerate((([1], [2], "ours"), ([1, 2, 3], [4], ""))):
        seen = [text("user", "go"), *([text("assistant", "a"), text("user", "on")] if step else [])]
        world.call(seen, text("assistant", "ab"[step]), trace="a" * 32, response_id=f"r{step}")
        world.capture(prompt, response, response_id=f"r{step}", tokenizer=tokenizer)
    (row,) = world.convert().trajectories.to_dicts()
    assert (row["sampled_steps"], row["tokenizers"], row["step_rewards"]) == ([0, 1], ["", "ours"], [None, None])


def test_however_long_a_prompt_is_none_of_it_is_trained_on() -> None:
    agent = Agent()
    agent.prompt = [token % 900 for token in range(50_000)]
    agent.act()
    agent.prompt += [token % 900 for token in range(50_000)]
    agent.act(ends=True)
    (row,) = agent.rows()
    trained = [token for token, kept in zip(row["response_token_ids"], row["loss_mask"], strict=True) if kept]
    assert trained == [SAMPLED, SAMPLED + 1, SAMPLED + 2, SAMPLED + 3]
    assert len(row["loss_mask"]) == len(row["logprobs"]) == 50_000 + 1 + 4


@st.composite
def agents(draw: st.DrawFn) -> Agent:
    """An agent that goes on, tries again, forgets, rewrites, and whose tokens come back as they were or otherwise."""
    agent = Agent()
    points = [(agent.seen, agent.prompt)]
    for _ in range(draw(st.integers(1, 8))):
        what = draw(st.sampled_from(["go on", "go on", "go on", "branch", "edit", "truncate", "retokenise", "insert"]))
        if what == "branch":
            agent.seen, agent.prompt = draw(st.sampled_from(points))
        elif what == "edit":
            agent.seen, agent.prompt = [*agent.seen[:1], text("user", "summary"), *agent.seen[2:]], [8, *agent.prompt]
        elif what == "truncate":
            agent.seen, agent.prompt = [*agent.seen[:1], *agent.seen[-2:]], [*agent.prompt[:1], *agent.prompt[-2:]]
        elif what == "retokenise":
            agent.prompt = [7 if token >= SAMPLED and token % 2 else token for token in agent.prompt]
        elif what == "insert":
            agent.prompt = [*agent.prompt[:-1], 6, agent.prompt[-1]]
        agent.act(
            tokens=draw(st.integers(0, 3)),
            ends=draw(st.booleans()),
            captured=draw(st.sampled_from([True, True, True, False])),
            dropped=draw(st.sampled_from([0, 0, 0, 1])),
        )
        if draw(st.booleans()):
            agent.prompt = agent.prompt[:-1]  # the next prompt is the context, with nothing observed
        points.append((agent.seen, agent.prompt))
    return agent


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(agents())
def test_a_row_trains_on_each_sampled_token_once_and_on_nothing_else(agent: Agent) -> None:
    converted = agent.world.convert()
    steps = {row["step"]: row for row in converted.transitions.iter_rows(named=True)}
    trained: list[int] = []
    for row in converted.trajectories.iter_rows(named=True):
        ids, mask, logprobs = row["response_token_ids"], row["loss_mask"], row["logprobs"]
        assert len(ids) == len(mask) == len(logprobs)
        first, last = steps[row["first_step"]], steps[row["last_step"]]
        assert row["prompt_token_ids"] == first["prompt_token_ids"]
        assert row["prompt_token_ids"] + ids == last["prompt_token_ids"] + last["response_token_ids"]
        for token, kept, logprob in zip(ids, mask, logprobs, strict=True):
            assert not kept or token >= SAMPLED
            assert logprob == pytest.approx(-token / 10_000 if kept else 0.0)
        trained += [token for token, kept in zip(ids, mask, strict=True) if kept]
        places = list(zip(row["sampled_steps"], row["sampled_starts"], row["sampled_ends"], strict=True))
        assert (places[0][0], places[-1][0]) == (row["first_step"], row["last_step"])
        for number, start, end in places:
            assert ids[start:end] == steps[number]["response_token_ids"]
        sampled = {position for _, start, end in places for position in range(start, end)}
        assert len(sampled) == sum(end - start for _, start, end in places)
        assert all(position in sampled for position, kept in enumerate(mask) if kept)
    wanted = [row for row in steps.values() if row["is_trainable"] and row["token_source"] == "captured"]
    assert sorted(trained) == sorted(token for row in wanted for token in row["response_token_ids"])
