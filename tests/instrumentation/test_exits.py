"""However an app ends, it ends as it would without us, and what it had recorded is sent."""

import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .support import App, Receiver, announce, black_hole, promptly, refused_url, terminate

if TYPE_CHECKING:
    import subprocess

HEAD = """
import os, signal, sys, time
from opentelemetry import trace
tracer = trace.get_tracer("app")
tracer.start_span("recorded").end()
"""
READY = 'print("ready", flush=True)\n'
LAST_STATEMENT = 'open(os.environ["LAST_STATEMENT"], "w").write(str(time.time()))\n'

RAISES = HEAD + "def inner():\n    raise ValueError('the user\\'s own')\ninner()\n"
RAISES_IN_TASK = """
from spanloop.instrumentation import task
def inner():
    raise ValueError("the user's own")
@task("t")
def decorated():
    inner()
with task("t"):
    inner()
"""
SLEEPS = HEAD + LAST_STATEMENT + READY + "time.sleep(30)\n"
SPINS = HEAD + LAST_STATEMENT + READY + "while True: pass\n"
JOINS_A_THREAD = (
    HEAD
    + LAST_STATEMENT
    + READY
    + "import threading\nt = threading.Thread(target=time.sleep, args=(30,))\nt.start()\nt.join()\n"
)
HANDLES_SIGTERM = (
    HEAD
    + "signal.signal(signal.SIGTERM, lambda *_: (print('cleaning up'), sys.exit(7)))\n"
    + LAST_STATEMENT
    + READY
    + "time.sleep(30)\n"
)
MAX_EXIT_DELAY_S = 2.0


@pytest.mark.parametrize(
    ("script", "code"),
    [(HEAD + "sys.exit(3)\n", 3), (HEAD + "sys.exit('gone')\n", 1), (RAISES, 1), (HEAD, 0)],
    ids=["exit 3", "exit with text", "exception", "end"],
)
def test_exit_code_and_traceback_are_the_apps_and_its_spans_arrive(
    traced_app: App, receiver: Receiver, script: str, code: int
) -> None:
    plain = traced_app.run(script, instrumented=False)
    ran = traced_app.run(script)
    assert (ran.stdout, ran.stderr, ran.code) == (plain.stdout, plain.stderr, code)
    assert [span.name for span in receiver.spans] == ["recorded"]


def test_an_exception_through_a_task_keeps_its_traceback_and_marks_the_span(
    traced_app: App, receiver: Receiver
) -> None:
    plain = traced_app.run(RAISES_IN_TASK, instrumented=False)
    ran = traced_app.run(RAISES_IN_TASK)
    assert plain.stderr.endswith("ValueError: the user's own\n")
    assert (ran.stdout, ran.stderr, ran.code) == (plain.stdout, plain.stderr, 1)
    span = receiver.by_name("task t")
    assert (span.status, span.status_message) == (2, "ValueError: the user's own")
    ((event, attributes),) = span.events
    assert (event, attributes["exception.type"]) == ("exception", "ValueError")


@pytest.mark.parametrize(
    "script",
    [SLEEPS, pytest.param(SPINS, marks=pytest.mark.slow), JOINS_A_THREAD],
    ids=["sleeping", "spinning", "joining"],
)
def test_sigterm_flushes_and_kills_as_it_would(traced_app: App, receiver: Receiver, script: str) -> None:
    ran = traced_app.run(script, while_running=terminate)
    assert (ran.stdout, ran.stderr, ran.code) == ("", "", -signal.SIGTERM)
    assert [span.name for span in receiver.spans] == ["recorded"]


def test_ctrl_c_ends_as_it_would(traced_app: App, receiver: Receiver) -> None:
    def interrupt(process: "subprocess.Popen[str]") -> None:
        terminate(process, signal.SIGINT)

    plain = traced_app.run(SLEEPS, instrumented=False, while_running=interrupt)
    ran = traced_app.run(SLEEPS, launcher=True, while_running=interrupt)
    assert plain.code == -signal.SIGINT
    assert (ran.stdout, ran.stderr, ran.code) == (plain.stdout, plain.stderr, plain.code)
    assert [span.name for span in receiver.spans] == ["recorded"]


