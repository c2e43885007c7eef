"""Remove empty table definitions, which a full disk can leave and which stop the embedded server from starting.

ClickHouse stores each table's definition in a file of its own, apart from the rows. This module removes the empty
definition of a table without rows; `migrate` recreates the table. A view stores no rows itself.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir

_VIEW: Final = re.compile(r"^CREATE (?:MATERIALIZED )?VIEW IF NOT EXISTS (\w+)", re.MULTILINE)
_TABLE: Final = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+)", re.MULTILINE)
_UUID: Final = re.compile(r"UUID '([0-9a-f-]{36})'")
_NO_PARTS: Final = frozenset({"detached"})


def remove_empty_definitions(data_dir: DataDir) -> list[Path]:
    """Remove the empty definitions of tables without rows. Call it while no server runs on ``data_dir``.

    Returns:
        The removed files.

    Raises:
        DataDirectoryError: An empty definition is not one of spanloop's, or its table may have rows.
    """
    empty = [path for path in data_dir.clickhouse.glob("store/*/*/*.sql") if path.stat().st_size == 0]
    if not empty:
        return []
    texts = [file.read_text(encoding="utf-8") for file in (files("spanloop.store") / "migrations").iterdir()]
    views, tables = ({name for text in texts for name in kind.findall(text)} for kind in (_VIEW, _TABLE))
    views -= tables  # a view can have the name of an older table, which has rows
    without_rows = views if any(_orphaned_parts(data_dir.clickhouse)) else views | tables
    for path in empty:
        if path.stem not in without_rows:
            raise DataDirectoryError(
                f"The definition of the embedded ClickHouse's table {path.stem!r} is empty: {path}. Expected the "
                "table's CREATE statement; a full disk may have lost it, and the table may hold rows.",
                next_step="Free disk space and restore a backup with spanloop restore, or import the spans again "
                "into a new data directory.",
            )
    for path in empty:
        path.unlink()
    return empty


def _orphaned_parts(folder: Path) -> Iterator[Path]:
    """Yield folders with rows that belong to no table with a known definition."""
    owned = {uuid for path in folder.rglob("*.sql") for uuid in _UUID.findall(path.read_text(encoding="utf-8"))}
    for table in folder.glob("store/*/*"):
        if table.name not in owned and any(part.is_dir() and part.name not in _NO_PARTS for part in table.iterdir()):
            yield table
