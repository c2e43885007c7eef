"""Episodes that the filters of a page match, on all pages of its list, as they become part of a data set."""

import polars as pl

from spanloop.dashboard.queries.conditions import Conditions, episode_conditions, failure_conditions, parse_words
from spanloop.dashboard.view_models.filters import Filters
from spanloop.foundation.tables.data_sets import DATA_SET_EPISODES
from spanloop.store import Store


def fetch_matching(store: Store, filters: Filters) -> pl.DataFrame:
    """Return the current episodes that match, with the columns of ``data_set_episodes``.

    Words are looked for in every episode, also those that occur so often that a list searches the newest ones alone.
    """
    return _fetch(store, episode_conditions(filters, parse_words(filters)))


def fetch_failing(store: Store, filters: Filters, *, fingerprint: str = "") -> pl.DataFrame:
    """Return the episodes of the failures that match the filters of the page of failures, as `fetch_matching`.

    Args:
        store: The store.
        filters: The filters.
        fingerprint: Of one group of failures; empty for all.
    """
    failures = failure_conditions(filters, parse_words(filters))
    failures.add_equal("fingerprint", [fingerprint] if fingerprint else [])
    conditions = Conditions(["is_deleted = 0"], failures.parameters)
    conditions.add(f"episode_id IN (SELECT episode_id FROM failure_summaries FINAL WHERE {failures.sql})")
    return _fetch(store, conditions)


def _fetch(store: Store, conditions: Conditions) -> pl.DataFrame:
    columns = ", ".join(name for name in DATA_SET_EPISODES.schema if name != "data_set_id")
    return store.connection.query(
        f"SELECT {columns} FROM episode_summaries FINAL WHERE {conditions.sql} ORDER BY episode_id",
        doing="reading the episodes of a data set",
        parameters=conditions.parameters,
    )
