"""How far the pipeline has read.

Invariant: nothing is missed that becomes visible late. Rows get their ingestion time when their block is written and
are seen a moment later; so a run reads again what came within ``OVERLAP_US`` before its watermark, and a run may be
skipped only when the number of those rows is still the one that the last run saw.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.store import Store

NAME: Final = "converters"
OVERLAP_US: Final = 30_000_000


UNFINISHED: Final = -1
"""The tail of a watermark within a run: whatever has arrived, there is more to do."""


class Watermark(NamedTuple):
    """Everything ingested until ``until_us`` has been converted."""

    until_us: int
    tail: int
    """Rows that were ingested within the overlap before ``until_us``, as far as was visible."""


START: Final = Watermark(0, 0)


class Arrivals(NamedTuple):
    """What the store holds for us."""

    until_us: int
    arrived: int


def load(store: Store) -> Watermark:
    """The stored watermark; the beginning of time before the first run."""
    found = store.query("pipeline_state", name=NAME)
    if found.is_empty():
        return START
    value = cast("dict[str, int]", json.loads(str(found.item(0, "value"))))
    return Watermark(value["until_us"], value["tail"])


def at_most(store: Store, moment: datetime) -> Watermark:
    """The stored watermark, or one at ``moment`` (without a zone: UTC) if that is earlier."""
    at = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    until_us = max(0, (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1))
    return min(load(store), Watermark(until_us, UNFINISHED))


def save(store: Store, watermark: Watermark) -> None:
    """Remember the watermark; the last write wins."""
    value = json.dumps(watermark._asdict())
    store.insert("pipeline_state", pl.DataFrame({"name": [NAME], "value": [value]}))


def arrivals(store: Store, since_us: int) -> Arrivals:
    """The newest ingestion time, and the rows ingested after ``since_us``."""
    row = store.query("pipeline_arrivals", since_us=since_us).row(0, named=True)
    return Arrivals(int(row["until_us"]), int(row["arrived"]))