def test_an_apps_own_sigterm_handler_stays(traced_app: App, receiver: Receiver) -> None:
    ran = traced_app.run(HANDLES_SIGTERM, while_running=terminate)
    assert (ran.stdout, ran.stderr, ran.code) == ("cleaning up\n", "", 7)
    assert [span.name for span in receiver.spans] == ["recorded"]


def test_sigterm_is_prompt_without_a_collector(hasty_app: App) -> None:
    with black_hole() as hole:
        for url in (refused_url(), hole):
            announce(Path(hasty_app.environment["SPANLOOP_DATA_DIR"]), url)
            ran = promptly(lambda: hasty_app.run(SLEEPS, while_running=terminate), MAX_EXIT_DELAY_S)
            assert (ran.stdout, ran.code) == ("", -signal.SIGTERM)
            assert len(ran.stderr_lines) <= 1
            assert ran.exit_delay_s <= MAX_EXIT_DELAY_S


def test_ctrl_c_during_the_flush_leaves_it_a_death_by_sigterm(app: App) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        announce(Path(app.environment["SPANLOOP_DATA_DIR"]), f"http://127.0.0.1:{listener.getsockname()[1]}")

        def interrupt_the_flush(process: "subprocess.Popen[str]") -> None:
            terminate(process)
            peer, _ = listener.accept()
            process.send_signal(signal.SIGINT)
            process.wait(30)
            peer.close()

        ran = app.with_variables(OTEL_BSP_SCHEDULE_DELAY="60000").run(SLEEPS, while_running=interrupt_the_flush)
    assert (ran.stdout, ran.code) == ("", -signal.SIGTERM)
    assert "KeyboardInterrupt" not in ran.stderr


FORKS = (
    HEAD
    + """
pid = os.fork()
tracer.start_span("child" if pid == 0 else "parent").end()
if pid == 0:
    trace.get_tracer_provider().force_flush()
    print("child", flush=True)
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
)


def test_a_forked_child_does_not_disturb_its_parent(traced_app: App, receiver: Receiver) -> None:
    # Python 3.12 warns of a fork beside a thread, such as an exporter's
    ran = traced_app.with_variables(PYTHONWARNINGS="ignore::DeprecationWarning").run(FORKS)
    assert (ran.stdout, ran.stderr, ran.code) == ("child\n5\n", "", 0)
    assert sorted(span.name for span in receiver.spans) == ["child", "parent", "recorded"]


POOL = """
import multiprocessing, sys
from opentelemetry import trace

def work(number):
    with trace.get_tracer("app").start_as_current_span(f"work {number}"):
        return number * number

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(pool.map(work, range(4)))
        pool.close()
        pool.join()
    process = context.Process(target=work, args=(9,))
    process.start()
    process.join()
    print(process.exitcode)
"""


@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(each, marks=pytest.mark.slow) for each in ("spawn", "forkserver"))]
)
def test_spans_of_multiprocessing_children_arrive(traced_app: App, receiver: Receiver, method: str) -> None:
    ran = traced_app.run(POOL, method)
    assert (ran.stdout, ran.stderr, ran.code) == ("[0, 1, 4, 9]\n0\n", "", 0)
    assert sorted(span.name for span in receiver.spans) == ["work 0", "work 1", "work 2", "work 3", "work 9"]
    assert {span.resource["service.name"] for span in receiver.spans} == {"user_app"}


def test_children_say_nothing_about_a_missing_collector(app: App) -> None:
    announce(Path(app.environment["SPANLOOP_DATA_DIR"]), refused_url())
    script = HEAD + (
        "import subprocess\n"
        "child = subprocess.run([sys.executable, '-c', sys.argv[1]], capture_output=True, text=True)\n"
        "print(repr(child.stderr), child.returncode)\n"
    )
    ran = app.run(script, HEAD)
    assert (ran.stdout, len(ran.stderr_lines), ran.code) == ("'' 0\n", 1, 0)
