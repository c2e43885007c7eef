"""Make attempts of one run that other processes may make too: ``python -m spanloop.training.attempt_pool.worker``.

A runner starts it and holds its standard input: when that closes, because the runner stops or dies, the running
attempts are interrupted and given back. It ends when the run has no offer left, or when another run's turn has come.
"""

import argparse
import logging
import os
import socket
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

from spanloop.evaluation.runner.attempt import EndedAttempt
from spanloop.evaluation.runner.ledger import Counts
from spanloop.evaluation.runner.making import make_attempts
from spanloop.evaluation.runner.planning import RunRequest, plan_attempts
from spanloop.foundation.errors import DataDirectoryError, SpanloopError
from spanloop.foundation.leases import Heartbeat
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.foundation.processes.marked import VariableMark
from spanloop.foundation.processes.reaper import reaping
from spanloop.foundation.telemetry.logs import configure_logging
from spanloop.semconv.environment import PROCESS_MARK_ENV
from spanloop.store import connect
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths

from .leased_attempts import LeasedAttempts
from .offers import Offers, Refusal

log = logging.getLogger("spanloop.training.attempt_pool")

_READ_BYTES: Final = 4096
RETRY_S: Final = 60.0
"""After so long a runner tries again that could not make the attempts because a service was away."""


class _Log:
    """Tells the runner's log what happens."""

    def started(self, counts: Counts) -> None:
        """Tell nothing: the run's process counts."""

    def ended(self, ended: EndedAttempt) -> None:
        log.debug("attempt %d at %s: %s", ended.attempt.number, ended.attempt.task.id, ended.end.state)

    def note(self, text: str) -> None:
        log.info("%s", text)


def work(
    data_dir: DataDir, offers: Offers, run_id: str, *, runner: str, slots: int, lease_s: float, stop: threading.Event
) -> int:
    """Make attempts of a run until it has none left; return how many were made.

    Args:
        data_dir: Of this host.
        offers: Of the control database.
        run_id: The run.
        runner: Identity of the runner that this process belongs to.
        slots: Attempts at the same time.
        lease_s: Duration of a lease.
        stop: When it is set, running attempts are interrupted and given back.

    Raises:
        SpanloopError: No attempt can be made here.
    """
    text = offers.request_of(run_id)
    if text is None:
        return 0
    request = RunRequest.model_validate_json(text).model_copy(update={"parallel": slots})
    if request.cwd is not None and request.cwd.is_dir():
        os.chdir(request.cwd)
        sys.path.append(str(request.cwd))  # for a grader in a module of the folder, as `spanloop run` does
    process = ProcessIdentity.current()
    mark = VariableMark(PROCESS_MARK_ENV, f"{data_dir.path}/attempts/{process.file_name}/")
    with connect(data_dir) as store, reaping(mark) as reaper:
        plan = plan_attempts(data_dir, request, store, mark=mark.prefix)
        leased = LeasedAttempts(
            offers,
            run_id,
            owner=str(process),
            runner=runner,
            lease_s=lease_s,
            stop=stop,
            keep_until=reaper.keep_until,
        )
        leased.beat()
        with closing(leased), Heartbeat(leased.beat, lease_s / 3, name="attempt-leases"):
            make_attempts(plan, leased, _Log(), stop)
    return leased.done


def _stop_at_end_of_input(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), _READ_BYTES):  # without the lock of `sys.stdin`, which an exit would wait for
        pass
    stop.set()


def main(arguments: list[str] | None = None) -> int:
    """Make the attempts; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.attempt_pool.worker", description=__doc__)
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--run", required=True)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--slots", required=True, type=int)
    parser.add_argument("--lease-s", required=True, type=float)
    given = parser.parse_args(arguments)
    data_dir = DataDir(given.data_dir).open()
    configure_logging("runner", data_dir.path)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stop = threading.Event()
    threading.Thread(target=_stop_at_end_of_input, args=(stop,), name="input", daemon=True).start()
    try:
        offers = Offers(ControlDatabase(ControlPaths.of(data_dir)))
        try:
            made = work(
                data_dir,
                offers,
                given.run,
                runner=given.runner,
                slots=given.slots,
                lease_s=given.lease_s,
                stop=stop,
            )
        except SpanloopError as error:
            if isinstance(error, DataDirectoryError) and error.is_transient:
                raise
            refusal = Refusal(socket.gethostname(), str(error))
            offers.refuse(given.run, given.runner, refusal, retry_s=RETRY_S if error.is_transient else None)
            log.error("run %s: this host cannot make its attempts: %s", given.run, error)  # noqa: TRY400
            return 0
    except DataDirectoryError as error:
        log.error("run %s: %s", given.run, error)  # noqa: TRY400 - the operator needs no traceback
        return os.EX_TEMPFAIL
    log.info("run %s: %d attempts made", given.run, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
