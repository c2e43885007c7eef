"""State, progress, errors and logs of jobs for pages, and the validation of the job form."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Literal

from pydantic import ValidationError

from spanloop.dashboard.view_models.formatting import DASH, duration, number
from spanloop.training.dataset.manifest import Manifest
from spanloop.training.jobs.states import JobState
from spanloop.training.jobs.training_ids import training_id
from spanloop.training.run.job_api import Job, JobSpec, Tick
from spanloop.training.run.stage_progress import StageProgress
from spanloop.training.spec.fields import SpecField, problems, read_none, spec_fields
from spanloop.training.spec.row_source import RowSource
from spanloop.training.spec.stages import stages_of
from spanloop.training.spec.stored_spec import AnyJob, EvaluationSpec

When = Literal["Now", "At a time", "Repeatedly"]

STATE_MARKS: Final = {
    JobState.QUEUED: "○ queued",
    JobState.RUNNING: "◐ running",
    JobState.EVALUATING: "◑ evaluating",
    JobState.CANCELLING: "◌ cancelling",
    JobState.SUCCEEDED: "✓ succeeded",
    JobState.FAILED: "✕ failed",
    JobState.CANCELLED: "⊘ cancelled",
}

STATE_COLOURS: Final = {
    JobState.QUEUED: "gray",
    JobState.RUNNING: "blue",
    JobState.EVALUATING: "blue",
    JobState.CANCELLING: "orange",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "gray",
}

_EXITED: Final = "exit status"
_RETRIED: Final = "It is tried again at"
_LAST_LINES: Final = "Its last lines:"
"""The scheduler writes this before the job's output."""
_ITEM: Final = re.compile(r"(?:\[[^\]]*\]|[^,])+")
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class FormErrors:
    """Why a form is invalid: one sentence for each field."""

    messages: tuple[str, ...]


def to_spec(values: Mapping[str, Any]) -> JobSpec | FormErrors:
    """Validate the form's values by setting; return its job, or the errors of all fields.

    An empty widget (None, or no text in the box of a number) leaves the default to the spec. Texts are stripped; a
    list may be a text, which is split at commas that are not within brackets.
    """
    if not values.get("base"):
        return FormErrors(("base: choose the model version to start from.",))
    fields = {field.name: field for field in spec_fields()}
    given = {
        name: _entered(fields[name], value) for name, value in values.items() if not _is_empty(fields[name], value)
    }
    try:
        return JobSpec.model_validate(read_none(given))
    except ValidationError as error:
        return FormErrors(problems(error))


def _is_empty(field: SpecField, value: Any) -> bool:
    return value is None or (field.is_optional and isinstance(value, str) and not value.strip())


def _entered(field: SpecField, value: Any) -> Any:
    if field.is_list and isinstance(value, str):
        return tuple(item for part in _ITEM.findall(value) if (item := part.strip()))
    if isinstance(value, datetime):
        return as_utc(value)
    return value.strip() if isinstance(value, str) and not isinstance(value, Enum) else value


