"""The process that runs the round of a loop that a schedule began: ``spanloop loop FILE``.

Invariant: at most one runs for this scheduler, and on a data directory at most one loop at all (the loop's leadership).
It runs while its schedule exists and is not paused, and while this scheduler leads: otherwise it is killed, which loses
at most the attempts that were running, and is started again when the schedule goes on. Its end is recorded once.
"""

import logging
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import Final

from spanloop.foundation.control.clock import Clock
from spanloop.foundation.processes.marked import VariableMark, kill_processes
from spanloop.foundation.processes.reaper import Reaper
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.leadership import CheckLeader
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_ticks import Decision, add_to_history
from spanloop.training.jobs.schedules.scheduled_rounds import ScheduledRound, begun_rounds, end_of_round, is_known

log = logging.getLogger("spanloop.training.run.scheduler")

DEFAULT_LOOP_COMMAND: Final = (sys.executable, "-m", "spanloop.cli", "loop")
_MARK_ENV: Final = "SPANLOOP_SCHEDULED_ROUND"
"""Marks the processes of a round, by which its reaper finds them."""
_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 4


class RoundProcess:
    """Starts and watches the process.

    Args:
        paths: Of the data directory.
        database: The control database.
        command: Program and arguments that run a loop; ``FILE --data-dir D`` is appended.
        clock: Returns the current time.
    """

    def __init__(
        self,
        paths: ControlPaths,
        database: ControlDatabase,
        command: Sequence[str] = DEFAULT_LOOP_COMMAND,
        *,
        clock: Clock,
    ) -> None:
        self._paths = paths
        self._database = database
        self._command = tuple(command)
        self._clock = clock
        self._running: _Running | None = None

    def look(self, check: CheckLeader) -> None:
        """Record the end of the round whose process has ended; start the process of the next begun round.

        Raises:
            LeadershipLostError: ``check`` says that another scheduler leads.
        """
        with self._database.read() as session:
            begun = begun_rounds(session)
        if self._running is not None:
            status = self._running.process.poll()
            if status is not None:
                self._record(self._running, status, check)
                return
            if self._running.begun in begun:
                return
            log.info("%s: %s is stopped; its schedule was paused or removed", *self._running.names)
            self.close()
        if begun:
            self._start(begun[0], check)

    def close(self) -> None:
        """Kill the process; its round stays begun."""
        if self._running is not None:
            self._running.kill()
            self._running = None

    def _start(self, begun: ScheduledRound, check: CheckLeader) -> None:
        with self._database.read() as session:
            end = end_of_round(session, begun)
        if end is not None:  # a scheduler that was killed did not record it
            self._end(begun, end, check)
            return
        try:
            self._running = _Running(begun, self._paths, self._command)
        except OSError as error:
            self._end(begun, f"its process could not be started: {error}", check)
        else:
            log.info("%s: %s started, pid %d", *self._running.names, self._running.process.pid)

    def _record(self, running: "_Running", status: int, check: CheckLeader) -> None:
        with self._database.read() as session:
            end = end_of_round(session, running.begun)
        if status or end is None:
            how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            end = f"interrupted: spanloop loop {how}: {running.log_tail()}"
        self._end(running.begun, end, check)
        running.kill()
        self._running = None

    def _end(self, begun: ScheduledRound, end: str, check: CheckLeader) -> None:
        with self._database.write() as session:
            check(session)
            if is_known(session, begun.schedule_id):
                decision = Decision(TickOutcome.ENDED, end)
                add_to_history(session, begun.schedule_id, decision, now=self._clock(), job_id=begun.name)
        log.info("%s: %s %s", begun.schedule_id, begun.name, end)


class _Running:
    """A running process of a round.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, begun: ScheduledRound, paths: ControlPaths, command: Sequence[str]) -> None:
        self.begun: Final = begun
        self._log_path: Final = paths.job_log(begun.schedule_id)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._mark: Final = VariableMark(_MARK_ENV, f"{begun.schedule_id}/{uuid.uuid4().hex}")
        self._reaper: Final = Reaper(self._mark)
        environment = os.environ | {DATA_DIR_ENV: str(paths.root), _MARK_ENV: self._mark.prefix}
        try:
            with self._log_path.open("ab") as output:
                output.write(f"=== {begun.name} of {begun.loop.path}\n".encode())
                output.flush()
                self._log_start = output.tell()
                self.process: Final = subprocess.Popen(
                    [*command, begun.loop.path, "--data-dir", str(paths.root)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
        except OSError:
            self._reaper.close()
            raise

    @property
    def names(self) -> tuple[str, str]:
        """The ids of schedule and round."""
        return self.begun.schedule_id, self.begun.name

    def kill(self) -> None:
        """Kill it and all that it started."""
        kill_processes(None, self._mark)
        self.process.wait()
        self._reaper.close()

    def log_tail(self) -> str:
        """Return the last lines of its output."""
        with self._log_path.open("rb") as output:
            size_bytes = output.seek(0, os.SEEK_END)
            output.seek(max(self._log_start, size_bytes - _TAIL_BYTES))
            lines = output.read().decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
        return " ".join(" ".join(lines).split()) or f"no output; read {self._log_path}"
