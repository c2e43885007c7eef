"""State, progress, errors and logs of jobs for pages, and the validation of the job form."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import ValidationError

from spanloop.dashboard.view_models.formatting import DASH, duration, number
from spanloop.semconv.enums import JobKind, JobState
from spanloop.training.dataset_manifest import Manifest
from spanloop.training.jobs import Job, JobSpec

When = Literal["Now", "At a time", "Repeatedly"]

STATE_MARKS: Final = {
    JobState.QUEUED: "○ queued",
    JobState.RUNNING: "◐ running",
    JobState.CANCELLING: "◌ cancelling",
    JobState.SUCCEEDED: "✓ succeeded",
    JobState.FAILED: "✕ failed",
    JobState.CANCELLED: "⊘ cancelled",
}

STATE_COLOURS: Final = {
    JobState.QUEUED: "gray",
    JobState.RUNNING: "blue",
    JobState.CANCELLING: "orange",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "gray",
}

_NAME_RULE: Final = "only letters, digits, '.', '_' and '-', beginning with a letter or digit"
_EXITED: Final = "exit status"
_LAST_LINES: Final = "Its last lines:"
"""The scheduler writes this before the job's output."""
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class JobForm:
    """The form's values, not validated."""

    kind: JobKind
    base: str
    name: str
    steps: int
    batch_groups: int
    learning_rate: float
    max_episodes: int
    seed: int
    deploy: bool
    policy_version: str = ""
    task_ids: str = ""
    """Comma-separated; empty for all tasks."""
    group_size: int | None = None
    """Only for GRPO."""
    epochs: int | None = None
    """Only for GRPO."""
    task_prefix: str = ""
    """Empty for all tasks."""
    max_prompt_tokens: int | None = None
    max_response_tokens: int | None = None
    pause_serving: bool = False
    min_reward: float | None = None
    """Only for SFT."""
    since: datetime | None = None
    """Without a time zone it is UTC; None for all episodes."""
    device: str | None = None
    ray_address: str = ""
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class FormErrors:
    """Why a form is invalid: one sentence for each field."""

    messages: tuple[str, ...]


def to_spec(form: JobForm) -> JobSpec | FormErrors:
    """Validate the form; return its job, or the errors of all fields."""
    if not form.base:
        return FormErrors(("base: choose the model version to start from.",))
    fields: dict[str, Any] = {
        "kind": form.kind,
        "base": form.base,
        "name": form.name.strip(),
        "steps": form.steps,
        "batch_groups": form.batch_groups,
        "learning_rate": form.learning_rate,
        "max_episodes": form.max_episodes,
        "seed": form.seed,
        "deploy": form.deploy,
        "pause_serving": form.pause_serving,
        "policy_version": form.policy_version.strip(),
        "task_prefix": form.task_prefix.strip(),
        "ray_address": form.ray_address.strip(),
        "task_ids": tuple(task for part in form.task_ids.split(",") if (task := part.strip())),
    }
    optional = {
        "group_size": form.group_size,
        "epochs": form.epochs,
        "max_prompt_tokens": form.max_prompt_tokens,
        "max_response_tokens": form.max_response_tokens,
        "min_reward": form.min_reward,
        "since": as_utc(form.since) if form.since is not None else None,
        "device": form.device,
        "max_attempts": form.max_attempts,
    }
    fields |= {name: value for name, value in optional.items() if value is not None}
    try:
        return JobSpec.model_validate(fields)
    except ValidationError as error:
        return FormErrors(
            tuple(_field_error(detail["loc"], detail["msg"], detail.get("input")) for detail in error.errors())
        )


def as_utc(moment: datetime) -> datetime:
    """Return a moment in UTC; one without a time zone is UTC, as the form's label says."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def progress(job: Job) -> float:
    """Return the share of completed steps, 0 to 1; always 1 for a job that succeeded."""
    if job.state is JobState.SUCCEEDED:
        return 1.0
    return min(1.0, job.step / job.steps_total) if job.steps_total else 0.0


def run_duration(job: Job, now: datetime) -> str:
    """Return how long the job ran, or has run until now; a dash before its start."""
    if job.started_at is None:
        return DASH
    end = job.finished_at or now
    return duration(max(0, int((end - job.started_at).total_seconds() * 1e9)))


def dataset_facts(manifest: Manifest) -> dict[str, str]:
    """Return names and texts about a job's dataset, all from its manifest."""
    facts = {
        "learned from": f"{manifest.episodes.accepted:,} episodes, {manifest.rows.accepted:,} token rows"
        + (f" in {manifest.prompt_groups:,} groups" if manifest.prompt_groups else ""),
        "their mean reward": number(manifest.mean_reward),
        "rows left out": _rejections(manifest.rows.rejected),
        "episodes left out": _rejections(manifest.episodes.rejected),
        "longest row": f"{manifest.longest_row_tokens:,} tokens",
        "dataset SHA-256": manifest.data_sha256,
    }
    if manifest.kind is JobKind.GRPO:
        facts["groups left out"] = _rejections(manifest.groups.rejected)
        facts["sampled at temperature"] = number(manifest.temperature)
    return facts


def _rejections(rejected: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in rejected.items()) or "none"


def error_headline(error: str | None) -> str:
    """Return the line of a job's error that states the cause.

    When the process exited, this is its last line without the next step; else the scheduler's own text.
    """
    cause, _, output = _ANSI.sub("", error or "").partition(_LAST_LINES)
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.strip().startswith("next:")]
    return lines[-1] if lines and _EXITED in cause else " ".join(cause.split())


def log_tail(text: str, at_most: int) -> str:
    """Return the log's last lines without colours; a redrawn progress bar appears once."""
    return "\n".join(_terminal_lines(_ANSI.sub("", text))[-at_most:])


def _terminal_lines(text: str) -> list[str]:
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return lines if lines[-1] else lines[:-1]


def _field_error(location: tuple[int | str, ...], message: str, value: Any) -> str:
    where = ".".join(str(part) for part in location)
    problem = _NAME_RULE if "pattern" in message else message.removeprefix("Value error, ")
    return f"{where}: {problem} (got {value!r})." if where else f"{problem}."
