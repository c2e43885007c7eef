"""The right answers that people wrote are imitated, each after the conversation that it answers."""

import time
from pathlib import Path
from typing import Any

import pytest

from spanloop.foundation.tables.judged_values import Verdict
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.data_sets import add_to_data_set
from spanloop.store.judgements import Opinion, find_target, judge, withdraw
from spanloop.training.dataset.export import export_dataset
from spanloop.training.dataset.manifest import Manifest
from spanloop.training.models.base_model import BaseModelFacts, read_base_model

from ...converters.converters.converters_world import OPENING, answers, asks, text, trace_id
from ...converters.converters.pipeline_feed import Feed
from .test_text_rows import SFT, nobody, sampled, select

EPISODE = trace_id("a")
THANKS = text("user", "And Rome?")
BAD = Verdict.BAD


@pytest.fixture
def base(tiny_model: Path) -> BaseModelFacts:
    return read_base_model("tiny@v1", tiny_model)


@pytest.fixture
def feed(store: Store, connection: Connection) -> Feed:
    """An episode of three steps: a tool call with a wrong argument, an answer, and another one."""
    feed = Feed(store, connection)
    call, result = asks("c1", arguments={"query": 5}), answers("c1", "Error: query is no text")
    first, second = text("assistant", "It is sunny."), text("assistant", "12.")
    feed.world.call(OPENING, call, trace=EPISODE)
    feed.world.tool("c1", "Error: query is no text", trace=EPISODE, error="ValueError: query is no text")
    feed.world.call([*OPENING, call, result], first, trace=EPISODE)
    feed.world.call([*OPENING, call, result, first, THANKS], second, trace=EPISODE)
    feed.send()
    convert(store)
    return feed


def correct(
    store: Store,
    text: str,
    *,
    by: str = "ann",
    after_s: float = 0,
    step: int | None = None,
    failure: int | None = None,
) -> str:
    """Store a right answer of a person, and convert the episode again."""
    target = find_target(store, EPISODE, step=step, failure=failure)
    opinion = Opinion(correction=text, verdict=BAD)
    identity = judge(store, target, opinion, judged_by=by, judged_ns=time.time_ns() + int(after_s * 1e9))
    convert(store)
    return identity


def corrected(store: Store, base: BaseModelFacts, folder: Path, **settings: Any) -> list[tuple[list[int], list[str]]]:
    rows, _ = select(store, base, **settings)
    rows = rows.filter(source="corrected").sort("row_number")
    assert all(sum(row["loss_mask"]) == len(row["response_token_ids"]) for row in rows.to_dicts())
    return [(row["sampled_steps"], sampled(folder, row)) for row in rows.to_dicts()]


@pytest.mark.usefixtures("feed")
@pytest.mark.parametrize(
    ("place", "step"),
    [({"step": 1}, 1), ({"step": 0}, 0), ({"failure": 0}, 0), ({}, 2)],
    ids=["a step", "a tool call", "a failure, whose span is the tool's", "the episode"],
)
def test_a_right_answer_is_a_row_after_its_conversation(
    store: Store, tiny_model: Path, base: BaseModelFacts, place: dict[str, int], step: int
) -> None:
    assert corrected(store, base, tiny_model) == []
    correct(store, "Ask me again tomorrow.", step=place.get("step"), failure=place.get("failure"))
    assert corrected(store, base, tiny_model) == [([step], ["Ask me again tomorrow.<|im_end|>"])]


@pytest.mark.usefixtures("feed")
def test_the_manifest_counts_corrected_rows_of_a_failed_episode(
    store: Store, base: BaseModelFacts, tmp_path: Path
) -> None:
    correct(store, "7 degrees.", step=1)
    correct(store, "11 degrees.")

    def manifest() -> Manifest:
        return export_dataset(store, SFT, base, tokenizer_of=nobody, job_id="j", folder=tmp_path)

    counted = manifest()
    assert counted.sources == {"corrected": 2}
    assert [each.episode_id for each in counted.pinned] == [EPISODE]
    assert set(counted.rows.rejected) == {"not_successful"}
    rows, _ = select(store, base)
    first, second = (row["prompt_token_ids"] for row in rows.sort("row_number").to_dicts())
    assert len(first) < len(second)
    assert rows["row_number"].is_unique().all()


@pytest.mark.usefixtures("feed")
def test_of_several_answers_to_a_step_the_newest_counts_until_it_is_taken_back(
    store: Store, tiny_model: Path, base: BaseModelFacts
) -> None:
    correct(store, "Six.", step=1)
    newest = correct(store, "Seven.", by="bob", after_s=5, step=1)
    assert corrected(store, base, tiny_model) == [([1], ["Seven.<|im_end|>"])]
    withdraw(store, [newest], judged_ns=time.time_ns() + 10 * 10**9)
    convert(store)
    assert corrected(store, base, tiny_model) == [([1], ["Six.<|im_end|>"])]


@pytest.mark.usefixtures("feed")
def test_an_answer_that_came_after_a_pinned_revision_is_not_part_of_it(
    store: Store, tiny_model: Path, base: BaseModelFacts
) -> None:
    add_to_data_set(store, "earlier", [EPISODE], created_by="ann", source="selection")
    correct(store, "Seven.", step=1)
    add_to_data_set(store, "later", [EPISODE], created_by="ann", source="selection")
    assert corrected(store, base, tiny_model, data_set="earlier") == []
    assert corrected(store, base, tiny_model, data_set="later") == [([1], ["Seven.<|im_end|>"])]


@pytest.mark.usefixtures("feed")
def test_right_answers_are_left_out_where_they_are_not_asked_for(
    store: Store, tiny_model: Path, base: BaseModelFacts
) -> None:
    correct(store, "Seven.", step=1)
    for settings in ({"corrections": False}, {"tokens": "captured"}, {"tokens": "none"}, {"kind": "dpo"}):
        assert corrected(store, base, tiny_model, **settings) == []


def test_a_step_whose_conversation_was_not_recorded_is_rejected(
    store: Store, base: BaseModelFacts, connection: Connection
) -> None:
    feed = Feed(store, connection)
    feed.world.call([], text("assistant", "12."), trace=EPISODE, attributes={"gen_ai.input.messages": ""})
    feed.send()
    convert(store)
    _, before = select(store, base)
    correct(store, "Seven.", step=0)
    rows, rejected = select(store, base)
    assert rows.is_empty()
    assert sum(rejected.values()) == sum(before.values()) + 1
