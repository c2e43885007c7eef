"""One attempt of the task runner, its end, and its verdict."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Self

from spanloop.evaluation.environments import Outcome
from spanloop.evaluation.graders import Verdict
from spanloop.evaluation.tasks import Task
from spanloop.semconv.scores import SCORE_RANGE, is_valid_score


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

    @classmethod
    def of_json(cls, attempt: TaskAttempt, ended: str, verdict: str, grading_error: str) -> Self:
        """Read what ``json.dumps`` made of the end and of the verdict, which is empty where there is none."""
        state, *end = json.loads(ended)
        end[6:] = [Outcome.of_json(each) for each in end[6:]]
        found = Verdict(*json.loads(verdict)) if verdict else None
        if found is not None and not is_valid_score(found.score):  # an earlier version took every finite score
            grading_error = f"The score is {found.score!r}, expected {SCORE_RANGE}."
            found = None
        return cls(attempt, AttemptEnd(EndState(state), *end), found, grading_error)
