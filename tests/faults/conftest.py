"""Fixtures of the fault tests: a scene for each test, and the ledgers' lines at the end of the run."""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address

from .ledger import Ledger
from .support import Scene

_LINES: Final = pytest.StashKey[list[str]]()


@pytest.fixture
def print_at_end(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line when the run ends."""
    lines: list[str] = request.config.stash.setdefault(_LINES, [])
    return lines.append


@pytest.fixture
def scene(data_dir: DataDir, tmp_path: Path, address: Address, print_at_end: Callable[[str], None]) -> Iterator[Scene]:
    """A data directory whose collectors write to the test's database on the session's ClickHouse."""
    yield from _scene(data_dir, tmp_path, address, print_at_end)


@pytest.fixture
def own_scene(data_dir: DataDir, tmp_path: Path, print_at_end: Callable[[str], None]) -> Iterator[Scene]:
    """A data directory whose embedded ClickHouse the test starts and stops."""
    yield from _scene(data_dir, tmp_path, None, print_at_end)


def _scene(
    data_dir: DataDir, tmp_path: Path, address: Address | None, print_at_end: Callable[[str], None]
) -> Generator[Scene]:
    with Ledger(tmp_path / "ledger") as ledger:
        scene_of_test = Scene(data_dir, ledger, address, print_at_end)
        yield scene_of_test
        scene_of_test.close()


@pytest.fixture(scope="session")
def times() -> int:
    """Factor for the length of the slow scenarios: SPANLOOP_FAULTS."""
    return int(os.environ.get("SPANLOOP_FAULTS", "1"))


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Print the ledgers' lines, so that they can be quoted."""
    yield
    lines: list[str] = terminalreporter.config.stash.setdefault(_LINES, [])
    for line in lines:
        terminalreporter.write_line(line)
