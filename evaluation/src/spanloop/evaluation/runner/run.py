"""Run every attempt at every task of a source, grade it and store it.

Invariant: whatever stops the run, kill -9 included, the same call continues it: each attempt has one end and one row.
The tasks stand in the ledger, so memory does not grow with their number.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spanloop.evaluation.tasks import TaskReading
from spanloop.foundation.processes.marked import VariableMark, kill_processes
from spanloop.foundation.processes.reaper import reaping
from spanloop.semconv.environment import PROCESS_MARK_ENV
from spanloop.store import Store

from .ledger import Ledger, Summary
from .making import AttemptPlan, Progress, make_attempts
from .stored_attempts import AttemptMaker, StoreWriter


class RunPlan(NamedTuple):
    """What is run."""

    folder: Path
    """Of the run; its name is the run's id."""
    identity: Mapping[str, str]
    """What makes the run this run: source, agent, model, …; a run of the same id must have the same."""
    tasks: TaskReading
    attempts: int
    """At each task."""
    maker: AttemptMaker
    making: AttemptPlan


def mark_prefix(folder: Path) -> str:
    """Return what the marks of a run's processes begin with."""
    return f"{folder}/"


def run_attempts(plan: RunPlan, store: Store, progress: Progress, stop: threading.Event) -> Summary:
    """Make all attempts that have no end yet, and return what became of all of them.

    Args:
        plan: What is run.
        store: Where results are stored.
        progress: Is told each result as it comes.
        stop: When it is set, running attempts are interrupted, to be made again by the next call.

    Raises:
        AlreadyRunningError: Another process runs it.
        ConfigurationError: The source or the agent cannot be used, or the run exists with other settings.
        EnvironmentBrokenError: The environment failed in several attempts in a row.
        ServiceError: The gateway stopped serving the model.
        StoreError: ClickHouse did not take the results; the ledger has them.
        DataDirectoryError: The disk is full.
    """
    mark = VariableMark(PROCESS_MARK_ENV, mark_prefix(plan.folder))
    with Ledger(plan.folder) as ledger:
        ledger.adopt(plan.identity)
        kill_processes(None, mark)  # what an earlier process of this run left, if its reaper was killed too
        ledger.recover()
        if not ledger.has_tasks:
            ledger.add_tasks(plan.tasks)
        ledger.add_attempts(plan.attempts)
        writer = StoreWriter(store, ledger, plan.maker)
        with reaping(mark):
            writer.start()
            try:
                make_attempts(plan.making, ledger, progress, stop)
            finally:
                writer.close()
        return ledger.summary()
