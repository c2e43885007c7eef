"""Scores of the episodes that match, single or summarised by name; marks are the scores named ``spanloop.mark``."""

from collections.abc import Sequence

import polars as pl

from spanloop.dashboard.queries.conditions import Conditions, episode_conditions, parse_words
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store


def fetch_scores(
    store: Store, filters: Filters, *, names: Sequence[str] = (), episode_id: str = "", max_rows: int
) -> pl.DataFrame:
    """Return scores, the newest first.

    Args:
        store: The store.
        filters: The range of time is that of the scores; the other filters are those of their episodes.
        names: Names of scores; none means all.
        episode_id: Only the scores of this episode; empty means every episode.
        max_rows: Most rows.
    """
    conditions = _conditions(filters, names, episode_id)
    return store.connection.query(
        "SELECT score_id, toString(name) AS name, value, label, comment, toString(source) AS source, trace_id, "
        "span_id, response_id, session_id, episode_key, task_id, scored_at FROM scores FINAL "
        f"WHERE {conditions.sql} ORDER BY scored_at DESC, score_id LIMIT {conditions.bind(max_rows, 'UInt32')}",
        doing="reading scores",
        parameters=conditions.parameters,
    )


def fetch_score_summary(store: Store, filters: Filters, *, max_rows: int) -> pl.DataFrame:
    """Return, for each name, ``scores``, ``mean``, ``low``, ``high``, ``first_scored`` and ``last_scored``.

    Scores without a number, such as marks, count as scores and not in the mean, which is null without a number.
    """
    conditions = _conditions(filters, (), "")
    frame = store.connection.query(
        "SELECT toString(name) AS name, count() AS scores, avgIf(value, isFinite(value)) AS mean, "
        "minIf(value, isFinite(value)) AS low, maxIf(value, isFinite(value)) AS high, "
        "countIf(isFinite(value)) AS numbers, min(scored_at) AS first_scored, max(scored_at) AS last_scored "
        f"FROM scores FINAL WHERE {conditions.sql} GROUP BY name ORDER BY scores DESC, name "
        f"LIMIT {conditions.bind(max_rows, 'UInt32')}",
        doing="summarising scores",
        parameters=conditions.parameters,
    )
    number = pl.col("numbers") > 0
    return frame.with_columns(pl.when(number).then(pl.col("mean", "low", "high"))).drop("numbers")


def _conditions(filters: Filters, names: Sequence[str], episode_id: str) -> Conditions:
    conditions = Conditions(["is_deleted = 0"])
    conditions.add_time("scored_at", filters)
    conditions.add_equal("name", names)
    # A score may be sent before its episode starts, and long after it.
    untimed = Filters(text=filters.text, is_partial=filters.is_partial, values=filters.values)
    if not episode_id and untimed.is_empty:
        return conditions
    episodes = Conditions(["is_deleted = 0"], conditions.parameters)
    episodes.add_equal("episode_id", [episode_id] if episode_id else ())
    matching = episode_conditions(untimed, parse_words(untimed), onto=episodes)
    traces = f"SELECT arrayJoin(trace_ids) FROM episode_summaries FINAL WHERE {matching.sql}"
    keys = f"SELECT episode_key FROM episode_summaries FINAL WHERE {matching.sql} AND episode_key != ''"
    conditions.add(f"trace_id IN ({traces}) OR episode_key IN ({keys})")
    return conditions
