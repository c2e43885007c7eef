"""Rows that ClickHouse refuses permanently become dead letters, and the other rows are stored."""

import base64
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.blocks.frame_blocks import PolarsStrategy
from spanloop.collector.blocks.insert_errors import RefusedRanges, is_permanent
from spanloop.collector.blocks.protobuf_blocks import ProtobufStrategy
from spanloop.foundation.errors import DataDirectoryError, StoreError
from spanloop.spool import Batch
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .collectors import trace_record, trace_request
from .test_writer import Faults, Rig, append, stored

BAD = (3, 4, 11)


@pytest.fixture
def strict(store: Store, connection: Connection) -> Iterator[str]:
    """A table that refuses some spans; gives its name."""
    table = f"`{store.database}`.otel_traces"
    names = ", ".join(f"'span {at}'" for at in BAD)
    connection.command(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK SpanName NOT IN ({names})", doing="being strict")
    yield table
    connection.command(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS c", doing="being lenient")


def block(*bodies: bytes) -> Batch:
    return Batch("ab" * 16, tuple(trace_record(body, at, time.time_ns()) for at, body in enumerate(bodies, 1)))


BLOCK = block(
    trace_request(*range(1, 8)).SerializeToString(),
    b"\xff no request",
    trace_request(8).SerializeToString(),
    trace_request(*range(9, 14), trace_id=2).SerializeToString(),
)
GOOD = [at for at in range(1, 14) if at not in BAD]


def letters(store: Store, reason: str) -> list[dict[str, object]]:
    return store.query("dead_letter_list", reason=reason, with_replayed=0, limit=100).to_dicts()


@pytest.mark.usefixtures("strict")
def test_bad_rows_become_dead_letters_and_the_rest_is_stored(
    store: Store, connection: Connection, address: Address
) -> None:
    sent = PolarsStrategy().prepare(BLOCK).insert(store)
    assert sent == (len(GOOD), len(BAD))
    assert stored(connection, address) == GOOD
    span_names: list[str] = []
    for letter in letters(store, "refused_by_clickhouse"):
        assert (letter["item_count"], "469" in str(letter["detail"])) == (1, True)
        (row,) = store.query("dead_letter_show", prefix=letter["dead_letter_id"]).to_dicts()
        request = ExportTraceServiceRequest()
        request.MergeFromString(base64.b64decode(str(row["raw_base64"])))
        assert request.resource_spans[0].resource.attributes[0].key == "service.name"
        (span,) = (span for scope in request.resource_spans[0].scope_spans for span in scope.spans)
        assert row["span_ids"] == [span.span_id.hex()]
        span_names.append(span.name)
    assert sorted(span_names) == sorted(f"span {at}" for at in BAD)
    assert len(letters(store, "unreadable_record")) == 1


@pytest.mark.parametrize("strategy", [ProtobufStrategy, pytest.param(PolarsStrategy, marks=pytest.mark.slow)])
@pytest.mark.parametrize("attempts", range(1, 13))
def test_a_crash_at_any_insert_stores_nothing_twice(
    strict: str,
    connection: Connection,
    tmp_path: Path,
    attempts: int,
    strategy: type[PolarsStrategy | ProtobufStrategy],
    *,
    address: Address,
) -> None:
    """The n-th insert loses its response; then the table accepts everything, and the block is inserted again."""
    with Faults.open(address) as store:
        store.plan, store.log = [*([""] * (attempts - 1)), "answer lost"], []
        with suppress(StoreError):  # a refused insert has no response to lose: then the block is done
            strategy(RefusedRanges(tmp_path / "refused")).prepare(BLOCK).insert(store)
        connection.command(f"ALTER TABLE {strict} DROP CONSTRAINT c", doing="being lenient")
        strategy(RefusedRanges(tmp_path / "refused")).prepare(BLOCK).insert(store)
        dead = [
            int(span_id, 16)
            for row in letters(store, "refused_by_clickhouse")
            for shown in store.query("dead_letter_show", prefix=row["dead_letter_id"]).to_dicts()
            for span_id in shown["span_ids"]
        ]
    assert sorted([*stored(connection, address), *dead]) == list(range(1, 14))


async def test_the_writer_continues_after_a_bad_row(
    strict: str, tmp_path: Path, address: Address, connection: Connection
) -> None:
    rig = Rig(tmp_path / "spool", address, [])
    await append(rig.spool, *range(1, 14))
    await rig.drain()
    assert strict
    assert stored(connection, address) == GOOD
    assert rig.metrics.get("inserted_total") == len(GOOD)
    assert rig.metrics.get("refused_rows_total") == len(BAD)
    assert rig.metrics.get("insert_failures_total") == 0


def test_an_outage_is_not_permanent(store: Store) -> None:
    with pytest.raises(StoreError) as missing:
        store.insert("otel_traces", pl.DataFrame({"nonsense": [1]}))
    assert not is_permanent(missing.value)
    assert not is_permanent(StoreError("out of reach"))


def test_a_failing_view_does_not_split_the_block(store: Store, connection: Connection, address: Address) -> None:
    database = f"`{address.database}`"
    connection.command(f"CREATE TABLE {database}.numbers (n UInt32) ENGINE = MergeTree ORDER BY n", doing="making")
    view = f"CREATE MATERIALIZED VIEW {database}.v TO {database}.numbers AS SELECT toUInt32(SpanName) AS n"
    connection.command(f"{view} FROM {database}.otel_traces", doing="making")
    prepared = PolarsStrategy().prepare(block(trace_request(1, 2).SerializeToString()))
    with pytest.raises(StoreError, match="while pushing to view"):
        prepared.insert(store)
    connection.command(f"DROP TABLE {database}.v", doing="mending")
    assert prepared.insert(store).refused == 0
    assert stored(connection, address) == [1, 2]


def test_a_new_file_of_ranges_is_in_its_directory_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    ranges = RefusedRanges(tmp_path / "refused")
    ranges.add("aa", "aa-otel_traces")
    assert synced == [tmp_path / "refused", tmp_path]
    ranges.add("aa", "aa-otel_traces-0-5")
    assert synced[2:] == [tmp_path / "refused"]


def test_ranges_of_another_block_are_dropped_and_a_partial_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "refused"
    ranges = RefusedRanges(path)
    ranges.add("aa", "aa-otel_traces")
    ranges.add("aa", "aa-otel_traces-0-5")
    assert "aa-otel_traces" in RefusedRanges(path)
    ranges.add("bb", "bb-otel_traces")
    with path.open("a") as file:
        file.write("bb-otel_tr")
    again = RefusedRanges(path)
    assert ("aa-otel_traces" in again, "bb-otel_traces" in again, "bb-otel_tr" in again) == (False, True, False)
    missing = RefusedRanges(tmp_path / "none" / "refused")
    with pytest.raises(DataDirectoryError):
        missing.add("cc", "cc")
    assert "cc" not in missing
