"""Test what a tick decides, against stored episodes: new data once, and nothing without it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.errors import StoreError
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.training.dataset.manifest import load_manifest
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.job_outcomes import mark_succeeded
from spanloop.training.jobs.leases import JobLease
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_ticks import Decision, run_due_ticks
from spanloop.training.models.lineage import trainings_of_schedule
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import FailureTrigger, JobApi, JobSpec, Schedule, ScheduleSettings
from spanloop.training.run.preview import preview
from spanloop.training.run.tick_decision import TickPreview, decide_tick
from spanloop.training.spec.choices import Backbone
from spanloop.training.spec.stored_spec import parse_spec

from ..training_running import Runner, url_of
from ..training_seeding import STARTED_AT, failure_row, insert, seed_groups

SPEC = JobSpec.of(kind="dr_grpo", base="tiny", steps=2, batch_groups=2)
EVERY_HOUR = ScheduleSettings(every_minutes=60)


@pytest.fixture
def seeded(runner: Runner, store: Store, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Four groups of four episodes that can be trained on, and one whose reward never varies."""
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url_of(runner.address))
    seed_groups(store, Registry(runner.data_dir).get("tiny").path)
    return runner


def decide(runner: Runner, schedule: Schedule, now: datetime | None = None) -> TickPreview:
    api = JobApi(runner.data_dir)
    return decide_tick(runner.data_dir, api.get_schedule(schedule.id), now=now or utc_now())


def tick(runner: Runner) -> bool:
    """What the scheduler's process does once the next tick of the only schedule is due."""
    next_at = JobApi(runner.data_dir).schedules()[0].next_at
    assert next_at is not None
    return run_due_ticks(
        ControlDatabase(ControlPaths.of(runner.data_dir)),
        lambda schedule: decide_tick(runner.data_dir, schedule, now=utc_now()).decision,
        parse_spec,
        recurring=True,
        clock=lambda: next_at,
    )


def train(runner: Runner, store: Store, job_id: str, groups: list[str]) -> None:
    """What a job leaves that trained one step on each of ``groups``, until its version."""
    episodes = [(step, f"{group}-episode-{number}") for step, group in enumerate(groups, 1) for number in range(4)]
    common: dict[str, object] = {"job_id": job_id, "attempt": 1}
    insert(
        store,
        "training_samples",
        [common | {"step": step, "sample": at, "episode_id": name} for at, (step, name) in enumerate(episodes)],
    )
    registry = Registry(runner.data_dir)
    folder = registry.get("tiny@v1").path
    registry.add("tiny", folder, parent="tiny@v1", job_id=job_id, metadata={"steps": len(groups)})
    api = JobApi(runner.data_dir)
    api.cancel(job_id)
    assert api.get(job_id).is_finished


def test_a_tick_without_new_groups_makes_no_job_and_an_episode_is_trained_on_once(seeded: Runner, store: Store) -> None:
    api = JobApi(seeded.data_dir)
    schedule = api.schedule(SPEC, settings=EVERY_HOUR)
    assert tick(seeded)
    (job,) = api.list()
    assert "16 new trainable episodes in 4 groups" in api.ticks(schedule.id)[0].reason
    # its job is open
    assert tick(seeded)
    assert len(api.list()) == 1
    assert f"its job {job.id} is queued" in api.ticks(schedule.id)[0].reason
    # the job trained on two of the groups: the others are still new
    train(seeded, store, job.id, ["task-0", "task-1"])
    found = decide(seeded, schedule)
    assert found.decision.outcome is TickOutcome.SUBMITTED
    assert found.data is not None
    assert (found.data.groups.accepted, found.data.episodes.accepted) == (2, 8)
    assert tick(seeded)
    second = api.list()[0]
    train(seeded, store, second.id, ["task-2", "task-3"])
    versions = len(Registry(seeded.data_dir).list())
    for _ in range(3):
        assert tick(seeded)
    assert (len(api.list()), len(Registry(seeded.data_dir).list())) == (2, versions)
    last = api.ticks(schedule.id)[0]
    assert (last.outcome, last.times) == (TickOutcome.SKIPPED, 3)
    assert last.reason == "no new trainable groups: 0 of 4 accepted (rejected: reward_constant 4) episodes"
    # what the model of the user's own job learned does not count for the schedule
    assert preview(seeded.data_dir, SPEC).groups.accepted == 4


def test_a_job_that_made_no_version_has_consumed_nothing(seeded: Runner, store: Store) -> None:
    api = JobApi(seeded.data_dir)
    schedule = api.schedule(SPEC, settings=EVERY_HOUR)
    tick(seeded)
    job = api.list()[0]
    common: dict[str, object] = {"job_id": job.id, "attempt": 1, "step": 1}
    insert(store, "training_samples", [common | {"sample": 0, "episode_id": "task-0-episode-0"}])
    api.cancel(job.id)
    data = decide(seeded, schedule).data
    assert data is not None
    assert data.episodes.accepted == 16


