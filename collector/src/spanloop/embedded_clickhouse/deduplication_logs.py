"""Remove the blocks that a killed server has not stored from the embedded ClickHouse's deduplication logs.

A table appends a block's id to its log before it commits the block's part (ClickHouse's `MergeTreeDeduplicationLog`). A
server that is killed in between would ignore the block when it is sent again, and its rows would be lost.

A line of a log is an operation (1: added, 2: dropped), the part's name and the block's id, separated by tabs.
"""

import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

from spanloop.foundation.paths import DataDir, disk_error

_LOG: Final = re.compile(r"deduplication_log_(\d+)\.txt")
_PART: Final = re.compile(r"([^_]+)_(\d+)_(\d+)_\d+(?:_\d+)?")
"""Partition, first and last block number; then level and mutation."""
_ADDED: Final = "1"
_DROPPED: Final = "2"
_TAIL_BYTES: Final = 128 * 1024
"""About 2,000 lines: many more than inserts run at one time. Parts of older lines may have been removed since, by a
retention period or by `spanloop forget`, and still count as stored."""


class _StoredParts:
    """Answers whether a table has a part, or one that it was merged into.

    Args:
        names: Of the folders in the table's folder, others too.
    """

    def __init__(self, names: Iterable[str]) -> None:
        ranges: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for match in filter(None, map(_PART.fullmatch, names)):
            ranges[match[1]].append((int(match[2]), int(match[3])))
        self._firsts: dict[str, list[int]] = {}
        self._lasts: dict[str, list[int]] = {}
        for partition, numbers in ranges.items():
            numbers.sort()
            self._firsts[partition] = [first for first, _ in numbers]
            self._lasts[partition] = list(accumulate((last for _, last in numbers), max))

    def cover(self, part: re.Match[str]) -> bool:
        """Return whether the part is stored."""
        earlier = bisect_right(self._firsts.get(part[1], ()), int(part[2]))
        return earlier > 0 and self._lasts[part[1]][earlier - 1] >= int(part[3])


def drop_unstored_blocks(data_dir: DataDir) -> int:
    """Remove blocks without a part from the logs of all tables. Call it while no server runs on ``data_dir``.

    A last line that is incomplete is removed too: the server would read nothing that follows it.

    Returns:
        The number of removed blocks.

    Raises:
        DataDirectoryError: A log cannot be read or written, for example because no space is left.
    """
    folders = sorted(data_dir.clickhouse.glob("store/*/*/deduplication_logs"))
    try:
        return sum(map(_drop_unstored, folders))
    except OSError as error:
        raise disk_error(data_dir.clickhouse, error) from error


def _drop_unstored(folder: Path) -> int:
    numbered = {int(match[1]): path for path in folder.iterdir() if (match := _LOG.fullmatch(path.name))}
    logs = [numbered[number] for number in sorted(numbered)]
    if not logs:
        return 0
    _remove_incomplete_line(logs[-1])
    parts: dict[str, re.Match[str]] = {}
    for line in (line for log in logs[-2:] for line in _newest_lines(log)):
        operation, name, block_id = (*line.split("\t"), "", "", "")[:3]
        part = _PART.fullmatch(name)
        if operation == _ADDED and part is not None:
            parts[block_id] = part
        elif operation == _DROPPED:
            parts.pop(block_id, None)
    stored = _StoredParts(path.name for path in folder.parent.iterdir())
    unstored = [f"{_DROPPED}\t{part[0]}\t{block_id}\n" for block_id, part in parts.items() if not stored.cover(part)]
    if unstored:
        with logs[-1].open("a", encoding="utf-8") as log:
            log.writelines(unstored)
            log.flush()
            os.fsync(log.fileno())
    return len(unstored)


def _remove_incomplete_line(log: Path) -> None:
    content = log.read_bytes()
    if content and not content.endswith(b"\n"):
        os.truncate(log, content.rfind(b"\n") + 1)


def _newest_lines(log: Path) -> Iterator[str]:
    with log.open("rb") as file:
        start = max(0, log.stat().st_size - _TAIL_BYTES)
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    yield from lines[1:] if start else lines
