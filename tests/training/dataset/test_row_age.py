"""The age of rows in versions and days, and its metrics."""

from datetime import UTC, datetime, timedelta

import polars as pl

from spanloop.training.dataset.row_age import with_ages

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def rows(*versions: str) -> pl.DataFrame:
    started = [NOW - timedelta(days=number) for number in range(len(versions))]
    names = pl.Series("policy_version", versions, dtype=pl.String)
    return pl.DataFrame([names, pl.Series("started_at", started, dtype=pl.Datetime("ns", "UTC"))])


def test_ages_are_counted_from_the_base_in_its_lineage() -> None:
    aged = with_ages(rows("m@v3", "m@v1", "other@v9", ""), ("m@v3", "start@v1", "m@v1"), NOW)
    assert aged["age_versions"].to_list() == [0, 2, None, None]
    assert aged["age_days"].to_list() == [0, 1, 2, 3]
    assert with_ages(rows("m@v3").head(0), ("m@v3",), NOW).height == 0


def test_a_row_of_the_future_has_no_negative_age() -> None:
    assert with_ages(rows("m@v1"), (), NOW - timedelta(days=1))["age_days"].to_list() == [0]
