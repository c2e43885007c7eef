"""The part of a job's specification that says where and how it runs."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from spanloop.training.recipes.setting import RUN, RUN_BASIC, RUN_OF_JOB, VERL

from .choices import Backbone, Device, Logger
from .defaults import MAX_CHECKPOINTS, STALL_MINUTES
from .presets import Preset
from .verl_overrides import override_texts


class RunSettings(BaseModel):
    """Devices, processes, checkpoints, limits and what happens with the result."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    preset: Annotated[Preset, RUN_BASIC] = Preset.ANY
    """Hardware that the defaults of other settings are for; a setting that is given wins. The reference lists what each
    preset sets and why."""

    device: Annotated[Device, RUN] = Device.AUTO
    """The device that the job computes on; ``auto`` is a GPU if the host that trains has one, also on a Ray cluster."""

    backbone: Annotated[Backbone, RUN] = Backbone.RAY
    """``ray`` trains in processes of a Ray cluster. ``debug`` trains the same in one process without Ray, so that
    breakpoints in recipes, losses and the engine work (``spanloop train --foreground``)."""

    ray_address: Annotated[str, RUN] = ""
    """A running Ray cluster (``host:port``) whose machines mount the data directory at the same path, and of which the
    machine of the job's runner is a node; empty starts a cluster for this job and ends it afterwards."""

    nodes: Annotated[int, RUN] = Field(default=1, ge=1, le=1024)
    """Nodes of the Ray cluster that the job trains on."""

    gpus_per_node: Annotated[int, RUN] = Field(default=1, ge=1, le=64)
    """Ranks on each node: processes that each compute a part of every batch and hold a part of the weights, gradients
    and optimiser states (FSDP2); the result is that of one. On CUDA each has a GPU; on a CPU fewer threads compute
    each. dpo trains on one rank."""

    wait_for_nodes: Annotated[bool, RUN] = True
    """A job whose nodes or GPUs the Ray cluster does not have, or not free, waits in the queue and is tried again
    after growing pauses, for three hours at most; without, it fails at once."""

    offload: Annotated[bool, RUN] = False
    """Keep weights, gradients and optimiser states in the host's memory, and update them there (verl's
    ``offload_policy``, FSDP2): a GPU has one or two layers at a time. Slower, and on a GPU only."""

    deploy: Annotated[bool, RUN_BASIC] = False
    """Evaluate the new version after training, and deploy it when the promotion rule (``[promotion]``) says so."""

    deploy_always: Annotated[bool, RUN_BASIC] = False
    """Deploy the new version after training, whatever it is worth; the job fails if the gateway cannot serve it."""

    pause_serving: Annotated[bool, RUN_BASIC] = False
    """Free vLLM's memory while the job trains and serve again afterwards: on a GPU it sleeps, on a CPU it stops. The
    gateway returns 503 meanwhile."""

    max_attempts: Annotated[int, RUN_OF_JOB] = Field(default=3, ge=1, le=100)
    """Maximum number of starts when the job's process or scheduler is killed. A job that fails on its own is not
    restarted, because the error would recur."""

    max_runtime_minutes: Annotated[float | None, RUN_OF_JOB] = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    """The scheduler ends the job, and it fails, when all of its attempts together ran for so long."""

    stall_minutes: Annotated[float, RUN] = Field(default=STALL_MINUTES, ge=0, le=1e6, allow_inf_nan=False)
    """The job ends when it completes no step for so long, and for ten times as long as its longest step; 0 turns it
    off."""

    save_freq: Annotated[int, RUN] = Field(default=0, ge=0, le=1_000_000)
    """Steps between checkpoints, from which a killed job continues; the last step has one too. 0 writes about five a
    job, so that a kill costs a fifth of it."""

    resumable: Annotated[bool, RUN] = True
    """Checkpoints have the optimiser's states, so that a job that is started again continues from the newest. Without,
    they have the weights alone: a quarter of the bytes, and a job that is started again begins at its first step."""

    max_ckpt_to_keep: Annotated[int, RUN] = Field(default=MAX_CHECKPOINTS, ge=1, le=1000)
    """The newest checkpoints that a job keeps while it trains; with more of them, a job that is ended early finds an
    earlier good one. They are removed when its version is registered."""

    loggers: Annotated[tuple[Logger, ...], RUN] = ()
    """Loggers of verl that get each step's metrics too: ``tensorboard`` writes to the job's folder, ``wandb`` obeys the
    variables ``WANDB_…`` of the process that trains (``WANDB_MODE=offline`` writes to the job's folder)."""

    verl: Annotated[tuple[str, ...], VERL] = ()
    """A raw override of verl's configuration, ``KEY=VALUE`` in Hydra's syntax, as in
    ``actor_rollout_ref.actor.clip_ratio_c=5``; in a job file the table ``[verl]``. Keys that a setting or spanloop
    decides are refused. A stage has its own."""

    @property
    def ranks(self) -> int:
        """Ranks on all nodes together."""
        return self.nodes * self.gpus_per_node

    @field_validator("verl", mode="before")
    @classmethod
    def _table_as_texts(cls, overrides: Any) -> Any:
        """A job file has a table."""
        return override_texts(cast("Mapping[str, Any]", overrides)) if isinstance(overrides, Mapping) else overrides
