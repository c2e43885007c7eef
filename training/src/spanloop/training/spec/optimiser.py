"""The part of a job's specification that says which weights train, how fast and how long."""

import re
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from spanloop.training.recipes.setting import MODEL, OPTIMISATION, OPTIMISATION_BASIC

from .choices import LearningRateSchedule, OptimizerDtype
from .defaults import CLIP_GRADIENT, LEARNING_RATE, LORA_ALPHA, MAX_PASSES

_MODULE: Final = re.compile(r"[A-Za-z_]\w*")
"""Last part of the name of a linear layer."""


class Optimiser(BaseModel):
    """Trained weights, learning rate, steps and batches."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    lora_rank: Annotated[int, MODEL] = Field(default=0, ge=0, le=1024)
    """0 trains all weights. Above zero the weights are frozen, and low-rank matrices beside every linear layer train
    (LoRA, Hu et al. 2021): gradients and optimiser states take a fraction of the memory. 8 to 32 suffice for policy
    gradients; sft on many rows needs more (LoRA Without Regret, Schulman et al. 2025)."""

    lora_merge: Annotated[bool, MODEL] = True
    """Merge the low-rank matrices into the weights, so that the new version is a normal model. Without, it is an
    adapter in PEFT's format: a few megabytes, which vLLM serves beside the weights of its base. A stage that another
    one follows always merges."""

    lora_alpha: Annotated[int, MODEL] = Field(default=LORA_ALPHA, ge=1, le=4096)
    """Scale of the low-rank matrices: their product counts ``lora_alpha / lora_rank`` times."""

    lora_dropout: Annotated[float, MODEL] = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Share of a layer's inputs that the low-rank matrices do not see in a training pass (PEFT's ``lora_dropout``).
    verl's FSDP engine has none; LoRA Without Regret (Schulman et al. 2025) trains without. Log-probabilities that a
    step compares with are computed without dropout."""

    target_modules: Annotated[tuple[str, ...], MODEL] = ()
    """Linear layers that get low-rank matrices, by the last part of their names, such as ``q_proj``; empty means all,
    verl's ``all-linear``, which learns better than attention alone (LoRA Without Regret, Schulman et al. 2025)."""

    learning_rate: Annotated[float, OPTIMISATION_BASIC] = Field(default=LEARNING_RATE, gt=0, le=1, allow_inf_nan=False)
    """Peak learning rate of AdamW; with LoRA ten times the kind's default."""

    lr_scheduler_type: Annotated[LearningRateSchedule, OPTIMISATION] = LearningRateSchedule.CONSTANT
    """How the learning rate changes after the warm-up; a job of few steps needs no decay."""

    lr_warmup_steps: Annotated[int, OPTIMISATION] = Field(default=0, ge=0, le=1_000_000)
    """The learning rate rises linearly from zero over this many steps; the first of them changes nothing."""

    weight_decay: Annotated[float, OPTIMISATION] = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    """Decoupled weight decay of AdamW. The measured recipes have none."""

    clip_grad: Annotated[float, OPTIMISATION] = Field(default=CLIP_GRADIENT, gt=0, le=1e6, allow_inf_nan=False)
    """Norm to which larger gradients are scaled down."""

    steps: Annotated[int, OPTIMISATION_BASIC] = Field(default=10, ge=1, le=1_000_000)
    """Optimiser steps, each over one batch."""

    batch_groups: Annotated[int, OPTIMISATION_BASIC] = Field(default=8, ge=1, le=65_536)
    """Policy gradients: prompt groups in a batch; sft: trajectories in a batch; dpo: pairs in a batch."""

    gradient_accumulation_steps: Annotated[int, OPTIMISATION] = Field(default=1, ge=1, le=65_536)
    """Batches whose gradients add up to one optimiser step, which so learns from ``batch_groups`` times as many groups,
    rows or pairs. Memory stays that of ``micro_batch_tokens``, and the loss is that of one batch of this size."""

    max_passes: Annotated[float, OPTIMISATION] = Field(default=MAX_PASSES, gt=0, le=1e6, allow_inf_nan=False)
    """The job ends when it has trained on each stored row this often on average, even if ``steps`` asks for more."""

    micro_batch_tokens: Annotated[int | None, OPTIMISATION] = Field(default=None, ge=1, le=16_777_216)
    """Tokens in one forward and backward pass; fewer need less memory and more time, and the result stays the same. A
    longer row is a pass of its own, so lower the limits of rows too. None is auto: on a GPU what its free memory has
    room for when the job starts, on a CPU 2,048."""

    optimizer_dtype: Annotated[OptimizerDtype, OPTIMISATION] = OptimizerDtype.FLOAT32
    """Number format of AdamW's two moments; ``bfloat16`` takes half the memory, 4 bytes a parameter less. Weights,
    gradients and the update itself stay float32, and rounding is stochastic (Gupta et al. 2015)."""

    seed: Annotated[int, OPTIMISATION] = Field(default=0, ge=0, le=2**31 - 1)
    """Seed of shuffling and of every sampler in the job."""

    @field_validator("target_modules")
    @classmethod
    def _names(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        for name in modules:
            if not _MODULE.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a layer; take the last part of it, such as q_proj")
        return modules
