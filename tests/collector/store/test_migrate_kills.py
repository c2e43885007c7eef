"""Migrations of a store with rows, killed at every statement, in several processes, and with the server."""

import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from uuid import uuid4

import pytest

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address
from spanloop.store.migrate import migrate, migrations, parse

from ...conftest import MEMORY_CAP_BYTES
from ...killed_processes import ForkServer

MIGRATE = """
import signal, threading, time
import spanloop.store.migrate as module
from spanloop.store.client import Address

RECREATED, APPLIED = 99, 1000

def main(address, next_file, version, number, moment):
    run, record, recreate = module._run, module._record, module._recreate
    is_recreating = False

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def killed(at, call):
        # Later ones too: what was sent before a kill may have been done.
        if at < [version, number]:
            return call()
        if moment == "during":
            threading.Thread(target=call, daemon=True).start()
            time.sleep(0.002)
            die()
        if moment == "after":
            call()
        die()

    def run_killed(connection, migration, number, statement):
        if is_recreating:
            sys.stderr.write(f"recreates by {statement[:80]!r}\\n")
            sys.exit(RECREATED)
        return killed([migration.version, number], lambda: run(connection, migration, number, statement))

    def record_killed(connection, migration, state):
        number = 0 if state == "started" else APPLIED
        return killed([migration.version, number], lambda: record(connection, migration, state))

    def recreate_watched(*arguments):
        nonlocal is_recreating
        is_recreating = True
        recreate(*arguments)
        is_recreating = False

    module._run, module._record, module._recreate = run_killed, record_killed, recreate_watched
    module.migrate(Address(**address), [*module.migrations(), module.parse(*next_file)])
"""
"""Migrates to the initial schema and by a next migration, and is killed before, during or after one statement, or one
entry of the journal (0 and 1000)."""
APPLIED, NOWHERE = 1000, (9999, 0, "")

NEXT_FILE = (f"{len(migrations()) + 1:04}_next.sql", """
-- What a migration may do: rename a table and put a view in its place, change views, columns, indexes and settings,
-- and fill a table from the rows of another.
RENAME TABLE evaluation_episodes TO former_evaluation_episodes;

-- Spelled out, because a server that has lost the definition of a table creates it anew.
CREATE TABLE IF NOT EXISTS former_evaluation_episodes (
    evaluation_id String, evaluation_revision UInt64, episode_id String, reward Nullable(Float64)
) ENGINE = ReplacingMergeTree ORDER BY (evaluation_id, evaluation_revision, episode_id);

CREATE TABLE IF NOT EXISTS evaluation_rows (
    evaluation_id String, episode_id String, reward Nullable(Float64)
) ENGINE = ReplacingMergeTree ORDER BY (evaluation_id, episode_id);

CREATE VIEW IF NOT EXISTS evaluation_episodes AS
SELECT evaluation_id, episode_id, reward FROM evaluation_rows FINAL
UNION ALL
SELECT evaluation_id, episode_id, reward FROM former_evaluation_episodes FINAL;

ALTER TABLE scores ADD COLUMN IF NOT EXISTS weight Float64 DEFAULT 1 AFTER value;

ALTER TABLE scores_from_logs MODIFY QUERY
SELECT LogAttributes['spanloop.score.id'] AS score_id, 2 AS weight, IngestedAt AS ingested_at FROM otel_logs;

ALTER TABLE otel_logs MODIFY COLUMN IF EXISTS SpanEventName LowCardinality(String) MATERIALIZED EventName;

CREATE TABLE IF NOT EXISTS error_summaries (
    error_class LowCardinality(String), episodes SimpleAggregateFunction(groupUniqArrayArray, Array(String))
) ENGINE = AggregatingMergeTree ORDER BY error_class;

CREATE MATERIALIZED VIEW IF NOT EXISTS error_summaries_mv TO error_summaries AS
SELECT error_class, groupUniqArray(episode_id) AS episodes FROM failures GROUP BY error_class;

INSERT INTO error_summaries
SELECT error_class, groupUniqArray(episode_id) AS episodes FROM failures GROUP BY error_class;

ALTER TABLE scores ADD INDEX IF NOT EXISTS idx_session session_id TYPE bloom_filter(0.001) GRANULARITY 1;

ALTER TABLE scores MATERIALIZE INDEX IF EXISTS idx_session;

ALTER TABLE scores DROP INDEX IF EXISTS idx_trace_id;

ALTER TABLE generations MODIFY SETTING non_replicated_deduplication_window = 2000;
""")  # fmt: skip
NEXT = parse(*NEXT_FILE)

