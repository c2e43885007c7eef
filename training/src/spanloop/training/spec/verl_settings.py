"""Settings that users of verl and TRL know: checkpoints, losses, clipping, validation, loggers and raw overrides.

Names are verl's where it has the setting. :class:`~spanloop.training.spec.job_settings.JobSettings` has these fields
after its own.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from spanloop.training.recipes.setting import MODEL, OPTIMISATION, RUN, VERL

from .choices import Logger
from .defaults import MAX_CHECKPOINTS
from .verl_overrides import override_texts

_MODULE: Final = re.compile(r"[A-Za-z_]\w*")
"""Last part of the name of a linear layer."""


class VerlSettings(BaseModel):
    """The part of a job's settings that verl's trainers take almost as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    lora_dropout: Annotated[float, MODEL] = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Share of a layer's inputs that the low-rank matrices do not see in a training pass (PEFT's ``lora_dropout``).
    verl's FSDP engine has none; LoRA Without Regret (Schulman et al. 2025) trains without. Log-probabilities that a
    step compares with are computed without dropout."""

    target_modules: Annotated[tuple[str, ...], MODEL] = ()
    """Linear layers that get low-rank matrices, by the last part of their names, such as ``q_proj``; empty means all,
    verl's ``all-linear``, which learns better than attention alone (LoRA Without Regret, Schulman et al. 2025)."""

    gradient_accumulation_steps: Annotated[int, OPTIMISATION] = Field(default=1, ge=1, le=65_536)
    """Batches whose gradients add up to one optimiser step, which so learns from ``batch_groups`` times as many groups,
    rows or pairs. Memory stays that of ``micro_batch_tokens``, and the loss is that of one batch of this size."""

    save_freq: Annotated[int, RUN] = Field(default=0, ge=0, le=1_000_000)
    """Steps between checkpoints, from which a killed job continues; the last step has one too. 0 writes about five a
    job, so that a kill costs a fifth of it."""

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

    @field_validator("target_modules")
    @classmethod
    def _names(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        for name in modules:
            if not _MODULE.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a layer; take the last part of it, such as q_proj")
        return modules

    @field_validator("verl", mode="before")
    @classmethod
    def _table_as_texts(cls, overrides: Any) -> Any:
        """A job file has a table."""
        return override_texts(cast("Mapping[str, Any]", overrides)) if isinstance(overrides, Mapping) else overrides
