"""The pipeline's watermark: until which ingestion time everything is converted.

Invariant: rows that become visible late are converted. A row gets its ingestion time when its block is written and
becomes visible a moment later. So a run reads the rows within ``OVERLAP_US`` before the watermark again, and a run is
skipped only when the number of those rows has not changed since the last run.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.store import Store

NAME: Final = "converters"
OVERLAP_US: Final = 30_000_000


UNFINISHED: Final = -1
"""The tail of a watermark that a run saves before its end: more rows remain."""


class Watermark(NamedTuple):
    """Everything ingested until ``until_us`` has been converted."""

    until_us: int
    tail: int
    """Visible rows that were ingested within the overlap before ``until_us``."""


START: Final = Watermark(0, 0)


class Arrivals(NamedTuple):
    """The newest ingestion time and a number of rows."""

    until_us: int
    arrived: int


def load(store: Store) -> Watermark:
    """Return the stored watermark, or `START` before the first run."""
    rows = store.query("pipeline_state", name=NAME)
    if rows.is_empty():
        return START
    value = cast("dict[str, int]", json.loads(str(rows.item(0, "value"))))
    return Watermark(value["until_us"], value["tail"])


def at_most(store: Store, moment: datetime) -> Watermark:
    """Return the stored watermark, or one at ``moment`` (without a zone: UTC) if that is earlier."""
    at = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    until_us = max(0, (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1))
    return min(load(store), Watermark(until_us, UNFINISHED))


def save(store: Store, watermark: Watermark) -> None:
    """Store the watermark; the last write wins."""
    value = json.dumps(watermark._asdict())
    store.insert("pipeline_state", pl.DataFrame({"name": [NAME], "value": [value]}))


def arrivals(store: Store, since_us: int) -> Arrivals:
    """Return the newest ingestion time, and the number of rows ingested after ``since_us``."""
    row = store.query("pipeline_arrivals", since_us=since_us).row(0, named=True)
    return Arrivals(int(row["until_us"]), int(row["arrived"]))