AT = "toDateTime64(1760000000 + number, 6, 'UTC')"
FILL = (
    f"""INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, SpanAttributes, Duration, IngestedAt)
    SELECT {AT}, lower(hex(MD5(toString(intDiv(number, 4))))), leftPad(toString(number), 16, '0'), 'chat',
        map('gen_ai.operation.name', 'chat', 'gen_ai.response.id', toString(number)), 1000, {AT} FROM numbers(4000)""",
    f"""INSERT INTO otel_logs (Timestamp, TraceId, Body, LogAttributes, IngestedAt)
    SELECT {AT}, lower(hex(MD5(toString(number)))), 'said', map('event.name', 'gen_ai.choice'), {AT}
    FROM numbers(500)""",
    f"""INSERT INTO scores (score_id, name, value, trace_id, ingested_at)
    SELECT toString(number), 'reward', 0.5, lower(hex(MD5(toString(number)))), {AT} FROM numbers(500)""",
    f"""INSERT INTO generations (generation_id, response_id, started_at, ingested_at)
    SELECT toString(number), toString(number), {AT}, {AT} FROM numbers(500)""",
    f"""INSERT INTO episodes (episode_id, revision, trace_ids, started_at, converted_at)
    SELECT toString(number), 1 + number % 2, [lower(hex(MD5(toString(number))))], {AT}, {AT} FROM numbers(1000)""",
    f"""INSERT INTO transition_rows
        (transition_id, episode_id, revision, step, state, is_trainable, started_at, converted_at)
    SELECT concat(toString(intDiv(number, 3)), '/', toString(number % 3)), toString(intDiv(number, 3)),
        1 + intDiv(number, 3) % 2, number % 3, [0, 1], number % 3 = 0, {AT}, {AT} FROM numbers(3000)""",
    f"""INSERT INTO failures (failure_id, episode_id, revision, error_class, converted_at)
    SELECT toString(number), toString(number), 1, 'tool_error', {AT} FROM numbers(300)""",
    """INSERT INTO evaluation_episodes (evaluation_id, evaluation_revision, episode_id, reward)
    SELECT 'e', 1, toString(number), 0.5 FROM numbers(300)""",
    """INSERT INTO training_metrics (job_id, step, name, value)
    SELECT 'job', number, 'loss', 1. FROM numbers(300)""",
)
"""Rows of the initial schema."""
ROWS = "SELECT count() AS n, sum(cityHash64(tuple(*))) AS content FROM {table:Identifier} SETTINGS final = 1"
TABLES = """
SELECT name, create_table_query AS made, engine FROM system.tables WHERE database = currentDatabase() ORDER BY name
"""
NOT_COMPARED = frozenset(
    {"schema_migrations", "trace_summaries", "error_summaries", "training_metrics", "metric_summaries"}
)
"""The journal, whose entries repeat; sets whose order varies; and tables with the time of the insert."""
COUNTED = """
SELECT (SELECT count() FROM transitions) AS transitions, (SELECT count() FROM training_metrics) AS metrics,
    (SELECT (count(), sum(length(spans))) FROM trace_summaries FINAL) AS traces,
    (SELECT (count(), sum(length(episodes))) FROM error_summaries FINAL) AS errors,
    (SELECT count() FROM evaluation_episodes) AS evaluated
"""


def fill(address: Address) -> None:
    connection = Connection(address)
    for statement in FILL:
        connection.command(statement, doing="filling")
    connection.close()


def make_initial(address: Address) -> None:
    """Make a store of the initial schema, with rows."""
    migrate(address, migrations())
    fill(address)


