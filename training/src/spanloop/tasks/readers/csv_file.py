"""Comma-separated values with a header line; every field is text."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

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
                rows = csv.reader(file, delimiter=delimiter, strict=True)
                header = next(rows, [])
                while (record := _next(source, header, rows)) is not None:
                    yield record
        except (OSError, TypeError, csv.Error) as error:
            why = getattr(error, "strerror", None) or error
            raise unreadable(source, why, "Name a file of rows with a header line.") from error


def _next(source: str, header: list[str], rows: "csv._reader") -> Record | None:
    while True:
        start = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return None
        except csv.Error as error:
            return Record(f"{source}:{start}", f"the row cannot be read: {error}")
        if cells:
            break
    place = f"{source}:{start}"
    if len(cells) != len(header):
        return Record(place, f"the row has {len(cells)} cells, and the header has {len(header)}")
    return Record(place, {name: cell for name, cell in zip(header, cells, strict=True) if cell})
