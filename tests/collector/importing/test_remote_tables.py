"""Tables of another ClickHouse: the exporter's Map variant is read completely and once, other tables are rejected."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import polars as pl
import pytest

from spanloop.foundation.errors import ConfigurationError, StoreError
from spanloop.importing import ForeignLogs, ForeignTable
from spanloop.pipeline import run as convert
from spanloop.store import Store
from spanloop.store.client import Address, Connection

ATTRIBUTES = "Map(LowCardinality(String), String)"
# The table that exporter/clickhouseexporter of opentelemetry-collector-contrib makes (Map variant).
EXPORTER_TABLE = """
CREATE TABLE otel_traces (
    Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, TraceState String,
    SpanName LowCardinality(String), SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes {map}, ScopeName String, ScopeVersion String, SpanAttributes {map}, Duration UInt64,
    StatusCode LowCardinality(String), StatusMessage String,
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String), Attributes {map}),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes {map}),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
"""
EXPORTER_INSERT = """
INSERT INTO otel_traces (
    Timestamp, TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, ServiceName, ResourceAttributes,
    ScopeName, ScopeVersion, SpanAttributes, Duration, StatusCode, StatusMessage, Events.Timestamp, Events.Name,
    Events.Attributes, Links.TraceId, Links.SpanId, Links.TraceState, Links.Attributes
) VALUES (
    {moment:String}, {trace_id:String}, {span_id:String}, '', '', 'chat', 'Client', 'app', {'service.name': 'app'},
    'lib', '1', mapFromArrays({keys:Array(String)}, {values:Array(String)}), 5, 'Error', 'no luck',
    ['2026-01-02 03:04:05.5'], ['exception'], [{'exception.type': 'E'}], ['l'], ['m'], [''], [{'k': 'v'}]
)
"""
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"hi"}]}]',
    "gen_ai.headers": "{'authorization': 'Bearer secret'}",
}


class RemoteDatabase:
    """A remote database, with an exporter that writes into it."""

    def __init__(self, address: Address) -> None:
        user, password = quote(address.user), quote(address.password)
        self.url = f"http://{user}:{password}@{address.host}:{address.port}/{address.database}"
        Connection(address, database="default").command(f"CREATE DATABASE `{address.database}`", doing="preparing")
        self.connection = Connection(address)

    def make(self, sql: str) -> None:
        self.connection.command(sql, doing="preparing")

    def export(
        self, number: int, attributes: dict[str, str], *, trace: int = 1, moment: str = "2026-01-02 03:04:05.123456789"
    ) -> None:
        content = {"keys": list(attributes), "values": list(attributes.values())}
        ids = {"trace_id": f"{trace:032x}", "span_id": f"{number:016x}"}
        self.connection.command(EXPORTER_INSERT, doing="exporting", parameters={"moment": moment, **content, **ids})


@pytest.fixture
def remote(clickhouse: Address) -> Iterator[RemoteDatabase]:
    remote_address = replace(clickhouse, database=f"theirs_{uuid4().hex[:12]}")
    database = RemoteDatabase(remote_address)
    yield database
    database.connection.close()
    Connection(remote_address, database="default").command(
        f"DROP DATABASE `{remote_address.database}`", doing="cleaning up"
    )


def test_an_exporters_table_is_read_completely_and_once(store: Store, remote: RemoteDatabase) -> None:
    remote.make(EXPORTER_TABLE.format(map=ATTRIBUTES))
    remote.export(1, CHAT)
    remote.export(2, {})
    remote.export(3, {"http.method": "GET"}, trace=2)
    with ForeignTable(remote.url, "otel_traces") as table:
        first = table.read_new(store)
        assert (first.input, first.new["spans"], first.rejected.total()) == (2, 2, 0)
        remote.export(4, CHAT, trace=3)
        second = table.read_new(store)
        assert (second.new["spans"], second.known["spans"]) == (1, 2)
    row = store.query("trace_spans", trace_id=f"{1:032x}").sort("SpanId").row(0, named=True)
    assert (row["GenAiOperation"], row["SpanKind"], row["StatusCode"], row["Duration"]) == (
        "chat",
        "Client",
        "Error",
        5,
    )
    assert row["Timestamp"].microsecond == 123456
    assert "gen_ai.headers" not in row["SpanAttributes"]
    assert row["Events.Attributes"] == [{"exception.type": "E"}]
    assert row["Links.Attributes"] == [{"k": "v"}]
    assert convert(store).transitions == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("langfuse.observation.type", "generation"),
        ("mlflow.spanType", '"CHAT_MODEL"'),
        ("haystack.component.type", "OpenAIChatGenerator"),
    ],
)
def test_a_model_call_without_genai_attributes_is_imported_and_marked(
    store: Store, remote: RemoteDatabase, address: Address, key: str, value: str
) -> None:
    remote.make(EXPORTER_TABLE.format(map=ATTRIBUTES))
    remote.export(1, {key: value})
    remote.export(2, {key: "tool"})
    with ForeignTable(remote.url, "otel_traces") as table:
        assert table.read_new(store).new["spans"] == 2
    ours = Connection(address)
    marked = ours.query("SELECT SpanId, IsModelCall FROM otel_traces ORDER BY SpanId", doing="looking")
    ours.close()
    assert marked["IsModelCall"].to_list() == [True, False]


def test_a_late_span_is_read_and_since_reads_again(store: Store, remote: RemoteDatabase) -> None:
    remote.make(EXPORTER_TABLE.format(map=ATTRIBUTES))
    remote.export(1, CHAT)
    with ForeignTable(remote.url, "otel_traces") as table:
        table.read_new(store)
        remote.export(2, CHAT, trace=2, moment="2026-01-02 02:00:00")
        assert table.read_new(store).new["spans"] == 1
        remote.export(3, CHAT, trace=3, moment="2025-06-01 00:00:00")
        assert table.read_new(store).new["spans"] == 0
        assert table.read_new(store, since=datetime(2025, 1, 1, tzinfo=UTC)).new["spans"] == 1


def test_a_large_hour_is_read_in_batches_and_bad_rows_are_counted(
    store: Store, remote: RemoteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanloop.importing.remote_traces._QUERY_SPANS", 2)
    remote.make(EXPORTER_TABLE.format(map=ATTRIBUTES))
    for number in range(1, 8):
        remote.export(number, CHAT, trace=number)
    remote.export(9, CHAT, trace=2**130)
    seen: list[tuple[int, int]] = []
    with ForeignTable(remote.url, "otel_traces") as table:
        report = table.read_new(store, progress=lambda rows, total: seen.append((rows, total)))
    assert (report.input, report.new["spans"], dict(report.rejected)) == (8, 7, {"bad_trace_id": 1})
    assert len(seen) > 1
    assert seen[-1] == (8, 8)


def test_enum_values_of_an_older_exporter_are_read(store: Store, remote: RemoteDatabase) -> None:
    remote.make(EXPORTER_TABLE.format(map=ATTRIBUTES).replace("Duration UInt64", "Duration Int64"))
    remote.export(1, CHAT)
    remote.make(
        "ALTER TABLE otel_traces UPDATE SpanKind = 'SPAN_KIND_CLIENT', StatusCode = 'STATUS_CODE_OK', Duration = -3 "
        "WHERE 1 SETTINGS mutations_sync = 1"
    )
    with ForeignTable(remote.url, "otel_traces") as table:
        table.read_new(store)
    row = store.query("trace_spans", trace_id=f"{1:032x}").row(0, named=True)
    assert (row["SpanKind"], row["StatusCode"], row["Duration"]) == ("Client", "Ok", 0)


def test_the_json_variant_is_rejected_with_the_next_step(remote: RemoteDatabase) -> None:
    remote.make(EXPORTER_TABLE.format(map="JSON"))
    with pytest.raises(ConfigurationError, match=r"JSON variant: .*SpanAttributes") as refused:
        ForeignTable(remote.url, "otel_traces")
    assert "send a copy" in refused.value.next_step


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "There is no table 'otel_traces'"),
        ("CREATE TABLE otel_traces (TraceId String) ENGINE = Memory", "missing .*'SpanAttributes'"),
        (EXPORTER_TABLE.format(map="String"), "of another type .*SpanAttributes String"),
    ],
)
def test_another_table_is_rejected_by_name(remote: RemoteDatabase, sql: str, message: str) -> None:
    if sql:
        remote.make(sql)
    with pytest.raises(ConfigurationError, match=message) as refused:
        ForeignTable(remote.url, "otel_traces")
    assert "--table" in refused.value.next_step


def test_an_unreachable_server_is_reported(clickhouse: Address) -> None:
    with pytest.raises(StoreError, match="unreachable"):
        ForeignTable("http://127.0.0.1:1/otel", "otel_traces")
    with pytest.raises(StoreError, match="rejected"):
        ForeignTable(f"http://nobody:wrong@{clickhouse.host}:{clickhouse.port}", "otel_traces")


# --- traces that are read again


def test_only_traces_whose_fingerprint_changed_are_read_again(
    store: Store, remote: RemoteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.make(EXPORTER_TABLE.format(map=ATTRIBUTES))
    for number in range(1, 5):
        remote.export(number, CHAT, trace=number)
    queried_trace_ids: list[list[str]] = []
    original = ForeignTable.query

    def query(self: ForeignTable, query_name: str, **parameters: Any) -> pl.DataFrame:
        if query_name == "remote_spans":
            queried_trace_ids.append(parameters["trace_ids"])
        return original(self, query_name, **parameters)

    monkeypatch.setattr(ForeignTable, "query", query)
    monkeypatch.setattr("spanloop.importing.remote_traces._PAGE_TRACES", 2)
    with ForeignTable(remote.url, "otel_traces") as table:
        assert table.read_new(store).new["spans"] == 4
        queried_trace_ids.clear()
        again = table.read_new(store)
        assert (queried_trace_ids, again.input, again.known["spans"]) == ([], 4, 4)
        remote.export(9, CHAT, trace=3)
        changed = table.read_new(store)
    assert queried_trace_ids == [[f"{3:032x}"]]
    assert (changed.input, changed.new["spans"], changed.known["spans"]) == (5, 1, 4)


# --- the logs table

LOG_COLUMNS = """
    Timestamp DateTime64(9), TraceId String, SpanId String, TraceFlags UInt8, SeverityText LowCardinality(String),
    SeverityNumber UInt8, ServiceName LowCardinality(String), Body String, ResourceSchemaUrl LowCardinality(String),
    ResourceAttributes {map}, ScopeSchemaUrl LowCardinality(String), ScopeName String, ScopeVersion String,
    ScopeAttributes {map}, LogAttributes {map}
