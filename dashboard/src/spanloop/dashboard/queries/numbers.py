"""Latency, tokens, cost, errors over time and what failures waste, of the episodes that match.

Invariant: filters select episodes, and every figure is about these episodes, their steps and their failures. So the
list of episodes with the same filters and the row's value has exactly the episodes behind the row.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import polars as pl

from spanloop.dashboard.queries.conditions import (
    AGENT,
    MARGIN_S,
    REVISION,
    Conditions,
    episode_conditions,
    matching_episodes,
    parse_words,
)
from spanloop.dashboard.view_models.filters import Filters
from spanloop.foundation.settings import Prices
from spanloop.store import Store
from spanloop.store.costs import USAGE, USAGE_KEYS, price_days, sum_costs, with_cost

MAX_ROWS: Final = 200
LATENCY_BY: Final = ("agent", "model", "tool")
COST_BY: Final[Mapping[str, str]] = {
    "agent": AGENT,
    "model": "",
    "policy": "toString(policy_version)",
    "service": "toString(service_name)",
    "task": "task_id",
}
"""Field → the column of the episode that steps are grouped by; a model is that of the step."""
ERRORS_BY: Final[Mapping[str, str]] = {
    "owner": "fault_owner",
    "class": "error_class",
    "agent": AGENT,
    "model": "model",
}
"""Field → the column that failed episodes are grouped by."""
OF_FAILURES: Final = ("owner", "class")
"""Fields that only failed episodes have: their rates are shares of all episodes."""
_QUANTILES: Final = "quantilesExact(0.5, 0.95, 0.99)"
_QUANTILES_STATE: Final = "quantilesExactIfState(0.5, 0.95, 0.99)"
_FIRST: Final = (
    "count(first_token_ns) AS first_tokens, "
    "quantilesExactIf(0.5, 0.95)(assumeNotNull(first_token_ns), first_token_ns IS NOT NULL) AS first_token_quantiles"
)


class Usage(NamedTuple):
    """Tokens and cost."""

    rows: pl.DataFrame
    """The sums of `sum_costs` by ``value``, the dearest first, then those with most tokens."""
    priced: pl.DataFrame
    """Rows of `with_cost`."""


def fetch_latency(store: Store, filters: Filters, by: str) -> pl.DataFrame:
    """Return durations and times to first token for each agent, model or tool, the slowest first.

    Of an agent the durations are those of its episodes, of a model those of its calls, of a tool those of its calls
    that a span measured. Columns ``value``, ``calls``, ``measured``, ``p50``, ``p95``, ``p99`` (nanoseconds; null where
    nothing is measured), ``first_tokens`` (calls that recorded the time to their first token), ``first_p50`` and
    ``first_p95`` (null without one).
    """
    if by == "agent":
        frame = _agent_latency(store, filters)
    elif by == "model":
        steps = _steps(filters)
        frame = _query(
            store,
            f"SELECT toString(model) AS value, count() AS calls, count() AS measured, {_QUANTILES}(duration_ns) AS "
            f"quantiles, {_FIRST} FROM step_summaries FINAL WHERE {steps.sql} GROUP BY value "
            f"ORDER BY calls DESC, value LIMIT {MAX_ROWS}",
            steps,
        )
    else:
        frame = _tool_latency(store, filters)
    durations, first = pl.col("quantiles").list, pl.col("first_token_quantiles").list
    return frame.select(
        "value",
        "calls",
        "measured",
        *(_known("measured", durations.get(at), name) for at, name in enumerate(("p50", "p95", "p99"))),
        "first_tokens",
        *(
            _known("first_tokens", first.get(at, null_on_oob=True), name)
            for at, name in enumerate(("first_p50", "first_p95"))
        ),
    ).sort("p95", "calls", "value", descending=[True, True, False], nulls_last=True)


def _tool_latency(store: Store, filters: Filters) -> pl.DataFrame:
    """Return the columns of a latency. Steps of earlier converters have calls and no measured ones."""
    steps = _steps(filters)
    calls = (
        f"SELECT tool, count() AS calls, toUInt64(0) AS measured, {_QUANTILES_STATE}(toUInt64(0), 0) AS took "
        f"FROM (SELECT arrayJoin(called_tools) AS tool FROM step_summaries FINAL WHERE {steps.sql}) "
        "GROUP BY tool"
    )
    measured = (
        "SELECT tool, toUInt64(0) AS calls, countIf(took_ns > 0) AS measured, "
        f"{_QUANTILES_STATE}(took_ns, took_ns > 0) AS took "
        f"FROM (SELECT result_tools, result_durations_ns FROM step_summaries FINAL WHERE {steps.sql}) "
        "ARRAY JOIN result_tools AS tool, result_durations_ns AS took_ns GROUP BY tool"
    )
    frame = _query(
        store,
        "SELECT toString(tool) AS value, sum(calls) AS calls, sum(measured) AS measured, "
        "quantilesExactIfMerge(0.5, 0.95, 0.99)(took) AS quantiles "
        f"FROM ({calls} UNION ALL {measured}) WHERE tool != '' "
        f"GROUP BY tool ORDER BY calls DESC, value LIMIT {MAX_ROWS}",
        steps,
    )
    return frame.with_columns(
        pl.lit(0, pl.UInt64).alias("first_tokens"),
        pl.lit(None, pl.List(pl.UInt64)).alias("first_token_quantiles"),
    )


def _agent_latency(store: Store, filters: Filters) -> pl.DataFrame:
    conditions = episode_conditions(filters, parse_words(filters))
    episodes = _query(
        store,
        f"SELECT toString({AGENT}) AS value, count() AS calls, count() AS measured, {_QUANTILES}(duration_ns) AS "
        f"quantiles FROM episode_summaries FINAL WHERE {conditions.sql} GROUP BY value "
        f"ORDER BY calls DESC, value LIMIT {MAX_ROWS}",
        conditions,
    )
    steps = _steps_in_time(filters)
    steps.add("first_token_ns IS NOT NULL")
    first = _query(
        store,
        f"SELECT value, {_FIRST} FROM (SELECT {REVISION} AS of, first_token_ns FROM step_summaries FINAL "
        f"WHERE {steps.sql}) AS s INNER JOIN ({_groups(filters, f'toString({AGENT})', steps)}) AS e "
        "ON s.of = e.of GROUP BY value",
        steps,
    )
    joined = episodes.join(first, on="value", how="left")
    return joined.with_columns(pl.col("first_tokens").fill_null(0))


def fetch_usage(store: Store, filters: Filters, prices: Prices, by: str) -> Usage:
    """Return tokens and cost for each value of a field of `COST_BY`; the model is that of the call."""
    if by == "model":
        steps = _steps(filters)
        sql = (
            f"SELECT toString(model) AS value, {USAGE} FROM step_summaries FINAL WHERE {steps.sql} "
            f"GROUP BY value, {USAGE_KEYS}"
        )
    else:
        steps = _steps_in_time(filters)
        sql = _usage_by(filters, f"toString({COST_BY[by]})", steps)
    steps.parameters["price_days"] = price_days(prices)
    priced = with_cost(_query(store, sql, steps), prices)
    rows = sum_costs(priced, ["value"]).sort(
        "cost", pl.col("input") + pl.col("output"), "value", descending=[True, True, False], nulls_last=True
    )
    return Usage(rows.head(MAX_ROWS), priced)


def fetch_cost_over_time(store: Store, filters: Filters, prices: Prices, bucket_s: int) -> pl.DataFrame:
    """Return the sums of `sum_costs` for each ``bucket``, by the start of the episode, oldest first."""
    steps = _steps_in_time(filters)
    steps.parameters["price_days"] = price_days(prices)
    usage = _query(store, _usage_by(filters, _bucket(steps, bucket_s), steps, name="bucket"), steps)
    return sum_costs(with_cost(usage, prices), ["bucket"]).sort("bucket")


def has_episode(store: Store, filters: Filters) -> bool:
    """Return whether an episode matches."""
    conditions = episode_conditions(filters, parse_words(filters))
    sql = f"SELECT 1 AS found FROM episode_summaries FINAL WHERE {conditions.sql} LIMIT 1"
    return not _query(store, sql, conditions).is_empty()


def fetch_time_span(store: Store, filters: Filters) -> float:
    """Return the seconds from the first to the last start of a matching episode; 0 without any."""
    conditions = episode_conditions(filters, parse_words(filters))
    frame = _query(
        store,
        "SELECT count() AS episodes, min(started_at) AS first, max(started_at) AS last FROM episode_summaries FINAL "
        f"WHERE {conditions.sql}",
        conditions,
    )
    row = frame.row(0, named=True)
    return (row["last"] - row["first"]).total_seconds() if row["episodes"] else 0.0


def fetch_errors_over_time(store: Store, filters: Filters, by: str, bucket_s: int) -> pl.DataFrame:
    """Return ``bucket``, ``at``, ``value``, ``episodes`` and ``failures`` for each value of `ERRORS_BY`, oldest first.

    ``at`` is the mean start of the episodes, which came after a promotion even where their bucket began before it.
    Where only failed episodes have the field, ``episodes`` are all of the bucket, and rows without a failure are left
    out but for the value ``""``, so that a bucket without a failure is there.
    """
    conditions = episode_conditions(filters, parse_words(filters))
    value = f"toString({ERRORS_BY[by]})"
    is_of_failures = by in OF_FAILURES
    shown = f"if(outcome = 'failure', {value}, '')" if is_of_failures else value
    frame = _query(
        store,
        f"SELECT {_bucket(conditions, bucket_s)} AS bucket, {shown} AS value, count() AS episodes, "
        f"countIf(outcome = 'failure') AS failures, avg(toUnixTimestamp64Milli(started_at)) AS at "
        f"FROM episode_summaries FINAL WHERE {conditions.sql} GROUP BY bucket, value ORDER BY bucket, value",
        conditions,
    )
    if is_of_failures:
        every = pl.col("episodes").sum()
        frame = frame.with_columns(
            ((pl.col("at") * pl.col("episodes")).sum() / every).over("bucket").alias("at"), every.over("bucket")
        )
    return frame.with_columns(pl.from_epoch(pl.col("at").cast(pl.Int64), "ms").dt.replace_time_zone("UTC"))


def fetch_wasted(store: Store, filters: Filters, prices: Prices) -> pl.DataFrame:
    """Return what episodes with an unrecovered failure took and cost, by failure group, the longest time first.

    Columns ``value`` (the fingerprint), ``fault_owner``, ``error_class``, ``tool_name``, ``message``, ``episodes``,
    ``duration_ns``, and those of `sum_costs`. An episode with failures of two groups counts in both.
    """
    failures = Conditions(["is_recovered = 0"])
    failures.add_time("occurred_at", filters, margin_s=MARGIN_S)
    # The join's smaller table, which it keeps in memory, is that of the failures.
    groups = _query(
        store,
        "SELECT value, any(fault_owner) AS fault_owner, any(error_class) AS error_class, any(tool_name) AS tool_name, "
        "any(message) AS message, count() AS episodes, sum(duration_ns) AS duration_ns "
        f"FROM ({_groups(filters, 'duration_ns', failures, name='duration_ns')}) AS e "
        f"INNER JOIN (SELECT toString(fingerprint) AS value, {REVISION} AS of, toString(any(fault_owner)) AS "
        "fault_owner, toString(any(error_class)) AS error_class, toString(any(tool_name)) AS tool_name, "
        f"any(headline) AS message FROM failure_summaries FINAL WHERE {failures.sql} GROUP BY value, of) AS f "
        f"ON f.of = e.of GROUP BY value ORDER BY duration_ns DESC, value LIMIT {MAX_ROWS}",
        failures,
    )
    failures.add(f"fingerprint IN {failures.bind(groups['value'].to_list(), 'Array(String)')}")
    failures.add(f"{REVISION} IN ({matching_episodes(REVISION, failures, filters, parse_words(filters))})")
    steps = _steps_in_time(filters, failures)
    steps.parameters["price_days"] = price_days(prices)
    usage = _query(
        store,
        f"SELECT value, {USAGE} FROM (SELECT {REVISION} AS of, model, started_at, input_tokens, cached_tokens, "
        f"output_tokens FROM step_summaries FINAL WHERE {steps.sql}) AS s INNER JOIN (SELECT DISTINCT "
        f"toString(fingerprint) AS value, {REVISION} AS of FROM failure_summaries FINAL WHERE {failures.sql}) AS f "
        f"ON s.of = f.of GROUP BY value, {USAGE_KEYS}",
        steps,
    )
    sums = sum_costs(with_cost(usage, prices), ["value"])
    counts = pl.col("calls", "uncounted_calls", "input", "cached", "output", "unpriced_calls", "unpriced_tokens")
    return groups.join(sums, on="value", how="left", maintain_order="left").with_columns(counts.fill_null(0))


def _steps_in_time(filters: Filters, others: Conditions | None = None) -> Conditions:
    """Return conditions on steps that the range of time alone states; they share the parameters of others."""
    conditions = Conditions(parameters={} if others is None else others.parameters)
    conditions.add_time("started_at", filters, margin_s=MARGIN_S)
    return conditions


def _steps(filters: Filters) -> Conditions:
    """Return conditions on the steps of the matching episodes."""
    conditions = _steps_in_time(filters)
    episodes = matching_episodes(REVISION, conditions, filters, parse_words(filters))
    conditions.add(f"{REVISION} IN ({episodes})")
    return conditions


def _usage_by(filters: Filters, value: str, steps: Conditions, *, name: str = "value") -> str:
    """Return a query of `USAGE` for each value of an expression on the matching episodes.

    ``steps`` are further conditions on their steps.
    """
    return (
        f"SELECT {name}, {USAGE} FROM (SELECT {REVISION} AS of, model, started_at, input_tokens, cached_tokens, "
        f"output_tokens FROM step_summaries FINAL WHERE {steps.sql}) AS s "
        f"INNER JOIN ({_groups(filters, value, steps, name=name)}) AS e ON s.of = e.of GROUP BY {name}, {USAGE_KEYS}"
    )


def _groups(filters: Filters, value: str, conditions: Conditions, *, name: str = "value") -> str:
    """Return a query of the matching episodes' revisions, ``of``, and an expression on the episode under a name."""
    return matching_episodes(f"{REVISION} AS of, {value} AS {name}", conditions, filters, parse_words(filters))


def _bucket(conditions: Conditions, bucket_s: int) -> str:
    size = conditions.bind(bucket_s, "UInt32")
    start = f"toStartOfInterval(toDateTime(started_at, 'UTC'), toIntervalSecond({size}), 'UTC')"
    return f"toDateTime64({start}, 3, 'UTC')"


def _known(count: str, value: pl.Expr, name: str) -> pl.Expr:
    """Return a value that is null where nothing was counted."""
    return pl.when(pl.col(count) > 0).then(value).cast(pl.Float64).alias(name)


def _query(store: Store, sql: str, conditions: Conditions) -> pl.DataFrame:
    return store.connection.query(sql, doing="reading numbers", parameters=conditions.parameters)
