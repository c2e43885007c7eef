"""Which curves a page shows first, and the buckets of its time axis."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.dashboard.view_models.series import choose_bucket_s, choose_metrics, since_s, time_span_s

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def test_kl_entropy_and_loss_come_first_and_no_batch_reward() -> None:
    names = ["actor/grad_norm", "actor/pg_loss", "batch_reward", "actor/entropy", "rollout_corr/k3_kl", "perf/mfu"]
    assert choose_metrics(names) == ["rollout_corr/k3_kl", "actor/entropy", "actor/pg_loss"]


def test_a_supervised_job_has_losses() -> None:
    assert choose_metrics(["train/loss", "train/lr"]) == ["train/loss"]


def test_unknown_trainers_are_read_by_the_look_of_their_names() -> None:
    assert choose_metrics(["my/reward/mean", "my/total_loss"]) == ["my/total_loss"]


@pytest.mark.parametrize(("span_s", "size_s"), [(0, 60), (3_600, 300), (47 * 3_600, 4 * 3_600), (10**9, 30 * 86_400)])
def test_buckets_have_sizes_that_people_read(span_s: float, size_s: int) -> None:
    assert choose_bucket_s(span_s) == size_s


@given(st.floats(min_value=0, max_value=24 * 30 * 86_400))
def test_there_are_never_too_many_buckets(span_s: float) -> None:
    assert span_s / choose_bucket_s(span_s) <= 24


def test_a_range_begins_before_now_and_all_at_the_epoch() -> None:
    assert since_s("24 h", 100_000) == 13_600
    assert since_s("All", 100_000) == 0


def test_covered_time() -> None:
    assert time_span_s([], []) == 0
    assert time_span_s([MOMENT, MOMENT], [MOMENT + timedelta(seconds=7), MOMENT]) == 7
