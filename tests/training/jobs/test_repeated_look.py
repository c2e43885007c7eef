"""Looks that the scheduler's process repeats beside its loop."""

import logging
import threading

import pytest

from spanloop.foundation.errors import StoreError
from spanloop.training.jobs.processes.repeated_look import Pace, repeating


@pytest.mark.parametrize("error", [StoreError("away"), ValueError("a defect")])
def test_an_error_is_logged_once_and_later_looks_go_on(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    numbers: list[int] = []
    looked, closed = threading.Event(), threading.Event()

    def look() -> None:
        numbers.append(len(numbers))
        if len(numbers) > 3:
            looked.set()
        else:
            raise error

    with (
        caplog.at_level(logging.ERROR),
        repeating(look, name="test", is_leading=lambda: True, pace=Pace(0.01), close=closed.set),
    ):
        assert looked.wait(30)
    assert closed.wait(30)
    assert [record.getMessage() for record in caplog.records] == [f"test: {error}"]


def test_a_scheduler_that_does_not_lead_does_not_look() -> None:
    checks, looks = threading.Semaphore(0), list[str]()

    def is_leading() -> bool:
        checks.release()
        return False

    with repeating(lambda: looks.append("look"), name="test", is_leading=is_leading, pace=Pace(0.01)):
        for _ in range(3):
            assert checks.acquire(timeout=30)
    assert looks == []
