"""One library, one instrumentor; and a failing one costs only itself."""

import importlib
import logging
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from spanloop.instrumentation import notice
from spanloop.instrumentation.exception_guard import guard, quiet_logs
from spanloop.instrumentation.loading import libraries
from spanloop.instrumentation.loading.instrumentor_choice import Choice
from spanloop.instrumentation.loading.instrumentors import Instrumentors
from spanloop.instrumentation.loading.libraries import Candidate, Library

from .support import App, Receiver

SOURCE = """
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

switched_on = []

class Preferred(BaseInstrumentor):
    def instrumentation_dependencies(self):
        return ()
    def _instrument(self, **kwargs):
        switched_on.append((type(self).__name__, kwargs))
    def _uninstrument(self, **kwargs):
        pass

class Other(Preferred):
    pass

class Broken(Preferred):
    def _instrument(self, **kwargs):
        raise ValueError("does not fit")
"""


@pytest.fixture
def switched_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, object]]]:
    """Which instrumentors were switched on; ``fake_library`` is what they instrument."""
    (tmp_path / "fake_instrumentors.py").write_text(SOURCE)
    (tmp_path / "other_instrumentors.py").write_text("from fake_instrumentors import *\n")
    (tmp_path / "foreign_instrumentors.py").write_text("from fake_instrumentors import *\n")
    (tmp_path / "fake_library.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(libraries, "LIBRARIES", (FAKE,))
    yield importlib.import_module("fake_instrumentors").switched_on
    for name in ("fake_instrumentors", "other_instrumentors", "foreign_instrumentors", "fake_library"):
        sys.modules.pop(name, None)


FAKE = Library(
    "fake",
    ("fake",),
    (Candidate("fake_instrumentors", "fake-instrumentors"), Candidate("other_instrumentors", "other-instrumentors")),
    "fake_library",
)


def _entry(value: str, name: str = "fake") -> EntryPoint:
    return EntryPoint(name, value, "opentelemetry_instrumentor")


def _offer(*values: str) -> None:
    offers = [_entry(value) for value in values]
    ranked = sorted(offers, key=lambda offer: libraries.rank(FAKE, offer.module))
    instrumentors = Instrumentors([Choice(FAKE, is_native=False, fitting=tuple(ranked))])
    for offer in offers:
        instrumentors.offer(offer, {"skip_dep_check": True})


def test_it_waits_for_the_library_and_then_one_is_switched_on(switched_on: list[tuple[str, object]]) -> None:
    _offer("other_instrumentors:Other", "fake_instrumentors:Preferred", "other_instrumentors.part:Absent")
    assert switched_on == []
    __import__("fake_library")
    assert switched_on == [("Preferred", {})]


def test_a_library_that_is_installed_under_another_name_is_instrumented_once(
    switched_on: list[tuple[str, object]],
) -> None:
    instrumentors = Instrumentors()
    for value in ("other_instrumentors:Other", "fake_instrumentors:Preferred"):
        instrumentors.offer(_entry(value), {"skip_dep_check": True})
    __import__("fake_library")
    assert switched_on == [("Other", {})]


def test_the_next_one_serves_where_the_preferred_one_fails(
    switched_on: list[tuple[str, object]], told: list[str]
) -> None:
    _offer("fake_instrumentors:Broken", "other_instrumentors:Other")
    __import__("fake_library")
    assert switched_on == [("Other", {})]
    (line,) = told
    assert "does not fit" in line


def test_an_unknown_library_is_instrumented_at_once(switched_on: list[tuple[str, object]], told: list[str]) -> None:
    instrumentors = Instrumentors()
    for value in ("foreign_instrumentors:Broken", "absent:Absent", "foreign_instrumentors:Other"):
        instrumentors.offer(EntryPoint("unknown", value, "opentelemetry_instrumentor"), {"skip_dep_check": True})
    assert switched_on == [("Other", {})]
    assert len(told) == 1


def test_a_users_disabled_instrumentation_stays_off(traced_app: App, receiver: Receiver) -> None:
    script = "import openai\nopenai.OpenAI().chat.completions.create(model='tiny', messages=[])\n"
    ran = traced_app.with_variables(OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="openai").run(script)
    assert (ran.stderr, ran.code) == ("", 0)
    assert receiver.spans == []


def test_the_app_says_which_installed_instrumentor_stays_off(traced_app: App, tmp_path: Path) -> None:
    folder = tmp_path / "packages" / "openinference_instrumentation_openai-0.1.dist-info"
    folder.mkdir(parents=True)
    requirement = 'Requires-Dist: openai>=99; extra == "instruments"\nProvides-Extra: instruments\n'
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: openinference-instrumentation-openai\nVersion: 0.1\n{requirement}"
    )
    (folder / "entry_points.txt").write_text(
        "[opentelemetry_instrumentor]\nopenai = openinference.instrumentation.openai:OpenAIInstrumentor\n"
    )
    app = traced_app.with_variables(PYTHONPATH=str(folder.parent))
    script = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'], check=True)\n"
    (line,) = app.run(script).stderr.splitlines()
    assert line.startswith(
        "spanloop: instrumentors of openai: opentelemetry-instrumentation-openai (not openinference-"
    )
    assert "needs openai>=99, found openai" in line
    assert app.with_variables(SPANLOOP_QUIET="1").run(script).stderr == ""


def test_only_the_first_line_is_told(told: list[str]) -> None:
    assert notice.print_once("first\nand its detail")
    assert not notice.print_once("second")
    assert told == ["spanloop: first\n"]


def test_a_forked_child_tells_nothing(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice._notice, "owner_pid", -1)  # pyright: ignore[reportPrivateUsage]
    assert not notice.print_once("from a child")
    assert told == []


def test_a_closed_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "_notice", notice.Notice())
    monkeypatch.setattr(sys, "__stderr__", None)
    assert not notice.print_once("into the void")


def test_the_guard_returns_the_fallback_and_lets_interrupts_pass(told: list[str]) -> None:
    @guard("it broke", -1)
    def broken(error: BaseException) -> int:
        raise error

    assert broken(ValueError("why")) == -1
    assert told == [
        "spanloop: it broke: ValueError: why (the app goes on without it; set OTEL_LOG_LEVEL=debug for more)\n"
    ]
    with pytest.raises(KeyboardInterrupt):
        broken(KeyboardInterrupt())


@pytest.fixture
def quieted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """A logger of the test's own, below one that is quieted."""
    name = f"quieted.{request.node.name}"
    monkeypatch.setattr("spanloop.instrumentation.exception_guard._QUIETED", (name,))
    monkeypatch.delenv("OTEL_LOG_LEVEL", raising=False)
    return logging.getLogger(f"{name}.sdk")


def test_opentelemetrys_errors_become_the_one_line(
    told: list[str], caplog: pytest.LogCaptureFixture, quieted: logging.Logger
) -> None:
    quiet_logs()
    quieted.warning("a warning")
    assert told == []
    quieted.error("an %s", "error", exc_info=ValueError("why"))
    assert told == ["spanloop: an error: ValueError: why\n"]
    assert caplog.records == []


def test_a_log_level_hands_the_logs_to_the_app(
    told: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, quieted: logging.Logger
) -> None:
    monkeypatch.setenv("OTEL_LOG_LEVEL", "debug")
    quiet_logs()
    quieted.debug("a detail")
    assert [record.message for record in caplog.records] == ["a detail"]
    assert told == []
