"""A process with limits: its time, its output, and what it leaves behind."""
# pyright: reportPrivateUsage=false

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spanloop.foundation.processes.limited import Launch, LimitedProcess, Tail, Wakeup
from spanloop.foundation.processes.marked import VariableMark, find_processes
from spanloop.foundation.processes.reaper import Reaper, reaping

MARK = "SPANLOOP_TEST_MARK"


@pytest.fixture
def mark() -> Iterator[VariableMark]:
    found = VariableMark(MARK, secrets.token_hex(8))
    yield found
    assert find_processes(None, found) == []


@pytest.fixture
def start(mark: VariableMark) -> Callable[..., LimitedProcess]:
    def started(*command: str, output_bytes: int = 1 << 16) -> LimitedProcess:
        environment = {**os.environ, MARK: mark.prefix}
        return LimitedProcess(Launch(command, environment, mark, output_bytes=output_bytes))

    return started


def test_status_and_output_are_the_commands(start: Callable[..., LimitedProcess]) -> None:
    with start("sh", "-c", "echo out; echo err >&2; exit 3") as process:
        assert process.wait(60) is Wakeup.ENDED
        assert process.end() == 3
    assert (process.stdout.text, process.stderr.text) == ("out\n", "err\n")


def test_of_any_amount_of_output_the_end_is_kept(start: Callable[..., LimitedProcess]) -> None:
    with start(
        "sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo the end", output_bytes=1_000
    ) as process:
        assert process.wait(60) is Wakeup.ENDED
        assert process.end() == 0
    assert process.stdout.total_bytes == 50_000_009
    assert process.stdout.is_truncated
    assert len(process.stdout.text) == 1_000
    assert process.stdout.text.endswith("x\nthe end\n")


def test_a_tail_never_keeps_more_than_twice_its_limit() -> None:
    tail = Tail(10)
    for number in range(1_000):
        tail.add(f"{number:03d}".encode())
        assert len(tail._kept) <= 20
    assert (tail.text, tail.total_bytes) == ("6997998999", 3_000)
    assert tail.take().text == "6997998999"
    assert (tail.text, tail.total_bytes) == ("", 0)


def test_what_ignores_sigterm_is_killed_and_what_handles_it_may_end(start: Callable[..., LimitedProcess]) -> None:
    for trap, status in (("''", -9), ("'exit 7'", 7)):
        with start("sh", "-c", f"trap {trap} TERM; echo ready; while :; do sleep 0.05; done") as process:
            assert process.wait(0.5) is Wakeup.TIMED_OUT
            assert process.stdout.text == "ready\n"
            assert process.end(grace_s=0.3 if status < 0 else 30) == status


def test_children_and_those_that_left_the_session_end_with_it(start: Callable[..., LimitedProcess]) -> None:
    fork = "import os, time; os.fork() or (os.setsid(), os.fork() or time.sleep(600)); print('forked', flush=True)"
    with start(sys.executable, "-c", f"{fork}; time.sleep(600)") as process:
        assert process.wait(1.5) is Wakeup.TIMED_OUT
        assert "forked" in process.stdout.text
        process.end(grace_s=0.2)
    # The fixture looks for what is left.


def test_a_child_that_holds_the_output_open_does_not_delay_the_end(start: Callable[..., LimitedProcess]) -> None:
    began_s = time.monotonic()
    with start("sh", "-c", "sleep 600 & echo done") as process:
        assert process.wait(60) is Wakeup.ENDED
        assert process.end() == 0
    assert process.stdout.text == "done\n"
    assert time.monotonic() - began_s < 30


def test_a_caller_may_stop_waiting(start: Callable[..., LimitedProcess]) -> None:
    with start("sleep", "600") as process:
        assert process.wait(60, should_stop=lambda: True) is Wakeup.STOPPED


def test_a_command_that_is_none_is_an_os_error(start: Callable[..., LimitedProcess]) -> None:
    with pytest.raises(FileNotFoundError):
        start("/does/not/exist")


def test_the_reaper_kills_the_group_when_its_parent_is_killed(tmp_path: Path, mark: VariableMark) -> None:
    code = (
        "import os, subprocess, sys\n"
        "from spanloop.foundation.processes.marked import VariableMark\n"
        "from spanloop.foundation.processes.reaper import reaping\n"
        "with reaping(VariableMark(*sys.argv[1:3])):\n"
        "    command = ['setsid', 'sh', '-c', 'echo x > ' + sys.argv[3] + '; sleep 600']\n"
        "    subprocess.Popen(command, env={**os.environ, sys.argv[1]: sys.argv[2] + '/1'})\n"
        "    sys.stdin.read()\n"
    )
    started = tmp_path / "started"
    launch = Launch([sys.executable, "-c", code, *mark, str(started)], os.environ, VariableMark(MARK, "none"))
    reading, writing = os.pipe()
    with LimitedProcess(launch._replace(stdin=reading)) as process:
        os.close(reading)
        deadline_s = time.monotonic() + 60
        while not started.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert find_processes(None, mark)
        process.end()  # SIGKILL
    os.close(writing)
    while find_processes(None, mark) and time.monotonic() < deadline_s:
        time.sleep(0.02)


def test_the_reaper_ends_with_its_block(mark: VariableMark) -> None:
    with reaping(mark):
        pass


def test_the_reaper_kills_the_group_when_its_last_deadline_has_passed(mark: VariableMark) -> None:
    command = ["setsid", "sleep", "600"]
    with subprocess.Popen(command, env={**os.environ, MARK: f"{mark.prefix}/1"}) as process:
        reaper = Reaper(mark)
        began_s = time.monotonic()
        assert reaper.keep_until(began_s + 600)
        assert reaper.keep_until(began_s + 0.4)
        assert process.wait(60) == -9
        assert time.monotonic() - began_s >= 0.4
        while reaper.keep_until(began_s + 600):
            time.sleep(0.01)  # it ends a moment after the group
        reaper.close()
