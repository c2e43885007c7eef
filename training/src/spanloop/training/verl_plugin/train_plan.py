"""The plan of one verl subprocess, as one immutable file.

``run_job`` writes the plan and ``verl_plugin.main`` reads it. It holds resolved paths and numbers only, so the
subprocess needs neither the store nor the control database, and the plan of a past attempt shows exactly what ran.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from spanloop.training.dataset.sampling import DEFAULT_TEMPERATURE
from spanloop.training.models.checkpoint_fence import NO_FENCE
from spanloop.training.recipes.registry import AnyRecipe
from spanloop.training.spec.choices import Device
from spanloop.training.spec.optimiser import Optimiser
from spanloop.training.spec.run_settings import RunSettings


class TrainPlan(BaseModel):
    """One attempt of one training job: the values that configure verl."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: AnyRecipe
    """With the values of its settings."""
    optimiser: Optimiser
    """The job's; ``steps``, ``batch_size`` and ``micro_batch_tokens`` below are what comes of it and the dataset."""
    run: RunSettings
    """The job's; ``device`` below is resolved by the subprocess."""
    job_id: str
    model_path: Path
    """Hugging Face folder of the base model."""
    dataset_path: Path
    """Parquet file of accepted rows, see ``dataset.COLUMNS``."""
    checkpoint_dir: Path
    """verl's ``default_local_dir``; the same one for every attempt of the job."""
    lease_token: int = NO_FENCE
    """The fencing token of the attempt, without which it cannot write checkpoints (``checkpoint_fence``)."""
    resume_from: Path | None = None
    """A complete ``global_step_N`` folder of an earlier attempt, else None."""
    metrics_path: Path
    """verl's file logger writes one JSON line a step here; a fresh file each attempt."""
    samples_path: Path | None = None
    """What each step does with each row: one JSON line a batch, see ``sample_records``. None records nothing."""
    failure_path: Path
    """Written when the run fails: exception type and message as JSON."""
    steps: int = Field(ge=1)
    """Optimizer steps in total, those of earlier attempts included."""
    batch_size: int = Field(ge=1)
    """Prompt groups a step for policy gradients, rows a step for SFT, pairs a step for DPO, all accumulated."""
    temperature: float = Field(gt=0, default=DEFAULT_TEMPERATURE)
    """Temperature at which the rows were sampled; policy gradients only."""
    shuffle: bool = True
    """False trains in the order of the dataset file, in each pass."""
    max_prompt_tokens: int = Field(ge=1)
    max_response_tokens: int = Field(ge=1)
    micro_batch_tokens: int | None = Field(ge=1, default=None)
    """Tokens computed in one forward pass (shared ones once); at least the longest row. None: by the memory of the host
    that trains; the subprocess resolves it."""
    checkpoint_activations: bool = False
    """Recompute each layer's activations in the backward pass; the subprocess decides by the memory of the GPU."""
    longest_row_tokens: int = Field(ge=1, default=1)
    """Of the rows that are computed, those that verl fills a batch up with included."""
    bfloat16: bool | None = None
    """Compute in bfloat16 on a CPU; weights and optimiser stay float32. CUDA always does. None: where the CPU of the
    host that trains has instructions for it; the subprocess resolves it."""
    save_every_steps: int = Field(ge=1)
    validation_path: Path | None = None
    """Parquet file of held-out rows; SFT only. None: no validation."""
    validate_every_steps: int = Field(ge=1, default=1)
    ray_temp_dir: Path
    """Short, because Unix socket paths end at 107 bytes; removed after the job."""
    threads: int = Field(ge=1)
    """OpenMP threads of each process that trains."""
    device: Device = Device.AUTO
    """The requested device; the subprocess resolves ``auto`` on the host that trains."""
