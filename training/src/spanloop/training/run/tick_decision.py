"""Decide what the tick of a recurring schedule does: submit its job, or nothing, and why.

Invariant: deciding writes nothing, so ``spanloop schedules preview`` and the scheduler decide alike. A job is submitted
only when its first stage would train on an episode that no earlier job of the schedule has trained on: the same
selection that exports the job's dataset says so. A round of a loop collects its episodes itself.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.store import connect
from spanloop.training.jobs.schedules.outcome import TickOutcome

from ..jobs.schedules.schedule_settings import FailureTrigger
from ..jobs.schedules.schedule_ticks import Decision
from ..models.lineage import trainings_of_schedule
from ..models.registry import Registry
from ..spec.job_spec import JobSpec
from ..spec.stages import stages_of
from ..spec.stored_spec import Schedule
from .job_api import JobApi
from .preview import Preview, preview
from .transient import is_transient

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TickPreview(NamedTuple):
    """What a tick would do now."""

    decision: Decision
    data: Preview | None
    """What the job's first stage would train on; None when something else decided."""


def decide_tick(data_dir: DataDir, schedule: Schedule, *, now: datetime) -> TickPreview:
    """Return what a tick of ``schedule`` does at ``now``.

    Raises:
        SpanloopError: A service that is needed is away; the tick can be decided later.
    """
    obstacle = JobApi(data_dir, clock=lambda: now).obstacle(schedule)
    if obstacle:
        return TickPreview(Decision(TickOutcome.SKIPPED, obstacle), None)
    if schedule.settings.loop is not None and not Path(schedule.settings.loop.path).is_file():
        return TickPreview(Decision(TickOutcome.SKIPPED, f"there is no file {schedule.settings.loop.path}"), None)
    try:
        if schedule.settings.when_failures is not None:
            waiting = _too_few_failures(data_dir, schedule, schedule.settings.when_failures, now)
            if waiting:
                return TickPreview(Decision(TickOutcome.WAITING, waiting), None)
        if schedule.settings.loop is not None:
            return TickPreview(Decision(TickOutcome.SUBMITTED, "a round of its loop"), None)
        return _decide_by_data(data_dir, schedule)
    except SpanloopError as error:
        if is_transient(error):
            raise
        return TickPreview(Decision(TickOutcome.SKIPPED, f"its job could not run: {error.what}"), None)


def _decide_by_data(data_dir: DataDir, schedule: Schedule) -> TickPreview:
    registry = Registry(data_dir)
    consumed = trainings_of_schedule(registry, JobApi(data_dir).jobs_of_schedule(schedule.id))
    first = stages_of(schedule.spec)[0]
    data = preview(data_dir, first.spec, held_out_share=first.held_out_share, consumed=consumed)
    wanted = schedule.settings.after_transitions or 0
    if data.transitions < wanted:
        reason = f"{data.transitions:,} of {wanted:,} new trainable transitions"
        return TickPreview(Decision(TickOutcome.WAITING, reason), data)
    if not data.transitions or not data.steps:
        return TickPreview(Decision(TickOutcome.SKIPPED, _nothing_new(first.spec, data)), data)
    groups = f" in {data.groups.accepted:,} groups" if first.spec.recipe.has_groups else ""
    reason = f"{data.episodes.accepted:,} new trainable episodes{groups}, {data.transitions:,} transitions"
    return TickPreview(Decision(TickOutcome.SUBMITTED, reason), data)


def _nothing_new(spec: JobSpec, data: Preview) -> str:
    """Return why there is nothing to train on; of data that could be trained on later, the counts by reason."""
    if data.transitions:
        return f"too few new {spec.recipe.batch_unit} for {spec.run.ranks} ranks"
    what = "groups" if spec.recipe.has_groups else "episodes"
    if not data.episodes.total:
        return f"no new trainable {what}: no episode that it has not trained on matches its filters"
    return f"no new trainable {what}: {data.episodes} episodes"


def _too_few_failures(data_dir: DataDir, schedule: Schedule, trigger: FailureTrigger, now: datetime) -> str:
    """Return how far the failures are from the trigger; empty when they are above it.

    Only episodes since the last job count, whose training has answered the failures before.
    """
    committed = now - timedelta(minutes=schedule.spec.episodes.commit_minutes)
    with connect(data_dir) as store:
        frame = store.query(
            "schedule_failures",
            failure_class=trigger.failure_class,
            agent=trigger.agent,
            episodes=trigger.episodes,
            since=schedule.last_at or _EPOCH,
            ended_before=committed,
        )
    episodes, failed = (int(frame[name].item()) for name in ("episodes", "failed"))
    if episodes < trigger.episodes:
        return f"{episodes:,} of {trigger.episodes:,} episodes since the last job"
    if 100 * failed > trigger.percent * episodes:
        return ""
    return f"{trigger.failure_class} in {100 * failed / episodes:.1f}% of the last {episodes:,} episodes"
