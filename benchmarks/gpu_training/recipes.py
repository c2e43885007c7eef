"""Compare each recipe's steps on the GPU with the same steps on a CPU, on the tiny model.

The CPU's figures are recorded beside the model, in float32; the GPU computes in bfloat16.
"""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from spanloop.demo.tiny_model import build_tiny_model
from spanloop.training.spec.choices import Backbone, Device

from .jobs import Job, RunningJob, run_here
from .rows import draw_rows

VOCABULARY: Final = 400
COMPARED: Final = (
    "actor/pg_loss",
    "actor/grad_norm",
    "actor/entropy",
    "actor/kl_loss",
    "critic/vf_loss",
    "critic/grad_norm",
    "train/loss",
    "train/grad_norm",
)
"""verl's metrics that must agree."""
RELATIVE, ABSOLUTE = 0.05, 0.005
"""Tolerance: bfloat16 has 8 bits, and a tiny model's loss is a difference of large terms."""
_STEPS: Final = 2
_LEARNING_RATE: Final = 1e-3


class Case(NamedTuple):
    """One recipe with the settings in which it differs from its defaults."""

    recipe: Mapping[str, Any]
    optimiser: Mapping[str, Any] = {}
    backbone: Backbone = Backbone.DEBUG
    offload: bool = False
    like: str = ""
    """The case whose figures on a CPU it must have; empty means its own."""
    batch: int = 2


CASES: Final[Mapping[str, Case]] = {
    "dr_grpo": Case({"kind": "dr_grpo"}),
    "grpo": Case({"kind": "grpo"}),
    "grpo, two epochs": Case({"kind": "grpo", "epochs": 2}),
    "rloo": Case({"kind": "rloo"}),
    "gspo": Case({"kind": "gspo"}),
    "reinforce_plus_plus": Case({"kind": "reinforce_plus_plus"}),
    "ppo": Case({"kind": "ppo"}),
    "sft": Case({"kind": "sft"}, batch=4),
    "dpo": Case({"kind": "dpo"}, batch=4),
    "dr_grpo, LoRA": Case({"kind": "dr_grpo"}, {"lora_rank": 8}),
    "ppo, ray": Case({"kind": "ppo"}, backbone=Backbone.RAY, like="ppo"),
    "dr_grpo, ray": Case({"kind": "dr_grpo"}, backbone=Backbone.RAY, like="dr_grpo"),
    "dr_grpo, offload": Case({"kind": "dr_grpo"}, {"optimizer_dtype": "bfloat16"}, offload=True, like="dr_grpo"),
}
"""By name."""


def case_job(case: Case, model: Path, device: Device) -> Job:
    """Return the job of a case."""
    return Job(
        recipe=case.recipe,
        rows=draw_rows(tasks=4, attempts=4, vocabulary=VOCABULARY, system_tokens=60),
        vocabulary=VOCABULARY,
        model=model,
        steps=_STEPS,
        batch=case.batch,
        optimiser={"learning_rate": _LEARNING_RATE} | dict(case.optimiser),
        device=device,
        backbone=case.backbone,
        offload=case.offload,
        threads=2,
    )


def record(folder: Path, names: tuple[str, ...] = ()) -> None:
    """Write the tiny model and the figures of each case on this CPU into ``folder``, unless they are there."""
    expected = folder / "expected.json"
    if expected.exists():
        return
    if not (folder / "model").exists():
        build_tiny_model(folder / "model", training_steps=0)
    figures: dict[str, list[dict[str, float]]] = {}
    for name, case in CASES.items():
        if case.like or (names and name not in names):
            continue
        job = case_job(case, folder / "model", Device.CPU)._replace(bfloat16=False)
        result = run_here(job, folder / "jobs" / _folder_name(name))
        figures[name] = _figures(result.steps)
        print(f"recorded on the CPU: {name}", flush=True)
    expected.write_text(json.dumps(figures, indent=1))


def compare(folder: Path, work: Path, device: Device, *, seconds: float) -> dict[str, Any]:
    """Run all cases on the device, side by side, and compare them with ``folder``'s figures."""
    expected: dict[str, list[dict[str, float]]] = json.loads((folder / "expected.json").read_text())
    cases = {name: case for name, case in CASES.items() if (case.like or name) in expected}
    until = time.monotonic() + seconds
    if device is Device.CPU:
        cases = {name: case for name, case in cases.items() if case.backbone is Backbone.DEBUG and not case.offload}
        results = {
            name: run_here(case_job(case, folder / "model", device), work / _folder_name(name))
            for name, case in cases.items()
        }
    else:
        running = {
            name: RunningJob(case_job(case, folder / "model", device), work / _folder_name(name))
            for name, case in cases.items()
        }
        results = {name: job.result(timeout_s=until - time.monotonic()) for name, job in running.items()}
    rows: dict[str, Any] = {}
    for name, case in cases.items():
        steps = _figures(results[name].steps)
        rows[name] = _row(steps, expected[case.like or name]) | {"problem": results[name].problem}
        print(f"recipes {name}: {'agrees' if rows[name]['agrees'] else 'DIFFERS'} {steps[-1:]}", flush=True)
    return rows


def _row(steps: list[dict[str, float]], expected: list[dict[str, float]]) -> dict[str, Any]:
    pairs = [
        (step[name], reference[name])
        for step, reference in zip(steps, expected, strict=False)
        for name in step.keys() & reference.keys() & set(COMPARED)
    ]
    agrees = len(steps) == len(expected) and bool(pairs) and all(_is_close(*pair) for pair in pairs)
    return {"agrees": agrees, "steps": steps, "expected": expected}


def _is_close(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _figures(steps: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: step[name] for name in COMPARED if name in step} for step in steps]


def _folder_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)
