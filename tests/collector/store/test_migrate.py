"""Migrations against a real ClickHouse: fresh, repeated, interrupted, concurrent, newer, edited, foreign."""
# pyright: reportPrivateUsage=false

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import spanloop.store.migrate as migrate_module
from spanloop.foundation.errors import StoreError
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.migrate import Migration, migrate, migrations, parse

KNOWN = len(migrations())
NEXT = parse(f"{KNOWN + 1:04}_more.sql", "ALTER TABLE otel_logs ADD COLUMN IF NOT EXISTS extra String;\n")
JOURNAL = [(number, state) for number in range(1, KNOWN + 1) for state in ("started", "applied")]


def tables(address: Address) -> Mapping[str, str]:
    connection = Connection(address)
    try:
        found = connection.query(
            "SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase()", doing="listing"
        )
    finally:
        connection.close()
    return dict(found.iter_rows())


def journal(address: Address) -> list[tuple[int, str]]:
    connection = Connection(address)
    try:
        rows = connection.query(
            "SELECT version, state FROM schema_migrations ORDER BY version, recorded_at", doing="reading the journal"
        )
    finally:
        connection.close()
    return [(int(version), str(state)) for version, state in rows.iter_rows()]


def test_a_missing_database_is_created_and_migrated(address: Address) -> None:
    migrate(address)
    assert {"otel_traces", "otel_logs", "scores", "transitions", "schema_migrations"} <= set(tables(address))
    assert journal(address) == JOURNAL


def test_migrating_again_changes_nothing(address: Address) -> None:
    migrate(address)
    before = tables(address)
    migrate(address)
    assert tables(address) == before
    assert journal(address) == JOURNAL


@pytest.mark.usefixtures("store")
def test_only_what_is_new_runs(address: Address) -> None:
    migrate(address, [*migrations(), NEXT])
    assert "extra" in tables(address)["otel_logs"]
    assert journal(address) == [*JOURNAL, (KNOWN + 1, "started"), (KNOWN + 1, "applied")]


def test_an_interrupted_migration_is_finished_by_the_next(address: Address) -> None:
    first = migrations()[0]
    broken = first._replace(statements=[*first.statements[:3], "THIS IS NO SQL"])
    with pytest.raises(StoreError, match=r"statement 4 of migration 1 \(initial\).*Syntax error"):
        migrate(address, [broken])
    assert journal(address) == [(1, "started")]
    assert "transitions" not in tables(address)
    migrate(address)
    assert "transitions" in tables(address)
    assert journal(address)[-1] == (KNOWN, "applied")


@pytest.mark.usefixtures("store")
def test_a_newer_schema_is_refused_with_the_version_it_needs(address: Address) -> None:
    migrate(address, [*migrations(), NEXT])
    with pytest.raises(
        StoreError, match=rf"schema version {KNOWN + 1} \(more\).*knows versions up to {KNOWN}\b"
    ) as caught:
        Store.open(address)
    assert "or newer: pip install /path/to/spanloop" in caught.value.next_step
    assert journal(address)[-1] == (KNOWN + 1, "applied")


@pytest.mark.usefixtures("store")
def test_an_edited_migration_is_refused(address: Address) -> None:
    edited = migrations()[0]._replace(checksum="0123456789abcdef")
    with pytest.raises(StoreError, match=r"another text of migration 1 \(initial\).*expected 0123456789abcdef"):
        migrate(address, [edited, *migrations()[1:]])


def test_foreign_tables_are_not_touched(address: Address) -> None:
    Connection(address, database="default").command(f"CREATE DATABASE `{address.database}`", doing="preparing")
    Connection(address).command("CREATE TABLE otel_traces (TraceId String) ENGINE = Memory", doing="preparing")
    with pytest.raises(StoreError, match="already has otel_traces, not created by spanloop"):
        migrate(address)
    assert set(tables(address)) == {"otel_traces"}


def test_tables_with_other_names_are_allowed(address: Address) -> None:
    Connection(address, database="default").command(f"CREATE DATABASE `{address.database}`", doing="preparing")
    Connection(address).command("CREATE TABLE theirs (a String) ENGINE = Memory", doing="preparing")
    migrate(address)
    assert {"theirs", "otel_traces"} <= set(tables(address))


def test_a_process_that_others_have_overtaken_goes_on_with_what_is_left(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, overtaken = migrate_module._record, migrations()[3]

    def overtake(connection: Connection, migration: Migration, state: str) -> None:
        record(connection, migration, state)
        if migration == overtaken and state == "started":
            monkeypatch.setattr(migrate_module, "_record", record)
            migrate(address)  # its tables have later columns now

    monkeypatch.setattr(migrate_module, "_record", overtake)
    migrate(address)
    assert {version for version, state in journal(address) if state == "applied"} == {*range(1, KNOWN + 1)}


@pytest.mark.slow
def test_services_that_start_together_migrate_together(address: Address) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(migrate, [address] * 6))
    assert {"applied"} == {state for _, state in journal(address)} - {"started"}
    with Store.open(address) as store:
        assert store.query("store_counts").height > 10


def test_a_rejected_password_is_reported(address: Address) -> None:
    with pytest.raises(StoreError, match="code 516") as caught:
        migrate(replace(address, password="wrong"))
    assert "wrong" not in str(caught.value)
    assert "Check user and password" in caught.value.next_step


def test_an_unreachable_server_is_reported(address: Address) -> None:
    with pytest.raises(StoreError, match=r"unreachable while connecting to http://spanloop@127\.0\.0\.1:1/"):
        migrate(replace(address, port=1))


def test_statements_are_split_at_the_end_of_a_line() -> None:
    sql = "-- a comment; with a semicolon\nCREATE TABLE IF NOT EXISTS a (b String COMMENT 'x;y') ;\n\nSELECT 1;"
    migration = parse("0007_a_name.sql", sql)
    assert migration.version == 7
    assert migration.name == "a_name"
    assert migration.statements == ["CREATE TABLE IF NOT EXISTS a (b String COMMENT 'x;y')", "SELECT 1"]


def test_a_file_of_another_name_is_no_migration() -> None:
    with pytest.raises(StoreError, match=r"expected NNNN_name\.sql"):
        parse("initial.sql", "")


def test_versions_run_from_one_without_a_gap() -> None:
    assert [migration.version for migration in migrations()] == list(range(1, len(migrations()) + 1))


@pytest.mark.parametrize("migration", migrations(), ids=lambda migration: str(migration.version))
def test_every_statement_can_run_twice(migration: Migration) -> None:
    idempotent = re.compile(
        r"(RENAME TABLE|CREATE [A-Z ]+ IF NOT EXISTS|DROP [A-Z ]+ IF EXISTS"
        r"|ALTER TABLE \w+ (\w+ \w+ IF (NOT )?EXISTS|MATERIALIZE COLUMN|MODIFY QUERY|MODIFY SETTING)"
        # Tables whose rows say the same when they are there twice.
        r"|INSERT INTO (trace|episode|failure|step|log|metric)_summaries)\b"
    )
    for statement in migration.statements:
        assert idempotent.match(statement), statement[:80]
