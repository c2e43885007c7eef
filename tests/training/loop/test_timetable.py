"""Times at which rounds begin."""

from datetime import UTC, datetime, timedelta

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.loop.timetable import Timetable

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_an_interval_is_from_the_beginning_of_a_round_to_that_of_the_next() -> None:
    timetable = Timetable.parse("", "6h")
    assert timetable.next_at(None, NOW) == NOW
    assert timetable.next_at(NOW - 2 * HOUR, NOW) == NOW + 4 * HOUR
    assert timetable.next_at(NOW - 20 * HOUR, NOW) == NOW  # once, however many were missed


def test_times_are_those_after_now() -> None:
    timetable = Timetable.parse("0 3 * * *", "")
    assert timetable.next_at(NOW - 40 * HOUR, NOW) == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert (timetable.repeats, Timetable().repeats, Timetable().next_at(NOW, NOW)) == (True, False, NOW)


@pytest.mark.parametrize(("cron", "every"), [("0 3 * *", ""), ("", "10"), ("0 3 * * *", "6h")])
def test_what_is_no_time_is_refused(cron: str, every: str) -> None:
    with pytest.raises(ConfigurationError):
        Timetable.parse(cron, every)
