"""A database that one test used serves another: empty, and with the tables of the migrations."""

from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address, Connection

from ...databases import ReusedDatabases


def test_a_database_is_emptied_and_used_again_unless_its_tables_were_changed(
    clickhouse: Address, clickhouse_dir: DataDir, server: Connection
) -> None:
    databases = ReusedDatabases(clickhouse, server, clickhouse_dir.clickhouse)
    name = databases.take()
    server.command(f"INSERT INTO `{name}`.training_metrics (job_id) VALUES ('one')", doing="inserting a row")
    databases.give_back(name)
    assert databases.take() == name
    rows = server.query(f"SELECT count() FROM `{name}`.training_metrics", doing="counting rows")
    assert rows.item() == 0

    table = f"`{name}`.training_metrics"
    server.command(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK job_id != 'two'", doing="changing a table")
    server.command(f"ALTER TABLE {table} DROP CONSTRAINT c", doing="changing it back")
    databases.give_back(name)
    assert databases.take() == name

    server.command(f"ALTER TABLE {table} MODIFY COMMENT 'changed'", doing="changing a table")
    databases.give_back(name)
    assert databases.take() != name


def test_rows_are_erased_from_a_database_whose_merges_another_test_stopped(
    clickhouse: Address, clickhouse_dir: DataDir, server: Connection
) -> None:
    databases = ReusedDatabases(clickhouse, server, clickhouse_dir.clickhouse)
    name = databases.take()
    table = f"`{name}`.training_metrics"
    server.command(f"SYSTEM STOP MERGES {table}", doing="stopping merges")
    server.command(f"INSERT INTO {table} (job_id) VALUES ('one')", doing="inserting a row")
    databases.give_back(name)
    assert databases.take() == name
    server.command(f"INSERT INTO {table} (job_id) VALUES ('one')", doing="inserting a row")
    server.command(
        f"ALTER TABLE {table} DELETE WHERE 1 SETTINGS mutations_sync = 2, max_execution_time = 20", doing="erasing"
    )
    assert server.query(f"SELECT count() FROM {table}", doing="counting rows").item() == 0
