"""Watchdogs: what ends a training, what does not, and from which checkpoint on."""

import json
import math
from pathlib import Path

import pytest

from spanloop.training.recipes.policy_gradient import MAX_FLAT_BATCHES, MIN_ENTROPY_SHARE
from spanloop.training.run.monitor.metrics import StepMetrics
from spanloop.training.run.monitor.watchdogs import Thresholds, Watchdogs
from spanloop.training.spec.defaults import STALL_MINUTES
from spanloop.training.verl_plugin.drift import KlBudgetError
from spanloop.training.verl_plugin.early_stopping import EarlyStop, MaskedBatchError, describe_failure, read_early_stop

DEFAULTS = Thresholds(MIN_ENTROPY_SHARE, MAX_FLAT_BATCHES, STALL_MINUTES)
OFF = Thresholds(0, 0, 0)


def first_ending(steps: list[dict[str, float]], thresholds: Thresholds = DEFAULTS) -> EarlyStop | None:
    watchdogs = Watchdogs(thresholds, learning_rate=1e-6)
    endings = (watchdogs.see(StepMetrics(number, values), 60.0 * number) for number, values in enumerate(steps, 1))
    return next((ending for ending in endings if ending is not None), None)


def entropies(*values: float) -> list[dict[str, float]]:
    return [{"actor/entropy": value, "actor/pg_loss": 0.1} for value in values]


def flat(*are_flat: bool) -> list[dict[str, float]]:
    return [{"critic/advantages/min": 0.0 if each else -0.5, "critic/advantages/max": 0.0} for each in are_flat]


def test_a_healthy_job_is_left_alone() -> None:
    """Entropy falls to a quarter, as in successful runs, single batches are odd, and steps take their time."""
    steps = [
        {**entropy, **advantages}
        for entropy, advantages in zip(
            entropies(2.0, 1.8, 1.9, 1.2, 0.01, 0.9, 0.01, 0.01, 0.5, 0.45),
            flat(False, True, True, True, True, False, False, True, False, False),
            strict=True,
        )
    ]
    assert first_ending(steps) is None


def test_a_loss_that_is_no_number_ends_it_before_the_update_that_led_there() -> None:
    ending = first_ending([{"actor/pg_loss": 0.1}] * 4 + [{"actor/pg_loss": math.nan}], OFF)
    assert ending is not None
    assert (ending.cause, ending.last_step, ending.takes_newest) == ("diverged", 3, False)
    assert ending.reason == "actor/pg_loss is nan at step 5; training has diverged."


def test_entropy_that_stays_low_is_a_collapse() -> None:
    steps = entropies(2.0, 2.2, 1.0, 1.5, 0.09, 0.08, 0.07)
    ending = first_ending(steps)
    assert ending is not None
    assert (ending.cause, ending.last_step) == ("min_entropy_share", 3)
    assert "0.07 nats a token at step 7, below 0.05 of the 2 of the first steps since step 5" in ending.reason
    assert first_ending(steps, DEFAULTS._replace(entropy_share=0)) is None
    assert first_ending(steps, DEFAULTS._replace(entropy_share=0.01)) is None


def test_a_policy_that_starts_nearly_deterministic_is_not_watched() -> None:
    assert first_ending(entropies(0.04, 0.04, 0.04, *[0.0001] * 9)) is None


def test_batches_that_prefer_nothing_end_it() -> None:
    ending = first_ending(flat(False, *[True] * MAX_FLAT_BATCHES))
    assert ending is not None
    assert (ending.cause, ending.last_step) == ("max_flat_batches", 1 + MAX_FLAT_BATCHES)
    assert first_ending(flat(*[True] * 50), DEFAULTS._replace(flat_batches=0)) is None
    # sft has no advantages
    assert first_ending([{"train/loss": 1.0}] * 50) is None


def test_a_job_that_completes_no_step_is_stalled() -> None:
    watchdogs = Watchdogs(DEFAULTS, learning_rate=1e-6)
    limit_s = 60 * STALL_MINUTES
    assert watchdogs.see_time(1000.0) is None
    assert watchdogs.see_time(1000.0 + limit_s) is None
    ending = watchdogs.see_time(1060.0 + limit_s)
    assert ending is not None
    assert (ending.cause, ending.last_step, ending.takes_newest) == ("stall_minutes", 0, True)
    assert "no step was completed for 121 minutes after step 0" in ending.reason
    assert Watchdogs(OFF, learning_rate=1e-6).see_time(1e12) is None


def test_a_job_of_long_steps_may_take_ten_times_its_longest() -> None:
    hour_s = 3600.0
    watchdogs = Watchdogs(DEFAULTS, learning_rate=1e-6)
    watchdogs.see_time(0.0)
    watchdogs.see(StepMetrics(1, {}), hour_s)
    watchdogs.see(StepMetrics(2, {}), 2 * hour_s)
    assert watchdogs.see_time(12 * hour_s) is None
    assert watchdogs.see_time(12.1 * hour_s) is not None


def test_what_earlier_attempts_logged_is_the_baseline_of_a_resumed_one() -> None:
    watchdogs = Watchdogs(DEFAULTS, learning_rate=1e-6)
    for number, values in enumerate(entropies(2.0, 2.0, 2.0), 1):
        assert watchdogs.see(StepMetrics(number, values)) is None
    endings = [watchdogs.see(StepMetrics(number, {"actor/entropy": 0.01}), 1.0) for number in (4, 5, 6)]
    assert endings[-1] is not None


@pytest.mark.parametrize(
    ("error", "cause", "last_step"),
    [(KlBudgetError(7, 0.2, 0.1), "kl_budget", 5), (MaskedBatchError(7), "masked_batch", 6)],
)
def test_an_ending_of_the_subprocess_passes_through_its_file(
    error: Exception, cause: str, last_step: int, tmp_path: Path
) -> None:

    path = tmp_path / "failure.json"
    assert read_early_stop(path) is None
    path.write_text(json.dumps(describe_failure(error)))
    ending = read_early_stop(path)
    assert ending is not None
    assert (ending.cause, ending.last_step) == (cause, last_step)
    path.write_text(json.dumps(describe_failure(ValueError("other"))))
    assert read_early_stop(path) is None
