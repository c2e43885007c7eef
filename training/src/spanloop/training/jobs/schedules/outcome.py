"""What a tick of a schedule did, stored as its string value."""

from enum import StrEnum


class TickOutcome(StrEnum):
    """What a tick of a schedule did."""

    SUBMITTED = "submitted"
    """It submitted a job."""
    SKIPPED = "skipped"
    """It submitted none; the schedule ticks again at its next time."""
    WAITING = "waiting"
    """The condition of the schedule does not hold yet, or a service was away; it is looked at again soon."""
