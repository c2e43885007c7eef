"""Jobs as a page shows them, and the form that makes one. Pure; only the job API acts."""

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
_BY_ITSELF: Final = "exit status"
_LAST_LINES: Final = "Its last lines:"
"""What the scheduler writes before what the job printed."""
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class JobForm:
    """What a person filled in, not validated yet."""

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
    """As it was typed; without a zone it is UTC. None for all episodes."""
    device: str | None = None
    ray_address: str = ""
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class FormErrors:
    """Why a form makes no job: one sentence for each field."""

    messages: tuple[str, ...]


def to_spec(form: JobForm) -> JobSpec | FormErrors:
    """The job that the form describes, or everything that is wrong with it at once."""
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
            tuple(_message(detail["loc"], detail["msg"], detail.get("input")) for detail in error.errors())
        )


def as_utc(moment: datetime) -> datetime:
    """A moment that was typed without a zone, read as UTC, as the form's label says."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def progress(job: Job) -> float:
    """Share of the steps that are done, 0 to 1; a job that succeeded is done whatever it counted."""
    if job.state is JobState.SUCCEEDED:
        return 1.0
    return min(1.0, job.step / job.steps_total) if job.steps_total else 0.0


def took(job: Job, now: datetime) -> str:
    """How long the job ran, or has run so far; a dash before its start."""
    if job.started_at is None:
        return DASH
    end = job.finished_at or now
    return duration(max(0, int((end - job.started_at).total_seconds() * 1e9)))


def learned_from(manifest: Manifest) -> dict[str, str]:
    """What a job's dataset is made of, as names and sentences; nothing of it is computed again."""
    facts = {
        "learned from": f"{manifest.episodes.accepted:,} episodes, {manifest.rows.accepted:,} token rows"
        + (f" in {manifest.prompt_groups:,} groups" if manifest.prompt_groups else ""),
        "their mean reward": number(manifest.mean_reward),
        "rows left out": _reasons(manifest.rows.rejected),
        "episodes left out": _reasons(manifest.episodes.rejected),
        "longest row": f"{manifest.longest_row_tokens:,} tokens",
        "dataset SHA-256": manifest.data_sha256,
    }
    if manifest.kind is JobKind.GRPO:
        facts["groups left out"] = _reasons(manifest.groups.rejected)
        facts["sampled at temperature"] = number(manifest.temperature)
    return facts


def _reasons(rejected: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in rejected.items()) or "none"


def headline(error: str | None) -> str:
    """The one line of a job's error that says why.

    Of a job that ended by itself it is the last line that it printed, without its next step; else the scheduler's own.
    """
    why, _, printed = _ANSI.sub("", error or "").partition(_LAST_LINES)
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.strip().startswith("next:")]
    return lines[-1] if lines and _BY_ITSELF in why else " ".join(why.split())


def log_lines(text: str, at_most: int) -> str:
    """The log's last lines as a terminal would leave them: no colours, a redrawn progress bar only once."""
    return "\n".join(_redrawn(_ANSI.sub("", text))[-at_most:])


def _redrawn(text: str) -> list[str]:
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return lines if lines[-1] else lines[:-1]


def _message(location: tuple[int | str, ...], message: str, got: Any) -> str:
    where = ".".join(str(part) for part in location)
    text = _NAME_RULE if "pattern" in message else message.removeprefix("Value error, ")
    return f"{where}: {text} (got {got!r})." if where else f"{text}."
