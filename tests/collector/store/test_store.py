"""Guarantees of the store about blocks, tokens, values and errors, on a real ClickHouse."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from spanloop.foundation.errors import StoreError
from spanloop.store import Store
from spanloop.store.client import Connection

START_NS = 1_700_000_000_123_456_789


def span_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "Timestamp": START_NS + number,
            "TraceId": f"trace-{number % 7}",
            "SpanId": f"span-{number}",
            "SpanName": "chat",
            "SpanAttributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "12"},
            "Events.Timestamp": [START_NS, START_NS + 1],
            "Events.Name": ["exception", "ünï ⚙"],
            "Events.Attributes": [{"exception.type": "ValueError"}, {}],
            "Duration": 2**63,
        }
        for number in range(count)
    ]


def count(connection: Connection, table: str) -> int:
    return int(connection.query(f"SELECT count() AS n FROM {table}", doing="counting")["n"][0])


def test_spans_round_trip(store: Store, frame_of: Any) -> None:
    frame = frame_of("otel_traces", span_rows(3))
    assert store.insert("otel_traces", frame) == 3
    back = store.query("trace_spans", trace_id="trace-1")
    row = back.row(0, named=True)
    assert back["Timestamp"].cast(pl.Int64).to_list() == [START_NS + 1]
    assert back.schema["Timestamp"] == pl.Datetime("ns", "UTC")
    assert row["SpanAttributes"] == {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "12"}
    assert row["Events.Attributes"] == [{"exception.type": "ValueError"}, {}]
    assert row["Events.Name"] == ["exception", "ünï ⚙"]
    assert back["Events.Timestamp"].explode(empty_as_null=False).cast(pl.Int64).to_list() == [START_NS, START_NS + 1]
    assert row["Duration"] == 2**63
    assert row["GenAiOperation"] == "chat"
    assert row["GenAiInputTokens"] == 12
    assert row["Links.TraceId"] == []
    assert datetime.now(UTC) - row["IngestedAt"] < timedelta(minutes=5)


def test_a_read_frame_can_be_inserted_again_unchanged(store: Store, frame_of: Any) -> None:
    store.insert("otel_traces", frame_of("otel_traces", span_rows(1)))
    columns = list(store.schema("otel_traces"))
    first = store.query("trace_spans", trace_id="trace-0").select(columns)
    store.insert("otel_traces", first)
    both = store.query("trace_spans", trace_id="trace-0").select(columns)
    assert both.equals(pl.concat([first, first]))
    assert both.schema == store.schema("otel_traces")


def test_a_list_of_key_value_structs_becomes_a_map(store: Store, frame_of: Any) -> None:
    frame = frame_of("otel_traces", span_rows(1)).with_columns(
        SpanAttributes=pl.Series([[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]])
    )
    store.insert("otel_traces", frame)
    assert store.query("trace_spans", trace_id="trace-0")["SpanAttributes"].to_list() == [{"a": "1", "b": "2"}]


def test_null_means_the_columns_default(store: Store, connection: Connection) -> None:
    frame = pl.DataFrame(
        {"name": ["spans", None], "value": ["7", "8"], "updated_at": [None, None]},
        schema_overrides={"updated_at": pl.Datetime("us", "UTC")},
    )
    store.insert("pipeline_state", frame)
    rows = connection.query("SELECT name, now('UTC') - updated_at < 600 AS fresh FROM pipeline_state", doing="reading")
    assert sorted(rows.rows()) == [("", 1), ("spans", 1)]


def test_a_large_frame_is_one_block(store: Store, connection: Connection) -> None:
    rows = 1_500_000
    frame = pl.DataFrame(
        {"job_id": "j", "step": range(rows), "name": "loss", "value": 1.0}, schema_overrides={"step": pl.UInt32}
    )
    connection.command("SYSTEM STOP MERGES training_metrics", doing="stopping merges")
    store.insert("training_metrics", pl.concat([frame[: rows // 2], frame[rows // 2 :]], rechunk=False))
    parts = connection.query(
        "SELECT rows FROM system.parts WHERE active AND table = 'training_metrics' AND database = currentDatabase()",
        doing="listing parts",
    )
    assert parts["rows"].to_list() == [rows]


def test_a_token_sent_twice_is_stored_once(store: Store, connection: Connection, frame_of: Any) -> None:
    frame = frame_of("otel_traces", span_rows(100))
    for _ in range(3):
        store.insert("otel_traces", frame, token="block-1")
    assert count(connection, "otel_traces") == 100
    store.insert("otel_traces", frame, token="block-2")
    assert count(connection, "otel_traces") == 200


def test_a_token_holds_for_a_block_over_many_days(store: Store, connection: Connection, frame_of: Any) -> None:
    day_ns = 86_400 * 10**9
    rows = [row | {"Timestamp": START_NS + number * day_ns} for number, row in enumerate(span_rows(120))]
    for _ in range(2):
        store.insert("otel_traces", frame_of("otel_traces", rows), token="many-days")
    assert count(connection, "otel_traces") == 120


def test_the_same_rows_without_a_token_are_stored_each_time(
    store: Store, connection: Connection, frame_of: Any
) -> None:
    frame = frame_of("otel_traces", span_rows(2))
    store.insert("otel_traces", frame)
    store.insert("otel_traces", frame)
    assert count(connection, "otel_traces") == 4


def reward_log(number: int) -> dict[str, Any]:
    return {
        "Timestamp": START_NS + number,
        "TraceId": "t",
        "SpanId": "s",
        "EventName": "gen_ai.evaluation.result",
        "LogAttributes": {
            "gen_ai.evaluation.name": "reward",
            "gen_ai.evaluation.score.value": "0.5",
            "spanloop.task.id": "task-1",
        },
    }


def test_a_token_sent_twice_is_stored_once_in_the_views_target_too(
    store: Store, connection: Connection, frame_of: Any
) -> None:
    frame = frame_of("otel_logs", [reward_log(number) for number in range(5)])
    connection.command("SYSTEM STOP MERGES scores", doing="keeping duplicates visible")
    for _ in range(2):
        store.insert("otel_logs", frame, token="logs-1")
    assert count(connection, "otel_logs") == 5
    assert count(connection, "scores") == 5
    scores = connection.query("SELECT name, value, task_id, source FROM scores", doing="reading scores")
    assert scores.unique().rows() == [("reward", 0.5, "task-1", "otel_log")]


def test_scores_of_one_instant_for_several_responses_stay_apart(
    store: Store, connection: Connection, frame_of: Any
) -> None:
    logs: list[dict[str, Any]] = [reward_log(0) | {"TraceId": "", "SpanId": ""} for _ in range(3)]
    for number, log in enumerate(logs):
        log["LogAttributes"] = {**log["LogAttributes"], "gen_ai.response.id": f"response-{number}"}
    store.insert("otel_logs", frame_of("otel_logs", logs))
    responses = connection.query("SELECT response_id FROM scores FINAL ORDER BY response_id", doing="reading scores")
    assert responses["response_id"].to_list() == ["response-0", "response-1", "response-2"]


def test_a_block_that_the_view_lost_is_filled_in_by_the_retry(
    store: Store, connection: Connection, frame_of: Any
) -> None:
    frame = frame_of("otel_logs", [reward_log(0)])
    connection.command("ALTER TABLE scores ADD CONSTRAINT broken CHECK value < 0", doing="breaking the view's target")
    with pytest.raises(StoreError, match="inserting 1 rows into 'otel_logs'"):
        store.insert("otel_logs", frame, token="logs-1")
    connection.command("ALTER TABLE scores DROP CONSTRAINT broken", doing="mending it")
    store.insert("otel_logs", frame, token="logs-1")
    assert (count(connection, "otel_logs"), count(connection, "scores")) == (1, 1)


def test_an_empty_frame_is_checked_and_stores_nothing(store: Store, connection: Connection, frame_of: Any) -> None:
    assert store.insert("otel_traces", frame_of("otel_traces", [])) == 0
    with pytest.raises(StoreError, match="wrong columns"):
        store.insert("otel_traces", pl.DataFrame({"TraceIdd": []}))
    assert count(connection, "otel_traces") == 0


def test_unknown_and_missing_columns_are_named(store: Store) -> None:
    frame = pl.DataFrame({"job_id": ["j"], "stepp": [1], "name": ["loss"]})
    with pytest.raises(StoreError, match=r"unknown \['stepp'\], missing \['step', 'value'\]"):
        store.insert("training_metrics", frame)


def test_a_value_that_does_not_fit_is_refused_and_named(store: Store, connection: Connection) -> None:
    frame = pl.DataFrame({"job_id": ["j"], "step": [-1], "name": ["loss"], "value": [1.0]})
    with pytest.raises(StoreError, match=r"does not fit its columns.*u32.*-1"):
        store.insert("training_metrics", frame)
    assert count(connection, "training_metrics") == 0


@pytest.mark.parametrize("table", ["no_such_table", "otel_traces; DROP TABLE otel_traces", "a.b", ""])
def test_an_unknown_table_is_an_error(store: Store, table: str) -> None:
    with pytest.raises(StoreError, match="table"):
        store.insert(table, pl.DataFrame({"a": [1]}))


def test_threads_share_a_store(store: Store, connection: Connection) -> None:
    def work(number: int) -> int:
        frame = pl.DataFrame({"job_id": [f"j{number}"], "step": [0], "name": ["loss"], "value": [1.0]})
        store.insert("training_metrics", frame)
        return store.query("store_counts").height

    tables = store.query("store_counts").height
    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(work, range(60))) == {tables}
    assert count(connection, "training_metrics") == 60


def test_parameters_are_bound(store: Store, frame_of: Any) -> None:
    nasty = "it's \\ {limit:UInt32} \n\t -- ; ünï"
    store.insert("otel_traces", frame_of("otel_traces", [{"Timestamp": START_NS, "TraceId": nasty}]))
    assert store.query("trace_spans", trace_id=nasty)["TraceId"].to_list() == [nasty]
    assert store.query("trace_spans", trace_id="' OR 1 = 1 --").is_empty()


def test_datetime_parameters_keep_their_microseconds(store: Store, frame_of: Any) -> None:
    at = datetime(2024, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    rows = [{"Timestamp": at, "SpanName": "failing", "StatusCode": "Error"}]
    store.insert("otel_traces", frame_of("otel_traces", rows))
    assert store.query("error_groups", since=at, limit=10).height == 1
    assert store.query("error_groups", since=at.astimezone(), limit=10).height == 1
    assert store.query("error_groups", since=at.replace(tzinfo=None), limit=10).height == 1
    assert store.query("error_groups", since=at + timedelta(microseconds=1), limit=10).is_empty()


def test_error_groups_count_spans_and_traces(store: Store, frame_of: Any) -> None:
    rows = [row | {"StatusCode": "Error", "StatusMessage": f"m{number}"} for number, row in enumerate(span_rows(9))]
    store.insert("otel_traces", frame_of("otel_traces", [*rows, {"Timestamp": START_NS, "SpanName": "fine"}]))
    groups = store.query("error_groups", since=datetime(2020, 1, 1, tzinfo=UTC), limit=10)
    assert groups.select("span_name", "span_count", "trace_count", "last_message", "last_span_id").rows() == [
        ("chat", 9, 7, "m8", "span-8")
    ]


def test_newest_span(store: Store, frame_of: Any) -> None:
    assert store.query("store_newest_span").is_empty()
    store.insert("otel_traces", frame_of("otel_traces", span_rows(4)))
    assert store.query("store_newest_span")["last_hour"].to_list() == [4]


def test_counts_of_all_tables(store: Store, frame_of: Any) -> None:
    store.insert("otel_traces", frame_of("otel_traces", span_rows(4)))
    counts = dict(store.query("store_counts").select("table_name", "row_count").iter_rows())
    assert counts["otel_traces"] == 4
    assert counts["transition_rows"] == 0


def test_the_url_shows_no_password(store: Store) -> None:
    assert store.url.startswith("http://spanloop@127.0.0.1:")
    assert store.url.endswith(store.database)


def test_large_list_parameters_pass(connection: Connection) -> None:
    ids = [f"{number:032x}" for number in range(50_000)]
    answer = connection.query(
        "SELECT length({ids:Array(String)}) AS n", doing="sending many ids", parameters={"ids": ids}
    )
    assert answer["n"].to_list() == [50_000]


def test_text_that_is_not_utf8_is_an_error_with_a_way_out(connection: Connection) -> None:
    with pytest.raises(StoreError, match=r"toValidUTF8"):
        connection.query("SELECT unhex('ff') AS bad", doing="reading")
