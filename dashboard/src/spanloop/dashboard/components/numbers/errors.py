"""Error rates over time by owner, class, agent or model, with deployments on the time axis."""
# pyright: reportUnknownMemberType=false

from datetime import datetime, timedelta
from typing import Final

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, tables
from spanloop.dashboard.components.numbers.links import episodes_href, range_of
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.queries import numbers
from spanloop.dashboard.view_models.deployment_marks import deployment_marks
from spanloop.dashboard.view_models.filters import Filters
from spanloop.dashboard.view_models.formatting import percent
from spanloop.dashboard.view_models.series import choose_bucket_s
from spanloop.store import Store
from spanloop.training.promotion.decisions import Decisions

_MAX_VALUES: Final = 8
_LABELS: Final = {"owner": "fault owner", "class": "failure class"}


def show(store: Store, filters: Filters, by: str) -> None:
    """Draw a line for each value and a row below; a point or row opens its failed episodes."""
    bucket_s = choose_bucket_s(numbers.fetch_time_span(store, filters))
    rates = numbers.fetch_errors_over_time(store, filters, by, bucket_s)
    values = _most_frequent(rates)
    if not values:
        st.success("No episode that matches has failed.", icon=":material/check:")
        return
    frame = _points(rates, values, by).with_columns((pl.col("failures") / pl.col("episodes")).alias("rate"))
    hrefs = [
        episodes_href(_failed(filters), by, row["value"], time=range_of(row["bucket"], bucket_s, filters))
        for row in frame.iter_rows(named=True)
    ]
    first: datetime = frame["bucket"].min()  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    last: datetime = frame["bucket"].max()  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    marks = deployment_marks(
        resources.registry().deployments(),
        Decisions(resources.data_dir()).list(),
        start=first,
        end=last + timedelta(seconds=bucket_s),
    )
    drawn = values[:_MAX_VALUES]
    points = frame.with_columns(pl.Series("href", hrefs, dtype=pl.String)).filter(pl.col("value").is_in(drawn))
    charts.draw(charts.error_rates(points, marks, drawn, tables.zone_name()))
    is_shared = by in numbers.OF_FAILURES
    st.caption(
        f"{'Failed episodes with it, of all episodes' if is_shared else 'Failed episodes of its episodes'}. A point or "
        "row opens the failed episodes. Dashed lines: ▲ promoted, ▼ rolled back, ● deployed."
        + (
            f" The {len(values) - _MAX_VALUES} with fewest failures are only in the table."
            if len(values) > _MAX_VALUES
            else ""
        )
    )
    _table(frame, values, filters, by)


def _most_frequent(rates: pl.DataFrame) -> list[str]:
    failing = rates.filter((pl.col("failures") > 0) & (pl.col("value") != "")).group_by("value")
    counted = failing.agg(pl.col("failures").sum()).sort("failures", "value", descending=[True, False])
    values: list[str] = counted["value"].to_list()
    return values


def _points(rates: pl.DataFrame, values: list[str], by: str) -> pl.DataFrame:
    """Return a row for each value and bucket that has episodes; without a failure the rate is zero."""
    frame = rates.select("bucket", "at", "value", pl.col("episodes", "failures").cast(pl.Int64))
    if by not in numbers.OF_FAILURES:
        return frame.filter(pl.col("value").is_in(values))
    buckets = frame.select("bucket", "at", "episodes").unique(maintain_order=True)
    every = buckets.join(pl.DataFrame({"value": values}), how="cross")
    return every.join(frame.drop("at", "episodes"), on=["bucket", "value"], how="left").with_columns(
        pl.col("failures").fill_null(0)
    )


def _table(frame: pl.DataFrame, values: list[str], filters: Filters, by: str) -> None:
    sums = {
        value: (int(rows["failures"].sum()), int(rows["episodes"].sum())) for (value,), rows in frame.group_by("value")
    }
    tables.show_rows(
        [
            {
                "value": tables.tag(value) if by == "owner" else value,
                "failures": sums[value][0],
                "episodes": sums[value][1],
                "rate": {
                    "text": percent(*sums[value]),
                    "share": sums[value][0] / sums[value][1],
                    "key": sums[value][0],
                },
            }
            for value in values
        ],
        {
            "value": Column(_LABELS.get(by, by), "tag" if by == "owner" else "text"),
            "failures": Column("failed", "number", "Failed episodes", 92),
            "episodes": Column("of episodes", "number", width=104),
            "rate": Column("error rate", "progress", width=200),
        },
        [episodes_href(_failed(filters), by, value) for value in values],
        key=f"errors_{by}",
    )


def _failed(filters: Filters) -> Filters:
    return filters.only("outcome", "failure")
