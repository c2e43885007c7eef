"""Decide about all due ticks of recurring schedules: ``python -m spanloop.training.run.run_ticks --data-dir D``.

The leading scheduler starts it, with its fencing token: ticks that are decided after another scheduler has taken over
change nothing. A tick that cannot be decided because a service is away stays due and says so; the exit status
is then not 0, and the scheduler starts this again after a pause.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.telemetry.logs import configure_logging, report_failure

from ..jobs.database.control_database import ControlDatabase
from ..jobs.leadership import SCHEDULER, CheckLeader, check_leader, unfenced
from ..jobs.paths import ControlPaths
from ..jobs.schedules.schedule_ticks import run_due_ticks
from ..jobs.schedules.tick_process import LEADER_TOKEN_ENV
from ..spec.stored_spec import parse_spec
from .tick_decision import decide_tick
from .transient import EX_TEMPFAIL


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run the due ticks; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.run.run_ticks", description=__doc__)
    parser.add_argument("--data-dir", required=True, type=Path)
    options = parser.parse_args(arguments)
    try:
        configure_logging("scheduler", options.data_dir)
        data_dir = DataDir(options.data_dir).open()
        is_complete = run_due_ticks(
            ControlDatabase(ControlPaths.of(data_dir)),
            lambda schedule: decide_tick(data_dir, schedule, now=utc_now()).decision,
            parse_spec,
            recurring=True,
            check=_fence(os.environ.get(LEADER_TOKEN_ENV, "")),
        )
    except SpanloopError as error:
        return report_failure(error)
    return 0 if is_complete else EX_TEMPFAIL


def _fence(token: str) -> CheckLeader:
    return partial(check_leader, name=SCHEDULER, token=int(token)) if token else unfenced


if __name__ == "__main__":
    sys.exit(main())
