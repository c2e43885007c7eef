"""The settings of a training job: the only place that names, types, limits and explains one of them.

Each value is valid alone; :class:`~spanloop.training.spec.job_spec.JobSpec` checks them together. The command line's
options, the dashboard's form, the keys of a job file and the reference page are generated from the fields
(:mod:`~spanloop.training.spec.fields`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from spanloop.foundation.version_names import ALIAS_PATTERN, NAME_PATTERN, REFERENCE_PATTERN, VERSION_PATTERN
from spanloop.training.jobs.kinds import JobKind

from .choices import Backbone, Credit, Device, LearningRateSchedule, LossAggregation, OptimizerDtype, Outcomes
from .defaults import (
    CLIP_GRADIENT,
    CRITIC_LEARNING_RATE,
    DEFAULT_KIND,
    DPO_BETA,
    HELD_OUT_SHARE,
    KL_BUDGET,
    LORA_ALPHA,
    MAX_FLAT_BATCHES,
    MAX_PASSES,
    MIN_ENTROPY_SHARE,
    PAIRS_PER_GROUP,
    STALL_MINUTES,
    default_kl_coefficient,
    default_learning_rate,
    default_loss_aggregation,
    default_max_age_versions,
)
from .presets import Preset, with_preset
from .row_source import Tokens
from .setting import (
    BASE,
    DPO,
    EPISODES,
    EPISODES_DPO,
    EPISODES_GROUPS,
    EPISODES_SFT,
    EPISODES_TEXT,
    MODEL,
    MODEL_OF_JOB,
    OPTIMISATION,
    OPTIMISATION_BASIC,
    POLICY_GRADIENT,
    POLICY_VERSION,
    PPO,
    RUN,
    RUN_BASIC,
    RUN_OF_JOB,
    RUN_RANKS,
    STORED_ADVANTAGES,
    Panel,
    Setting,
)
from .stage_text import format_stage
from .strategy_names import Coreset, Curriculum
from .verl_overrides import stage_values
from .verl_settings import VerlSettings


class MainSettings(BaseModel):
    """The settings of a job but those of :class:`~spanloop.training.spec.verl_settings.VerlSettings`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: Annotated[JobKind, Setting(Panel.MODEL, is_basic=True)] = DEFAULT_KIND
    """The recipe. ``dr_grpo``, ``grpo``, ``rloo`` and ``gspo`` compare the episodes of a group,
    ``reinforce_plus_plus`` compares all episodes, ``ppo`` learns a value function; ``sft`` imitates stored
    actions; ``dpo`` prefers the better of two attempts of a group."""

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

    group_size: Annotated[int, POLICY_GRADIENT] = Field(default=8, ge=2, le=1024)
    """At most this many episodes of a group in a batch. A group needs two for a relative advantage."""

    max_passes: Annotated[float, OPTIMISATION] = Field(default=MAX_PASSES, gt=0, le=1e6, allow_inf_nan=False)
    """The job ends when it has trained on each stored row this often on average, even if ``steps`` asks for more."""

    kl_budget: Annotated[float | None, POLICY_GRADIENT] = Field(default=KL_BUDGET, gt=0, allow_inf_nan=False)
    """The job ends at its last checkpoint within this mean KL divergence, in nats a token, of the policy from the one
    that sampled the rows. It is measured on each batch before its update, so not after the last one."""

    kl_coefficient: Annotated[float, POLICY_GRADIENT] = Field(
        default_factory=default_kl_coefficient, ge=0, le=100, allow_inf_nan=False
    )
    """Weight of a loss term for the KL divergence to the base (verl's ``use_kl_loss``, k3); above zero a second copy of
    the weights is kept. DAPO (Yu et al. 2025) and Dr. GRPO leave it out; DeepSeekMath (Shao et al. 2024) uses 0.04."""

    epochs: Annotated[int, POLICY_GRADIENT] = Field(default=1, ge=1, le=64)
    """Passes over each batch (PPO epochs). With more than one, the later passes are off-policy."""

    critic_learning_rate: Annotated[float, PPO] = Field(default=CRITIC_LEARNING_RATE, gt=0, le=1, allow_inf_nan=False)
    """Peak learning rate of the critic, which starts from the base with a value head of zeros."""

    gae_lambda: Annotated[float, PPO] = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    """Decay of generalised advantage estimation (Schulman et al. 2016): 1 takes the episode's reward as each token's
    return, verl's default; less trusts the critic more. Rewards are not discounted."""

    max_prompt_tokens: Annotated[int, EPISODES] = Field(default=4096, ge=1, le=1_048_576)
    """Trajectories with a longer prompt are left out, and counted in the job's manifest."""

    max_response_tokens: Annotated[int, EPISODES] = Field(default=4096, ge=1, le=1_048_576)
    """Trajectories with a longer response (tool results included) are left out, and counted."""

    credit: Annotated[Credit, POLICY_GRADIENT] = Credit.BROADCAST
    """``broadcast`` gives every step its episode's advantage. ``attributed`` charges a bad episode to the steps of the
    policy's own mistakes, does not reinforce such steps in a good one, and leaves out what a tool, the environment or
    the harness broke. ``process`` gives each model call what follows it: its own score, those of later calls and the
    episode's reward, minus the mean of the compared episodes at the same call number. ``process_grpo`` is its older
    form (Shao et al. 2024), which favours shorter episodes where scores are positive on average, and longer ones where
    they are negative. ppo has ``broadcast`` and ``process``."""

    gamma: Annotated[float, STORED_ADVANTAGES] = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    """Discount of each later model call, with the credits ``process`` and ``attributed``: 1 counts a later score as
    much as an earlier one. ``attributed`` compares episodes by ``gamma^(calls - 1)`` times their reward."""

    loss_aggregation: Annotated[LossAggregation, POLICY_GRADIENT] = Field(default_factory=default_loss_aggregation)
    """How the losses of a batch's tokens become one number, by verl's names. ``seq-mean-token-sum-norm`` divides the
    sum of each row by the longest response of the job and takes the mean over rows: neither the length of a row nor
    that of its neighbours changes the weight of a token (Dr. GRPO, Liu et al. 2025, section 3.2). With ``token-mean``
    long rows shrink the weight of all others; with ``seq-mean-token-mean`` a token of a long row weighs less."""

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

    ranks: Annotated[int, RUN_RANKS] = Field(default=1, ge=1, le=64)
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

    repeats_per_task: Annotated[int, EPISODES_GROUPS] = Field(default=2, ge=2, le=100_000)
    """Only groups with at least so many episodes that can be trained on; the others wait for more attempts at their
    task. Two are needed for a comparison."""

    max_age_versions: Annotated[int | None, EPISODES] = Field(
        default_factory=default_max_age_versions, ge=0, le=1_000_000
    )
    """Only rows of at most so many versions before the base, counted along its parents; 0: of the base alone. Rows of
    versions that the base does not descend from have no such age and are taken."""

    max_age_days: Annotated[float | None, EPISODES] = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    """Only rows of episodes that started at most so many days before the job's dataset is made."""

    max_episodes: Annotated[int, EPISODES] = Field(default=100_000, ge=1, le=100_000_000)
    """At most this many episodes, in whole groups, the group with the newest episode first."""

    min_reward: Annotated[float | None, EPISODES_SFT] = Field(default=None, allow_inf_nan=False)
    """Only episodes with at least this reward, besides what ``outcomes`` asks for."""

    max_reward: Annotated[float | None, EPISODES_SFT] = Field(default=None, allow_inf_nan=False)
    """Only episodes with at most this reward; without it no reward is needed."""

    outcomes: Annotated[Outcomes, EPISODES_SFT] = Outcomes.SUCCESSFUL
    """Imitate only episodes whose outcome is ``success``, or all: failed ones and those without a reward too."""

    tokens: Annotated[Tokens, EPISODES_TEXT] = Tokens.ANY
    """``any``: captured tokens where an episode has some of the base's tokenizer, else its messages, rendered with the
    base's chat template; so spans of a foreign model train too. ``captured`` or ``rendered``: only these. ``none``: no
    episodes, only ``dialogs``."""

    dialogs: Annotated[tuple[str, ...], EPISODES_SFT] = ()
    """Dialog files to imitate as well, each ``PATH`` or ``PATH=WEIGHT`` on the host of the job: JSON lines or a JSON
    list of OpenAI chat messages, ShareGPT or Alpaca. With the weight 2 each dialog is two rows, with 0.5 half of them
    are rows."""

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

    pair_margin: Annotated[float, EPISODES_DPO] = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Two attempts of a group are a pair when their rewards differ by more than this."""

    pairs_per_group: Annotated[int, EPISODES_DPO] = Field(default=PAIRS_PER_GROUP, ge=1, le=64)
    """At most this many pairs of a group; each attempt is used as seldom as possible, and pairs with the largest
    difference of reward come first."""

    dpo_beta: Annotated[float, DPO] = Field(default=DPO_BETA, gt=0, le=100, allow_inf_nan=False)
    """How strongly the policy is held near the base: the implicit reward of an attempt is this times the log-ratio of
    its tokens to the base. A smaller number lets the policy move further (Rafailov et al. 2023, equation 7)."""

    dpo_nll_weight: Annotated[float, DPO] = Field(default=0.0, ge=0, le=100, allow_inf_nan=False)
    """Weight of a loss term for the negative log-probability of a token of the better attempt, which keeps that attempt
    likely; Pang et al. 2024 ("Iterative Reasoning Preference Optimization") use 1, Rafailov et al. 2023 none."""

    min_entropy_share: Annotated[float, POLICY_GRADIENT] = Field(
        default=MIN_ENTROPY_SHARE, ge=0, lt=1, allow_inf_nan=False
    )
    """The job ends when the policy's entropy stays below this share of that of its first steps; 0 turns it off."""

    max_flat_batches: Annotated[int, POLICY_GRADIENT] = Field(default=MAX_FLAT_BATCHES, ge=0, le=1_000_000)
    """The job ends after so many batches in a row whose advantages do not vary, which teach nothing; 0 turns it off."""

    stall_minutes: Annotated[float, RUN] = Field(default=STALL_MINUTES, ge=0, le=1e6, allow_inf_nan=False)
    """The job ends when it completes no step for so long, and for ten times as long as its longest step; 0 turns it
    off."""

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        return with_preset(cast("Mapping[str, Any]", data)) if isinstance(data, Mapping) else data

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

    @field_validator("dialogs")
    @classmethod
    def _absolute(cls, dialogs: tuple[str, ...]) -> tuple[str, ...]:
        """The job runs in another directory than the command that submits it."""
        return tuple(str(Path(text).absolute()) for text in dialogs)


class JobSettings(VerlSettings, MainSettings):
    """The settings of one training job: the base model, the episodes and the hyperparameters."""
