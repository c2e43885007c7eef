"""otel_traces and otel_logs take what the OpenTelemetry ClickHouse exporter writes, and their views do their work."""

import math
from typing import Any

import pytest

from spanloop.store import Store
from spanloop.store.client import Connection

ATTRIBUTES = "Map(LowCardinality(String), String)"

# The columns that exporter/clickhouseexporter of opentelemetry-collector-contrib (0.151 and later) makes and fills.
EXPORTER_TRACES = {
    "Timestamp": "DateTime64(9)",
    "TraceId": "String",
    "SpanId": "String",
    "ParentSpanId": "String",
    "TraceState": "String",
    "SpanName": "LowCardinality(String)",
    "SpanKind": "LowCardinality(String)",
    "ServiceName": "LowCardinality(String)",
    "ResourceAttributes": ATTRIBUTES,
    "ScopeName": "String",
    "ScopeVersion": "String",
    "SpanAttributes": ATTRIBUTES,
    "Duration": "UInt64",
    "StatusCode": "LowCardinality(String)",
    "StatusMessage": "String",
    "Events.Timestamp": "Array(DateTime64(9))",
    "Events.Name": "Array(LowCardinality(String))",
    "Events.Attributes": f"Array({ATTRIBUTES})",
    "Links.TraceId": "Array(String)",
    "Links.SpanId": "Array(String)",
    "Links.TraceState": "Array(String)",
    "Links.Attributes": f"Array({ATTRIBUTES})",
    "ResourceAttributeItems": "Array(String)",
    "SpanAttributeItems": "Array(String)",
}
EXPORTER_LOGS = {
    "Timestamp": "DateTime64(9)",
    "TraceId": "String",
    "SpanId": "String",
    "TraceFlags": "UInt8",
    "SeverityText": "LowCardinality(String)",
    "SeverityNumber": "UInt8",
    "ServiceName": "LowCardinality(String)",
    "Body": "String",
    "ResourceSchemaUrl": "LowCardinality(String)",
    "ResourceAttributes": ATTRIBUTES,
    "ScopeSchemaUrl": "LowCardinality(String)",
    "ScopeName": "String",
    "ScopeVersion": "LowCardinality(String)",
    "ScopeAttributes": ATTRIBUTES,
    "LogAttributes": ATTRIBUTES,
    "EventName": "String",
}


@pytest.mark.parametrize(("table", "expected"), [("otel_traces", EXPORTER_TRACES), ("otel_logs", EXPORTER_LOGS)])
def test_the_exporters_columns_come_first_with_its_types(
    connection: Connection, table: str, expected: dict[str, str]
) -> None:
    described = connection.query(f"DESCRIBE TABLE {table}", doing="describing").select("name", "type")
    assert described.rows()[: len(expected)] == list(expected.items())


def test_the_exporters_own_insert_works(store: Store, connection: Connection) -> None:
    names = [name for name in EXPORTER_TRACES if not name.endswith("Items")]
    connection.command(
        f"INSERT INTO otel_traces ({', '.join(names)}) VALUES ("
        "'2026-01-02 03:04:05.123456789', 't', 's', '', '', 'chat', 'Client', 'app', {'service.name': 'app'}, '', '', "
        "{'gen_ai.operation.name': 'chat', 'gen_ai.usage.output_tokens': 'many'}, 5, 'Ok', '', "
        "[], [], [], [], [], [], [])",
        doing="inserting as the exporter does",
        settings={"async_insert": "0"},
    )
    row = store.query("trace_spans", trace_id="t").row(0, named=True)
    assert row["GenAiOperation"] == "chat"
    assert row["GenAiOutputTokens"] == 0
    assert row["DroppedAttributesCount"] == 0
    assert (row["Timestamp"].year, row["Timestamp"].microsecond) == (2026, 123456)
    assert store.query("dashboard_trace", trace_id="t")["span_count"].to_list() == [1]


@pytest.mark.parametrize("with_event_name", [True, False], ids=["since 0.127", "before"])
def test_the_exporters_own_insert_of_logs_works(store: Store, connection: Connection, *, with_event_name: bool) -> None:
    names = [name for name in EXPORTER_LOGS if with_event_name or name != "EventName"]
    values = (
        "'2026-01-02 03:04:05.123456789', 't', 's', 1, 'Info', 9, 'app', 'text', '', {'service.name': 'app'}, '', "
        "'lib', '1', {}, {'event.name': 'gen_ai.evaluation.result', 'gen_ai.evaluation.name': 'reward', "
        "'gen_ai.evaluation.score.value': '1'}"
    )
    named = ", 'gen_ai.evaluation.result'" if with_event_name else ""
    connection.command(
        f"INSERT INTO otel_logs ({', '.join(names)}) VALUES ({values}{named})",
        doing="inserting as the exporter does",
        settings={"async_insert": "0"},
    )
    scores = store.query("scores_list", trace_id="t", response_id="", session_id="", episode_id="", limit=5)
    assert scores["value"].to_list() == [1.0]


@pytest.mark.parametrize("value", ["0.25", "", "not a number"])
def test_a_reward_event_becomes_a_score(store: Store, connection: Connection, frame_of: Any, value: str) -> None:
    attributes = {
        "event.name": "gen_ai.evaluation.result",
        "gen_ai.evaluation.name": "reward",
        "gen_ai.evaluation.score.value": value,
        "gen_ai.evaluation.explanation": "because",
        "gen_ai.response.id": "r1",
        "spanloop.episode.id": "e1",
    }
    rows = [
        {"Timestamp": 1, "TraceId": "t", "SpanId": "s", "LogAttributes": attributes},
        {"Timestamp": 2, "TraceId": "t", "SpanId": "s", "LogAttributes": {"event.name": "other"}},
    ]
    store.insert("otel_logs", frame_of("otel_logs", rows), token=f"reward-{value}")
    scores = connection.query("SELECT * FROM scores", doing="reading scores").to_dicts()
    assert len(scores) == 1
    expected = {
        "name": "reward",
        "comment": "because",
        "response_id": "r1",
        "episode_key": "e1",
        "trace_id": "t",
        "span_id": "s",
    }
    assert {key: scores[0][key] for key in expected} == expected
    assert math.isnan(scores[0]["value"]) == (value != "0.25")
