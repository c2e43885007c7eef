"""Metrics that training jobs record at every step."""

from typing import cast

import polars as pl

from spanloop.store import Store


def fetch_jobs(store: Store, max_rows: int = 50) -> pl.DataFrame:
    """Return the jobs that recorded metrics, newest first."""
    return store.query("dashboard_metric_jobs", max_rows=max_rows)


def fetch_metric_names(store: Store, job_ids: list[str]) -> list[str]:
    """Return the names of the metrics that the jobs recorded."""
    return cast("list[str]", store.query("dashboard_metric_names", job_ids=job_ids)["name"].to_list())


def fetch_metrics(store: Store, job_ids: list[str], names: list[str]) -> pl.DataFrame:
    """Return columns ``job_id``, ``step``, ``name``, ``value``."""
    return store.query("dashboard_metrics", job_ids=job_ids, names=names)
