"""When a schedule fires: five cron fields or one instant, always UTC. Pure; the rows are kept elsewhere."""

from datetime import UTC, datetime
from typing import Final

from croniter import CroniterError, croniter

from spanloop.semconv.errors import ConfigurationError

CRON_FIELDS: Final = 5


def check_cron(cron: str) -> str:
    """``cron`` with single spaces between its fields.

    Raises:
        ConfigurationError: It is not five fields that cron understands.
    """
    fields = cron.split()
    normal = " ".join(fields)
    if len(fields) != CRON_FIELDS or not croniter.is_valid(normal):
        raise ConfigurationError(
            f"{cron!r} is not a cron expression of five fields (minute hour day month weekday, in UTC).",
            next_step="Try '0 3 * * *' for every night at three.",
        )
    return normal


def next_firing(cron: str, after: datetime) -> datetime:
    """The first firing of ``cron`` strictly after ``after``, in UTC.

    Raises:
        ConfigurationError: The expression never fires, such as the 30th of February.
    """
    try:
        found: datetime = croniter(cron, after.astimezone(UTC), ret_type=datetime).get_next()
    except CroniterError as error:
        raise ConfigurationError(
            f"The cron expression {cron!r} never fires: {error}.",
            next_step="Name a day that exists.",
        ) from error
    return found.astimezone(UTC)


def check_instant(at: datetime) -> datetime:
    """``at`` in UTC.

    Raises:
        ConfigurationError: It does not say in which time zone it is.
    """
    if at.tzinfo is None:
        raise ConfigurationError(
            f"The time {at.isoformat()} has no time zone.",
            next_step=f"Write {at.isoformat()}+00:00 for UTC.",
        )
    return at.astimezone(UTC)
