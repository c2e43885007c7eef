"""The job form and what a job shows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from spanloop.dashboard.view_models.formatting import DASH
from spanloop.dashboard.view_models.jobs import (
    FormErrors,
    as_utc,
    dataset_facts,
    error_headline,
    last_tick,
    log_tail,
    progress,
    recipe,
    run_duration,
    stage_settings,
    to_spec,
)
from spanloop.training.dataset.manifest import Count, Manifest
from spanloop.training.dataset.strategies.report import StrategyReport
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.states import JobState
from spanloop.training.run.job_api import Job, JobSpec, Tick

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FORM: dict[str, object] = {
    "kind": "dr_grpo",
    "base": "tiny@v1",
    "name": " better ",
    "steps": 3,
    "learning_rate": None,
    "task_ids": "t1, t2,,",
    "since": datetime(2026, 1, 1, 3),  # noqa: DTZ001 (what the form gives)
}
JOB = Job(
    id="j1",
    spec=JobSpec.of(kind="dr_grpo", base="tiny@v1"),
    state=JobState.RUNNING,
    attempt=1,
    created_at=NOW,
    started_at=NOW,
    finished_at=None,
    step=3,
    steps_total=10,
    error="",
    model_version="",
    schedule_id=None,
)


def test_a_filled_form_is_a_spec() -> None:
    assert to_spec(FORM) == JobSpec.of(
        base="tiny@v1", name="better", steps=3, task_ids=("t1", "t2"), since=datetime(2026, 1, 1, 3, tzinfo=UTC)
    )


def test_the_items_of_a_list_may_hold_commas_within_brackets() -> None:
    spec = to_spec(FORM | {"kind": "sft", "verl": "optim.betas=[0.8,0.9], trainer.project_name=mine,"})
    assert isinstance(spec, JobSpec)
    assert spec.run.verl == ("optim.betas=[0.8,0.9]", "trainer.project_name=mine")


def test_every_mistake_is_named_at_once() -> None:
    wrong = to_spec(FORM | {"name": "no spaces here", "learning_rate": 0.0, "steps": 0})
    assert isinstance(wrong, FormErrors)
    assert [message.split(":")[0] for message in wrong.messages] == ["name", "learning_rate", "steps"]
    assert "got 0" in wrong.messages[2]


def test_a_job_of_several_stages_names_each_recipe_and_each_stage_has_its_settings() -> None:
    spec = JobSpec.of(kind="sft", base="tiny@v1", steps=5, then=("kind=reinforce_plus_plus steps=7",))
    job = replace(JOB, spec=spec)
    assert (recipe(JOB.spec), recipe(spec)) == ("Dr. GRPO", "SFT → REINFORCE++")
    assert [stage_settings(job, training).steps for training in ("j1", "j1.2")] == [5, 7]


def test_the_facts_of_a_dataset_say_what_strategies_and_masks_did() -> None:
    counts = Count(accepted=2, rejected={})
    manifest = Manifest(
        job_id="j1", kind="sft", created_at=NOW, base="tiny@v1", query="q", query_parameters={}, rows=counts,
        episodes=counts, groups=counts, prompt_groups=0, temperature=None, longest_prompt_tokens=1,
        longest_response_tokens=1, longest_row_tokens=2, mean_reward=1.0, data_sha256="", pinned=(),
        sources={"captured": 1, "rendered": 1}, masked_steps=3, masked_tokens=40, constrained_by={"strict_tools": 2},
        untrainable_calls={"ambiguous_choice": 5},
        strategies=(StrategyReport(strategy="coreset", unit="episodes", kept=2, available=5, why="random"),),
    )  # fmt: skip
    facts = dataset_facts(manifest)
    assert facts["where the tokens come from"] == "1 captured, 1 rendered"
    assert facts["constrained by"] == "2 strict_tools"
    assert "constrained by: strict_tools 2" in manifest.summary
    assert facts["calls left out of the loss"] == "5 ambiguous_choice"
    assert "calls left out of the loss: ambiguous_choice 5" in manifest.summary
    assert facts["masked"] == "3 steps, 40 tokens"
    assert facts["coreset"] == "kept 2 of 5 episodes (random)"


def test_a_form_without_a_base_says_what_to_choose() -> None:
    assert to_spec(FORM | {"base": ""}) == FormErrors(("base: choose the model version to start from.",))


def test_settings_of_the_other_kind_are_refused_by_the_spec() -> None:
    wrong = to_spec(FORM | {"kind": "sft", "group_size": 4})
    assert isinstance(wrong, FormErrors)
    assert "group_size" in wrong.messages[0]


def test_a_time_without_zone_is_utc() -> None:
    assert as_utc(datetime(2026, 1, 1, 3)) == datetime(2026, 1, 1, 3, tzinfo=UTC)  # noqa: DTZ001 (what the form gives)
    east = timezone(timedelta(hours=2))
    assert as_utc(datetime(2026, 1, 1, 3, tzinfo=east)) == datetime(2026, 1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("job", "share"),
    [
        (JOB, 0.3),
        (replace(JOB, step=20), 1.0),
        (replace(JOB, steps_total=0), 0.0),
        (replace(JOB, state=JobState.SUCCEEDED, step=0), 1.0),
    ],
)
def test_progress_is_a_share(job: Job, share: float) -> None:
    assert progress(job) == pytest.approx(share)


def test_steps_of_the_setting_are_a_limit_until_the_runner_reports_its_own() -> None:
    assert replace(JOB, state=JobState.QUEUED, step=0).steps_limit == "at most 10"
    assert JOB.steps_limit == "10"


def test_time_runs_until_the_end() -> None:
    assert run_duration(replace(JOB, started_at=None), NOW) == DASH
    assert run_duration(JOB, NOW + timedelta(seconds=65)) == "1 min 05 s"
    assert run_duration(replace(JOB, finished_at=NOW + timedelta(seconds=5)), NOW + timedelta(days=1)) == "5.00 s"


def test_a_log_is_what_a_terminal_would_leave() -> None:
    raw = "\x1b[36m(pid=7)\x1b[0m start\r\nstep 1\rstep 2\rstep 3\r\n\x1b[2Kdone\n"
    assert log_tail(raw, 10) == "(pid=7) start\nstep 3\ndone"
    assert log_tail("a\nb\nc\n", 2) == "b\nc"
    assert log_tail("", 5) == ""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("", ""),
        (
            "The job ended with exit status 1. Its last lines:\na line\n\x1b[31mNo data.\x1b[0m\n  next: Run it.",
            "No data.",
        ),
        (
            "The job was killed by SIGKILL. Its last lines:\nrun_job: training 3 steps of 8",
            "The job was killed by SIGKILL.",
        ),
        ("The job ended with exit status 1. Its last lines:\n", "The job ended with exit status 1."),
        ("The scheduler\nwas killed.", "The scheduler was killed."),
    ],
)
def test_an_error_has_one_line_that_says_why(error: str, expected: str) -> None:
    assert error_headline(error) == expected


def test_a_schedule_shows_its_last_tick_and_that_it_is_paused() -> None:
    tick = Tick(NOW, 3, TickOutcome.SKIPPED, "no new trainable groups", None)
    assert last_tick((tick,), is_paused=False) == "skipped (3 times): no new trainable groups"
    assert last_tick((tick,), is_paused=True) == "paused; skipped (3 times): no new trainable groups"
    assert (last_tick((), is_paused=False), last_tick((), is_paused=True)) == (DASH, "paused")


def test_a_job_that_is_tried_again_says_when_and_why() -> None:
    error = "It is tried again at 12:00:30 UTC (1 of 10 times), because the cause passes. Its last lines:\nuh\naway"
    assert error_headline(error) == "It is tried again at 12:00:30 UTC (1 of 10 times), because the cause passes. away"
