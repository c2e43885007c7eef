"""Recordings of real instrumentors come out with the structure that their programs really had."""

import json
from functools import cache
from typing import Any

import polars as pl
import pytest

from spanloop.converters import Converted, frames

from . import converters_recordings as recordings
from .converters_world import convert


@cache
def convert_recording(name: str) -> tuple[dict[str, Any], Converted]:
    recorded = recordings.load(name)
    spans = recordings.span_frame(recorded["spans"])
    logs = recordings.log_frame(recorded.get("log_events", ()))
    converted = convert(
        spans, scores=frames.empty(frames.SCORES), generations=frames.empty(frames.GENERATIONS), logs=logs
    )
    assert converted.transitions.height + converted.rejected.height == spans.height
    return recorded, converted


def episode_of(converted: Converted, truth: dict[str, Any]) -> str:
    """The one episode that has exactly the traces of ``truth``."""
    traces = sorted(trace.removeprefix("0x") for trace in truth["trace_ids"])
    found = converted.episodes.filter(pl.col("trace_ids") == traces)
    assert found.height == 1, truth["id"]
    return str(found.item(0, "episode_id"))


def test_every_scattered_loop_is_one_episode_with_its_steps_in_order() -> None:
    recorded, converted = convert_recording("plain_openai_loops_openllmetry")
    truths = recorded["truth"]["episodes"]
    assert converted.episodes.height == len(truths)
    for truth in truths:
        steps = converted.transitions.filter(pl.col("episode_id") == episode_of(converted, truth)).sort("step")
        assert steps["response_id"].to_list() == [step["response_id"] for step in truth["steps"]], truth["id"]
        for got, expected in zip(steps["action"].to_list(), truth["steps"], strict=True):
            parts = json.loads(got)["parts"]
            calls = [(part["id"], part["name"]) for part in parts if part["type"] == "tool_call"]
            assert calls == [(call["id"], call["name"]) for call in expected["action"]["tool_calls"]]


def test_tool_results_belong_to_the_action_that_asked_for_them() -> None:
    recorded, converted = convert_recording("plain_openai_loops_openllmetry")
    for truth in recorded["truth"]["episodes"]:
        steps = converted.transitions.filter(pl.col("episode_id") == episode_of(converted, truth)).sort("step")
        for got, expected in zip(steps["tool_results"].to_list(), truth["steps"], strict=True):
            found = [(r["tool_call_id"], r["name"], r["status"], r["content"]) for r in json.loads(got)]
            assert found == [(r["id"], r["name"], r["status"], r["content"]) for r in expected["tool_results"]]


def test_failures_are_the_ones_that_happened() -> None:
    recorded, converted = convert_recording("plain_openai_loops_openllmetry")
    for truth in recorded["truth"]["episodes"]:
        found = converted.failures.filter(pl.col("episode_id") == episode_of(converted, truth)).sort("step")
        expected = truth["failure"]
        if expected is None:
            assert found.is_empty()
            continue
        assert found.height == 1
        row = found.row(0, named=True)
        assert (row["error_class"], row["tool_name"], row["step"], row["is_recovered"]) == (
            expected["class"],
            expected["tool"],
            expected["step"],
            expected["recovered"],
        )
        assert row["fault_owner"] == ("tool" if expected["class"] == "tool_error" else "policy")


def test_next_states_follow_the_conversation() -> None:
    _, converted = convert_recording("plain_openai_loops_openllmetry")
    for _, steps in converted.transitions.sort("step").group_by("episode_id"):
        for row in steps.iter_rows(named=True):
            if row["next_state"]:
                before, after = json.loads(row["state"]), json.loads(row["next_state"])
                assert after[: len(before)] == before or before[0] != after[0]
            else:
                assert row["is_terminated"]


def test_the_openai_instrumentor_on_its_own() -> None:
    _, converted = convert_recording("openllmetry_openai")
    episodes = converted.episodes.sort("started_at")
    assert episodes["step_count"].to_list() == [2, *[1] * 11]
    reasons = converted.transitions["untrainable_reason"].value_counts().sort("untrainable_reason")
    assert dict(reasons.iter_rows()) == {"": 8, "incomplete_stream": 2, "request_failed": 3}
    classes = dict(converted.failures["error_class"].value_counts().iter_rows())
    assert classes == {"connection_error": 1, "incomplete_stream": 2, "invalid_request": 1, "rate_limit": 1}
    assert converted.rejected["reason"].to_list() == ["no_model_call"]


def test_sampling_parameters_and_finish_reasons_are_kept() -> None:
    _, converted = convert_recording("openllmetry_openai")
    first = converted.transitions.filter(pl.col("finish_reason") == "tool_call").sort("started_at").row(0, named=True)
    assert first["sampling"] == {"temperature": "0.2", "top_p": "0.9", "max_tokens": "64"}
    assert (first["model"], first["policy_version"]) == ("gpt-4o-2024-08-06", "")
    assert (first["input_tokens"], first["output_tokens"]) == (21, 7)


def test_unknown_message_parts_survive() -> None:
    _, converted = convert_recording("openllmetry_openai")
    states = [json.loads(state) for state in converted.transitions["state"].to_list()]
    images = [part for state in states for message in state for part in message["parts"] if part["type"] == "uri"]
    assert images == [{"type": "uri", "modality": "image", "uri": "https://x/y.png"}]


@pytest.mark.parametrize(
    ("name", "steps", "failures"),
    [
        ("openinference_openai", [2, *[1] * 11], 4),
        ("otel_openai_v2", [2, *[1] * 10], 4),
        ("langchain_openinference", [2, 1], 1),
        ("openai_agents_openinference", [2, 2], 1),
        ("otel_genai_openai", [2, *[1] * 11], 5),
        ("langchain_otel_genai", [2, 1], 1),
        ("langchain_openllmetry", [2, 1], 1),
        ("langchain_openai_only", [2, 1], 0),
        ("openai_agents_openllmetry", [2, 2], 1),
    ],
)
def test_every_recording_has_the_structure_of_its_program(name: str, steps: list[int], failures: int) -> None:
    _, converted = convert_recording(name)
    assert converted.episodes.sort("started_at")["step_count"].to_list() == steps
    assert converted.failures.height == failures


def test_agents_are_named_by_the_span_above() -> None:
    for name in ("langchain_otel_genai", "langchain_openllmetry", "openai_agents_openllmetry"):
        _, converted = convert_recording(name)
        assert set(converted.transitions["agent_name"].to_list()) == {"weather_agent"}, name


def test_content_that_was_not_captured_makes_untrainable_transitions_and_groups_of_their_own() -> None:
    _, converted = convert_recording("otel_genai_openai_no_content")
    assert not converted.transitions["is_trainable"].any()
    assert converted.episodes["group_id"].n_unique() == converted.episodes.height
    missing = converted.transitions.filter(pl.col("untrainable_reason") == "missing_content")
    details = missing.select("span_id", "untrainable_detail").iter_rows()
    assert all(span_id in detail and "gen_ai.input.messages" in detail for span_id, detail in details)
