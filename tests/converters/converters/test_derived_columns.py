"""Columns that no dialect decides follow from the other columns and from the spans, in every recording.

With ``DECIDED_BY_A_DIALECT`` of the golden files these are all columns; the last test compares the lists.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import polars as pl
import pytest

from spanloop.converters import CONVERTER_VERSION, Converted
from spanloop.foundation.tables.episodes import EPISODES, FAILURES, TRANSITIONS

from . import converters_recordings as recordings
from .golden import DECIDED_BY_A_DIALECT
from .test_golden import NAMES
from .test_recordings import convert_recording

Row = dict[str, Any]

DERIVED: Final = {
    "episodes": {
        *("episode_id", "revision", "converter_version", "episode_key", "task_id", "group_id", "service_name"),
        *("agent_name", "model", "policy_version", "started_at", "duration_ns", "step_count", "span_count"),
        *("tool_error_count", "input_tokens", "output_tokens", "outcome", "reward"),
        *("reward_breakdown", "is_terminated", "is_truncated", "error_class", "fault_owner"),
        "judgements",
    },
    "transitions": {
        *("transition_id", "episode_id", "revision", "step", "task_id", "group_id", "trace_id", "next_state", "reward"),
        *("reward_breakdown", "is_truncated", "is_trainable", "tool_error_count", "error_class", "fault_owner"),
        *("started_at", "duration_ns"),
    },
    "failures": {
        *("failure_id", "episode_id", "revision", "task_id", "trace_id", "agent_name", "model", "policy_version"),
        *("evidence", "occurred_at"),
    },
}
"""Table to the columns that the tests below derive."""


class Episode:
    """An episode with its rows and spans."""

    def __init__(self, row: Row, converted: Converted, spans: pl.DataFrame) -> None:
        in_episode = pl.col("episode_id") == row["episode_id"]
        self.row = row
        self.steps = converted.transitions.filter(in_episode).sort("step").to_dicts()
        self.failures = converted.failures.filter(in_episode).to_dicts()
        is_context = pl.col("reason").eq("context") & pl.col("detail").str.ends_with(f" episode {row['episode_id']}")
        context = converted.rejected.filter(is_context).select("trace_id", "span_id").rows()
        keys = {*context, *((step["trace_id"], step["span_id"]) for step in self.steps)}
        self.spans = {
            (span["TraceId"], span["SpanId"]): span
            for span in spans.with_columns(pl.col("Timestamp").cast(pl.Int64)).to_dicts()
            if (span["TraceId"], span["SpanId"]) in keys
        }

    def of_step(self, step: Row) -> Row:
        return self.spans[step["trace_id"], step["span_id"]]


@cache
def episodes_of(name: str) -> list[Episode]:
    recorded, converted = convert_recording(name)
    nanoseconds = converted._replace(
        episodes=converted.episodes.with_columns(pl.col("started_at").cast(pl.Int64)),
        transitions=converted.transitions.with_columns(pl.col("started_at").cast(pl.Int64)),
        failures=converted.failures.with_columns(pl.col("occurred_at").cast(pl.Int64)),
    )
    spans = recordings.span_frame(recorded["spans"])
    return [Episode(row, nanoseconds, spans) for row in nanoseconds.episodes.to_dicts()]


def first_known(values: Sequence[str]) -> str:
    return next((value for value in values if value), "")


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_episodes(name: str) -> None:
    for episode in episodes_of(name):
        row, steps, spans = episode.row, episode.steps, list(episode.spans.values())
        starts = [span["Timestamp"] for span in spans]
        ends = [span["Timestamp"] + span["Duration"] for span in spans]
        decisive = {(each["error_class"], each["fault_owner"]) for each in episode.failures if not each["is_recovered"]}
        assert row["episode_id"] == (row["episode_key"] or row["trace_ids"][0])
        assert row["revision"] == int(recordings.INGESTED_AT.timestamp() * 1_000_000)
        assert row["converter_version"] == CONVERTER_VERSION
        assert row["judgements"] == []
        assert row["task_id"] == "" or row["group_id"] == row["task_id"]
        assert row["trace_ids"] == sorted({span["TraceId"] for span in spans})
        assert row["service_name"] == episode.of_step(steps[0])["ServiceName"]
        assert row["agent_name"] == steps[0]["agent_name"]
        assert row["model"] == first_known([step["model"] for step in steps])
        assert row["policy_version"] == first_known([step["policy_version"] for step in steps])
        assert (row["started_at"], row["duration_ns"]) == (min(starts), max(ends) - min(starts))
        assert (row["step_count"], row["span_count"]) == (len(steps), len(spans))
        for column in ("tool_error_count", "input_tokens", "output_tokens"):
            assert row[column] == sum(step[column] for step in steps)
        assert row["is_terminated"] == steps[-1]["is_terminated"] != row["is_truncated"]
        assert (row["error_class"], row["fault_owner"]) in (decisive or {("", "")})
        assert row["outcome"] == ("failure" if decisive and row["is_truncated"] else "unknown")
        assert (row["reward"], row["reward_breakdown"]) == (None, {}), "no recording has a score"


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_transitions(name: str) -> None:
    for episode in episodes_of(name):
        for number, step in enumerate(episode.steps):
            span = episode.of_step(step)
            failures = [
                (each["error_class"], each["fault_owner"]) for each in episode.failures if each["step"] == number
            ]
            errors = [result for result in json.loads(step["tool_results"]) if result["status"] == "error"]
            assert step["step"] == number
            assert step["transition_id"] == f"{episode.row['episode_id']}/{number}"
            for column in ("episode_id", "revision", "task_id", "group_id", "reward", "reward_breakdown"):
                assert step[column] == episode.row[column]
            assert (step["started_at"], step["duration_ns"]) == (span["Timestamp"], span["Duration"])
            assert step["next_state"] in {"", *(other["state"] for other in episode.steps)}
            assert (step["is_terminated"] or step["is_truncated"]) == (step["next_state"] == "")
            assert not (step["is_terminated"] and step["is_truncated"])
            assert step["is_trainable"] == (step["untrainable_reason"] == "")
            assert step["tool_error_count"] == len(errors)
            assert (step["error_class"], step["fault_owner"]) == next(iter(failures), ("", ""))


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_failures(name: str) -> None:
    for episode in episodes_of(name):
        row = episode.row
        for number, failure in enumerate(episode.failures):
            step = episode.steps[int(failure["step"])]
            assert failure["failure_id"] == f"{row['episode_id']}/{number}"
            for column in ("episode_id", "revision", "task_id", "agent_name", "model", "policy_version"):
                assert failure[column] == step[column]
            assert (failure["trace_id"], failure["span_id"]) in episode.spans
            assert row["started_at"] <= failure["occurred_at"] <= row["started_at"] + row["duration_ns"]
            assert isinstance(json.loads(failure["evidence"]), dict)


def test_every_column_is_in_the_golden_files_or_derived() -> None:
    for table in (EPISODES, TRANSITIONS, FAILURES):
        golden = set(DECIDED_BY_A_DIALECT[table.name])
        assert golden <= set(table.schema)
        assert golden & DERIVED[table.name] <= {"is_terminated"}
        assert set(table.required) == golden | DERIVED[table.name], "a column is checked in neither; add it to one"
