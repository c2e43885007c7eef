"""Parquet files, read in batches of rows."""
# pyright: basic

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

from .base import ReadContext, Reader, Record, unreadable

_BATCH_ROWS: Final = 1_000


class ParquetReader(Reader):
    """A Parquet file."""

    summary: ClassVar[str] = "A Parquet file (`tasks.parquet`)."

    def read(self, source: str, context: ReadContext) -> Iterator[Record]:
        """Yield a record for each row; a null is a missing field."""
        del context
        import pyarrow as pa  # noqa: PLC0415 - heavy, and only this reader needs it
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            with pq.ParquetFile(Path(source).expanduser()) as file:
                number = 0
                for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                    for row in batch.to_pylist():
                        number += 1
                        fields = {name: value for name, value in row.items() if value is not None}
                        yield Record(f"{source} row {number}", fields)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(source, error, "Name a Parquet file.") from error
