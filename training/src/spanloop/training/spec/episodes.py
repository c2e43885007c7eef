"""The part of a job's specification that selects episodes."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from spanloop.foundation.version_names import ALIAS_PATTERN, NAME_PATTERN, VERSION_PATTERN
from spanloop.training.recipes.setting import EPISODES, POLICY_VERSION

from .choices import Coreset, Curriculum


class Episodes(BaseModel):
    """The episodes to learn from; what a recipe asks of them is among its own settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    task_ids: Annotated[tuple[str, ...], EPISODES] = ()
    """Only episodes of these tasks; empty means all."""

    task_prefix: Annotated[str, StringConstraints(max_length=256), EPISODES] = ""
    """Only episodes whose task id starts with this, to exclude a test set from training; empty means all."""

    policy_version: Annotated[
        str, StringConstraints(pattern=rf"^({NAME_PATTERN}@({VERSION_PATTERN}|{ALIAS_PATTERN}))?$"), POLICY_VERSION
    ] = ""
    """Only episodes that used this policy version (``name@version`` or ``name@alias``); empty means any."""

    data_set: Annotated[str, StringConstraints(pattern=rf"^({NAME_PATTERN}(@{VERSION_PATTERN})?)?$"), EPISODES] = ""
    """Only the episode revisions of this data set (``name@v2``; ``name`` is the version that is the newest when
    the job's dataset is made); empty means the current revision of every episode."""

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

    max_age_versions: Annotated[int | None, EPISODES] = Field(default=None, ge=0, le=1_000_000)
    """Only rows of at most so many versions before the base, counted along its parents; 0: of the base alone. Rows of
    versions that the base does not descend from have no such age and are taken."""

    max_age_days: Annotated[float | None, EPISODES] = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    """Only rows of episodes that started at most so many days before the job's dataset is made."""

    max_episodes: Annotated[int, EPISODES] = Field(default=100_000, ge=1, le=100_000_000)
    """At most this many episodes, in whole groups, the group with the newest episode first."""

    max_prompt_tokens: Annotated[int, EPISODES] = Field(default=4096, ge=1, le=1_048_576)
    """Trajectories with a longer prompt are left out, and counted in the job's manifest."""

    max_response_tokens: Annotated[int, EPISODES] = Field(default=4096, ge=1, le=1_048_576)
    """Trajectories with a longer response (tool results included) are left out, and counted."""

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

    @property
    def since_utc(self) -> datetime | None:
        """``since`` in UTC."""
        return None if self.since is None else self.since.astimezone(UTC)

    @property
    def until_utc(self) -> datetime | None:
        """``until`` in UTC."""
        return None if self.until is None else self.until.astimezone(UTC)
