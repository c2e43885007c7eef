"""Say why a job has no row to train on, and what to do about it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from spanloop.foundation.errors import JobError
from spanloop.training.recipes.pairs import Preference
from spanloop.training.recipes.policy_gradient import GroupRelative

from ..spec.job_spec import JobSpec
from .rejections import Rejection, out_of_range_text
from .selection import Selection
from .tally import counts_text

Reasons = frozenset[str]


class _Diagnosis(NamedTuple):
    explains: Callable[[Reasons], bool]
    """Whether it explains these reasons of rejection."""
    what: str
    next_step: str


def _any_of(*wanted: Rejection) -> Callable[[Reasons], bool]:
    def explains(reasons: Reasons) -> bool:
        return not reasons.isdisjoint(wanted)

    return explains


def _only(*wanted: Rejection) -> Callable[[Reasons], bool]:
    def explains(reasons: Reasons) -> bool:
        return reasons <= set(wanted)

    return explains


_DEMONSTRATIONS: Final = "A model that never succeeds starts from demonstrations: dialogs, with tokens none."
_OTHER: Final = _Diagnosis(
    _any_of(), "no trainable rows", "spanloop convert prints what was refused and why; the reasons are above."
)
"""Of reasons that no diagnosis explains."""


def no_rows_error(selection: Selection, spec: JobSpec, job_id: str) -> JobError:
    """Return the error of a job without a trainable row; it has the counts of all reasons."""
    account = f"rows: {selection.row_tally}; episodes: {selection.episode_tally}"
    if spec.recipe.has_groups:
        account += f"; groups: {selection.group_tally}"
    if selection.constrained_by:
        account += f"; rows were constrained by: {counts_text(selection.constrained_by)}"
    if selection.out_of_range:
        account += f"; {Rejection.REWARD_OUT_OF_RANGE}: {out_of_range_text(selection.out_of_range)}"
    reasons = Reasons(selection.row_tally.rejected)
    diagnosis = next((each for each in _diagnoses(spec) if each.explains(reasons)), _OTHER)
    return JobError(
        f"Job {job_id} ({spec.kind}) has no data: {diagnosis.what}. Of what was asked for, {account}.",
        next_step=diagnosis.next_step,
    )


def _diagnoses(spec: JobSpec) -> list[_Diagnosis]:
    """Return the diagnoses in the order in which they are tried.

    Data strategies come last in the selection: where one left rows out, no other reason left the job without data.
    """
    recipe = spec.recipe
    repeats_per_task = recipe.repeats_per_task if isinstance(recipe, GroupRelative | Preference) else 2
    repeats = "two" if repeats_per_task == 2 else repeats_per_task
    pair_margin = recipe.pair_margin if isinstance(recipe, Preference) else 0.0
    margin = f" by more than the pair_margin of {pair_margin:g}" if pair_margin else ""
    return [
        _Diagnosis(
            _only(),
            "no episode matches its filters",
            "Run the app and spanloop convert first, or widen the filters.",
        ),
        _Diagnosis(
            _only(Rejection.OTHER_POLICY_VERSION),
            f"no row was sampled by {spec.episodes.policy_version} alone",
            "Leave policy_version out, or collect episodes while this version is served.",
        ),
        _Diagnosis(
            _only(Rejection.UNKNOWN_TOKENIZER, Rejection.OTHER_TOKENIZER, Rejection.UNKNOWN_TOKEN),
            "its rows were not sampled by this model's family",
            "Train the model that sampled them, or a version of it; register a version that is missing "
            "(spanloop models add) under the name that the spans carry.",
        ),
        _Diagnosis(
            _any_of(Rejection.OVER_REPLAY_RATIO),
            f"{spec.base} learned from all of its episodes before, and replay_ratio asks for new ones",
            "Collect new episodes, or submit the job without replay_ratio.",
        ),
        _Diagnosis(
            _any_of(Rejection.PASS_RATE_OUTSIDE),
            "the pass rate of no group that is left lies within min_pass_rate and max_pass_rate",
            "Widen the limits, or collect attempts at other tasks.",
        ),
        _Diagnosis(
            _any_of(Rejection.NOT_SELECTED),
            f"the selector {spec.episodes.selector!r} kept none of the rows that are left",
            "Widen the selector, or submit the job without it.",
        ),
        _Diagnosis(
            _any_of(Rejection.BELOW_MIN_REWARD),
            "no episode with usable rows has the min_reward",
            f"Collect more attempts, or lower min_reward. {_DEMONSTRATIONS}",
        ),
        _Diagnosis(
            _any_of(Rejection.NOT_SUCCESSFUL),
            "no episode with usable rows was successful",
            f"Send a reward for each episode, or take failed and unscored ones too: --outcomes all. {_DEMONSTRATIONS}",
        ),
        _Diagnosis(
            _any_of(Rejection.REWARD_OUT_OF_RANGE),
            "scores of its episodes are out of range",
            "Delete or correct these scores: spanloop scores list --episode ID, then spanloop scores delete SCORE.",
        ),
        _Diagnosis(
            _any_of(Rejection.REWARD_CONSTANT, Rejection.WITHIN_PAIR_MARGIN),
            f"the reward never varies among the episodes that are compared{margin}, so there is nothing to prefer",
            "Collect more episodes of each task, or a reward that tells good from bad.",
        ),
        _Diagnosis(
            _any_of(Rejection.GREEDY_SAMPLING, Rejection.TRUNCATED_SAMPLING),
            "the log-probabilities of how the policy sampled cannot be recomputed",
            "For policy gradients let the app sample at a temperature above 0, without the parameters named here "
            "(strict tools: send strict false); or train with sft or dpo.",
        ),
        _Diagnosis(
            _any_of(Rejection.GROUP_TOO_SMALL),
            f"no group has {repeats} trainable episodes to compare",
            f"Run each task {repeats} times or more (a task id or an equal first prompt makes a group), or train with "
            "reinforce_plus_plus, ppo or sft.",
        ),
    ]
