"""Tokens and cost, over time and by agent, model, version, service or task."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import Any, Final

import polars as pl
import streamlit as st

from spanloop.dashboard.components import charts, figures, tables
from spanloop.dashboard.components.figures import Figure
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.numbers.links import FILTERS, episodes_href, range_of
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.queries import numbers
from spanloop.dashboard.view_models.filters import Filters
from spanloop.dashboard.view_models.formatting import count, money
from spanloop.dashboard.view_models.series import choose_bucket_s
from spanloop.foundation.settings import Prices
from spanloop.store import Store
from spanloop.store.costs import sum_costs, unpriced_models

_LABELS: Final = {"policy": "version"}
_SHOWN_MODELS: Final = 5
_EXAMPLE: Final = """[prices]
currency = "USD"

[[prices.models]]
model = "MODEL*"        # the name that spans record; * matches the rest
since = 2026-01-01      # first day of the price, UTC
input = 0.0             # per 1,000,000 input tokens
cached = 0.0            # per 1,000,000 of them that the provider read from its cache
output = 0.0            # per 1,000,000 output tokens"""


def show(store: Store, filters: Filters, prices: Prices, by: str) -> None:
    """Draw totals, the cost over time and a row for each value; a bar or row opens its episodes."""
    usage = numbers.fetch_usage(store, filters, prices, by)
    if usage.rows.is_empty():
        st.caption("No call of a model matches.")
        return
    total = sum_costs(usage.priced).row(0, named=True)
    _totals(total, prices.currency)
    _unpriced(usage.priced)
    if prices.models:
        _over_time(store, filters, prices)
    else:
        with st.expander("Add prices", icon=":material/payments:", expanded=True):
            st.caption("spanloop.toml has no price, so no cost is known. Add your provider's, then reload:")
            st.code(_EXAMPLE, language="toml")
    dearest = max((row["cost"] or 0.0 for row in usage.rows.iter_rows(named=True)), default=0.0)
    tables.show_rows(
        [_row(row, dearest, prices.currency) for row in usage.rows.iter_rows(named=True)],
        {
            "value": Column(_LABELS.get(by, by)),
            "cost": Column(
                "cost", "progress", "Of the calls whose model has a price; drawn in proportion to the dearest", 190
            ),
            "calls": Column("calls", "number", width=84),
            "input": Column("input", "number", "Input tokens, cached ones included", 92),
            "cached": Column("cached", "number", "Input tokens that the provider read from its cache", 92),
            "output": Column("output", "number", "Output tokens", 92),
            "unpriced_calls": Column("without a price", "number", "Calls of models that have no price", 112),
            "uncounted_calls": Column("without tokens", "number", "Calls whose tokens no span counted", 112),
        },
        [episodes_href(filters, FILTERS[by], value, sort="-tokens") for value in usage.rows["value"].to_list()],
        key=f"cost_{by}",
    )
    st.caption("A row opens its episodes, those with most tokens first.")


def cost_text(row: Mapping[str, Any], currency: str) -> str:
    """Return the cost of a row of `sum_costs`; a part without a price is said, never zero."""
    if row["calls"] == row["uncounted_calls"]:
        return "no tokens recorded"
    if row["cost"] is None:
        return "no price"
    return f"{'≥ ' if row['unpriced_calls'] or row['uncounted_calls'] else ''}{money(row['cost'], currency)}"


def cost_cell(row: Mapping[str, Any], currency: str) -> dict[str, object]:
    """Return the cell of a cost."""
    return {"text": cost_text(row, currency), "key": -1.0 if row["cost"] is None else row["cost"]}


def _totals(total: Mapping[str, Any], currency: str) -> None:
    shown = [
        Figure("Cost", cost_text(total, currency), "Of the calls whose model has a price"),
        Figure("Calls", count(total["calls"])),
        Figure("Input tokens", count(total["input"]), f"{total['cached']:,} of them from the provider's cache"),
        Figure("Output tokens", count(total["output"])),
    ]
    if total["uncounted_calls"]:
        shown.append(Figure("Without tokens", count(total["uncounted_calls"]), "Calls whose tokens no span counted"))
    figures.show(shown)


def _unpriced(priced: pl.DataFrame) -> None:
    models = unpriced_models(priced)
    if models:
        rest = f"; and {len(models) - _SHOWN_MODELS} more models" if len(models) > _SHOWN_MODELS else ""
        text = "; ".join(escape_md(str(each)) for each in models[:_SHOWN_MODELS])
        st.warning(f"{text[0].upper()}{text[1:]}{rest}.", icon=":material/money_off:")


def _over_time(store: Store, filters: Filters, prices: Prices) -> None:
    bucket_s = choose_bucket_s(numbers.fetch_time_span(store, filters))
    days = numbers.fetch_cost_over_time(store, filters, prices, bucket_s).filter(pl.col("cost").is_not_null())
    if days.is_empty():
        return
    hrefs = [f"episodes?{filters.query(time=range_of(each, bucket_s, filters))}" for each in days["bucket"].to_list()]
    st.subheader("Cost over time", anchor=False)
    frame = days.select("bucket", "cost").with_columns(pl.Series("href", hrefs))
    charts.draw(charts.cost_over_time(frame, bucket_s, prices.currency, tables.zone_name()))


def _row(row: Mapping[str, Any], dearest: float, currency: str) -> dict[str, object]:
    return {
        "value": row["value"] or "(without a name)",
        "cost": {**cost_cell(row, currency), "share": (row["cost"] or 0.0) / dearest if dearest else 0.0},
        **{name: row[name] for name in ("calls", "input", "cached", "output", "unpriced_calls", "uncounted_calls")},
    }
