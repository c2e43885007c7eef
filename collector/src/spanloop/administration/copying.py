"""Copy all rows of one store to another ClickHouse.

Invariant: a row is sent when the target does not hold it, and no row of the target is changed or removed. So an
interrupted copy can be repeated, and a repeated copy sends only new rows. Rows are compared by a hash of all columns.
Rows that newer rows replace are not copied.

Tables that the target's materialized views fill are copied last, so that the views' rows are there when rows are
compared. A summary table stays the same when a row arrives twice.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError, StoreError
from spanloop.store.store import Store

from . import TransferProgress

_ROWS: Final = 4_000
"""Rows a block. Every ClickHouse accepts this many hashes in a parameter."""
_SUMMARY_QUERIES: Final = {"trace_summaries": "store_copy_trace_summaries"}
"""Summary table → query of its content, compared instead of hashes because the order of the sets in it varies."""
_PASSES: Final = 5
"""A part that is merged meanwhile has another name, so its rows are sent in the next pass."""


class CopiedTable(NamedTuple):
    """Result of copying one table."""

    name: str
    sent: int
    """Rows that the target did not hold."""
    source_rows: int
    """Distinct rows in the source."""
    target_rows: int
    """Distinct rows in the target after the copy."""


def copy_store(source: Store, target: Store, *, on_progress: TransferProgress) -> list[CopiedTable]:
    """Copy all tables.

    Args:
        source: The store to read. Rows that arrive during the copy are copied or not.
        target: The store to write: migrated, on another ClickHouse or in another database.
        on_progress: Called after each block.

    Raises:
        ConfigurationError: Source and target are the same store.
        StoreError: A ClickHouse rejected a statement or is unreachable; repeat the copy.
    """
    if source.query("store_copy_identity").item() == target.query("store_copy_identity").item():
        raise ConfigurationError(
            f"{target.url} is the source of the copy.", next_step="Name another server or database with --to."
        )
    names = [str(name) for name in source.query("store_copy_tables")["table_name"]]
    return [_copy_table(source, target, name, on_progress) for name in names]


def _copy_table(source: Store, target: Store, table: str, on_progress: TransferProgress) -> CopiedTable:
    total, sent, source_rows, target_rows, completed = 0, 0, 0, 0, 0
    partitions = dict[str, int]()
    for partition, _, count in _parts(source, table):
        partitions[partition] = partitions.get(partition, 0) + count
        total += count
    on_progress(table, 0, total)
    if table in _SUMMARY_QUERIES:
        source_summary, target_summary = (store.query(_SUMMARY_QUERIES[table]).row(0) for store in (source, target))
        if source_summary == target_summary:
            return CopiedTable(table, 0, int(source_summary[0]), int(target_summary[0]))
    for partition, count in partitions.items():
        source_hashes = _hashes(source, table, partition)
        missing = set(source_hashes) if table in _SUMMARY_QUERIES else source_hashes - _hashes(target, table, partition)
        for _ in range(_PASSES):
            if not missing:
                break
            before = completed
            for sent_rows, read_rows in _send(source, target, table, partition, missing):
                sent += sent_rows
                completed = min(before + count, completed + read_rows)
                on_progress(table, completed, total)
            completed = before
        completed += count
        on_progress(table, completed, total)
        source_rows += len(source_hashes)
        target_rows += len(_hashes(target, table, partition))
    return CopiedTable(table, sent, source_rows, target_rows)


def _send(source: Store, target: Store, table: str, partition: str, missing: set[int]) -> Iterator[tuple[int, int]]:
    """Send the missing rows of a partition; yield for each block the number of rows sent and read."""
    # On a cluster, parts of several shards have one name.
    cluster = source.connection.cluster
    rows = _ROWS if cluster is None else max(1, _ROWS // cluster.servers)
    for partition_id, part, count in list(_parts(source, table)):
        if partition_id != partition:
            continue
        for first in range(0, count, rows):
            end = min(first + rows, count)
            block_range: dict[str, object] = {"table_name": table, "part": part, "first": first, "end": end}
            hashes = [int(row_hash) for row_hash in source.query("store_copy_part_hashes", **block_range)["row_hash"]]
            to_send = sorted(missing.intersection(hashes))
            if to_send:
                block = source.read_native("store_copy_rows", **block_range, row_hashes=to_send)
                # The deduplication token: a hash of the table and its rows.
                token = hashlib.blake2b(repr((table, to_send)).encode(), digest_size=16).hexdigest()
                target.insert_native(table, block, token=f"copy-{token}")
                missing.difference_update(to_send)
            yield len(to_send), end - first


def _parts(source: Store, table: str) -> Iterator[tuple[str, str, int]]:
    for partition, part, count in source.query("store_copy_parts", table_name=table).iter_rows():
        yield str(partition), str(part), int(count)


def _hashes(store: Store, table: str, partition: str) -> set[int]:
    hashes = store.query("store_copy_hashes", table_name=table, partition_id=partition)
    return set(hashes["row_hash"].to_list())


def copy_while_written(source: Store, target: Store, *, on_progress: TransferProgress) -> None:
    """Copy a store that is being written: a row that is replaced meanwhile, such as a lease, is copied again.

    Raises:
        StoreError: The target lacks rows after several copies, or a ClickHouse is unreachable.
    """
    for _ in range(_PASSES - 1):
        if not _incomplete(copy_store(source, target, on_progress=on_progress)):
            return
    check_copy(copy_store(source, target, on_progress=on_progress), target)


def check_copy(copied: list[CopiedTable], target: Store) -> None:
    """Check that the target holds all rows. StoreError: a table has fewer rows in the target than in the source."""
    incomplete = _incomplete(copied)
    if incomplete:
        counts = ", ".join(
            f"{table.name} has {table.target_rows:,} of {table.source_rows:,} rows" for table in incomplete
        )
        raise StoreError(f"{target.url} does not hold all rows: {counts}.", next_step="Run the copy again.")


def _incomplete(copied: list[CopiedTable]) -> list[CopiedTable]:
    return [table for table in copied if table.target_rows < table.source_rows]
