"""Everything in one store, into another ClickHouse.

Invariant: a row is sent when the other store does not hold it, and nothing there is changed or removed. So a copy that
was broken off is simply made again, and one that is made again when nothing came sends nothing. Rows are told apart by
a hash of all that is in them. What newer rows replace is not copied.

What the other store's views make of the rows is there when its rows are compared, because those tables come last; and
what views sum up comes to the same when a row comes twice.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from spanloop.semconv.errors import ConfigurationError, StoreError
from spanloop.store.store import Store

_ROWS: Final = 4_000
"""Sent at once; as many hashes are a parameter that every ClickHouse takes."""
_SUMMED_UP: Final = {"trace_summaries": "store_copy_trace_summaries"}
"""Tables that views sum up, and what they say: the order of sets in them is no difference, and differs."""
_PASSES: Final = 5
"""A part that is merged meanwhile is not found any more, and its rows are looked for in the next pass."""

Progress = Callable[[str, int, int], None]
"""Called with the table, the rows of it that are looked through, and how many there are."""


class CopiedTable(NamedTuple):
    """What became of one table."""

    name: str
    sent: int
    """Rows that the other store did not hold."""
    rows: int
    """Different rows here."""
    there: int
    """Different rows there, afterwards."""


def copy_store(source: Store, target: Store, *, progress: Progress) -> list[CopiedTable]:
    """Copy all tables.

    Args:
        source: From here; it may go on being written to, and what comes meanwhile is copied or not.
        target: To here; migrated, and of another ClickHouse or database.
        progress: Told after each block.

    Raises:
        ConfigurationError: Both are the same.
        StoreError: Either ClickHouse refused or is out of reach: make the copy again.
    """
    if source.query("store_copy_identity").item() == target.query("store_copy_identity").item():
        raise ConfigurationError(
            f"{target.url} is the store that is to be copied.", next_step="Name another server or database with --to."
        )
    names = [str(name) for name in source.query("store_copy_tables")["table_name"]]
    return [_copy_table(source, target, name, progress) for name in names]


def _copy_table(source: Store, target: Store, table: str, progress: Progress) -> CopiedTable:
    total, sent, rows, there, done = 0, 0, 0, 0, 0
    partitions = dict[str, int]()
    for partition, _, count in _parts(source, table):
        partitions[partition] = partitions.get(partition, 0) + count
        total += count
    progress(table, 0, total)
    if table in _SUMMED_UP:
        said, said_there = (store.query(_SUMMED_UP[table]).row(0) for store in (source, target))
        if said == said_there:
            return CopiedTable(table, 0, int(said[0]), int(said_there[0]))
    for partition, count in partitions.items():
        mine = _hashes(source, table, partition)
        missing = set(mine) if table in _SUMMED_UP else mine - _hashes(target, table, partition)
        for _ in range(_PASSES):
            if not missing:
                break
            before = done
            for part, slice_rows in _send(source, target, table, partition, missing):
                sent += part
                done = min(before + count, done + slice_rows)
                progress(table, done, total)
            done = before
        done += count
        progress(table, done, total)
        rows += len(mine)
        there += len(_hashes(target, table, partition))
    return CopiedTable(table, sent, rows, there)


def _send(source: Store, target: Store, table: str, partition: str, missing: set[int]) -> Iterator[tuple[int, int]]:
    """Send the missing rows of a partition; gives, block by block, the rows that were sent and those looked at."""
    for found, part, count in list(_parts(source, table)):
        if found != partition:
            continue
        for first in range(0, count, _ROWS):
            end = min(first + _ROWS, count)
            place: dict[str, object] = {"table_name": table, "part": part, "first": first, "end": end}
            here = [int(each) for each in source.query("store_copy_part_hashes", **place)["row_hash"]]
            wanted = sorted(missing.intersection(here))
            if wanted:
                block = source.read_native("store_copy_rows", **place, row_hashes=wanted)
                token = hashlib.blake2b(repr((table, wanted)).encode(), digest_size=16).hexdigest()
                target.insert_native(table, block, token=f"copy-{token}")
                missing.difference_update(wanted)
            yield len(wanted), end - first


def _parts(source: Store, table: str) -> Iterator[tuple[str, str, int]]:
    for partition, part, count in source.query("store_copy_parts", table_name=table).iter_rows():
        yield str(partition), str(part), int(count)


def _hashes(store: Store, table: str, partition: str) -> set[int]:
    found = store.query("store_copy_hashes", table_name=table, partition_id=partition)
    return set(found["row_hash"].to_list())


def check_copy(copied: list[CopiedTable], target: Store) -> None:
    """See whether everything arrived.

    Raises:
        StoreError: A table there has fewer rows than here.
    """
    short = [table for table in copied if table.there < table.rows]
    if short:
        said = ", ".join(f"{table.name} has {table.there:,} of {table.rows:,} rows" for table in short)
        raise StoreError(f"{target.url} does not hold everything: {said}.", next_step="Run the copy again.")
