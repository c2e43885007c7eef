"""Compute the cost of model calls: tokens that a query sums up by model and price, times the prices of spanloop.toml.

Invariant: there is one way to a cost. Tokens of a model without a price have no cost, and tokens that nobody counted
are not zero tokens: both are counted beside the cost.
"""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final, NamedTuple

import polars as pl

from spanloop.foundation.settings import Prices

from .store import Store

USAGE: Final = (
    "toString(model) AS called_model, "
    "arrayCount(day -> toInt32(toDate(started_at, 'UTC')) >= day, {price_days:Array(Int32)}) AS price_period, "
    "count() AS calls, countIf(input_tokens + output_tokens = 0) AS uncounted_calls, "
    "sum(input_tokens) AS input, sum(least(cached_tokens, input_tokens)) AS cached, sum(output_tokens) AS output"
)
"""Columns of a query on ``step_summaries`` that `with_cost` reads; the parameter is of `price_days`."""
USAGE_KEYS: Final = "called_model, price_period"
"""The columns of `USAGE` that the query is grouped by, beside others."""
_EPOCH: Final = date(1970, 1, 1)


class Unpriced(NamedTuple):
    """Calls of a model that have no cost because no price is known."""

    model: str
    calls: int
    tokens: int

    def __str__(self) -> str:
        name = self.model or "calls without a model"
        return f"no price for {name}: {self.calls:,} call{'' if self.calls == 1 else 's'}, {self.tokens:,} tokens"


def price_days(prices: Prices) -> list[int]:
    """Return the days on which prices begin, as days since 1970, for the parameter of `USAGE`."""
    return [(day - _EPOCH).days for day in prices.days]


def with_cost(usage: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """Add ``cost`` to rows of `USAGE`: null where the model has no price at that time."""
    starts = (_EPOCH, *prices.days)
    costs: list[float | None] = []
    for row in usage.iter_rows(named=True):
        price = prices.find(row["called_model"], starts[int(row["price_period"])])
        costs.append(None if price is None else price.cost(row["input"], row["cached"], row["output"]))
    return usage.with_columns(pl.Series("cost", costs, dtype=pl.Float64))


def sum_costs(priced: pl.DataFrame, keys: Sequence[str] = ()) -> pl.DataFrame:
    """Return the sums of rows of `with_cost` for each combination of keys; without keys one row.

    Columns: the keys, ``calls``, ``uncounted_calls``, ``input``, ``cached``, ``output``, ``cost`` (null where no call
    has a price), ``unpriced_calls`` and ``unpriced_tokens``.
    """
    is_unpriced = pl.col("cost").is_null()
    tokens = pl.col("input") + pl.col("output")
    sums = (
        pl.col("calls", "uncounted_calls", "input", "cached", "output").sum(),
        pl.when(pl.col("cost").count() > 0).then(pl.col("cost").sum()).alias("cost"),
        pl.col("calls").filter(is_unpriced).sum().alias("unpriced_calls"),
        tokens.filter(is_unpriced).sum().alias("unpriced_tokens"),
    )
    return priced.group_by(keys, maintain_order=True).agg(sums) if keys else priced.select(sums)


def unpriced_models(priced: pl.DataFrame) -> list[Unpriced]:
    """Return the models of `with_cost` that have no price, the one with most tokens first."""
    rows = (
        priced.filter(pl.col("cost").is_null())
        .group_by("called_model")
        .agg(pl.col("calls").sum(), (pl.col("input") + pl.col("output")).sum().alias("tokens"))
        .sort("tokens", "calls", "called_model", descending=[True, True, False])
    )
    return [Unpriced(*row) for row in rows.iter_rows()]


def fetch_ended_usage(
    store: Store, prices: Prices, *, agent: str, since: datetime, started_since: datetime
) -> pl.DataFrame:
    """Return rows of `with_cost` of the episodes that ended at a time or later.

    Args:
        store: The store.
        prices: The price table.
        agent: Agent, or service of episodes without an agent's name; empty for all.
        since: The time.
        started_since: Episodes that started before are left out.

    Raises:
        StoreError: ClickHouse is unreachable.
    """
    usage = store.connection.query(
        f"SELECT {USAGE} FROM step_summaries FINAL WHERE started_at >= {{started_since:DateTime64(9, 'UTC')}} "
        "AND (episode_id, revision) IN (SELECT episode_id, revision FROM episode_summaries FINAL WHERE is_deleted = 0 "
        "AND ({agent:String} = '' OR if(agent_name = '', service_name, agent_name) = {agent:String}) "
        "AND started_at >= {started_since:DateTime64(9, 'UTC')} "
        "AND started_at + toIntervalNanosecond(duration_ns) >= {since:DateTime64(9, 'UTC')}) "
        f"GROUP BY {USAGE_KEYS}",
        doing="reading the cost of episodes",
        parameters={
            "price_days": price_days(prices),
            "agent": agent,
            "since": since,
            "started_since": started_since,
        },
    )
    return with_cost(usage, prices)
