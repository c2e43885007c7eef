"""Agent Lightning's own span trees, sent as OTLP: what its adapters make of them, and where spanloop differs, and why.

``docs/reference/agent-lightning.md`` is generated from the same files.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.blocks.span_rows import SpanRows
from spanloop.collector.validation import JSON, Signal, validate_request
from spanloop.converters import frames

from .agent_lightning import TREES
from .agent_lightning.tree import MESSAGES, Call, Tree, facts
from .converters_world import convert

FOLDER = Path(__file__).parent / "agent_lightning"
THEIRS: Mapping[str, Mapping[str, Any]] = json.loads((FOLDER / "theirs.json").read_text())
DIFFERENCES: Sequence[Mapping[str, Any]] = json.loads((FOLDER / "differences.json").read_text())
BASE_NS = 1_790_000_000 * 10**9


def otlp(tree: Tree) -> bytes:
    """The tree as an OTLP/JSON request."""
    spans = [
        {
            "traceId": f"{1:032x}",
            "spanId": span_id(span.span_id),
            "parentSpanId": span_id(span.parent) if span.parent else "",
            "name": span.name,
            "startTimeUnixNano": str(BASE_NS + int(span.start_s * 1e9)),
            "endTimeUnixNano": str(BASE_NS + int(span.end_s * 1e9)),
            "attributes": [{"key": key, "value": value(found)} for key, found in span.attributes.items()],
        }
        for span in tree.spans
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def span_id(name: str) -> str:
    return name.encode()[-8:].hex().rjust(16, "0")


def value(found: str | float | list[int]) -> dict[str, Any]:
    match found:
        case bool():
            return {"boolValue": found}
        case int():
            return {"intValue": str(found)}
        case float():
            return {"doubleValue": found}
        case list():
            return {"arrayValue": {"values": [value(item) for item in found]}}
        case _:
            return {"stringValue": found}


def calls(tree: Tree) -> list[Call]:
    """What spanloop makes of the request: its transitions by step."""
    validation = validate_request(Signal.TRACES, otlp(tree), JSON)
    assert (validation.accepted, validation.rejected_total) == (len(tree.spans), 0)
    rows = SpanRows()
    rows.add(ExportTraceServiceRequest.FromString(validation.body))
    now = pl.lit(datetime(2026, 11, 25, tzinfo=UTC)).cast(frames.TIME_US)
    spans = rows.to_frame().with_columns(now.alias("IngestedAt"))
    converted = convert(spans, scores=frames.empty(frames.SCORES), generations=frames.empty(frames.GENERATIONS))
    return [call(row) for row in converted.transitions.sort("episode_id", "step").iter_rows(named=True)]


def call(row: Mapping[str, Any]) -> Call:
    parts: Sequence[Mapping[str, Any]] = json.loads(row["action"])["parts"]
    asked = [part for part in parts if part["type"] == "tool_call"]
    return Call(
        response_id=row["response_id"],
        agent=row["agent_name"],
        prompt=row["prompt_token_ids"],
        response=row["response_token_ids"],
        reward=row["reward"],
        tool_calls=[(part["id"], part["name"], json.dumps(part["arguments"])) for part in asked],
        answer="".join(part["content"] for part in parts if part["type"] == "text"),
    )


@pytest.mark.parametrize("tree", TREES, ids=[tree.name for tree in TREES])
def test_a_tree_gives_what_agent_lightning_makes_of_it_but_for_the_listed_differences(tree: Tree) -> None:
    ours = facts(tree, calls(tree))
    listed = {found["fact"]: found["spanloop"] for found in DIFFERENCES if found["tree"] == tree.name}
    assert ours == {**THEIRS[tree.name], **listed}
    assert all(THEIRS[tree.name].get(fact) != found for fact, found in listed.items())


def test_each_listed_difference_names_a_tree_and_a_reason() -> None:
    names = [tree.name for tree in TREES]
    assert len(set(names)) == len(names) == len(THEIRS)
    for found in DIFFERENCES:
        assert found["tree"] in names
        assert found["reason"]


def test_a_repeated_response_with_a_providers_id_counts_once_while_the_first_one_runs() -> None:
    """LiteLLM's callbacks may write a request twice: two spans of the same time."""
    (tree,) = [tree for tree in TREES if tree.name == "a response id of the proxy that is repeated"]
    first, again, reward = tree.spans
    provided = {**first.attributes, "llm.hosted_vllm.id": "chatcmpl-0f8fad5b-d9cb-469f-a165-70867728950e"}
    spans = [
        first._replace(attributes=provided),
        again._replace(attributes=provided, start_s=first.start_s, end_s=first.end_s),
        reward,
    ]
    assert [call.reward for call in calls(tree._replace(spans=spans))] == [1.0]


def test_every_tool_call_of_agentops_spans_is_in_the_action() -> None:
    asked = [[len(call.tool_calls) for call in calls(tree)] for tree in TREES if tree.adapter == MESSAGES]
    assert asked == [[1, 0, 0], [2, 0]]
