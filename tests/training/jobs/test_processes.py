"""Test process identities and ending the processes of one job only."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.foundation.processes.identity import ProcessIdentity, send_signal
from spanloop.foundation.processes.marked import end_processes, find_processes
from spanloop.training.jobs.processes.job_processes import JOB_ID_ENV, JOB_TOKEN_ENV, JobMark

from .support import wait_until

SLEEP = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes that a test started; all of them end with it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def start(
    started: list["subprocess.Popen[bytes]"], command: list[str] = SLEEP, *, token: int = 0, session: bool = False
) -> ProcessIdentity:
    marks = {JOB_ID_ENV: "job-1", JOB_TOKEN_ENV: str(token)} if token else {}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | marks, start_new_session=session)
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    return identity


def test_an_identity_survives_text_and_file_names() -> None:
    own = ProcessIdentity.current()
    assert own.pid == os.getpid()
    assert ProcessIdentity.parse(str(own)) == own
    assert ProcessIdentity.from_file_name(own.file_name) == own
    assert not set(own.file_name) & {"/", ":", " "}
    assert own.is_running()
    for text in ("", "x", "x:1", "x:1:", "x:a:1", "somebody"):
        assert ProcessIdentity.parse(text) is None


def test_a_process_is_gone_when_it_ended_and_unknown_elsewhere(started: list["subprocess.Popen[bytes]"]) -> None:
    identity = start(started)
    assert not identity.has_ended()
    started[0].kill()
    wait_until(lambda: not identity.is_running())
    assert ProcessIdentity.of(identity.pid) == identity, "a zombie keeps its identity until it is reaped"
    started[0].wait()
    assert identity.has_ended()
    assert ProcessIdentity.of(identity.pid) is None
    elsewhere = identity._replace(machine="another")
    assert not elsewhere.has_ended()
    assert not elsewhere.is_running()


def test_a_recycled_pid_is_never_signalled(started: list["subprocess.Popen[bytes]"]) -> None:
    identity = start(started, session=True)
    former = identity._replace(start_ticks=identity.start_ticks - 1)
    assert former.has_ended()
    assert end_processes(former, JobMark("job-1", 9), grace_s=0) == 0
    send_signal(signal.SIGKILL, [former])
    assert identity.is_running()


def test_the_whole_session_ends_and_nobody_else(started: list["subprocess.Popen[bytes]"]) -> None:
    family = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    leader = start(started, [sys.executable, "-c", family + SLEEP[2]], session=True)
    bystander = start(started, session=True)
    mark = JobMark("job-1", 1)
    assert len(find_processes(leader, mark)) == 2
    assert end_processes(leader, mark, grace_s=5) == 2
    assert find_processes(leader, mark) == []
    assert bystander.is_running()


def test_strays_are_known_by_their_environment_up_to_their_lease(started: list["subprocess.Popen[bytes]"]) -> None:
    earlier = start(started, token=1, session=True)
    present = start(started, token=2, session=True)
    later = start(started, token=3, session=True)
    assert set(find_processes(None, JobMark("job-1", 2))) == {earlier, present}
    assert find_processes(None, JobMark("job-2", 2)) == []
    assert find_processes(None, JobMark("job-", 2)) == []
    assert end_processes(None, JobMark("job-1", 2), grace_s=5) == 2
    assert later.is_running()


def test_one_that_ignores_sigterm_is_killed(started: list["subprocess.Popen[bytes]"]) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP[2]
    leader = start(started, [sys.executable, "-c", stubborn], session=True)
    assert end_processes(leader, JobMark("job-1", 1), grace_s=0.1) == 1
    wait_until(lambda: not leader.is_running())


def test_the_name_of_a_command_cannot_confuse_us(started: list["subprocess.Popen[bytes]"], tmp_path: Path) -> None:
    odd = tmp_path / ") S 1 (x"
    odd.symlink_to(sys.executable)
    identity = start(started, [str(odd), *SLEEP[1:]])
    assert identity.is_running()
    assert Path(f"/proc/{identity.pid}/comm").read_text().startswith(")")