"""
LOG_TABLE = "CREATE TABLE otel_logs ({columns}) ENGINE = MergeTree ORDER BY (ServiceName, Timestamp)"


def logs(remote: RemoteDatabase, *, named: bool) -> None:
    """Create the exporter's table with five records; older versions have no column for the event's name."""
    columns = LOG_COLUMNS.format(map=ATTRIBUTES) + (", EventName String" if named else "")
    remote.make(LOG_TABLE.format(columns=columns))
    records: list[tuple[str, str, str, dict[str, str]]] = [
        ("gen_ai.user.message", '{"content": "hi"}', f"{1:016x}", {}),
        ("gen_ai.choice", '{"index": 0, "message": {"content": "hello"}}', f"{1:016x}", {}),
        (
            "gen_ai.evaluation.result",
            "",
            "",
            {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": "1"},
        ),
        ("app.scope", '{"input": {"messages": []}}', f"{1:016x}", {}),
        ("app.started", "nothing of ours", "", {"password": "x"}),
    ]
    for number, (name, body, span_id, attributes) in enumerate(records):
        log_attributes = attributes if named else {**attributes, "event.name": name}
        column, value = (", EventName", ", {name:String}") if named else ("", "")
        remote.connection.command(
            f"INSERT INTO otel_logs (Timestamp, TraceId, SpanId, ServiceName, Body, LogAttributes{column}) VALUES ("
            f"'2026-01-02 03:04:05.{number}', {{trace_id:String}}, {{span_id:String}}, 'app', {{body:String}}, "
            f"mapFromArrays({{keys:Array(String)}}, {{values:Array(String)}}){value})",
            doing="exporting",
            parameters={
                "trace_id": f"{1:032x}",
                "span_id": span_id,
                "body": body,
                "keys": list(log_attributes),
                "values": list(log_attributes.values()),
                **({"name": name} if named else {}),
            },
        )


@pytest.mark.parametrize("named", [True, False])
def test_messages_and_rewards_in_a_logs_table_are_imported(
    store: Store, remote: RemoteDatabase, *, named: bool
) -> None:
    remote.make(EXPORTER_TABLE.format(map=ATTRIBUTES))
    remote.export(1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    logs(remote, named=named)
    with ForeignTable(remote.url, "otel_traces") as table, ForeignLogs(remote.url, "otel_logs") as log_table:
        table.read_new(store)
        assert convert(store).untrainable == {"request_failed": 1}
        first = log_table.read_new(store)
        assert (first.input, first.new["log records"], first.rejected.total()) == (4, 4, 0)
        assert (log_table.read_new(store).new["log records"], log_table.read_new(store).known["log records"]) == (0, 4)
    report = convert(store)
    assert (report.episodes, report.transitions) == (1, 1)
    (stored,) = store.query("pipeline_stored", episode_ids=[f"{1:032x}"], trace_ids=[]).iter_rows(named=True)
    assert stored["reward"] == 1.0
    log_rows = store.query("pipeline_logs", trace_ids=[f"{1:032x}"])
    assert sorted(log_rows["EventName"].to_list()) == ["app.scope", "gen_ai.choice", "gen_ai.user.message"]


def test_another_logs_table_is_rejected_with_the_option_that_names_it(remote: RemoteDatabase) -> None:
    remote.make("CREATE TABLE otel_logs (Timestamp DateTime64(9), LogAttributes String) ENGINE = Memory")
    with pytest.raises(ConfigurationError, match=r"missing .*'SpanId'.*'LogAttributes String'") as refused:
        ForeignLogs(remote.url, "otel_logs")
    assert "--logs-table" in refused.value.next_step
