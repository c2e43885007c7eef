"""What a tick of a schedule did, stored as its string value."""

from enum import StrEnum


class TickOutcome(StrEnum):
    """What a tick of a schedule did."""

    SUBMITTED = "submitted"
    """It submitted a job, or began a round of a loop."""
    ENDED = "ended"
    """The round that it began ended, or was interrupted by an error; the next tick continues an open one."""
    SKIPPED = "skipped"
    """It submitted none; the schedule ticks again at its next time."""
    WAITING = "waiting"
    """The condition of the schedule does not hold yet, or a service was away; it is looked at again soon."""
