"""Somebody's running ClickHouse, which is only read, and how far it has been read.

Invariant: what has been read is remembered per table, and looked at again for ``REREAD_NS`` back, because a row is
written when its span has ended and tells only when it started.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Final, Self

import polars as pl

from spanloop.collector.validation import RejectReason
from spanloop.semconv.errors import ConfigurationError
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.named_queries import named_query

from .report import Report

REREAD_NS: Final = 2 * 3_600 * 1_000_000_000
"""How late a row may come in without being missed."""

HOUR_NS: Final = 3_600 * 1_000_000_000
_TIME_LIMIT: Final = datetime(2106, 2, 7, tzinfo=UTC)

Progress = Callable[[int, int], None]
"""Called with the rows read so far, and those that there are to read."""


class RemoteTable(ABC):
    """A table that the OpenTelemetry ClickHouse exporter made. A context manager.

    Args:
        url: ``http(s)://user:password@host:port/database``; without a database ``default``, as for the exporter.
        table: The table's name.

    Raises:
        ConfigurationError: The URL is not usable, or the table is not there or not what it should be.
        StoreError: Out of reach, or the server refused the login.
    """

    option = "--table"
    """Which option of the command names the table."""

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
        """Refuse a table that is not what it should be."""

    def query(self, query_name: str, **parameters: object) -> pl.DataFrame:
        """The answer of a named query."""
        query = named_query(query_name)
        return self._connection.query(query.sql, doing=f"reading {self}", parameters=query.bind(parameters))

    def columns(self) -> dict[str, str]:
        """Names and types of the table's columns.

        Raises:
            ConfigurationError: There is no such table.
        """
        found = dict(self.query("attach_columns", table=self.table).iter_rows())
        if not found:
            raise ConfigurationError(
                f"There is no table {self.table!r} in {self.address}.",
                next_step=f"Name it with {self.option}, and its database at the end of the URL.",
            )
        return found

    def missing(self, found: Collection[str], needed: Collection[str]) -> list[str]:
        """The needed columns that are not there."""
        return [name for name in needed if name not in found]

    def resume_ns(self, store: Store, since: datetime | None) -> int:
        """Where to read on: at ``since``, else so far back from where the last call stopped that nothing is missed."""
        if since is not None:
            return int(since.timestamp()) * 1_000_000_000
        found = store.query("pipeline_state", name=self._state)
        if found.is_empty():
            return 0
        return max(0, int(json.loads(str(found.item(0, "value")))["read_ns"]) - REREAD_NS)

    def remember(self, store: Store, read_ns: int) -> None:
        """Everything before that moment was read."""
        value = json.dumps({"read_ns": read_ns})
        store.insert("pipeline_state", pl.DataFrame({"name": [self._state], "value": [value]}))

    @property
    def _state(self) -> str:
        return f"attached {self}"


def accepted(rows: pl.DataFrame, report: Report, *, empty_ids: bool) -> pl.DataFrame:
    """The rows whose ids and time our tables can hold; the others are rejected in ``report``, which counts all.

    Args:
        rows: Rows with ``TraceId``, ``SpanId`` and ``Timestamp``.
        report: Where they are counted.
        empty_ids: Whether a row may belong to no trace or span, as a log record may.
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
    judged = rows.with_columns(reason.alias("_reason"))
    report.rejected.update(judged["_reason"].drop_nulls().to_list())
    report.input += rows.height
    return judged.filter(pl.col("_reason").is_null()).drop("_reason")
