"""Why a job does not train on a row, an episode or a group."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from spanloop.semconv.scores import SCORE_RANGE

_NAMED_EPISODES: Final = 5


class Rejection(StrEnum):
    """Why a row, an episode or a group is rejected; a row may also have the converter's ``UntrainableReason``."""

    NO_TRAJECTORY = "no_trajectory"
    """The episode has no token rows: nothing was captured."""
    UNTRAINABLE = "untrainable"
    """The converter refused the row without naming a reason."""
    MALFORMED = "malformed_row"
    """Arrays that should run parallel have different lengths, or prompt or response is empty."""
    NO_SAMPLED_TOKENS = "no_sampled_tokens"
    """The loss mask has no 1: the policy sampled nothing in this row."""
    NO_LOGPROBS = "no_logprobs"
    """Policy gradients: the sampler's log-probabilities are missing or not finite."""
    OTHER_POLICY_VERSION = "other_policy_version"
    """A step of the row was sampled by another policy version than the job asks for."""
    UNKNOWN_TOKENIZER = "unknown_tokenizer"
    """A step's capture has no fingerprint of its tokenizer, and the registry does not have the policy version."""
    OTHER_TOKENIZER = "other_tokenizer"
    """A step of the row was sampled with another tokenizer or chat template than the base model's."""
    UNKNOWN_TOKEN = "token_outside_vocabulary"  # noqa: S105 - a reason, not a secret
    """A token id that the base model does not have: the row was sampled by another family of models."""
    PROMPT_TOO_LONG = "prompt_too_long"
    RESPONSE_TOO_LONG = "response_too_long"
    CONTEXT_TOO_LONG = "longer_than_context"
    """Prompt and response together exceed what the base model can attend to."""
    GREEDY_SAMPLING = "greedy_sampling"
    """Policy gradients: sampled at temperature 0, where the policy had no choice that a ratio could weigh."""
    TRUNCATED_SAMPLING = "truncated_sampling"
    """Policy gradients: a parameter other than the temperature changed the distribution that was sampled from: top_p, a
    penalty, a forced format, a strict tool, or one that is not known to be neutral (`spanloop.foundation.sampling`)."""
    OTHER_TEMPERATURE = "other_temperature"
    """Policy gradients: the row's steps were not all sampled at the temperature that most rows of the job have."""
    NOT_THE_POLICYS_FAULT = "not_the_policys_fault"
    """dpo and attributed credit: a tool, the environment, the harness or nobody known made the episode fail."""
    UNKNOWN_STEP_POSITIONS = "unknown_step_positions"
    """A step of the row must be told from the others, and the row comes from a converter that did not record which step
    sampled which tokens."""
    ALL_STEPS_MASKED = "all_steps_masked"
    """Every step of the row is masked: for sft and the better side of a dpo pair they are mistakes, for the worse side
    and attributed credit others broke them."""
    NO_REWARD = "no_reward"
    """The episode was never scored, or its score is not a finite number."""
    REWARD_OUT_OF_RANGE = "reward_out_of_range"
    """The reward, or a score of a step, is a number that losses in float32 cannot hold (``semconv.scores``). Scores are
    checked when they arrive; this one was stored by an earlier version."""
    BELOW_MIN_REWARD = "below_min_reward"
    ABOVE_MAX_REWARD = "above_max_reward"
    NOT_SELECTED = "not_selected"
    """The job's ``selector`` left the row out."""
    TOO_OLD = "row_too_old"
    """More versions or days before the base than the job allows."""
    NOT_SUCCESSFUL = "not_successful"
    """sft: the episode's outcome is not ``success``, and the job takes only those."""
    NO_GROUP = "no_group"
    """dpo and group-relative recipes: the episode belongs to no group."""
    GROUP_TOO_SMALL = "group_too_small"
    """dpo and group-relative recipes: fewer episodes to compare than ``repeats_per_task``, or than two."""
    REWARD_CONSTANT = "reward_constant"
    """All episodes that the recipe compares earned the same, so every advantage is zero and none is better."""
    WITHIN_PAIR_MARGIN = "within_pair_margin"
    """dpo: the rewards of the group's episodes differ by no more than ``pair_margin``."""
    NOT_PAIRED = "not_paired"
    """dpo: no episode of the group is a counterpart, or its ``pairs_per_group`` are made of others."""
    PASS_RATE_OUTSIDE = "pass_rate_outside"  # noqa: S105 - a reason, not a secret
    """The share of the group's attempts that succeed lies outside ``min_pass_rate`` and ``max_pass_rate``, or is not
    known."""
    NOT_IN_CORESET = "not_in_coreset"
    """The job's ``coreset`` took other groups or episodes."""
    OVER_REPLAY_RATIO = "over_replay_ratio"
    """The base learned from these episodes before, and the job has enough of such rows."""
    HELD_OUT = "held_out"
    """Kept from the training of a stage, to measure its result."""
    NO_TRAINABLE_EPISODE = "no_trainable_episode"
    """dpo and policy gradients: every episode of the group was rejected for a reason of its own."""


def out_of_range_text(episode_ids: Sequence[str]) -> str:
    """Return the episodes that were rejected as ``reward_out_of_range``, the first few by id, and the valid range."""
    more = len(episode_ids) - _NAMED_EPISODES
    named = ", ".join(episode_ids[:_NAMED_EPISODES]) + (f" and {more:,} more" if more > 0 else "")
    return f"episode{'s' if len(episode_ids) > 1 else ''} {named}: expected {SCORE_RANGE}"


REASONS_OF_GROUPS: Final = frozenset[str](
    {
        Rejection.GROUP_TOO_SMALL,
        Rejection.REWARD_CONSTANT,
        Rejection.WITHIN_PAIR_MARGIN,
        Rejection.NOT_PAIRED,
        Rejection.PASS_RATE_OUTSIDE,
        Rejection.NOT_IN_CORESET,
        Rejection.OVER_REPLAY_RATIO,
    }
)
"""Reasons that a comparison of the group's episodes, or of whole groups, gives; all others are of one row or
episode."""
