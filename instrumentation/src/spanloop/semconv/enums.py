"""Closed vocabularies that are stored in ClickHouse as their string values."""

from enum import StrEnum
from typing import Final


class FaultOwner(StrEnum):
    """Who caused a failure. Only the policy's own mistakes cost the policy reward."""

    POLICY = "policy"
    TOOL = "tool"
    ENVIRONMENT = "environment"
    HARNESS = "harness"
    USER = "user"
    UNKNOWN = "unknown"
    """A fault was recorded, and nothing in the record shows whose it is."""


class TokenSource(StrEnum):
    """Where a transition's token ids come from."""

    CAPTURED = "captured"
    """Sampled by our gateway's engine and captured there: exact, with logprobs."""
    SPAN = "span"
    """Attributes of the call's own span, as vLLM, LiteLLM and Agent Lightning write them."""
    NONE = "none"
    """No ids are known: the transition can be read, and no job trains on it yet."""


class UntrainableReason(StrEnum):
    """Why a transition must not be trained on. The empty string in the store means that it may be trained on."""

    MISSING_CONTENT = "missing_content"
    REDACTED_CONTENT = "redacted_content"
    DROPPED_ATTRIBUTES = "dropped_attributes"
    INCOMPLETE_STREAM = "incomplete_stream"
    REQUEST_FAILED = "request_failed"
    AMBIGUOUS_CAPTURE = "ambiguous_capture"
    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 - model tokens, no secret
    MISSING_LOGPROBS = "missing_logprobs"
    MALFORMED_MESSAGES = "malformed_messages"
    ENVIRONMENT_FAULT = "environment_fault"
    UNATTRIBUTED_FAILURE = "unattributed_failure"
    ABANDONED_ATTEMPT = "abandoned_attempt"
    AMBIGUOUS_CHOICE = "ambiguous_choice"


class RowStart(StrEnum):
    """Why a merged trajectory row begins where it does."""

    FIRST = "first"
    """The first step of its agent in the episode."""
    BRANCH = "branch"
    """It continues from an earlier point: a retry, or another sample from the same prompt."""
    HISTORY_EDITED = "history_edited"
    """The program changed messages that the model had read or written."""
    CONTEXT_TRUNCATED = "context_truncated"
    """Part of the history is missing: it was cut to fit the context."""
    TEMPLATE_CHANGED = "template_changed"
    """Same messages; the chat template renders the earlier ones differently (without reasoning, or with a mark)."""
    RETOKENISED = "retokenised"
    """Same messages; the sampled text has other token ids in the next prompt."""
    PROMPT_DIVERGED = "prompt_diverged"
    """Another conversation of the same agent, or one whose messages were not recorded."""
    NO_TOKENS = "no_tokens"
    """The previous step has no captured tokens to extend."""


class JobKind(StrEnum):
    """What a training job runs."""

    DR_GRPO = "dr_grpo"
    """GRPO without division by a group's standard deviation or a row's length (Liu et al. 2025)."""
    GRPO = "grpo"
    """Group-relative policy optimisation (Shao et al. 2024)."""
    RLOO = "rloo"
    """REINFORCE with a leave-one-out baseline (Ahmadian et al. 2024)."""
    GSPO = "gspo"
    """GRPO with one importance ratio for each row (Zheng et al. 2025)."""
    REINFORCE_PLUS_PLUS = "reinforce_plus_plus"
    """REINFORCE with rewards normalised over all groups (Hu et al. 2025)."""
    PPO = "ppo"
    """Proximal policy optimisation with a learned value function (Schulman et al. 2017)."""
    SFT = "sft"
    """Imitation of stored actions."""
    DPO = "dpo"
    """Direct preference optimisation on pairs of a better and a worse attempt (Rafailov et al. 2023)."""

    @property
    def display_name(self) -> str:
        """The name that papers use."""
        return _RECIPE_NAMES.get(self, self.value.upper())

    @property
    def batch_unit(self) -> str:
        """What its batches are made of."""
        return "groups" if self.is_policy_gradient else "pairs" if self is JobKind.DPO else "rows"

    @property
    def has_groups(self) -> bool:
        """Whether it compares the episodes of a group."""
        return self.is_policy_gradient or self is JobKind.DPO

    @property
    def is_policy_gradient(self) -> bool:
        """Whether it learns from advantages of sampled tokens, with the sampler's log-probabilities."""
        return self.is_group_relative or self in {JobKind.REINFORCE_PLUS_PLUS, JobKind.PPO}

    @property
    def is_group_relative(self) -> bool:
        """Whether an advantage compares an episode with the others of its group."""
        return self in {JobKind.DR_GRPO, JobKind.GRPO, JobKind.RLOO, JobKind.GSPO}


_RECIPE_NAMES: Final = {JobKind.DR_GRPO: "Dr. GRPO", JobKind.REINFORCE_PLUS_PLUS: "REINFORCE++"}
"""Names that are not the value in capitals."""


class JobState(StrEnum):
    """A job's state machine: queued → running (→ evaluating) → one of the last three; cancelling on request."""

    QUEUED = "queued"
    RUNNING = "running"
    EVALUATING = "evaluating"
    """It has trained, and the promotion rule decides about its version."""
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Metric(StrEnum):
    """What an evaluation measures of an attempt, and a promotion compares."""

    SUCCESS = "success"
    """1 when the attempt succeeded, else 0."""
    REWARD = "reward"
    """The grader's score, else the episode's reward."""
    CRASHES = "crashes"
    """1 when the attempt crashed, ran out of time or never ended, else 0."""
    ERRORS = "errors"
    """1 when the attempt has a failure that it did not recover from, else 0."""
    LATENCY = "latency_s"
    """Seconds from the attempt's begin to its end."""
    TOKENS = "tokens"
    """Prompt and completion tokens of its model calls."""
    STEPS = "steps"
    """Its model calls that acted."""
    TOOL_SELECTION = "tool_selection"
    """Its calls of the tools of the task's reference calls, by the larger number of both kinds of calls."""
    PLAN_SUCCESS = "plan_success"
    """1 when it made all reference calls in their order, with their arguments, else 0."""
    STEP_EFFICIENCY = "step_efficiency"
    """Number of reference calls by the larger number of both kinds of calls when it succeeded, else 0."""

    @property
    def is_share(self) -> bool:
        """Whether each attempt has a value from 0 to 1."""
        return self not in {Metric.REWARD, Metric.LATENCY, Metric.TOKENS, Metric.STEPS}

    @property
    def is_better_when_higher(self) -> bool:
        """Whether more of it is better."""
        return self not in {Metric.CRASHES, Metric.ERRORS, Metric.LATENCY, Metric.TOKENS, Metric.STEPS}


class PromotionVerdict(StrEnum):
    """What was decided about a candidate."""

    PROMOTED = "promoted"
    """It is the champion."""
    KEPT = "kept"
    """The champion stays."""
    ROLLED_BACK = "rolled_back"
    """The champion before it is the champion again."""
    UNDECIDED = "undecided"
    """More tasks are needed."""


class TickVerdict(StrEnum):
    """What a tick of a schedule did."""

    SUBMITTED = "submitted"
    """It submitted a job."""
    SKIPPED = "skipped"
    """It submitted none; the schedule ticks again at its next time."""
    WAITING = "waiting"
    """The condition of the schedule does not hold yet, or a service was away; it is looked at again soon."""
