"""A reader of the store: it cannot write, leave its limits or services, and it migrates nothing."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from spanloop.foundation.errors import ConfigurationError, NotRunningError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.tables import TABLES
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.read_only import DEFAULT_LIMITS, ReadLimits, open_reader, reader_settings

from ...conftest import MakeFrame
from ...dashboard.urls import clickhouse_url

SERVICES = ("shop", "bank")
TIME = datetime(2026, 1, 2, tzinfo=UTC)
BY_EPISODE = (
    "episodes",
    "failures",
    "episode_messages",
    "transition_rows",
    "trajectories",
    "judgements",
    "data_set_episodes",
)
SUMMARIES = ("episode_summaries", "failure_summaries", "step_summaries", "trace_summaries")
WRITES = (
    "INSERT INTO episodes (episode_id) VALUES ('x')",
    "ALTER TABLE episodes DELETE WHERE 1",
    "TRUNCATE TABLE episodes",
    "DROP TABLE episodes",
    "CREATE TABLE copies ENGINE = Memory AS SELECT 1",
    "SYSTEM FLUSH LOGS",
    "SELECT * FROM url('http://127.0.0.1:9/', 'CSV', 'a String')",
)


@pytest.fixture
def reachable(address: Address, store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of this test, found by its URL."""
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
    return store


def fill(store: Store, frame_of: MakeFrame) -> None:
    """Store one episode of each service with a row in every table that a reader of services sees."""
    for service in SERVICES:
        row = {
            "episode_id": service,
            "revision": 1,
            "service_name": service,
            "trace_ids": [f"{service}-trace"],
            "episode_key": f"{service}-key",
            "started_at": TIME,
            "occurred_at": TIME,
            "failure_id": service,
            "judgement_id": service,
            "judged_at": TIME,
        }
        for table in BY_EPISODE:
            fields = {name: value for name, value in row.items() if name in store.schema(table)}
            store.insert(table, frame_of(table, [fields]))
        span = {"Timestamp": TIME, "TraceId": f"{service}-trace", "SpanId": service, "ServiceName": service}
        store.insert("otel_traces", frame_of("otel_traces", [span]))
        log = {"Timestamp": TIME, "TraceId": f"{service}-trace", "ServiceName": service}
        store.insert("otel_logs", frame_of("otel_logs", [log]))
        for number, target in enumerate(({"trace_id": f"{service}-trace"}, {"episode_key": f"{service}-key"})):
            score = {"score_id": f"{service}-{number}", "name": "reward", "value": 1.0, "scored_at": TIME, **target}
            store.insert("scores", frame_of("scores", [score]))
        generation = {"generation_id": service, "started_at": TIME}
        store.insert("generations", frame_of("generations", [generation]))


def rows(reader: Store, table: str) -> int:
    final = "" if table in {"otel_traces", "otel_logs"} else "FINAL"  # they replace no rows
    frame = reader.connection.query(f"SELECT count() AS rows FROM {table} {final}", doing="counting")
    return int(frame["rows"][0])


@pytest.mark.parametrize("statement", WRITES)
@pytest.mark.parametrize("services", [(), ("shop",)])
def test_a_reader_cannot_write(
    statement: str, services: tuple[str, ...], reachable: Store, data_dir: DataDir, frame_of: MakeFrame
) -> None:
    fill(reachable, frame_of)
    with open_reader(data_dir, services=services) as reader:
        with pytest.raises(StoreError, match="code 164"):
            reader.connection.command(statement, doing="writing")
        with pytest.raises(StoreError, match="code 164"):
            reader.insert("episodes", frame_of("episodes", [{"episode_id": "x"}]))
    assert rows(reachable, "episodes") == 2


@pytest.mark.parametrize("setting", ["max_result_rows = 0", "readonly = 0", "additional_table_filters = {}"])
def test_a_statement_cannot_change_what_limits_it(setting: str, reachable: Store, data_dir: DataDir) -> None:
    del reachable
    with (
        open_reader(data_dir, services=("shop",)) as reader,
        pytest.raises(StoreError, match="setting in readonly mode"),
    ):
        reader.connection.query(f"SELECT 1 SETTINGS {setting}", doing="reading")


