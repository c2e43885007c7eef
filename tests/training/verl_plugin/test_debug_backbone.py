"""The backbone ``debug``: verl's trainer, workers and engine in the test's own process."""

import importlib
import json
import math
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from spanloop.semconv.scores import SCORE_LIMIT
from spanloop.training.dataset.tally import Tally
from spanloop.training.run.monitor.metrics import StepMetrics
from spanloop.training.verl_plugin.drift import KlBudgetError

from ..debug_training import debug_plan, train_here, trained_weights, write_dataset
from ..recipe_kinds import KINDS, is_policy_gradient

pytestmark = pytest.mark.filterwarnings("ignore")

POLICY_GRADIENTS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind == "dr_grpo" else pytest.mark.slow)
        for kind in KINDS
        if is_policy_gradient(kind)
    ],
)
LOSSES = {kind: "actor/pg_loss" if is_policy_gradient(kind) else "train/loss" for kind in KINDS}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "dr_grpo" else pytest.mark.slow) for kind in KINDS]
)
def test_a_resumed_job_ends_with_the_same_weights(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind=kind)
    plan = debug_plan(tiny_model, tmp_path, kind=kind)
    steps = train_here(plan)
    assert [step.step for step in steps] == [1, 2]
    assert all(math.isfinite(step.values[LOSSES[kind]]) for step in steps)
    first, last = trained_weights(plan, 1), trained_weights(plan, 2)
    assert any(not last[name].equal(first[name]) for name in last)

    again = debug_plan(
        tiny_model,
        tmp_path / "again",
        kind=kind,
        dataset_path=plan.dataset_path,
        resume_from=plan.checkpoint_dir / "global_step_1",
    )
    again.metrics_path.parent.mkdir()
    assert [step.step for step in train_here(again)] == [2]
    resumed = trained_weights(again, 2)
    assert all(resumed[name].equal(last[name]) for name in last)


@POLICY_GRADIENTS
@pytest.mark.parametrize("old", [1e308, -3e38])
def test_an_old_score_out_of_range_costs_its_episode_and_not_the_job(
    kind: str, old: float, tiny_model: Path, tmp_path: Path
) -> None:
    selection = write_dataset(tiny_model, tmp_path, kind=kind, rewards=(0.0, 1.0, 0.5, old))
    assert selection.out_of_range == ("g0-e3", "g1-e3", "g2-e3")
    assert selection.row_tally == Tally(9, {"reward_out_of_range": 3})
    assert_finite(kind, train_here(debug_plan(tiny_model, tmp_path, kind=kind)))


@POLICY_GRADIENTS
def test_the_largest_scores_are_trained_on_without_overflow(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    selection = write_dataset(tiny_model, tmp_path, kind=kind, rewards=(-SCORE_LIMIT, SCORE_LIMIT))
    assert selection.row_tally == Tally(12, {})
    plan = debug_plan(tiny_model, tmp_path, kind=kind)
    assert_finite(kind, train_here(plan))
    assert all(weight.isfinite().all() for weight in trained_weights(plan).values())


def assert_finite(kind: str, steps: list[StepMetrics]) -> None:
    assert [step.step for step in steps] == [1, 2]
    assert all(step.diverged == "" and math.isfinite(step.values[LOSSES[kind]]) for step in steps)


@pytest.mark.parametrize("kind", ["dr_grpo", pytest.param("sft", marks=pytest.mark.slow)])
def test_without_shuffling_a_job_trains_in_the_order_of_its_file(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind=kind, groups=6, episodes=2)
    path = tmp_path / "samples-1.jsonl"
    train_here(debug_plan(tiny_model, tmp_path, kind=kind, shuffle=False, steps=3, samples_path=path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    samples = [sample for line in lines for sample in sorted(line["sample"])]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert samples == list(range(len(samples)))


def test_a_breakpoint_below_the_loss_stops_the_calling_thread(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A debugger needs no more: it reads the terminal in the thread that calls ``breakpoint()``."""
    stopped: list[str] = []

    def stop(*_: object) -> None:
        stopped.append(threading.current_thread().name)
        # a failure here ends the job, and the next job of this process is not affected
        raise RuntimeError("the debugger was left")

    monkeypatch.setattr(sys, "breakpointhook", stop)
    engine: Any = importlib.import_module("spanloop.training.verl_plugin.engine.output_head")
    original = engine.token_logprobs

    def stopping(*arguments: Any, **settings: Any) -> Any:
        breakpoint()  # noqa: T100
        return original(*arguments, **settings)

    monkeypatch.setattr(engine, "token_logprobs", stopping)
    write_dataset(tiny_model, tmp_path)
    plan = debug_plan(tiny_model, tmp_path)
    children = psutil.Process().children(recursive=True)
    with pytest.raises(RuntimeError, match="the debugger was left"):
        train_here(plan)
    assert stopped == [threading.current_thread().name]
    assert not ray.is_initialized()
    assert psutil.Process().children(recursive=True) == children


def test_the_kl_budget_ends_a_job(tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path)
    with pytest.raises(KlBudgetError) as raised:
        train_here(debug_plan(tiny_model, tmp_path, steps=3, learning_rate=1e-2, kl_budget=1e-4))
    assert raised.value.last_step == 0