def content(address: Address) -> tuple[Mapping[str, str], Mapping[str, tuple[object, ...]], tuple[object, ...]]:
    """The definitions and rows of all tables."""
    connection = Connection(address)
    try:
        tables = connection.query(TABLES, doing="listing").to_dicts()
        schema = {table["name"]: str(table["made"]).replace(address.database, "db") for table in tables}
        rows = {
            table["name"]: connection.query(ROWS, doing="reading", parameters={"table": table["name"]}).row(0)
            for table in tables
            if "MergeTree" in table["engine"] and table["name"] not in NOT_COMPARED
        }
        return schema, rows, connection.query(COUNTED, doing="counting").row(0)
    finally:
        connection.close()


@pytest.fixture
def undisturbed(address: Address) -> tuple[object, ...]:
    """The content of a store that was migrated in one go."""
    make_initial(address)
    migrate(address, [*migrations(), NEXT])
    return content(address)


def other_database(address: Address) -> Address:
    return replace(address, database=f"t_{uuid4().hex[:12]}")


def drop(address: Address) -> None:
    connection = Connection(address, database="default")
    connection.command(f"DROP DATABASE IF EXISTS `{address.database}`", doing="cleaning up")
    connection.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_migration_that_is_killed_at_every_statement_loses_no_row(
    address: Address, undisturbed: tuple[object, ...], tmp_path: Path
) -> None:
    killed = other_database(address)
    kills = 0
    with ForkServer(MIGRATE, tmp_path / "log") as server:
        for migration in (*migrations(), NEXT):
            if migration is NEXT:
                fill(killed)
            for number in (*range(len(migration.statements) + 1), APPLIED):
                for moment in ("before", "during", "after"):
                    point = (migration.version, number, moment)
                    status = server.run(asdict(killed), NEXT_FILE, *point)
                    is_last = point == (NEXT.version, APPLIED, "after")
                    assert status == -signal.SIGKILL or is_last, (point, (tmp_path / "log").read_text())
                    kills += 1
        assert server.run(asdict(killed), NEXT_FILE, *NOWHERE) == 0, (tmp_path / "log").read_text()
    assert content(killed) == undisturbed
    drop(killed)
    print(f"{kills} kills")  # noqa: T201 - the ledger


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_processes_that_migrate_at_once_and_are_killed_lose_no_row(
    address: Address, undisturbed: tuple[object, ...], tmp_path: Path
) -> None:
    choose = random.Random(18)
    for _ in range(5):
        shared = other_database(address)
        make_initial(shared)
        with ExitStack() as servers:
            started = [servers.enter_context(ForkServer(MIGRATE, tmp_path / "log")) for _ in range(3)]
            for _ in range(8):
                pids = [server.start(asdict(shared), NEXT_FILE, *NOWHERE) for server in started]
                time.sleep(choose.uniform(0.05, 0.6))
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                assert {server.wait() for server in started} <= {0, -signal.SIGKILL}, (tmp_path / "log").read_text()
            for server in started:
                server.start(asdict(shared), NEXT_FILE, *NOWHERE)
            assert [server.wait() for server in started] == [0] * 3, (tmp_path / "log").read_text()
        assert content(shared) == undisturbed
        drop(shared)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_migration_whose_server_is_killed_loses_no_row(
    undisturbed: tuple[object, ...], data_dir: DataDir, tmp_path: Path
) -> None:
    choose = random.Random(18)
    with EmbeddedClickHouse(data_dir, memory_cap_bytes=MEMORY_CAP_BYTES):
        make_initial(embedded_address(data_dir))
    with ForkServer(MIGRATE, tmp_path / "log") as server:
        for _ in range(15):
            with EmbeddedClickHouse(data_dir, memory_cap_bytes=MEMORY_CAP_BYTES):
                server.start(asdict(embedded_address(data_dir)), NEXT_FILE, *NOWHERE)
                time.sleep(choose.uniform(0.02, 0.5))
                running = data_dir.running("clickhouse")
                assert running is not None
                os.kill(running.pid, signal.SIGKILL)
                server.wait()
        with EmbeddedClickHouse(data_dir, memory_cap_bytes=MEMORY_CAP_BYTES):
            address = embedded_address(data_dir)
            assert server.run(asdict(address), NEXT_FILE, *NOWHERE) == 0, (tmp_path / "log").read_text()
            schema, rows, counted = content(address)
    assert (rows, counted) == undisturbed[1:]
    assert sorted(schema) == sorted(undisturbed[0])  # type: ignore[call-overload]
