"""Addresses of the episodes behind a figure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from spanloop.dashboard.view_models.filters import Filters

FILTERS: Final[Mapping[str, str]] = {
    "agent": "agent",
    "model": "called",
    "tool": "tool",
    "policy": "policy",
    "service": "service",
    "task": "task",
}
"""The field that steps are grouped by → the filter of their episodes."""


def episodes_href(filters: Filters, name: str, value: str, *, time: str = "", sort: str = "") -> str:
    """Return the address of the matching episodes with a value; empty where no filter can say the value."""
    if not value:
        return ""
    changes = {key: text for key, text in (("time", time), ("sort", sort)) if text}
    return f"episodes?{filters.only(name, value).query(**changes)}"


def range_of(bucket: datetime, bucket_s: int, filters: Filters) -> str:
    """Return the range of time of a bucket, as far as it lies in that of the filters, as an address has it."""
    start, end = bucket, bucket + timedelta(seconds=bucket_s)
    start_s = max(int(start.timestamp()), filters.time.start_s)
    end_s = min(int(end.timestamp()), filters.time.end_s)
    first, last = (datetime.fromtimestamp(each, UTC) for each in (start_s, end_s))
    return f"{first:%Y-%m-%dT%H:%M:%SZ}..{last:%Y-%m-%dT%H:%M:%SZ}"
