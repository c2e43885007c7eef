"""The time of a job's steps, by the one table of cards."""

from pathlib import Path
from typing import Any

import pytest

from spanloop.training.models.model_shape import ModelShape
from spanloop.training.models.time_estimate import CARDS, StepWork, find_card, local_card, passes_of, step_seconds
from spanloop.training.spec.job_spec import JobSpec

QWEN25_1_5B = ModelShape(
    parameters=1_543_714_304, layers=28, hidden=1536, key_value=256, intermediate=8960, vocabulary=151_936
)
MEASURED = StepWork(computed_tokens=48_584, row_tokens=5_006, trained_tokens=16_525)
"""Of four tasks of an airline agent, four attempts each."""


def spec(kind: str = "dr_grpo", **settings: Any) -> JobSpec:
    return JobSpec.of(base="mine", kind=kind, **settings)


def test_an_estimate_is_near_what_was_measured() -> None:
    """1.6 s a step on an H200."""
    card = find_card("NVIDIA H200")
    assert card is not None
    assert card.measured
    assert step_seconds(QWEN25_1_5B, MEASURED, spec(), card) == pytest.approx(1.58, rel=0.1)


def test_ranks_and_a_faster_card_take_less_time() -> None:
    fast, slow = CARDS[1], CARDS[2]
    one, two = (step_seconds(QWEN25_1_5B, MEASURED, spec(gpus_per_node=ranks), fast) for ranks in (1, 2))
    assert one - fast.overhead_s == pytest.approx(2 * (two - fast.overhead_s))
    assert step_seconds(QWEN25_1_5B, MEASURED, spec(), slow) > 2 * one


@pytest.mark.parametrize(
    ("kind", "settings", "passes"),
    [
        ("dr_grpo", {}, 1),
        ("dr_grpo", {"epochs": 2}, 2 + 1 / 3),
        ("dr_grpo", {"kl_coefficient": 0.04}, 1 + 1 / 3),
        ("dr_grpo", {"lora_rank": 16}, 2 / 3),
        ("ppo", {}, 2 + 1 / 3),
        ("sft", {}, 1),
        ("dpo", {}, 1 + 1 / 3),
    ],
)
def test_each_recipe_has_its_passes(kind: str, settings: dict[str, Any], passes: float) -> None:
    assert passes_of(spec(kind, **settings)) == pytest.approx(passes)


def test_a_gpu_outside_the_table_has_its_memory_and_no_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_card() is None
    for name, speed in (("Some Card 9", 0.0), ("NVIDIA L4", 121e12)):
        program.write_text(f"#!/bin/sh\necho '{name}, 16384'\n")
        program.chmod(0o755)
        card = local_card()
        assert card is not None
        assert (card.memory_bytes, card.peak_flops) == (2**34, speed)
        assert card.name in name
