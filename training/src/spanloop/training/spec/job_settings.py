"""The settings of a training job; those of its recipe are in :mod:`spanloop.training.recipes`.

Invariant: a setting is named, typed, limited and explained in one place only.

Each value is valid alone; :class:`~spanloop.training.spec.job_spec.JobSpec` checks them together. The command line's
options, the dashboard's form, the keys of a job file and the reference page are generated from the fields
(:mod:`~spanloop.training.spec.fields`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from spanloop.foundation.version_names import ALIAS_PATTERN, NAME_PATTERN, REFERENCE_PATTERN, VERSION_PATTERN
from spanloop.training.recipes.registry import AnyRecipe
from spanloop.training.recipes.setting import (
    BASE,
    EPISODES,
    MODEL,
    MODEL_OF_JOB,
    OPTIMISATION,
    OPTIMISATION_BASIC,
    POLICY_VERSION,
    RUN,
    RUN_BASIC,
    RUN_OF_JOB,
)

from .choices import Backbone, Device, LearningRateSchedule, OptimizerDtype
from .defaults import (
    CLIP_GRADIENT,
    HELD_OUT_SHARE,
    LORA_ALPHA,
    MAX_PASSES,
    STALL_MINUTES,
    default_learning_rate,
    default_max_age_versions,
)
from .flat_settings import flat_settings, split_settings
from .presets import Preset, with_preset
from .stage_text import format_stage
from .strategy_names import Coreset, Curriculum
from .verl_overrides import stage_values
from .verl_settings import VerlSettings


class MainSettings(BaseModel):
    """The settings of a job but those of :class:`~spanloop.training.spec.verl_settings.VerlSettings`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    recipe: AnyRecipe
    """The recipe and its settings; among flat settings ``kind`` is its name."""

    base: Annotated[str, StringConstraints(pattern=rf"^{REFERENCE_PATTERN}$"), BASE]
    """The model version to start from: ``name@version``, ``name@alias`` such as ``mine@champion``, or ``name`` for its
    newest version. What an alias or a name means is looked up when the job starts."""

    name: Annotated[str, StringConstraints(pattern=rf"^({NAME_PATTERN})?$"), MODEL_OF_JOB] = ""
    """Model name to register the result under, as its next version; empty means the base's name."""

    then: Annotated[tuple[str, ...], MODEL_OF_JOB] = ()
    """A further stage, which starts from the version that the one before it made: ``setting=value`` words, as in
    ``kind=dpo steps=20``; in a job file also a table ``[[then]]``. What it leaves out is the job's, except settings
    whose default depends on the kind."""

    held_out_share: Annotated[float, MODEL_OF_JOB] = Field(default=HELD_OUT_SHARE, ge=0, le=0.5, allow_inf_nan=False)
    """Share of the groups that a stage with another one after it does not train on. The gate between both measures its
    result on them, and ends the job with the last good version when it is worse than before; 0 leaves the gate out."""

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

    learning_rate: Annotated[float, OPTIMISATION_BASIC] = Field(
        default_factory=default_learning_rate, gt=0, le=1, allow_inf_nan=False
    )
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

    max_passes: Annotated[float, OPTIMISATION] = Field(default=MAX_PASSES, gt=0, le=1e6, allow_inf_nan=False)
    """The job ends when it has trained on each stored row this often on average, even if ``steps`` asks for more."""

    max_prompt_tokens: Annotated[int, EPISODES] = Field(default=4096, ge=1, le=1_048_576)
    """Trajectories with a longer prompt are left out, and counted in the job's manifest."""

    max_response_tokens: Annotated[int, EPISODES] = Field(default=4096, ge=1, le=1_048_576)
    """Trajectories with a longer response (tool results included) are left out, and counted."""

    micro_batch_tokens: Annotated[int | None, OPTIMISATION] = Field(default=None, ge=1, le=16_777_216)
    """Tokens in one forward and backward pass; fewer need less memory and more time, and the result stays the same. A
    longer row is a pass of its own, so lower the limits of rows too. None is auto: on a GPU what its free memory has
    room for when the job starts, on a CPU 2,048."""

    optimizer_dtype: Annotated[OptimizerDtype, OPTIMISATION] = OptimizerDtype.FLOAT32
    """Number format of AdamW's two moments; ``bfloat16`` takes half the memory, 4 bytes a parameter less. Weights,
    gradients and the update itself stay float32, and rounding is stochastic (Gupta et al. 2015)."""

    offload: Annotated[bool, RUN] = False
    """Keep weights, gradients and optimiser states in the host's memory, and update them there (verl's
    ``offload_policy``, FSDP2): a GPU has one or two layers at a time. Slower, and on a GPU only."""

    seed: Annotated[int, OPTIMISATION] = Field(default=0, ge=0, le=2**31 - 1)
    """Seed of shuffling and of every sampler in the job."""

    preset: Annotated[Preset, RUN_BASIC] = Preset.ANY
    """Hardware that the defaults of other settings are for; a setting that is given wins. The reference lists what each
    preset sets and why."""

    device: Annotated[Device, RUN] = Device.AUTO
    """The device that the job computes on; ``auto`` is a GPU if the host that trains has one, also on a Ray cluster."""

    backbone: Annotated[Backbone, RUN] = Backbone.RAY
    """``ray`` trains in processes of a Ray cluster. ``debug`` trains the same in one process without Ray, so that
    breakpoints in recipes, losses and the engine work (``spanloop train --foreground``)."""

    ray_address: Annotated[str, RUN] = ""
    """A running Ray cluster (``host:port`` or ``ray://host:port``) whose machines mount the data directory at the
    same path, and which trains one policy-gradient job at a time; empty starts a cluster for this job and ends it
    afterwards."""

    ranks: Annotated[int, RUN] = Field(default=1, ge=1, le=64)
    """Processes on one node that each compute a part of every batch and hold a part of the weights, gradients and
    optimiser states (FSDP2); the result is that of one. On CUDA each has a GPU. Fewer threads compute each rank on a
    CPU. dpo trains on one rank."""

    deploy: Annotated[bool, RUN_BASIC] = False
    """Evaluate the new version after training, and deploy it when the promotion rule (``[promotion]``) says so."""

    deploy_always: Annotated[bool, RUN_BASIC] = False
    """Deploy the new version after training, whatever it is worth; the job fails if the gateway cannot serve it."""

    pause_serving: Annotated[bool, RUN_BASIC] = False
    """Free vLLM's memory while the job trains and serve again afterwards: on a GPU it sleeps, on a CPU it stops. The
    gateway returns 503 meanwhile."""

    task_ids: Annotated[tuple[str, ...], EPISODES] = ()
    """Only episodes of these tasks; empty means all."""

    task_prefix: Annotated[str, StringConstraints(max_length=256), EPISODES] = ""
    """Only episodes whose task id starts with this, to exclude a test set from training; empty means all."""

    policy_version: Annotated[
        str, StringConstraints(pattern=rf"^({NAME_PATTERN}@({VERSION_PATTERN}|{ALIAS_PATTERN}))?$"), POLICY_VERSION
    ] = ""
    """Only episodes that used this policy version (``name@version`` or ``name@alias``); empty means any."""

    since: Annotated[AwareDatetime | None, EPISODES] = None
    """Only episodes that started at this time or later."""

    until: Annotated[AwareDatetime | None, EPISODES] = None
    """Only episodes that started before this time."""

    services: Annotated[tuple[str, ...], EPISODES] = ()
    """Only episodes of these services (``service.name``); empty means all."""

    agents: Annotated[tuple[str, ...], EPISODES] = ()
    """Only episodes whose first step is of one of these agents (``gen_ai.agent.name``); empty means all."""

    models: Annotated[tuple[str, ...], EPISODES] = ()
    """Only episodes with a model call that one of these models answered; empty means all."""

    failure_classes: Annotated[tuple[str, ...], EPISODES] = ()
    """Only episodes with a failure of one of these classes, recovered ones included; empty means all."""

    without_failure_classes: Annotated[tuple[str, ...], EPISODES] = ()
    """No episode with a failure of one of these classes."""

    marks: Annotated[tuple[str, ...], EPISODES] = ()
    """Only episodes with one of these marks (``mark()`` in the app, ``spanloop marks add``, tags of a tracing tool);
    empty means all."""

    without_marks: Annotated[tuple[str, ...], EPISODES] = ()
    """No episode with one of these marks."""

    selector: Annotated[str, StringConstraints(max_length=256), EPISODES] = ""
    """A function of your own that decides which of the remaining rows are kept: an entry point of the group
    ``spanloop.selections``, or ``module:function``; empty keeps all."""

    commit_minutes: Annotated[float, EPISODES] = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    """Only episodes that ended at least so many minutes before the job's dataset is made, so that their feedback had
    time to arrive. A schedule trains on an episode once, so late feedback on it is not seen again."""

    sample_rate: Annotated[float, EPISODES] = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    """This share of the groups, chosen by ``seed``; an episode without a group is one of its own."""

    max_age_versions: Annotated[int | None, EPISODES] = Field(
        default_factory=default_max_age_versions, ge=0, le=1_000_000
    )
    """Only rows of at most so many versions before the base, counted along its parents; 0: of the base alone. Rows of
    versions that the base does not descend from have no such age and are taken."""

    max_age_days: Annotated[float | None, EPISODES] = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    """Only rows of episodes that started at most so many days before the job's dataset is made."""

    max_episodes: Annotated[int, EPISODES] = Field(default=100_000, ge=1, le=100_000_000)
    """At most this many episodes, in whole groups, the group with the newest episode first."""

    min_pass_rate: Annotated[float | None, EPISODES] = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """Only groups of which at least this share of the attempts succeeds; episodes whose outcome is not known, and
    failures that the policy did not cause, do not count."""

    max_pass_rate: Annotated[float | None, EPISODES] = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """Only groups of which at most this share of the attempts succeeds."""

    curriculum: Annotated[Curriculum, EPISODES] = Curriculum.NONE
    """Train on the groups in the order of their pass rate, ``easy_to_hard`` or ``hard_to_easy``, in each pass over the
    data; ``none`` shuffles them."""

    coreset: Annotated[Coreset, EPISODES] = Coreset.NONE
    """Train on a part of the groups, in sft of the episodes: a ``random`` one; those with the largest ``loss`` of a
    token under the base, computed before the training; those whose responses differ most (``diversity``); or
    ``hybrid``, the most diverse among twice as many with the largest loss."""

    coreset_share: Annotated[float | None, EPISODES] = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    """Share of the groups or episodes that ``coreset`` keeps, rounded up."""

    coreset_size: Annotated[int | None, EPISODES] = Field(default=None, ge=1, le=100_000_000)
    """At most this many groups or episodes are kept by ``coreset``."""

    replay_ratio: Annotated[float | None, EPISODES] = Field(default=None, ge=0, lt=1, allow_inf_nan=False)
    """Largest share of rows from episodes that the base or one of its ancestors was trained on; groups with a new
    episode are all kept. 0 trains on new episodes only; without it nothing is left out."""

    max_attempts: Annotated[int, RUN_OF_JOB] = Field(default=3, ge=1, le=100)
    """Maximum number of starts when the job's process or scheduler is killed. A job that fails on its own is not
    restarted, because the error would recur."""

    max_runtime_minutes: Annotated[float | None, RUN_OF_JOB] = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    """The scheduler ends the job, and it fails, when all of its attempts together ran for so long."""

    stall_minutes: Annotated[float, RUN] = Field(default=STALL_MINUTES, ge=0, le=1e6, allow_inf_nan=False)
    """The job ends when it completes no step for so long, and for ten times as long as its longest step; 0 turns it
    off."""

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Return the spec of flat settings, ``kind`` among them; what they leave out has the recipe's default.

        Raises:
            ValidationError: A setting is invalid.
        """
        return cls.model_validate(settings)

    def changed(self, **settings: Any) -> Self:
        """Return the spec with other values of these flat settings.

        Raises:
            ValidationError: A setting is invalid.
        """
        return type(self).model_validate(flat_settings(self) | settings)

    @property
    def kind(self) -> str:
        """The name of the recipe."""
        return self.recipe.name

    @model_validator(mode="before")
    @classmethod
    def _in_parts(cls, data: Any) -> Any:
        return split_settings(with_preset(cast("Mapping[str, Any]", data))) if isinstance(data, Mapping) else data

    @field_validator("then", mode="before")
    @classmethod
    def _tables_as_text(cls, stages: Any) -> Any:
        """A job file may have tables."""
        if not isinstance(stages, list | tuple):
            return stages
        items = cast("list[Any]", stages)
        return [
            format_stage(stage_values(cast("Mapping[str, Any]", item))) if isinstance(item, Mapping) else item
            for item in items
        ]


class JobSettings(VerlSettings, MainSettings):
    """The settings of one training job: the base model, the episodes and the hyperparameters."""
