"""Training jobs of one model size: packed prefix trees against verl's stock engine on the same merged rows."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl
import torch

from spanloop.training.spec.choices import Backbone, Device

from .jobs import NO_CHECKPOINTS, Job, JobResult, RunningJob, run_here
from .models import Size
from .passes import Work, packed_work, peak_flops
from .rows import cut_rows, merged_rows, row_tokens, take_tasks

GROUPS: Final = 4
"""Of a step."""
STOCK_ENGINE: Final = (
    "actor_rollout_ref.model.external_lib=null",
    "actor_rollout_ref.model.enable_gradient_checkpointing=True",
    "algorithm.rollout_correction.bypass_mode=False",
    "actor_rollout_ref.actor.policy_loss.single_pass=False",
    "actor_rollout_ref.actor.calculate_entropy=False",
)
"""Overrides of verl that leave its engine as it is, with the loss of a step whose start is recomputed."""
LIMIT_GB: Final = 46.0
"""For torch in a job that has 48 GB of a GPU; CUDA's context and libraries take the rest."""
OUT_OF_MEMORY: Final = "out of memory"
_SHORTER: Final = (6_144, 4_096)
"""Lengths to which rows are cut for both engines where the stock engine's memory does not suffice for the longest."""
_LEARNING_RATE: Final = 1e-6

Reporter = Callable[[str, Any], None]


class Setup(NamedTuple):
    """One model on one device."""

    size: Size
    model: Path
    rows: pl.DataFrame
    work: Path
    """Folder for the jobs' files."""
    pass_tokens: int
    """Packed tokens of one pass of the tree engine."""
    device: Device
    seconds_left: Callable[[], float]

    def job(self, rows: pl.DataFrame, *, steps: int, pass_tokens: int | None, verl: tuple[str, ...]) -> Job:
        """Return a policy gradient's job."""
        lora = {"lora_rank": self.size.lora_rank} if self.size.lora_rank else {}
        return Job(
            # random weights are far from any sampler
            recipe={"kind": "dr_grpo", "kl_budget": None},
            rows=rows,
            vocabulary=self.size.vocabulary,
            model=self.model,
            steps=steps,
            batch=GROUPS,
            optimiser={"learning_rate": _LEARNING_RATE} | lora,
            device=self.device,
            pass_tokens=pass_tokens,
            verl=verl,
        )

    def run(self, name: str, job: Job) -> JobResult:
        """Run a job to its end, or to the end of the time; without Ray where it does not reach a step with it."""
        if self.device is Device.CPU:
            return run_here(job, self.work / name)
        result = RunningJob(job, self.work / name).result(timeout_s=self.seconds_left())
        if result.steps or OUT_OF_MEMORY in result.problem.lower():
            return result
        print(f"{name} without Ray, after: {result.problem[-1000:]}", flush=True)
        debug = job._replace(backbone=Backbone.DEBUG)
        return RunningJob(debug, self.work / f"{name}_debug").result(timeout_s=self.seconds_left())


def measure_tree(setup: Setup, *, steps: int = 5) -> dict[str, Any]:
    """Train with packed prefix trees."""
    return _tree(setup, setup.rows, "tree", steps)


def measure_limited(setup: Setup, *, steps: int = 4) -> dict[str, Any]:
    """Train with packed prefix trees in a part of the GPU's memory, where not all activations can be kept."""
    return _tree(setup, setup.rows, "limited", steps, gpu_limit_gb=LIMIT_GB)


def measure_checkpoints(setup: Setup, *, steps: int = 4) -> dict[str, Any]:
    """Train with a checkpoint after every second step; the step after it shows what saving costs beside it."""
    job = setup.job(setup.rows, steps=steps, pass_tokens=setup.pass_tokens, verl=(f"trainer.save_freq={steps // 2}",))
    result = setup.run("checkpoints", job)
    return {
        "save_s": [step.get("timing_s/save_checkpoint", 0.0) for step in result.steps],
        "step_s": [step["timing_s/step"] for step in result.steps],
        "job_s": result.seconds,
        "problem": result.problem,
    }


