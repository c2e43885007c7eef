"""Fixtures for the distro's tests: the peers, and an app that finds them without an OpenTelemetry variable."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.instrumentation import notice
from spanloop.semconv.environment import EXIT_TIMEOUT_ENV

from .support import App, FakeModel, Receiver, announce, clean_environment, modelling, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with modelling() as running:
        yield running


@pytest.fixture
def app(tmp_path: Path, model: FakeModel) -> App:
    """A user's app on a machine where no collector runs, and which has time: what it sends late is no loss."""
    variables = {
        EXIT_TIMEOUT_ENV: "60",
        "SPANLOOP_DATA_DIR": str(tmp_path / "data"),
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "sk-secret",
        "OPENAI_MODEL": "tiny",
    }
    directory = tmp_path / "app"
    directory.mkdir()
    return App(directory, {**clean_environment(), **variables})


@pytest.fixture
def hasty_app(app: App) -> App:
    """The same with the time at its end that apps have by themselves."""
    return App(app.directory, {name: value for name, value in app.environment.items() if name != EXIT_TIMEOUT_ENV})


@pytest.fixture
def traced_app(app: App, receiver: Receiver) -> App:
    """A user's app on a machine where spanloop runs."""
    announce(Path(app.environment["SPANLOOP_DATA_DIR"]), receiver.url)
    return app


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that this process would have written to stderr."""
    lines: list[str] = []

    def write(line: str) -> bool:
        lines.append(line)
        return True

    monkeypatch.setattr(notice, "_notice", notice.Notice())
    monkeypatch.setattr(notice, "_write", write)
    return lines
