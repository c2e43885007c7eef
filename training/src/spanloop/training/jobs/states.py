"""The states of a job, stored as their string values."""

from enum import StrEnum


class JobState(StrEnum):
    """A job's state machine: queued → running (→ evaluating) → one of the last three; cancelling on request."""

    QUEUED = "queued"
    RUNNING = "running"
    EVALUATING = "evaluating"
    """It has trained, and the promotion rule decides about its version."""
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
