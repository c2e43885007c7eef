"""The specification of a training job: typed and frozen; unknown keys are rejected.

Invariant: a valid spec has only settings that its kind uses; no setting is silently ignored. The registry checks that
the base model exists, when the job is submitted and again when it runs.
"""

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from spanloop.semconv.enums import JobKind

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VERSION_PATTERN: Final = r"v[1-9][0-9]{0,8}"
REFERENCE_PATTERN: Final = rf"{NAME_PATTERN}(@{VERSION_PATTERN})?"

ModelName = Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}$")]
ModelReference = Annotated[str, StringConstraints(pattern=rf"^{REFERENCE_PATTERN}$")]


class Device(StrEnum):
    """The device that a job computes on."""

    AUTO = "auto"
    """The GPU if there is one, else the CPU."""
    CPU = "cpu"
    CUDA = "cuda"


class Credit(StrEnum):
    """How a group-relative advantage is given to the steps of an episode."""

    BROADCAST = "broadcast"
    """Every step has the episode's advantage."""
    ATTRIBUTED = "attributed"
    """The policy pays at the steps of its own mistakes, and steps faulted by others are masked."""


class JobSpec(BaseModel):
    """One training job: the base model, the episodes and the hyperparameters."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: JobKind
    """``grpo``: group-relative policy optimisation over stored groups; ``sft``: imitation of stored actions."""

    base: ModelReference
    """The model version to start from: ``name@version``, or ``name`` for its newest version when the job starts."""

    name: Annotated[str, StringConstraints(pattern=rf"^({NAME_PATTERN})?$")] = ""
    """Model name to register the result under, as its next version; empty means the base's name."""

    learning_rate: float = Field(default=1e-6, gt=0, le=1, allow_inf_nan=False)
    """Peak learning rate of AdamW."""

    steps: int = Field(default=10, ge=1, le=1_000_000)
    """Optimiser steps, each over one batch."""

    batch_groups: int = Field(default=8, ge=1, le=65_536)
    """grpo: prompt groups in a batch; sft: trajectories in a batch."""

    group_size: int = Field(default=8, ge=2, le=1024)
    """grpo: at most this many episodes of a group in a batch. A group needs two for a relative advantage."""

    epochs: int = Field(default=1, ge=1, le=64)
    """grpo: passes over each batch (PPO epochs). With more than one, the later passes are off-policy."""

    max_prompt_tokens: int = Field(default=4096, ge=1, le=1_048_576)
    """Trajectories with a longer prompt are left out, and counted in the job's manifest."""

    max_response_tokens: int = Field(default=4096, ge=1, le=1_048_576)
    """Trajectories with a longer response (tool results included) are left out, and counted."""

    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    """Seed of shuffling and of every sampler in the job."""

    device: Device = Device.AUTO
    """The device that the job computes on."""

    ray_address: str = ""
    """A running Ray cluster (``host:port`` or ``ray://host:port``) whose machines mount the data directory at the
    same path, and which trains one grpo job at a time; empty starts a cluster for this job and ends it afterwards."""

    deploy: bool = False
    """Deploy the new version after training; the job fails if the gateway cannot serve it."""

    pause_serving: bool = False
    """Stop vLLM while the job trains and restart it afterwards, if memory or cores are short. The gateway returns 503
    meanwhile."""

    task_ids: tuple[str, ...] = ()
    """Only episodes of these tasks; empty means all."""

    task_prefix: Annotated[str, StringConstraints(max_length=256)] = ""
    """Only episodes whose task id starts with this, to exclude a test set from training; empty means all."""

    policy_version: Annotated[str, StringConstraints(pattern=rf"^({NAME_PATTERN}@{VERSION_PATTERN})?$")] = ""
    """Only episodes that used this policy version (``name@version``); empty means any."""

    since: AwareDatetime | None = None
    """Only episodes that started at this time or later; None means no limit."""

    max_episodes: int = Field(default=100_000, ge=1, le=100_000_000)
    """At most this many episodes, the newest first."""

    min_reward: float | None = Field(default=None, allow_inf_nan=False)
    """sft: only episodes with at least this reward; None takes all, including those without a reward."""

    max_attempts: int = Field(default=3, ge=1, le=100)
    """Maximum number of starts when the job's process or scheduler is killed. A job that fails on its own is not
    restarted, because the error would recur."""

    credit: Credit = Credit.BROADCAST
    """grpo: ``broadcast`` gives every step its episode's advantage. ``attributed`` charges a bad episode to the steps
    of the policy's own mistakes, does not reinforce such steps in a good one, and leaves out what a tool, the
    environment or the harness broke."""

    @model_validator(mode="after")
    def _only_what_the_kind_uses(self) -> Self:
        if self.kind is JobKind.GRPO and self.min_reward is not None:
            message = "min_reward is a setting of sft; grpo needs the episodes of a group with low rewards too"
            raise ValueError(message)
        if self.kind is JobKind.SFT:
            fields = type(self).model_fields
            changed = [
                field for field in ("group_size", "epochs", "credit") if getattr(self, field) != fields[field].default
            ]
            if changed:
                message = f"{', '.join(changed)}: a grpo setting that sft does not use"
                raise ValueError(message)
        return self

    @property
    def result_name(self) -> str:
        """The model name that the result is registered under."""
        return self.name or self.base.partition("@")[0]

    @property
    def since_utc(self) -> datetime | None:
        """``since`` in UTC."""
        return None if self.since is None else self.since.astimezone(UTC)


def is_reference(text: str) -> bool:
    """Whether ``text`` is ``name`` or ``name@version``."""
    return re.fullmatch(REFERENCE_PATTERN, text) is not None
