"""Make the training plan of an attempt from the job's specification and its dataset."""

import math
import os
from pathlib import Path
from typing import Final

import polars as pl

from spanloop.foundation.errors import JobError

from ..dataset.held_out import HELD_OUT_NAME
from ..dataset.manifest import DATA_NAME, Manifest
from ..dataset.sampling import DEFAULT_TEMPERATURE
from ..jobs.training_ids import job_of
from ..models.base_model import BaseModelFacts
from ..models.checkpoint_fence import NO_FENCE
from ..models.checkpoints import latest_checkpoint
from ..models.target_modules import check_target_modules
from ..recipes.base import LearnsFrom
from ..spec.choices import Curriculum
from ..spec.job_spec import JobSpec
from ..verl_plugin.drift import steps_within
from ..verl_plugin.train_plan import TrainPlan
from .monitor.metrics import metrics_path
from .monitor.samples import samples_path

_SAVES_A_JOB: Final = 5
FILLING_ROW_TOKENS: Final = 128
"""verl's ``SYNTHETIC_PADDING_SEQ_LEN``."""


def make_plan(
    spec: JobSpec,
    base: BaseModelFacts,
    manifest: Manifest,
    *,
    folder: Path,
    attempt: int,
    ray_folder: Path,
    lease_token: int = NO_FENCE,
) -> TrainPlan:
    """Return the plan of one attempt, which continues from the newest complete checkpoint in ``folder``.

    Raises:
        JobError: There are fewer rows or pairs than ranks, or a name of ``target_modules`` is no layer of the base.
    """
    steps, batch = planned_steps(spec, manifest)
    checkpoint_dir = folder / "checkpoints"
    checkpoint = latest_checkpoint(checkpoint_dir) if spec.run.resumable else None
    if spec.optimiser.target_modules:
        check_target_modules(spec.optimiser.target_modules, base.path)
    validation_steps = spec.recipe.validation_steps
    validation_path = folder / HELD_OUT_NAME if validation_steps else None
    longest = longest_computed_row(spec, max(manifest.longest_row_tokens, _longest_row(validation_path)))
    return TrainPlan(
        recipe=spec.recipe,
        optimiser=spec.optimiser,
        run=spec.run,
        job_id=job_of(manifest.job_id),
        model_path=base.path,
        dataset_path=folder / DATA_NAME,
        checkpoint_dir=checkpoint_dir,
        lease_token=lease_token,
        resume_from=checkpoint.path if checkpoint else None,
        metrics_path=metrics_path(folder, attempt),
        samples_path=samples_path(folder, attempt),
        failure_path=folder / "failure.json",
        steps=steps,
        batch_size=batch,
        temperature=manifest.temperature or DEFAULT_TEMPERATURE,
        shuffle=spec.episodes.curriculum is Curriculum.NONE,
        max_prompt_tokens=manifest.longest_prompt_tokens,
        max_response_tokens=manifest.longest_response_tokens,
        micro_batch_tokens=spec.optimiser.micro_batch_tokens and max(spec.optimiser.micro_batch_tokens, longest),
        longest_row_tokens=longest,
        save_every_steps=spec.run.save_freq or save_interval(steps),
        validation_path=validation_path,
        validate_every_steps=max(1, validation_steps),
        ray_temp_dir=ray_folder,
        threads=max(1, training_threads(whole_machine=spec.run.pause_serving) // spec.run.gpus_per_node),
        device=spec.run.device,
    )


def planned_steps(spec: JobSpec, manifest: Manifest) -> tuple[int, int]:
    """Return the steps that the job takes, within its ``max_passes``, and the groups, pairs or rows of each.

    Raises:
        JobError: There are fewer rows or pairs than ranks.
    """
    units = manifest.units
    multiple = batch_multiple(spec)
    if units < multiple:
        raise JobError(
            f"Job {manifest.job_id} has {units} {spec.recipe.batch_unit} for {multiple} ranks; each rank needs one.",
            next_step="Submit it again with fewer nodes or gpus_per_node, or select more episodes.",
        )
    batch = batch_size(units, accumulated_batch(spec), multiple)
    return steps_within(spec.optimiser.steps, batch, units, spec.optimiser.max_passes), batch


def longest_computed_row(spec: JobSpec, longest_row_tokens: int) -> int:
    """Return the tokens of the longest row, which is one forward pass at least.

    On several ranks verl's rows that fill a batch up count as rows.
    """
    filling = FILLING_ROW_TOKENS if spec.run.ranks > 1 and spec.recipe.learns_from is LearnsFrom.ROWS else 1
    return max(longest_row_tokens, filling)


def accumulated_batch(spec: JobSpec) -> int:
    """Return the groups, pairs or rows that a job asks for in one optimiser step."""
    return spec.optimiser.batch_groups * spec.optimiser.gradient_accumulation_steps


def _longest_row(rows: Path | None) -> int:
    """Return the tokens of the longest row of a dataset file; 0 for None."""
    if rows is None:
        return 0
    tokens = pl.col("prompt_token_ids").list.len() + pl.col("response_token_ids").list.len()
    return int(pl.scan_parquet(rows).select(tokens.max()).collect().item() or 0)


def batch_multiple(spec: JobSpec) -> int:
    """Return the number that must divide a batch: rows are dealt to the ranks evenly.

    The groups of a policy gradient need not divide: verl fills their rows up with rows that no token trains.
    """
    return 1 if spec.recipe.learns_from is LearnsFrom.ROWS else spec.run.ranks


def batch_size(available: int, requested: int, multiple: int = 1) -> int:
    """Return the requested batch size, limited to the available rows and rounded down to a multiple.

    verl drops incomplete batches, so a batch larger than the dataset would never run.
    """
    if available < multiple or requested < multiple:
        raise ValueError(f"a batch of {requested} out of {available}: expected at least {multiple} of each")
    return min(available, requested) // multiple * multiple


def save_interval(steps: int) -> int:
    """Return the steps between checkpoints: about five a job, so that a kill costs at most a fifth of it."""
    return max(1, math.ceil(steps / _SAVES_A_JOB))


def training_threads(*, whole_machine: bool) -> int:
    """Return the number of OpenMP threads: all cores but one, because threads that wait for a busy core slow all down.

    Args:
        whole_machine: Nothing else runs while the job trains, so all cores are used.
    """
    return max(1, len(os.sched_getaffinity(0)) - (0 if whole_machine else 1))
