"""What a recording tells of its program, and whether a conversion tells the same."""

import json
from typing import Any, NamedTuple

import polars as pl

from spanloop.converters import Converted

from .test_recordings import convert_recording

LOOP = (
    ("- su get_weather+get_weather ok+ok -", "- suatt - - -"),
    ("- su get_weather error -", "- suat - - -"),
    ("- su get_weather ok -", "- suat - - -"),
    ("- su - - request_failed",),
)
"""A loop of the program's own around a client, every call of which is recorded whole."""

STREAM_UNREAD = (*LOOP[:2], ("- su get_weather ok missing_content", "- suat - - missing_content"), LOOP[3])
"""The same through a tracer that writes down a function's return, and no stream that it hands on."""


def of_agent(episodes: tuple[tuple[str, ...], ...], name: str = "-") -> tuple[tuple[str, ...], ...]:
    """The same, where the tools' spans are recorded, below an agent's with the name, if any."""
    found: list[tuple[str, ...]] = []
    for steps in episodes:
        parts = [step.split(" ") for step in steps]
        spans = ["+".join(f"span:{one}" for one in part[3].split("+")) if part[3] != "-" else "-" for part in parts]
        found.append(
            tuple(" ".join([name, *part[1:3], span, part[4]]) for part, span in zip(parts, spans, strict=True))
        )
    return tuple(found)


TOOL_AND_LIMIT = ("tool_error get_weather", "rate_limit -")


class Seen(NamedTuple):
    """What a recording tells of the program."""

    name: str
    episodes: tuple[tuple[str, ...], ...]
    failures: tuple[str, ...] = TOOL_AND_LIMIT
    rejected: dict[str, int] = {}  # noqa: RUF012 - a NamedTuple's default, never changed
    """Beside the context."""


def shape(converted: Converted) -> tuple[tuple[str, ...], ...]:
    """The episodes by their start, a line a step."""
    found: list[tuple[str, ...]] = []
    for episode in converted.episodes.sort("started_at")["episode_id"].to_list():
        rows = converted.transitions.filter(pl.col("episode_id") == episode).sort("step").iter_rows(named=True)
        found.append(tuple(_line(row) for row in rows))
    return tuple(found)


def _line(row: dict[str, Any]) -> str:
    roles = "".join(message["role"][0] for message in json.loads(row["state"]))
    asked = [part["name"] for part in json.loads(row["action"])["parts"] if part.get("type") == "tool_call"]
    results = [("span:" if one["span_id"] else "") + one["status"] for one in json.loads(row["tool_results"])]
    told = (row["agent_name"], roles, "+".join(asked), "+".join(results), row["untrainable_reason"])
    return " ".join(one or "-" for one in told)


def insist_on_structure(seen: Seen) -> None:
    """The episodes and failures are the program's, and every span is accounted for."""
    recorded, converted = convert_recording(seen.name)
    assert shape(converted) == seen.episodes
    failures = converted.failures.sort("occurred_at", "failure_id").select("error_class", "tool_name").iter_rows()
    assert {f"{kind} {tool or '-'}" for kind, tool in failures} == set(seen.failures)
    reasons = dict(converted.rejected["reason"].value_counts().iter_rows())
    assert {reason: count for reason, count in reasons.items() if reason != "context"} == seen.rejected
    assert converted.transitions.height + sum(reasons.values()) == len(recorded["spans"])


def insist_on_cities(seen: Seen) -> None:
    """Whatever is told whole asks for the program's cities, and was answered with their weather."""
    _, converted = convert_recording(seen.name)
    for row in converted.transitions.iter_rows(named=True):
        calls = [part for part in json.loads(row["action"])["parts"] if part.get("type") == "tool_call"]
        if row["untrainable_reason"] == "missing_content":
            continue
        cities = [call["arguments"]["city"] for call in calls if call["name"] == "get_weather"]
        assert cities in ([], ["Paris", "Rome"], ["Nowhere"], ["Oslo"], ["Lima"])
        for result, city in zip(json.loads(row["tool_results"]), cities, strict=False):
            expected = f"57F in {city}" if city != "Nowhere" else ""
            assert expected in result["content"]
            assert result["content"]
