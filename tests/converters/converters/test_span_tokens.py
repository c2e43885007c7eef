"""Token ids that spans carry reach the transitions, or a reason that names the span and the attribute."""

import json
from typing import Any

import polars as pl
import pytest

from .converters_world import OPENING, World, answers, asks, text, trace_id

TRACE = trace_id("t")
OPENAI_LOGPROBS: list[Any] = [{"token": "a", "logprob": -0.25, "top_logprobs": []}, {"token": "b", "logprob": -0.5}]


def only_step(attributes: dict[str, Any], *, captures: bool = False) -> dict[str, Any]:
    world = World()
    span = world.call(OPENING, text("assistant", "x"), trace=TRACE, response_id="r1", attributes=attributes)
    if captures:
        world.capture([1], [9], response_id="", trace=TRACE, parent=span)
    return dict(world.convert().transitions.row(0, named=True))


SPELLINGS: list[dict[str, Any]] = [
    {"prompt_token_ids": [1, 2], "response_token_ids": [3, 4], "logprobs.content": OPENAI_LOGPROBS},
    {"prompt_token_ids": "[1,2]", "response_token_ids": "[[3,4]]", "response_logprobs": [-0.25, -0.5]},
    {
        "llm.hosted_vllm.prompt_token_ids": str([1, 2]),
        "llm.hosted_vllm.choices": str(
            [{"token_ids": [3, 4], "finish_reason": None, "logprobs": {"content": OPENAI_LOGPROBS}}]
        ),
        "llm.hosted_vllm.logprobs": "1",
    },
    {
        "llm.hosted_vllm.prompt_token_ids": str([1, 2]),
        "llm.hosted_vllm.response_token_ids": str([[3, 4]]),
        "llm.hosted_vllm.choices": str([{"logprobs": {"token_logprobs": [-0.25, -0.5]}}]),
    },
    {
        "gen_ai.prompt.token_ids": [1, 2],
        "gen_ai.completion.token_ids": [3, 4],
        "gen_ai.completion.logprobs": [-0.25, -0.5],
    },
    {
        "agentlightning.operation.output.prompt_token_ids": [1, 2],
        "agentlightning.operation.output.choices.0.token_ids": [3, 4],
        "agentlightning.operation.output.choices.0.logprobs.content": OPENAI_LOGPROBS,
    },
    {
        "output.value": json.dumps(
            {
                "prompt_token_ids": [1, 2],
                "choices": [{"token_ids": [3, 4], "logprobs": {"content": OPENAI_LOGPROBS}}],
            }
        )
    },
]


@pytest.mark.parametrize(
    "attributes",
    SPELLINGS,
    ids=["agentlightning", "strings", "litellm-choices", "litellm", "gen_ai", "weave", "openinference"],
)
def test_ids_and_logprobs_reach_the_transition(attributes: dict[str, Any]) -> None:
    row = only_step(attributes)
    assert (row["prompt_token_ids"], row["response_token_ids"], row["logprobs"]) == ([1, 2], [3, 4], [-0.25, -0.5])
    assert (row["token_source"], row["capture_join"], row["is_trainable"]) == ("span", "span", True)


