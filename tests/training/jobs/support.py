"""Helpers of the control state tests, used in their signatures."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest
from sqlalchemy import delete

from spanloop.training.jobs.database.control_database import SCHEMA_NAME, ControlDatabase
from spanloop.training.jobs.database.tables import Base, SchemaRow
from spanloop.training.jobs.processes.scheduler_loop import Scheduler

ON_SQLITE = pytest.mark.parametrize("control_backend", ["sqlite"], indirect=True)
"""For a test of SQLite's files."""
ON_POSTGRESQL = pytest.mark.parametrize("control_backend", ["postgresql"], indirect=True)
"""For a test of what only PostgreSQL has."""
DatabaseAway = Callable[[], AbstractContextManager[None]]
RunnerOf = Callable[..., tuple[str, ...]]
OF_ANOTHER_VERSION = '{"kind": "grpo", "base": "tiny", "quantum": true}'
"""A stored spec that this spanloop does not understand."""


@dataclass
class FakeClock:
    """A clock that stands still until it is moved."""

    now: datetime = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> None:
        self.now += timedelta(**by)


class MakeScheduler(Protocol):
    """Makes a scheduler with an embedded job runner in this process, which leaves no process behind."""

    def __call__(
        self,
        runner: tuple[str, ...],
        *,
        clock: FakeClock | None = None,
        slots: int = 1,
        grace_s: float = 1.0,
        stopped_s: float = 600,
        gpu_slots: int | None = None,
    ) -> AbstractContextManager[Scheduler]: ...


def wait_until(holds: Callable[[], bool], *, timeout_s: float = 60.0, each: Callable[[], None] | None = None) -> None:
    """Wait for something that other processes bring about."""
    give_up_at = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"did not happen within {timeout_s} s")
        if each is not None:
            each()
        time.sleep(0.02)


def delete_all_rows(database: ControlDatabase) -> None:
    """Empty the database for the next test, or for the next example of one."""
    with database.write() as session:
        session.execute(delete(SchemaRow).where(SchemaRow.name != SCHEMA_NAME))
        for table in reversed(Base.metadata.sorted_tables):
            if table is not SchemaRow.__table__:
                session.execute(delete(table))
