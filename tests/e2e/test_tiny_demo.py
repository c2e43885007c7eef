"""The end-to-end test: the whole loop through real parts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.gateway.engine.serving_environment import find_serving_environment

from ..dashboard.cli.support import everything_up

SPANLOOP = Path(sys.executable).with_name("spanloop")


@pytest.mark.timeout(900)
def test_the_tiny_demo_holds(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        find_serving_environment()
    except ConfigurationError as error:
        pytest.fail(f"{error}")
    run_demo(capsys)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tiny_demo_holds_on_running_services(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    configuration = tmp_path / "spanloop.toml"
    configuration.touch()
    with everything_up(tmp_path / "data"):
        for _ in range(2):  # the second run finds the rows of the first
            run_demo(capsys, "--config", str(configuration), "--data-dir", str(tmp_path / "data"))


def run_demo(capsys: pytest.CaptureFixture[str], *options: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPANLOOP_DATA_DIR"}
    command = [str(SPANLOOP), "demo", "--tiny", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=880, check=False)
    with capsys.disabled():
        sys.stdout.write(f"\n{done.stderr}\n{done.stdout}")
    assert [line for line in done.stdout.splitlines() if line.startswith("✗")] == []
    assert done.returncode == 0, done.stderr[-2000:]
    verdict = re.search(r"(\d+) checks, all hold; the tiny demo took (\d+) s", done.stdout)
    assert verdict is not None
    assert int(verdict[1]) >= 9
