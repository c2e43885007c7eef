"""Run the ``spanloop`` command."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from spanloop.cli import main
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from .support import SPANLOOP, Run


@pytest.fixture
def spanloop(tmp_path: Path) -> Run:
    """``spanloop ARGUMENTS`` in this process, which has imported everything, on a data directory of the test."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(SPANLOOP), *arguments]
        stdout, stderr = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, _variables(tmp_path, environment)),
            patch.object(sys, "argv", command),
            patch.object(sys, "stdin", io.StringIO()),
            _same_signal_handlers(),
            redirect_stdout(stdout),
            redirect_stderr(stderr),
            pytest.raises(SystemExit) as left,
        ):
            main()
        code = left.value.code
        assert code is None or isinstance(code, int)
        return subprocess.CompletedProcess(command, code or 0, stdout.getvalue(), stderr.getvalue())

    return run


@pytest.fixture
def spanloop_process(tmp_path: Path) -> Run:
    """The same as a process of its own."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | _variables(tmp_path, environment)
        command = [str(SPANLOOP), *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200, check=False)

    return run


def _variables(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    return {"SPANLOOP_DATA_DIR": str(folder / "data"), "COLUMNS": "200", **environment}


@contextmanager
def _same_signal_handlers() -> Generator[None]:
    """Undo what ``spanloop up`` does to signals."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)


@pytest.fixture
def spanloop_on_store(spanloop: Run, address: Address, store: Store) -> Run:
    """The same on a migrated database of the test, instead of a server that each command starts and stops."""
    assert store.database == address.database
    user = f"{address.user}:{address.password}"
    url = f"{address.scheme}://{user}@{address.host}:{address.port}/{address.database}"

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return spanloop(*arguments, **{CLICKHOUSE_URL_ENV: url}, **environment)

    return run