@pytest.mark.parametrize(
    ("attributes", "reason", "named", "keeps_ids"),
    [
        ({"response_token_ids": [3, 4]}, "missing_logprobs", "2 response tokens", True),
        ({"response_token_ids": [3, 4], "logprobs.content": [-0.1]}, "token_mismatch", "1 logprobs for 2", False),
        (
            {"response_token_ids": [3], "response_logprobs": "[-0.1]", "gen_ai.usage.output_tokens": 7},
            "token_mismatch",
            "gen_ai.usage.output_tokens says 7",
            True,
        ),
        ({"response_token_ids": []}, "token_mismatch", "0 response tokens", False),
        ({}, "token_mismatch", "0 response tokens", False),
        ({"response_token_ids": "[-3]"}, "token_mismatch", "attribute response_token_ids", False),
        ({"response_token_ids": "[4294967296]"}, "token_mismatch", "attribute response_token_ids", False),
        ({"response_token_ids": "three"}, "token_mismatch", "attribute response_token_ids", False),
        ({"response_token_ids": [3], "logprobs": "[NaN]"}, "token_mismatch", "attribute logprobs", False),
        ({"response_token_ids": [3], "logprobs": "[null]"}, "token_mismatch", "attribute logprobs", False),
        ({"response_token_ids": [3], "logprobs": "[-1e999]"}, "token_mismatch", "attribute logprobs", False),
        ({"response_token_ids": [3], "logprobs": [{"token": "x"}]}, "token_mismatch", "attribute logprobs", False),
        ({"choices": str([{"token_ids": ["a"]}])}, "token_mismatch", "attribute choices", False),
    ],
)
def test_what_does_not_fit_is_located(attributes: dict[str, Any], reason: str, named: str, *, keeps_ids: bool) -> None:
    row = only_step({"prompt_token_ids": [1, 2], **attributes})
    assert (row["untrainable_reason"], row["is_trainable"]) == (reason, False)
    assert row["span_id"] in row["untrainable_detail"]
    assert named in row["untrainable_detail"]
    assert row["prompt_token_ids"] == ([1, 2] if keeps_ids else [])
    assert row["token_source"] == ("span" if keeps_ids else "none")


def test_the_gateways_capture_goes_before_what_the_span_carries() -> None:
    carried = {"prompt_token_ids": [1], "response_token_ids": [2], "logprobs": [-0.1]}
    row = only_step(carried, captures=True)
    assert (row["response_token_ids"], row["token_source"], row["capture_join"]) == ([9], "captured", "traceparent")


def test_carried_tokens_are_merged_into_rows() -> None:
    world = World()
    first = {"prompt_token_ids": [1, 2], "response_token_ids": [3], "logprobs": [-0.5]}
    second = {"prompt_token_ids": [1, 2, 3, 8], "response_token_ids": [4], "logprobs": [-0.75]}
    world.call(OPENING, asks("c"), trace=TRACE, attributes=first)
    world.call([*OPENING, asks("c"), answers("c", "r")], text("assistant", "x"), trace=TRACE, attributes=second)
    row = world.convert().trajectories.row(0, named=True)
    assert (row["response_token_ids"], row["loss_mask"], row["logprobs"]) == ([3, 8, 4], [1, 0, 1], [-0.5, 0, -0.75])


def test_what_only_a_duplicate_carries_is_taken_over() -> None:
    world = World()
    carried = {"llm.hosted_vllm.prompt_token_ids": "[1]", "llm.hosted_vllm.response_token_ids": "[[2]]"}
    outer = world.call(OPENING, text("assistant", "x"), trace=TRACE, start_s=0, duration_s=5)
    world.call(
        OPENING, None, trace=TRACE, parent=outer, start_s=1, duration_s=1,
        attributes={**carried, "logprobs": [-0.5]},
    )  # fmt: skip
    row = world.convert().transitions.row(0, named=True)
    assert (row["span_id"], row["prompt_token_ids"], row["response_token_ids"]) == (outer, [1], [2])


def test_of_a_span_delivered_twice_the_first_delivery_counts() -> None:
    world = World()
    carried = {"prompt_token_ids": [1], "response_token_ids": [2], "logprobs": [-0.5]}
    world.call(OPENING, text("assistant", "x"), trace=TRACE, attributes=carried)
    before = world.convert()
    again = [item for item in world.spans[0]["SpanAttributes"] if item["key"] != "response_token_ids"]
    late = {"IngestedAt": world.spans[0]["IngestedAt"] + 5}
    world.spans.append(
        world.spans[0] | late | {"SpanAttributes": [*again, {"key": "response_token_ids", "value": "[7]"}]}
    )
    assert world.convert().transitions.equals(before.transitions)


