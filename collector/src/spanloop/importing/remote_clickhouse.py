"""Read the tables of another ClickHouse, which is only read, and remember how far each was read.

Invariant: how far a table was read is stored per table, and ``REREAD_NS`` before that are read again, because a row is
written when its span has ended, but holds only its start time.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, Self

import polars as pl

from spanloop.collector.validation import RejectReason
from spanloop.foundation.errors import ConfigurationError
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.named_queries import named_query

from .report import Report

REREAD_NS: Final = 2 * 3_600 * 1_000_000_000
"""Maximum delay of a row's insertion, nanoseconds, without the row being missed."""

HOUR_NS: Final = 3_600 * 1_000_000_000
_TIME_LIMIT: Final = datetime(2106, 2, 7, tzinfo=UTC)


class RemoteTable(ABC):
    """A table of the OpenTelemetry ClickHouse exporter. A context manager.

    Args:
        url: ``http(s)://user:password@host:port/database``; without a database ``default``, as for the exporter.
        table: The table's name.

    Raises:
        ConfigurationError: The URL is invalid, or the table does not exist or has the wrong columns.
        StoreError: The server is unreachable or rejected the login.
    """

    option = "--table"
    """The option of ``spanloop store attach`` that names the table."""

    def __init__(self, url: str, table: str) -> None:
        self.address = Address.parse(url, default_database="default")
        self.table = table
        self._connection = Connection(self.address)
        try:
            self.check()
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"{self.address}, table {self.table}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @abstractmethod
    def check(self) -> None:
        """Raise a ConfigurationError if the table has the wrong columns."""

    def query(self, query_name: str, **parameters: object) -> pl.DataFrame:
        """Return the result of a named query."""
        query = named_query(query_name)
        return self._connection.query(query.sql, doing=f"reading {self}", parameters=query.bind(parameters))

    def columns(self) -> dict[str, str]:
        """Return names and types of the table's columns.

        Raises:
            ConfigurationError: The table does not exist.
        """
        columns = dict(self.query("remote_columns", table=self.table).iter_rows())
        if not columns:
            raise ConfigurationError(
                f"There is no table {self.table!r} in {self.address}.",
                next_step=f"Give the table with {self.option}, and its database at the end of the URL.",
            )
        return columns

    def missing_columns(self, columns: Collection[str], required: Collection[str]) -> list[str]:
        """Return the required columns that are not in ``columns``."""
        return [name for name in required if name not in columns]

    def resume_ns(self, store: Store, since: datetime | None) -> int:
        """Return the time to read from: ``since``, else ``REREAD_NS`` before the end of the last call."""
        if since is not None:
            return int(since.timestamp()) * 1_000_000_000
        state = store.query("pipeline_state", name=self._state)
        if state.is_empty():
            return 0
        return max(0, int(json.loads(str(state.item(0, "value")))["read_ns"]) - REREAD_NS)

    def remember(self, store: Store, read_ns: int) -> None:
        """Store that the table was read up to ``read_ns``."""
        value = json.dumps({"read_ns": read_ns})
        store.insert("pipeline_state", pl.DataFrame({"name": [self._state], "value": [value]}))

    @property
    def _state(self) -> str:
        return f"attached {self}"


def select_valid(rows: pl.DataFrame, report: Report, *, empty_ids: bool) -> pl.DataFrame:
    """Return the rows whose ids and time fit the store's tables; the others are rejected in ``report``.

    Args:
        rows: Rows with ``TraceId``, ``SpanId`` and ``Timestamp``.
        report: The report that counts all rows.
        empty_ids: Whether the ids may be empty, as those of a log record.
    """
    trace_id, span_id = (
        ("^([0-9a-f]{32})?$", "^([0-9a-f]{16})?$") if empty_ids else ("^[0-9a-f]{32}$", "^[0-9a-f]{16}$")
    )
    reason = (
        pl.when(~pl.col("TraceId").str.contains(trace_id))
        .then(pl.lit(RejectReason.BAD_TRACE_ID.value))
        .when(~pl.col("SpanId").str.contains(span_id))
        .then(pl.lit(RejectReason.BAD_SPAN_ID.value))
        .when(pl.col("Timestamp") >= pl.lit(_TIME_LIMIT))
        .then(pl.lit(RejectReason.TIMESTAMP_OUT_OF_RANGE.value))
    )
    rows_with_reason = rows.with_columns(reason.alias("_reason"))
    report.rejected.update(rows_with_reason["_reason"].drop_nulls().to_list())
    report.input += rows.height
    return rows_with_reason.filter(pl.col("_reason").is_null()).drop("_reason")
