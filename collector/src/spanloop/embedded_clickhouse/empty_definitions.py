"""Tables whose definition a full disk has emptied: the embedded server does not start while such a file is there.

ClickHouse keeps each table's definition in a file of its own, apart from the rows. An empty file of a table without
rows is removed here; `migrate` makes the table anew. A view has no rows: what it would have written, it has written.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from spanloop.datadir import DataDir
from spanloop.semconv.errors import DataDirectoryError

_VIEW: Final = re.compile(r"^CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+)", re.MULTILINE)
_TABLE: Final = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+)", re.MULTILINE)
_UUID: Final = re.compile(r"UUID '([0-9a-f-]{36})'")
_NO_PARTS: Final = frozenset({"detached"})


def remove_empty_definitions(data_dir: DataDir) -> list[Path]:
    """Remove what is empty and holds no rows; call it while no server runs on ``data_dir``.

    Returns:
        The files that were removed.

    Raises:
        DataDirectoryError: The empty definition is not one of spanloop's, or of a table that may have rows.
    """
    empty = [path for path in data_dir.clickhouse.glob("store/*/*/*.sql") if path.stat().st_size == 0]
    if not empty:
        return []
    texts = [file.read_text(encoding="utf-8") for file in (files("spanloop.store") / "migrations").iterdir()]
    views, tables = ({name for text in texts for name in kind.findall(text)} for kind in (_VIEW, _TABLE))
    without_rows = views if any(_ownerless(data_dir.clickhouse)) else views | tables
    for path in empty:
        if path.stem not in without_rows:
            raise DataDirectoryError(
                f"The definition of the embedded ClickHouse's table {path.stem!r} is empty: {path}. Expected the "
                "table's CREATE statement; a disk that was full may have lost it, and the table may hold rows.",
                next_step="Free disk space and restore a backup with spanloop restore, or import the spans again "
                "into a new data directory.",
            )
    for path in empty:
        path.unlink()
    return empty


def _ownerless(folder: Path) -> Iterator[Path]:
    """Folders with rows that belong to no table whose definition is known."""
    owned = {uuid for path in folder.rglob("*.sql") for uuid in _UUID.findall(path.read_text(encoding="utf-8"))}
    for place in folder.glob("store/*/*"):
        if place.name not in owned and any(each.is_dir() and each.name not in _NO_PARTS for each in place.iterdir()):
            yield place
