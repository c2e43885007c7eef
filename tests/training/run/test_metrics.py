import json
import math
from pathlib import Path

import polars as pl

from spanloop.store import Store
from spanloop.training.run.monitor.metrics import (
    BATCH_REWARD,
    MetricsTail,
    MetricsWriter,
    StepMetrics,
    logged_steps,
    metrics_path,
    parse_line,
)


def test_only_complete_lines_are_read_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics-1.jsonl"
    tail = MetricsTail(path)
    assert tail.read() == []
    path.write_bytes(b'{"step":1,"data":{"actor/loss":0.5}}\n{"step":2,"da')
    assert tail.read() == [StepMetrics(1, {"actor/loss": 0.5})]
    assert tail.read() == []
    with path.open("ab") as file:
        file.write(b'ta":{"actor/loss":0.25}}\n')
    assert tail.read() == [StepMetrics(2, {"actor/loss": 0.25})]


def test_the_validation_of_a_step_belongs_to_its_record(tmp_path: Path) -> None:
    path = metrics_path(tmp_path, 1)
    tail = MetricsTail(path)
    path.write_text('{"step":1,"data":{"train/loss":0.5}}\n{"step":2,"data":{"train/loss":0.4}}\n')
    assert [step.step for step in tail.read()] == [1, 2]
    with path.open("a") as file:
        file.write('{"step":2,"data":{"val/loss":0.6}}\n')
    (validation,) = tail.read()
    assert validation.is_validation
    steps = logged_steps(tmp_path)
    assert steps == [StepMetrics(1, {"train/loss": 0.5}), StepMetrics(2, {"train/loss": 0.4, "val/loss": 0.6})]
    assert not any(step.is_validation for step in steps)


def test_of_a_step_that_was_done_again_the_last_attempt_s_values_come_last(tmp_path: Path) -> None:
    for attempt in (10, 2, 1):
        metrics_path(tmp_path, attempt).write_text(f'{{"step":3,"data":{{"actor/loss":{attempt}}}}}\n')
    assert [step.values["actor/loss"] for step in logged_steps(tmp_path)] == [1, 2, 10]


def test_null_is_not_a_number_and_text_is_no_metric() -> None:
    step = parse_line(b'{"step":3,"data":{"actor/loss":null,"name":"x","training/epoch":0}}')
    assert math.isnan(step.values["actor/loss"])
    assert "name" not in step.values
    assert step.diverged == "actor/loss"


def test_a_diagnostic_that_is_not_finite_is_no_divergence() -> None:
    assert StepMetrics(1, {"actor/loss": 0.1, "training/rollout_probs_diff_max": math.nan}).diverged == ""


def test_sending_a_step_twice_keeps_one_value(store: Store) -> None:
    writer = MetricsWriter(store, "job-1")
    writer.add([StepMetrics(1, {"actor/loss": 0.5, "actor/lr": 1e-6})])
    writer.add([StepMetrics(1, {"actor/loss": 0.25}), StepMetrics(2, {"actor/loss": math.nan})])
    found = store.query("training_metrics", job_id="job-1")
    assert found.filter(pl.col("step") == 1).rows() == [(1, "actor/loss", 0.25), (1, "actor/lr", 1e-6)]
    assert found.filter(pl.col("step") == 2)["value"].is_nan().all()


def test_the_reward_of_a_job_is_named_as_that_of_its_batches() -> None:
    data = {"critic/rewards/mean": 0.5, "actor/entropy_loss": 1.0, "actor/entropy": 2.0, "note": "text"}
    line = json.dumps({"step": 3, "data": data}).encode()
    assert parse_line(line) == StepMetrics(3, {BATCH_REWARD: 0.5, "actor/entropy": 2.0})
