"""Comma-separated values with a header line; every field is text."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final, Protocol

from .base import ReadContext, Reader, Record, unreadable

_FIELD_BYTES: Final = 64 << 20


class CsvReader(Reader):
    """Comma-separated values."""

    summary: ClassVar[str] = "A file with a header line (`tasks.csv`, `tasks.tsv`); every field is text."

    delimiter: str = ""
    """One character; empty takes a tab for `.tsv` and else a comma."""

    def read(self, source: str, context: ReadContext) -> Iterator[Record]:
        """Yield a record for each row; an empty cell is a missing field."""
        del context
        path = Path(source).expanduser()
        delimiter = self.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
        csv.field_size_limit(_FIELD_BYTES)
        try:
            with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                yield from _records(source, csv.reader(file, delimiter=delimiter, strict=True))
        except (OSError, TypeError, csv.Error) as error:
            why = getattr(error, "strerror", None) or error
            raise unreadable(source, why, "Name a file of rows with a header line.") from error


class _Rows(Protocol):
    """What ``csv.reader`` returns."""

    line_num: int

    def __next__(self) -> list[str]: ...


def _records(source: str, rows: _Rows) -> Iterator[Record]:
    header = next(rows, None)
    while header is not None:
        place = f"{source}:{rows.line_num + 1}"
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Record(place, f"the row cannot be read: {error}")
            continue
        if cells and len(cells) != len(header):
            yield Record(place, f"the row has {len(cells)} cells, and the header has {len(header)}")
        elif cells:
            yield Record(place, {name: cell for name, cell in zip(header, cells, strict=True) if cell})
