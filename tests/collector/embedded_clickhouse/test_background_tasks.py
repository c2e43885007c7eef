"""The embedded server's background tasks: merges and mutations."""

import time

from spanloop.store.client import Connection

PARTS = 40


def test_rows_of_many_parts_are_erased_without_waiting_for_a_timer(connection: Connection) -> None:
    connection.command(
        "CREATE TABLE many_parts (x UInt8, y UInt8) ENGINE = MergeTree ORDER BY x PARTITION BY x", doing="testing"
    )
    try:
        connection.command(f"INSERT INTO many_parts SELECT number, 1 FROM numbers({PARTS})", doing="testing")
        begun = time.monotonic()
        connection.command("ALTER TABLE many_parts DELETE WHERE y = 1 SETTINGS mutations_sync = 2", doing="testing")
        # 0.1 s; more than half a minute where a table waits for its timer after every four parts.
        assert time.monotonic() - begun < 15
        assert connection.query("SELECT count() FROM many_parts", doing="testing").item() == 0
    finally:
        connection.command("DROP TABLE many_parts", doing="testing")