def measure_stock(setup: Setup, *, steps: int = 2) -> dict[str, Any]:
    """Train with the stock engine in passes of the longest row, its least; rows are cut where memory does not suffice.

    Where rows are cut, ``tree`` has the tree engine on the same rows.
    """
    figures: dict[str, Any] = {}
    for limit in (0, *_SHORTER):
        rows = cut_rows(setup.rows, limit) if limit else setup.rows
        longest = int(row_tokens(rows).max() or 0)  # type: ignore[arg-type]
        job = setup.job(rows, steps=steps, pass_tokens=longest, verl=(*NO_CHECKPOINTS, *STOCK_ENGINE))
        result = setup.run(f"stock_{longest}", job)
        figures = _figures(setup, rows, result, pass_tokens=longest, share=False)
        if not result.problem and limit:
            figures["tree"] = _tree(setup, rows, f"tree_{longest}", steps=3)
        if OUT_OF_MEMORY not in result.problem.lower():
            break
    return figures


def compare_engines(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return how much faster a step is with trees than with the stock engine, with and without ``old_log_prob``."""
    stock = figures["stock"]
    tree = stock.get("tree") or figures["tree"]
    if not stock["step_s"] or not tree["step_s"]:
        return {}
    return {
        "step": stock["step_s"] / tree["step_s"],
        "step_without_old_log_prob": (stock["step_s"] - stock["old_log_prob_s"]) / tree["step_s"],
    }


def _tree(setup: Setup, rows: pl.DataFrame, name: str, steps: int, gpu_limit_gb: float | None = None) -> dict[str, Any]:
    job = setup.job(rows, steps=steps, pass_tokens=setup.pass_tokens, verl=NO_CHECKPOINTS)
    job = job._replace(gpu_limit_gb=gpu_limit_gb)
    return _figures(setup, rows, setup.run(name, job), pass_tokens=setup.pass_tokens, share=True)


def _figures(setup: Setup, rows: pl.DataFrame, result: JobResult, *, pass_tokens: int, share: bool) -> dict[str, Any]:
    batches = _batches(rows)
    # the stock engine recomputes all layers
    recomputed = round(result.median("actor/recomputed_layers")) if share else setup.size.layers
    work = [
        packed_work(merged_rows(batch), setup.size, pass_tokens, share=share, recomputed_layers=recomputed)
        for batch in batches
    ]
    mean = Work(*(sum(values) / len(work) for values in zip(*work, strict=True)))
    row_tokens_of_step = merged_rows(rows).tokens / len(batches)
    step_s = result.median("timing_s/step") - result.median("timing_s/save_checkpoint")
    update_s = result.median("timing_s/update_actor")
    peak = peak_flops(torch.device("cuda")) if torch.cuda.is_available() else 0.0
    return {
        "step_s": step_s,
        "first_step_s": result.steps[0]["timing_s/step"] if result.steps else 0.0,
        "update_s": update_s,
        "old_log_prob_s": result.median("timing_s/old_log_prob"),
        "tokens_per_s": row_tokens_of_step / step_s if step_s else 0.0,
        "row_tokens": round(row_tokens_of_step),
        "computed_tokens": round(mean.tokens),
        "pass_tokens": pass_tokens,
        "longest_row": int(row_tokens(rows).max() or 0),  # type: ignore[arg-type]
        "mfu_step": mean.flops / step_s / peak if step_s and peak else 0.0,
        "mfu_update": mean.flops / update_s / peak if update_s and peak else 0.0,
        "hfu_update": mean.performed_flops / update_s / peak if update_s and peak else 0.0,
        "recomputed_layers": recomputed,
        "backbone": result.backbone,
        "mfu_verl": result.median("perf/mfu/actor"),
        "allocated_gb": max((step.get("perf/max_memory_allocated_gb", 0.0) for step in result.steps), default=0.0),
        "gpu_gb": result.gpu_gb,
        "late_compilations": result.late_compilations,
        "job_s": result.seconds,
        "steps": len(result.steps),
        "problem": result.problem,
    }


def _batches(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the rows of each step of one pass over the tasks."""
    tasks = rows["group_id"].n_unique()
    whole = [take_tasks(rows, count) for count in range(GROUPS, tasks + 1, GROUPS)] or [rows]
    return [
        whole[0],
        *(later.join(earlier, on="group_id", how="anti") for earlier, later in pairwise(whole)),
    ]