def test_one_bad_list_costs_one_step() -> None:
    world = World()
    for number in range(200):
        ids: Any = "[oops]" if number == 100 else [number + 1]
        carried = {"prompt_token_ids": [1], "response_token_ids": ids, "logprobs": [-0.5]}
        world.call([text("user", f"{number}")], text("assistant", "x"), trace=f"{number:032x}", attributes=carried)
    found = world.convert().transitions
    assert found.filter(pl.col("is_trainable"))["response_token_ids"].list.len().to_list() == [1] * 199


SEVERAL: dict[str, dict[str, Any]] = {
    "nested": {"prompt_token_ids": [1, 2], "response_token_ids": [[3], [4, 5]], "logprobs": [[-0.5], [-0.25, -0.75]]},
    "nested text": {
        "prompt_token_ids": "[1, 2]",
        "llm.hosted_vllm.response_token_ids": "[[3], [4, 5]]",
        "logprobs.content": [[{"logprob": -0.5}], [{"logprob": -0.25}, {"logprob": -0.75}]],
    },
    "keys": {
        "prompt_token_ids": [1, 2],
        **{
            f"agentlightning.operation.output.choices.{place}.{key}": value
            for place, (ids, logprobs) in enumerate([([3], [-0.5]), ([4, 5], [-0.25, -0.75])])
            for key, value in (("token_ids", ids), ("logprobs.content", logprobs))
        },
    },
    "whole": {
        "output.value": {
            "prompt_token_ids": [1, 2],
            "choices": [
                {"index": 0, "token_ids": [3], "logprobs": {"content": [{"logprob": -0.5}]}},
                {"index": 1, "token_ids": [4, 5], "logprobs": {"token_logprobs": [-0.25, -0.75]}},
            ],
        }
    },
}


@pytest.mark.parametrize("attributes", SEVERAL.values(), ids=SEVERAL)
@pytest.mark.parametrize("used", [0, 1])
def test_the_used_choice_has_the_ids_that_the_span_carries_of_it(attributes: dict[str, Any], used: int) -> None:
    world = World()
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    told = {"gen_ai.output.messages": json.dumps(choices), "gen_ai.usage.output_tokens": 3}
    world.call(OPENING, choices[0], trace=TRACE, attributes=attributes | told)
    seen = [*OPENING, choices[used], text("user", "Sure?")]
    world.call(seen, text("assistant", "Yes."), trace=TRACE)
    row = world.convert().transitions.sort("step").row(0, named=True)
    assert (row["prompt_token_ids"], row["response_token_ids"]) == ([1, 2], [[3], [4, 5]][used])
    assert (row["logprobs"], row["token_source"]) == ([[-0.5], [-0.25, -0.75]][used], "span")
    assert (row["untrainable_reason"], row["is_trainable"]) == ("", True)


@pytest.mark.parametrize("attributes", SEVERAL.values(), ids=SEVERAL)
def test_ids_of_more_choices_than_the_span_has_messages_are_ambiguous(attributes: dict[str, Any]) -> None:
    assert only_step(attributes)["untrainable_reason"] == "ambiguous_choice"


def test_a_bad_id_of_a_further_choice_costs_only_that_choice() -> None:
    for used, reason in ((0, ""), (1, "token_mismatch")):
        world = World()
        choices = [text("assistant", "One."), text("assistant", "Two.")]
        attributes = {
            "prompt_token_ids": [1, 2],
            **{f"choices.{place}.token_ids": ids for place, ids in enumerate([[3], ["x"]])},
            **{f"choices.{place}.logprobs.content": [-0.5] for place in range(2)},
        }
        told = {"gen_ai.output.messages": json.dumps(choices)}
        world.call(OPENING, choices[0], trace=TRACE, attributes=attributes | told)
        seen = [*OPENING, choices[used], text("user", "Sure?")]
        world.call(seen, text("assistant", "Yes."), trace=TRACE)
        assert world.convert().transitions.sort("step")["untrainable_reason"].to_list() == [reason, ""]
