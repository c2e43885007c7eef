"""The age of rows in versions and days, and its metrics."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from spanloop.datadir import DataDir
from spanloop.training.registry import Registry
from spanloop.training.row_age import lineage, with_ages
from spanloop.training.verl_plugin.batch_metrics import row_ages, row_tags

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


def test_a_lineage_is_the_chain_of_parents(data_dir: DataDir, tmp_path: Path) -> None:
    registry = Registry(data_dir)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1")
    for name, parent in (("a", None), ("b", "a@v1"), ("a", "b@v1")):
        registry.add(name, tmp_path, parent=parent)
    assert lineage(registry, "a") == ("a@v2", "b@v1", "a@v1")


def test_a_batch_has_the_mean_and_maximum_of_known_ages() -> None:
    tags = [row_tags({"age_days": 1.0, "age_versions": None}), row_tags({"age_days": 2.0}), row_tags({})]
    assert row_ages(tags) == {"rows/age_days/mean": pytest.approx(1.5), "rows/age_days/max": 2.0}
