"""Retention: counted from when a row came in, never from the time that it says of itself."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from spanloop.administration.retention import FOR_EVER, read_period, retention, set_retention
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store, connect
from spanloop.store.client import Address, Connection

from ...conftest import MakeFrame
from ...stored_states import insert_transitions

DAY_NS = 86_400 * 10**9
LAST_NS = 2**32 * 10**9 - 1
TIMEOUT_S = 60


@pytest.mark.parametrize(("text", "days"), [("90d", 90), ("1", 1), (" 7 d", 7), ("keep", FOR_EVER)])
def test_a_period_is_days(text: str, days: int) -> None:
    assert read_period(text) == days


@pytest.mark.parametrize("text", ["", "0d", "-1d", "3w", "49710d", "999999999d", "always"])
def test_an_invalid_period_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match="is not a retention: expected days from 1d to 49709d, or keep"
    ) as caught:
        read_period(text)
    assert "retention 90d" in caught.value.next_step


def test_rows_expire_by_time_of_arrival(store: Store, connection: Connection, frame_of: MakeFrame) -> None:
    now_ns = time.time_ns()
    rows = [
        {"TraceId": "gone", "Timestamp": now_ns - 40 * DAY_NS, "IngestedAt": datetime.now(UTC) - timedelta(days=40)},
        {"TraceId": "imported", "Timestamp": now_ns - 4_000 * DAY_NS, "IngestedAt": datetime.now(UTC)},
        {"TraceId": "from 1970", "Timestamp": 0, "IngestedAt": datetime.now(UTC)},
        {"TraceId": "from 2106", "Timestamp": LAST_NS, "IngestedAt": datetime.now(UTC)},
    ]
    store.insert("otel_traces", frame_of("otel_traces", rows))
    store.insert("otel_logs", frame_of("otel_logs", rows))
    step = {"episode_id": "e", "state": '["a"]', "converted_at": datetime.now(UTC) - timedelta(days=40)}
    insert_transitions(store, frame_of("transitions", [step]))
    assert retention(store) == FOR_EVER
    set_retention(store, 30)
    assert retention(store) == 30
    expected = {"imported", "from 1970", "from 2106"}
    for table, column in (("otel_traces", "TraceId"), ("otel_logs", "TraceId"), ("trace_summaries", "trace_id")):
        # The rows' own statement rewrites the parts; to be told to merge them is what hours would do.
        connection.command(f"OPTIMIZE TABLE {table} FINAL", doing="merging")
        deadline = time.monotonic() + TIMEOUT_S
        while (found := ids(connection, table, column)) != expected and time.monotonic() < deadline:
            time.sleep(0.1)
        assert found == expected, table
    assert connection.query("SELECT state FROM transitions", doing="looking").rows() == [('["a"]',)]


def ids(connection: Connection, table: str, column: str) -> set[str]:
    found = connection.query(f"SELECT DISTINCT {column} AS id FROM {table}", doing="looking")
    return {str(each) for each in found["id"]}


def test_a_retention_can_be_changed_and_removed(store: Store, connection: Connection, frame_of: MakeFrame) -> None:
    set_retention(store, FOR_EVER)  # nothing to take back
    set_retention(store, 90)
    set_retention(store, 7)
    assert retention(store) == 7
    set_retention(store, FOR_EVER)
    assert retention(store) == FOR_EVER
    old = {"TraceId": "t", "Timestamp": 1, "IngestedAt": datetime(1971, 1, 1, tzinfo=UTC)}
    store.insert("otel_traces", frame_of("otel_traces", [old]))
    connection.command("OPTIMIZE TABLE otel_traces FINAL", doing="merging")
    assert ids(connection, "otel_traces", "TraceId") == {"t"}


def test_a_newer_table_gets_the_retention_at_the_next_connection(
    store: Store, address: Address, connection: Connection, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"{address.user}:{address.password}@" if address.user else ""
    url = f"{address.scheme}://{user}{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    connect(data_dir).close()
    assert store.query("store_retention").is_empty()
    set_retention(store, 30)
    for table in ("log_summaries", "trace_summaries"):
        connection.command(f"ALTER TABLE {table} REMOVE TTL", doing="going back to an older version")
    assert store.query("store_retention").height == 2
    connect(data_dir).close()
    assert store.query("store_retention")["days"].to_list() == [30] * 4