def as_utc(moment: datetime) -> datetime:
    """Return a moment in UTC; one without a time zone is UTC, as the form's label says."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def progress(job: AnyJob) -> float:
    """Return the share of completed steps, 0 to 1; always 1 for a job that succeeded."""
    if job.state is JobState.SUCCEEDED:
        return 1.0
    return min(1.0, job.step / job.steps_total) if job.steps_total else 0.0


def run_duration(job: AnyJob, now: datetime) -> str:
    """Return how long the job ran, or has run until now; a dash before its start."""
    if job.started_at is None:
        return DASH
    end = job.finished_at or now
    return duration(max(0, int((end - job.started_at).total_seconds() * 1e9)))


def steps_text(job: AnyJob) -> str:
    """Return ``3 / 10``; of an evaluation, whose steps are attempts, nothing before the tasks are read."""
    return "" if isinstance(job.spec, EvaluationSpec) and not job.steps_total else f"{job.step} / {job.steps_limit}"


def progress_text(job: AnyJob) -> str:
    """Return what a job has completed, in words."""
    if not isinstance(job.spec, EvaluationSpec):
        return f"step {job.step} of {job.steps_limit}"
    if job.steps_total:
        return f"attempt {job.step} of {job.steps_total}"
    if job.started_at is None:
        return "no attempt yet"
    return "no attempt was missing" if job.state is JobState.SUCCEEDED else "reading the tasks"


def dataset_facts(manifest: Manifest) -> dict[str, str]:
    """Return names and texts about a job's dataset, all from its manifest."""
    facts = {
        "learned from": f"{manifest.episodes.accepted:,} episodes, {manifest.rows.accepted:,} token rows"
        + (f" in {manifest.prompt_groups:,} groups" if manifest.prompt_groups else "")
        + (f" in {manifest.pairs:,} pairs" if manifest.pairs else ""),
        "their mean reward": number(manifest.mean_reward),
        "rows left out": _rejections(manifest.rows.rejected),
        "episodes left out": _rejections(manifest.episodes.rejected),
        "longest row": f"{manifest.longest_row_tokens:,} tokens",
        "dataset SHA-256": manifest.data_sha256,
    }
    if manifest.constrained_by:
        facts["constrained by"] = _rejections(manifest.constrained_by)
    if manifest.untrainable_calls:
        facts["calls left out of the loss"] = _rejections(manifest.untrainable_calls)
    if set(manifest.sources) - {RowSource.CAPTURED.value}:
        facts["where the tokens come from"] = ", ".join(
            f"{rows:,} {source}" for source, rows in manifest.sources.items()
        )
    if manifest.masked_steps:
        facts["masked"] = f"{manifest.masked_steps:,} steps, {manifest.masked_tokens:,} tokens"
    for report in manifest.strategies:
        facts[report.strategy] = str(report).removeprefix(f"{report.strategy} ")
    if manifest.has_groups:
        facts["groups left out"] = _rejections(manifest.groups.rejected)
    if manifest.prompt_groups:
        facts["sampled at temperature"] = number(manifest.temperature)
    return facts


def recipe(spec: JobSpec | EvaluationSpec) -> str:
    """Return the recipe of a job, ``SFT`` for example; of several stages ``SFT → DPO``."""
    if isinstance(spec, EvaluationSpec):
        return "evaluation"
    return " → ".join(stage.spec.recipe.title for stage in stages_of(spec))


def stage_settings(job: Job, training: str) -> JobSpec:
    """Return the settings of the job's stage that is stored under the id ``training``."""
    return next(stage.spec for stage in stages_of(job.spec) if training_id(job.id, stage.number) == training)


def stage_rows(stages: Sequence[StageProgress]) -> dict[str, str]:
    """Return a title and a text for each stage of a job."""
    rows: dict[str, str] = {}
    for each in stages:
        parts = [each.state, each.version, f"gate: {each.gate}" if each.gate else ""]
        rows[each.stage.title] = " · ".join(part for part in parts if part)
    return rows


def _rejections(rejected: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in rejected.items()) or "none"


def last_tick(ticks: Sequence[Tick], *, is_paused: bool) -> str:
    """Return what a schedule did last, from its newest ticks; a paused one says so first."""
    parts = (["paused"] if is_paused else []) + [str(tick) for tick in ticks[:1]]
    return "; ".join(parts) or DASH


def error_headline(error: str | None) -> str:
    """Return the line of a job's error that states the cause.

    When the process exited, this is its last line without the next step; else the scheduler's own text.
    """
    cause, _, output = _ANSI.sub("", error or "").partition(_LAST_LINES)
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.strip().startswith("next:")]
    if lines and _RETRIED in cause:
        return f"{' '.join(cause.split())} {lines[-1]}"
    return lines[-1] if lines and _EXITED in cause else " ".join(cause.split())


def log_tail(text: str, at_most: int) -> str:
    """Return the log's last lines without colours; a redrawn progress bar appears once."""
    return "\n".join(_terminal_lines(_ANSI.sub("", text))[-at_most:])


def _terminal_lines(text: str) -> list[str]:
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return lines if lines[-1] else lines[:-1]
