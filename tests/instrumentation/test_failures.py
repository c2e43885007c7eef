"""What a user notices when the collector is not there: nothing but one line."""

import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from .support import App, Receiver, black_hole, promptly, receiving, refused_url

CHATTY_APP = """
import logging, os, sys, time
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s %(message)s")
from opentelemetry import trace
from spanloop.instrumentation import reward, task

tracer = trace.get_tracer("app")
for step in range(3):
    with task("t"), tracer.start_as_current_span("step"):
        print(step, flush=True)
        reward(1.0)
    time.sleep(STEP_S)
print("done")
open(os.environ["LAST_STATEMENT"], "w").write(str(time.time()))
"""
CHATTY_OUTPUT = "0\n1\n2\ndone\n"

MODEL_APP = """
import logging, os, sys, time
import openai
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
client = openai.OpenAI()
for step in range(3):
    answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
    print(step, answer.choices[0].message.content, flush=True)
    while not os.path.exists("gone"):
        time.sleep(0.05)
open(os.environ["LAST_STATEMENT"], "w").write(str(time.time()))
"""
MAX_EXIT_DELAY_S = 2.0


@pytest.fixture
def outage(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a collector that fails in the way that the test's parameter names."""
    with ExitStack() as stack:
        match request.param:
            case "refused":
                yield refused_url()
            case "black hole":
                yield stack.enter_context(black_hole())
            case "unknown host":
                yield "http://collector.invalid:4318"
            case "nonsense":
                yield "no url at all"
            case "dies half-way":
                yield stack.enter_context(_dying_after_one_request()).url
            case status:
                receiver = stack.enter_context(receiving())
                receiver.answer = lambda _count: (int(status), b"not protobuf", {"retry-after": "30"})
                yield receiver.url


@contextmanager
def _dying_after_one_request() -> Generator[Receiver]:
    """A receiver whose server goes away after its first answer."""
    died = threading.Event()

    def answer_and_die(_count: int) -> tuple[int, bytes, dict[str, str]]:
        died.set()
        return 200, b"", {"connection": "close"}

    with ExitStack() as stack:
        receiver = stack.enter_context(receiving())
        receiver.answer = answer_and_die

        def reap() -> None:
            died.wait(30)
            stack.close()

        reaper = threading.Thread(target=reap)
        reaper.start()
        yield receiver
        died.set()
        reaper.join()


WAYS = ("refused", "black hole", "dies half-way", "unknown host", "500", "503", "nonsense")
AT_EXIT = [
    pytest.param(way, "0", id=f"{way} at exit", marks=pytest.mark.slow if way in {"unknown host", "500", "503"} else ())
    for way in WAYS
]
DURING_THE_RUN = [
    pytest.param(way, "0.7", id=f"{way} during the run", marks=() if way == "black hole" else pytest.mark.slow)
    for way in WAYS
]


@pytest.mark.parametrize(("outage", "step_s"), AT_EXIT + DURING_THE_RUN, indirect=["outage"])
def test_stdout_and_exit_code_stay_and_the_exit_is_prompt(hasty_app: App, outage: str, step_s: str) -> None:
    unlucky, script = hasty_app.with_variables(OTEL_EXPORTER_OTLP_ENDPOINT=outage), CHATTY_APP.replace("STEP_S", step_s)
    ran = promptly(lambda: unlucky.run(script), MAX_EXIT_DELAY_S)
    assert (ran.stdout, ran.code) == (CHATTY_OUTPUT, 0)
    assert len(ran.stderr_lines) <= 1, ran.stderr
    assert all(line.startswith("spanloop: ") for line in ran.stderr_lines)
    assert ran.exit_delay_s <= MAX_EXIT_DELAY_S


def test_the_app_itself_says_the_same_without_us(app: App) -> None:
    ran = app.run(CHATTY_APP.replace("STEP_S", "0"), instrumented=False)
    assert (ran.stdout, ran.stderr, ran.code) == (CHATTY_OUTPUT, "", 0)


def test_a_model_app_whose_collector_dies_is_none_the_wiser(hasty_app: App) -> None:
    gone = hasty_app.directory / "gone"
    gone.touch()
    plain = hasty_app.run(MODEL_APP, instrumented=False)
    gone.unlink()
    with ExitStack() as stack:
        receiver = stack.enter_context(receiving())
        receiver.answer = lambda _count: (200, b"", {"connection": "close"})

        def die(_: object) -> None:
            if not gone.exists():
                receiver.wait_for_spans(1)
                stack.close()
                gone.touch()

        unlucky = hasty_app.with_variables(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        run = partial(unlucky.run, MODEL_APP, while_running=die)
        ran = promptly(run, plain.exit_delay_s + MAX_EXIT_DELAY_S)
    assert (ran.stdout, ran.code) == (plain.stdout, plain.code)
    assert len(ran.stderr_lines) == 1, ran.stderr
    assert ran.exit_delay_s <= plain.exit_delay_s + MAX_EXIT_DELAY_S
    assert receiver.spans


def test_the_line_says_what_to_do(app: App) -> None:
    url = refused_url()
    ran = app.with_variables(OTEL_EXPORTER_OTLP_ENDPOINT=url).run(CHATTY_APP.replace("STEP_S", "0"))
    assert ran.stderr == (
        f"spanloop: no collector answers at {url}/v1/logs (Connection refused): telemetry of this run is lost. "
        "Start one with `spanloop up`, or point OTEL_EXPORTER_OTLP_ENDPOINT at one\n"
    )


def test_an_endpoint_that_is_no_url_is_said_to_be_none(app: App) -> None:
    ran = app.with_variables(OTEL_EXPORTER_OTLP_ENDPOINT="localhost:4318").run(CHATTY_APP.replace("STEP_S", "0"))
    (line,) = ran.stderr_lines
    assert "localhost:4318/v1/logs (expected a URL like http://host:port)" in line


def test_a_quiet_app_says_nothing_at_all(app: App) -> None:
    ran = app.with_variables(OTEL_EXPORTER_OTLP_ENDPOINT=refused_url(), SPANLOOP_QUIET="1").run(
        CHATTY_APP.replace("STEP_S", "0")
    )
    assert (ran.stderr, ran.code) == ("", 0)


def test_a_collector_that_is_back_in_time_loses_nothing(app: App, receiver: Receiver) -> None:
    receiver.answer = lambda count: (503, b"", {"retry-after": "0.2"}) if count <= 2 else (200, b"", {})
    script = CHATTY_APP.replace("STEP_S", "0") + "while not os.path.exists('end'): time.sleep(0.05)\n"

    def end_when_all_is_there(_: object) -> None:
        receiver.wait_for_spans(6)
        (app.directory / "end").touch()

    # At its end an app does not try again, so this one stays until all has arrived.
    patient = app.with_variables(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    ran = patient.run(script, while_running=end_when_all_is_there)
    assert (ran.stderr, ran.code) == ("", 0)
    assert sorted(span.name for span in receiver.spans) == ["step"] * 3 + ["task t"] * 3
    assert len(receiver.logs) == 3


def test_a_missing_key_is_named_with_the_command_that_makes_one(app: App, receiver: Receiver) -> None:
    receiver.answer = lambda _count: (401, b"", {})
    ran = app.with_variables(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url).run(CHATTY_APP.replace("STEP_S", "0"))
    (line,) = ran.stderr_lines
    assert "answered HTTP 401" in line
    assert "OTEL_EXPORTER_OTLP_HEADERS='Authorization=Bearer KEY'" in line
    assert "spanloop keys create NAME --scope ingest" in line


def test_refused_records_are_told(app: App, receiver: Receiver) -> None:
    rejection = b"\x0a\x0f\x08\x02\x12\x0bno ids there"[:17]
    receiver.answer = lambda _count: (200, rejection, {})
    ran = app.with_variables(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url).run(CHATTY_APP.replace("STEP_S", "0"))
    (line,) = ran.stderr_lines
    assert "refused 2 records" in line
    assert "no ids ther" in line