@pytest.mark.slow
def test_a_replay_ratio_trains_on_old_episodes_beside_new_ones_only(seeded: Runner, store: Store) -> None:
    api = JobApi(seeded.data_dir)
    spec = SPEC.changed(replay_ratio=0.5)
    schedule = api.schedule(spec, settings=EVERY_HOUR)
    tick(seeded)
    train(seeded, store, api.list()[0].id, ["task-0", "task-1", "task-2"])
    consumed = trainings_of_schedule(Registry(seeded.data_dir), api.jobs_of_schedule(schedule.id))
    assert preview(seeded.data_dir, spec, consumed=consumed).groups.accepted == 2
    tick(seeded)
    train(seeded, store, api.list()[0].id, ["task-3"])
    assert decide(seeded, schedule).decision.outcome is TickOutcome.SKIPPED


def test_a_schedule_waits_for_new_transitions(seeded: Runner) -> None:
    api = JobApi(seeded.data_dir)
    few = api.schedule(SPEC, settings=ScheduleSettings(after_transitions=24))
    many = api.schedule(SPEC, settings=ScheduleSettings(after_transitions=25))
    assert decide(seeded, few).decision.outcome is TickOutcome.SUBMITTED
    assert decide(seeded, many).decision == Decision(TickOutcome.WAITING, "24 of 25 new trainable transitions")


def test_a_schedule_waits_for_failures_of_a_class(seeded: Runner, store: Store) -> None:
    # every fourth episode, so 5 of 20
    insert(store, "failures", [failure_row(f"task-{group}-episode-1", 0, "policy") for group in range(5)])
    api = JobApi(seeded.data_dir)

    def scheduled(text: str) -> Decision:
        settings = ScheduleSettings(when_failures=FailureTrigger.parse(text))
        return decide(seeded, api.schedule(SPEC, settings=settings)).decision

    assert scheduled("invalid_arguments above 24% of 20").outcome is TickOutcome.SUBMITTED
    assert scheduled("invalid_arguments above 25% of 20") == Decision(
        TickOutcome.WAITING, "invalid_arguments in 25.0% of the last 20 episodes"
    )
    assert scheduled("invalid_arguments above 1% of 21").reason == "20 of 21 episodes since the last job"
    assert scheduled("invalid_arguments of nobody above 1% of 5").reason == "0 of 5 episodes since the last job"
    assert scheduled("tool_timeout above 0% of 20").outcome is TickOutcome.WAITING


def test_an_episode_counts_once_its_feedback_had_time(seeded: Runner) -> None:
    minutes = (datetime.now(UTC) - STARTED_AT) / timedelta(minutes=1)
    spec = SPEC.changed(commit_minutes=minutes - 1)
    assert preview(seeded.data_dir, spec).groups.accepted == 4
    later = SPEC.changed(commit_minutes=minutes + 1)
    assert preview(seeded.data_dir, later).episodes.total == 0


def test_without_the_store_a_tick_stays_due_and_says_why(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, "http://somebody:secret@127.0.0.1:9/default")
    api = JobApi(runner.data_dir)
    schedule = api.schedule(SPEC, settings=EVERY_HOUR)
    with pytest.raises(StoreError):
        decide(runner, schedule)
    assert not tick(runner)
    (waiting,) = api.ticks(schedule.id)
    assert waiting.outcome is TickOutcome.WAITING
    assert "ClickHouse is unreachable" in waiting.reason
    assert api.get_schedule(schedule.id).next_at == schedule.next_at
    assert api.list() == ()


def test_a_spec_that_cannot_run_is_skipped_with_its_reason(seeded: Runner) -> None:
    api = JobApi(seeded.data_dir)
    schedule = api.schedule(SPEC.changed(base="nobody"), settings=EVERY_HOUR)
    assert decide(seeded, schedule).decision == Decision(
        TickOutcome.SKIPPED, "its job could not run: There is no model version 'nobody'."
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_jobs_of_a_schedule_train_on_no_episode_twice(seeded: Runner, store: Store, tmp_path: Path) -> None:
    """Real jobs: each takes at most two of the groups, until none is left."""
    api = JobApi(seeded.data_dir)
    spec = SPEC.changed(steps=1, backbone=Backbone.DEBUG, learning_rate=1e-4)
    schedule = api.schedule(spec, settings=EVERY_HOUR)
    jobs: list[str] = []
    for _ in range(3):
        assert tick(seeded)
        new = [job.id for job in api.list() if job.id not in jobs]
        if not new:
            break
        jobs += new
        process, mark = seeded.start(new[0], tmp_path / "log.txt")
        assert process.wait(timeout=280) == 0, (tmp_path / "log.txt").read_text()
        with ControlDatabase(ControlPaths.of(seeded.data_dir)).write() as session:
            mark_succeeded(session, JobLease(mark.job_id, mark.newest_token), now=utc_now())
    assert len(jobs) == 2
    trained = store.query("training_trained_episodes", job_ids=jobs, last_steps=[9, 9])["episode_id"].to_list()
    each = [store.query("training_trained_episodes", job_ids=[job], last_steps=[9])["episode_id"] for job in jobs]
    assert sorted(trained) == sorted(pl.concat(each).to_list())
    assert len(trained) == 16
    assert api.ticks(schedule.id)[0].outcome is TickOutcome.SKIPPED
    # what the second job left out is in its manifest
    manifest = load_manifest(ControlPaths.of(seeded.data_dir).job(jobs[1]))
    assert manifest is not None
    assert manifest.query_parameters["consumed_jobs"] == [jobs[0]]
