"""Requests for several choices reach training as the choice that the program used, or as a counted rejection."""

import json
from pathlib import Path

import pytest

from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.training.dataset.export import select_dataset
from spanloop.training.models.base_model import BaseModelFacts, read_base_model
from spanloop.training.recipes.choices import Tokens
from spanloop.training.spec.job_spec import JobSpec

from ...converters.converters.converters_world import OPENING, World, text, trace_id
from ...converters.converters.pipeline_feed import Feed

ATTEMPTS = 4
CHOICES = [text("assistant", "One."), text("assistant", "Two.")]


@pytest.fixture
def base(tiny_model: Path) -> BaseModelFacts:
    return read_base_model("tiny@v1", tiny_model)


def attempt(world: World, task: str, number: int, tokenizer: str, *, goes_on: bool) -> str:
    """Ask for two choices; go on from the second one, or answer with it and end. Return the trace id."""
    trace, response_id = trace_id(f"{task}-{number}"), f"{task}-{number}"
    attributes = {"spanloop.task.id": task}
    told = {"gen_ai.output.messages": json.dumps([{**choice, "finish_reason": "stop"} for choice in CHOICES])}
    world.call(OPENING, CHOICES[0], trace=trace, response_id=response_id, attributes=attributes | told)
    for place in (0, 1):
        sampled = [20 + place, 30 + number]
        world.capture([5, 6], sampled, response_id=response_id, choice=place, tokenizer=tokenizer)
    if goes_on:
        seen = [*OPENING, CHOICES[1], text("user", "Sure?")]
        answer = text("assistant", "Yes.")
        world.call(seen, answer, trace=trace, response_id=f"{response_id}-last", attributes=attributes)
        world.capture([5, 6, 21, 30 + number, 7], [8], response_id=f"{response_id}-last", tokenizer=tokenizer)
    world.score(float(number % 2), trace_id=trace)
    return trace


@pytest.fixture
def seeded(store: Store, connection: Connection, base: BaseModelFacts) -> Store:
    feed = Feed(store, connection)
    for number in range(ATTEMPTS):
        attempt(feed.world, "followed", number, base.tokenizer, goes_on=True)
        attempt(feed.world, "judged", number, base.tokenizer, goes_on=False)
    feed.send()
    convert(store)
    return store


def nobody(_: str) -> str | None:
    """A registry without versions."""
    return None


@pytest.mark.parametrize("kind", ["dr_grpo", "grpo", "ppo"])
def test_policy_gradients_train_the_used_choice_and_count_the_ambiguous_ones(
    seeded: Store, base: BaseModelFacts, kind: str
) -> None:
    selection = select_dataset(seeded, JobSpec.of(kind=kind, base="tiny"), base, nobody)
    assert dict(selection.row_tally.rejected) == {"ambiguous_choice": ATTEMPTS}
    rows = selection.rows.sort("episode_id")
    assert sorted(rows["response_token_ids"].to_list()) == [[21, 30 + number, 7, 8] for number in range(ATTEMPTS)]
    assert rows["loss_mask"].to_list() == [[1, 1, 0, 1]] * ATTEMPTS


@pytest.mark.parametrize("tokens", [Tokens.ANY, Tokens.RENDERED])
def test_imitation_counts_the_ambiguous_ones_too(seeded: Store, base: BaseModelFacts, tokens: Tokens) -> None:
    spec = JobSpec.of(kind="sft", base="tiny", tokens=tokens)
    selection = select_dataset(seeded, spec, base, nobody)
    rejected = dict(selection.row_tally.rejected)
    assert rejected.pop("ambiguous_choice") == ATTEMPTS
    assert set(rejected) <= {"not_successful"}
    assert {tuple(steps) for steps in selection.rows["sampled_steps"].to_list()} == {(0, 1)}
    assert selection.rows.height == ATTEMPTS // 2


def test_preferences_count_the_ambiguous_ones_too(seeded: Store, base: BaseModelFacts) -> None:
    selection = select_dataset(seeded, JobSpec.of(kind="dpo", base="tiny"), base, nobody)
    assert selection.row_tally.rejected["ambiguous_choice"] == ATTEMPTS
    assert {tuple(ids) for ids in selection.rows["response_token_ids"].to_list()} == {
        (21, 30 + number, 7, 8) for number in range(ATTEMPTS)
    }


@pytest.mark.parametrize("kind", ["dr_grpo", "ppo"])
def test_an_ambiguous_call_behind_a_trained_one_is_counted(
    store: Store, connection: Connection, base: BaseModelFacts, kind: str
) -> None:
    feed = Feed(store, connection)
    for number in range(ATTEMPTS):
        trace, first, last = trace_id(f"ended-{number}"), f"ended-{number}", f"ended-{number}-last"
        attributes = {"spanloop.task.id": "ended"}
        answer = text("assistant", "Let me think.")
        feed.world.call(OPENING, answer, trace=trace, response_id=first, attributes=attributes)
        feed.world.capture([5, 6], [21, 30 + number], response_id=first, tokenizer=base.tokenizer)
        choices = {"gen_ai.output.messages": json.dumps([{**choice, "finish_reason": "stop"} for choice in CHOICES])}
        seen = [*OPENING, answer, text("user", "And?")]
        feed.world.call(seen, CHOICES[0], trace=trace, response_id=last, attributes=attributes | choices)
        for place in (0, 1):
            prompt = [5, 6, 21, 30 + number, 7]
            feed.world.capture(prompt, [8 + place], response_id=last, choice=place, tokenizer=base.tokenizer)
        feed.world.score(float(number % 2), trace_id=trace)
    feed.send()
    convert(store)
    selection = select_dataset(store, JobSpec.of(kind=kind, base="tiny"), base, nobody)
    assert (selection.row_tally.accepted, dict(selection.row_tally.rejected)) == (ATTEMPTS, {})
    assert {sum(mask) for mask in selection.rows["loss_mask"].to_list()} == {2}
    assert selection.untrainable_calls == {"ambiguous_choice": ATTEMPTS}