def test_limits_end_a_statement_and_the_error_names_the_next_step(reachable: Store, data_dir: DataDir) -> None:
    del reachable
    limits = ReadLimits(rows=10, result_bytes=10**6, timeout_s=0.2, memory_bytes=20 * 2**20)
    with open_reader(data_dir, limits) as reader:

        def refusal(sql: str) -> StoreError:
            with pytest.raises(StoreError) as refused:
                reader.connection.query(sql, doing="reading much")
            return refused.value

        assert "ask for fewer rows" in refusal("SELECT number FROM numbers(11)").next_step
        assert "ask for fewer rows" in refusal("SELECT repeat(toString(number), 400000) FROM numbers(5)").next_step
        assert "shorter range of time" in refusal("SELECT sum(sipHash64(number)) FROM numbers(1000000000000)").next_step
        assert "code 241" in str(refusal("SELECT length(groupArray(number)) FROM numbers(50000000)"))


def test_a_reader_of_a_service_sees_its_rows_alone(reachable: Store, data_dir: DataDir, frame_of: MakeFrame) -> None:
    fill(reachable, frame_of)
    visible = (*BY_EPISODE, *SUMMARIES, "otel_traces", "otel_logs")
    with open_reader(data_dir, services=("shop",)) as reader, open_reader(data_dir) as unlimited:
        assert {table: rows(unlimited, table) for table in visible} == dict.fromkeys(visible, 2)
        assert {table: rows(reader, table) for table in visible} == dict.fromkeys(visible, 1)
        assert (rows(unlimited, "scores"), rows(reader, "scores")) == (4, 2)
        assert (rows(unlimited, "generations"), rows(reader, "generations")) == (2, 0)
        view = "SELECT episode_id FROM transitions"
        assert reader.connection.query(view, doing="reading a view")["episode_id"].to_list() == ["shop"]
        by_id = "SELECT count() AS n FROM episodes FINAL PREWHERE episode_id = 'bank'"
        assert reader.connection.query(by_id, doing="reading one")["n"].to_list() == [0]
        joined = "SELECT count() AS n FROM (SELECT * FROM episodes) AS a CROSS JOIN failures AS b"
        assert reader.connection.query(joined, doing="joining")["n"].to_list() == [1]


def test_a_table_that_does_not_say_whose_its_rows_are_is_hidden(address: Address) -> None:
    filters = reader_settings(address, DEFAULT_LIMITS, ["shop"])["additional_table_filters"]
    for table in set(TABLES) - {"transitions", "schema_migrations"}:
        assert f"'{address.database}.{table}': " in filters


def test_a_services_name_is_no_sql(reachable: Store, data_dir: DataDir, frame_of: MakeFrame) -> None:
    fill(reachable, frame_of)
    for name in ("') OR 1 --", "\\') OR (1", "shop' OR '1' = '1", "'}", "\\"):
        with open_reader(data_dir, services=(name,)) as reader:
            assert rows(reader, "episodes") == 0


def test_a_user_who_may_only_read_sets_limits_or_is_refused(address: Address) -> None:
    settings = reader_settings(address, DEFAULT_LIMITS, (), user_readonly="2")
    assert "readonly" not in settings
    assert "max_result_rows" in settings
    with pytest.raises(ConfigurationError, match="readonly = 1"):
        reader_settings(address, DEFAULT_LIMITS, (), user_readonly="1")


def test_a_reader_migrates_nothing(
    address: Address, server: Connection, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = replace(address, database=f"{address.database}_empty")
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(empty))
    server.command(f"CREATE DATABASE {empty.database}", doing="making a database")
    try:
        with pytest.raises(StoreError, match="schema version 0"):
            open_reader(data_dir)
        tables = server.query(
            f"SELECT count() AS n FROM system.tables WHERE database = '{empty.database}'", doing="counting"
        )
        assert tables["n"].to_list() == [0]
    finally:
        server.command(f"DROP DATABASE {empty.database}", doing="cleaning up")


def test_without_a_server_a_reader_says_how_to_start_one(data_dir: DataDir) -> None:
    with pytest.raises(NotRunningError, match="spanloop up"):
        open_reader(data_dir)
