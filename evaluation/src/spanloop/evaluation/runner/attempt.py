"""One attempt of the task runner, its end, and its verdict."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from spanloop.evaluation.environments import Outcome
from spanloop.evaluation.graders import Verdict
from spanloop.evaluation.tasks import Task


class EndState(StrEnum):
    """How an attempt ended."""

    FINISHED = "finished"
    """The command ended with status 0, or the callable returned."""
    CRASHED = "crashed"
    """The command could not be started, or ended with another status; or the callable raised or ended its process."""
    TIMED_OUT = "timed_out"
    """It was stopped when its time was up."""


class TaskAttempt(NamedTuple):
    """An attempt that was claimed."""

    task_number: int
    """Of the task in the ledger."""
    task: Task
    number: int
    """Of the attempt at the task, from 1."""
    episode_id: str
    interrupted: tuple[str, ...]
    """Episode ids of earlier starts, which were interrupted."""
    seed: int
    variables: Mapping[str, str] = {}
    """Environment variables of this attempt alone: where its environment is."""


class AttemptEnd(NamedTuple):
    """How an attempt ended."""

    state: EndState
    started_us: int
    """Microseconds since the epoch."""
    duration_ms: int
    answer: str = ""
    error: str = ""
    """Why it crashed: the last lines of stderr, or the exception; empty when it finished."""
    exit_code: int | None = None
    """Of a command."""
    trace_id: str = ""
    """Of a callable's root span."""
    outcome: Outcome | None = None
    """Of the attempt's episode in its environment; None without one."""


class EndedAttempt(NamedTuple):
    """An attempt with its end."""

    attempt: TaskAttempt
    end: AttemptEnd
    verdict: Verdict | None = None
    grading_error: str = ""
    """Why there is no verdict although a grader was asked."""
