"""A user's app beside a running spanloop: nothing configured, nothing changed, even when the collector is killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import DATA_DIR_ENV, EXIT_TIMEOUT_ENV
from spanloop.store import connect

from ..dashboard.cli.support import Up, eventually, everything_up
from ..instrumentation.support import App, FakeModel, calls, clean_environment, modelling, says

EXAMPLE = Path(__file__).parents[2] / "examples" / "weather_agent.py"
SCRIPT = (
    calls("get_weather", {"city": "Bergen"}, "call_1"),
    calls("get_weather", {"city": "Atlantis"}, "call_2"),
    says("Cycle in Bergen."),
)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with everything_up(tmp_path_factory.mktemp("up") / "data") as running:
        yield running


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with modelling() as running:
        running.script = SCRIPT
        yield running


@pytest.fixture
def app(up: Up, model: FakeModel, tmp_path: Path) -> App:
    settings = {
        DATA_DIR_ENV: str(up.data_dir),
        EXIT_TIMEOUT_ENV: "60",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "none",
        "OPENAI_MODEL": "tiny",
    }
    return App(tmp_path, {**clean_environment(), **settings})


def chat_spans(up: Up) -> int:
    with connect(DataDir(up.data_dir)) as store:
        return int(store.query("demo_arrived").row(0)[0])


def test_spans_are_stored_without_any_setting(up: Up, app: App, model: FakeModel) -> None:
    assert not [name for name in app.environment if name.startswith("OTEL_")]
    bare = app.run(EXAMPLE, instrumented=False)
    model.requests.clear()
    ran = app.run(EXAMPLE, launcher=True)
    assert (ran.stdout, ran.code) == (bare.stdout, bare.code) == (bare.stdout, 0)
    assert eventually(lambda: chat_spans(up) == len(SCRIPT), 60)


@pytest.mark.slow
def test_killing_the_collector_meanwhile_changes_nothing_that_a_user_sees(up: Up, app: App, model: FakeModel) -> None:
    bare = app.run(EXAMPLE, instrumented=False)
    model.requests.clear()
    collector = up.pid_of("collector")
    assert collector is not None

    def kill_the_collector(_: object) -> None:
        assert eventually(lambda: bool(model.requests))
        os.kill(collector, signal.SIGKILL)

    ran = app.run(EXAMPLE, launcher=True, while_running=kill_the_collector)
    assert (ran.stdout, ran.code) == (bare.stdout, bare.code)
    assert len(ran.stderr_lines) <= len(bare.stderr_lines) + 1
    assert eventually(lambda: up.pid_of("collector") not in {None, collector})
