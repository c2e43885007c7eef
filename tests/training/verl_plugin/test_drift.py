"""Passes, KL budget and age limits of stored data."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.training.dataset.row_age import too_old, with_ages
from spanloop.training.models.checkpoints import latest_checkpoint, mark_complete
from spanloop.training.verl_plugin.drift import (
    KL,
    KlBudgetError,
    last_step_within,
    passes,
    require_within,
    steps_within,
)

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@given(st.integers(1, 1000), st.integers(1, 64), st.integers(1, 500), st.floats(0.1, 64))
def test_a_job_stays_within_its_passes(steps: int, batch: int, units: int, max_passes: float) -> None:
    planned = steps_within(steps, batch, units, max_passes)
    assert 1 <= planned <= steps
    assert planned == 1 or passes(planned, batch, units) <= max_passes + 1e-6
    assert planned == steps or passes(planned + 1, batch, units) > max_passes


def test_sixty_four_passes_become_four() -> None:
    assert steps_within(512, 8, 64, 4.0) == 32
    assert passes(32, 8, 64) == 4.0


def test_a_policy_beyond_its_budget_ends_the_run() -> None:
    require_within(0.1, {KL: 0.1}, 3)
    require_within(None, {KL: 9.0}, 3)
    require_within(0.1, {}, 3)
    with pytest.raises(KlBudgetError, match=r"before the update of step 3 .* is 0\.2 nats a token") as caught:
        require_within(0.1, {KL: 0.2}, 3)
    assert "raise kl_budget" in caught.value.next_step


def test_the_checkpoint_is_one_whose_policy_was_measured(tmp_path: Path) -> None:
    for step in (2, 4):
        (tmp_path / f"global_step_{step}" / "huggingface").mkdir(parents=True)
        mark_complete(tmp_path / f"global_step_{step}")
    # the batch of step 5 shows that the weights after step 4 are too far; that of step 4 measured those after step 3
    found = latest_checkpoint(tmp_path, at_most=last_step_within(5))
    assert found is not None
    assert found.step == 2
    assert latest_checkpoint(tmp_path, at_most=last_step_within(3)) is None


@pytest.mark.parametrize(
    ("max_versions", "max_days", "kept"),
    [(None, None, [0, 1, 2, 3]), (1, None, [0, 1, 3]), (0, None, [0, 3]), (None, 1.5, [0, 1]), (1, 0.5, [0])],
)
def test_rows_beyond_an_age_are_too_old(max_versions: int | None, max_days: float | None, kept: list[int]) -> None:
    """Three rows of the lineage, one version and one day apart, and a row of a version outside of it."""
    started = [NOW - timedelta(days=number) for number in range(4)]
    names = pl.Series("policy_version", ["m@v3", "m@v2", "m@v1", "other@v1"])
    rows = pl.DataFrame([names, pl.Series("started_at", started, dtype=pl.Datetime("ns", "UTC"))]).with_row_index()
    aged = with_ages(rows, ("m@v3", "m@v2", "m@v1"), NOW)
    conditions = too_old(max_versions, max_days)
    assert aged.filter(~pl.any_horizontal(pl.lit(value=False), *conditions))["index"].to_list() == kept
