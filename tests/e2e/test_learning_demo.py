"""The demo that learns, in small: fewer tasks and steps than ``make demo``, every part real; stopped once midway."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spanloop.training.loop.rounds import LoopRounds, StepName

SCRIPT = """
import signal
import sys
from pathlib import Path
import typer
from spanloop.demo import command
from spanloop.demo.learning_demo import DemoSettings

changes = {"attempts = 4": "attempts = 3", "steps = 5": "steps = 2", "steps = 8": "steps = 6"}
grpo = {"batch_groups = 16          # tasks": "batch_groups = 8           # tasks", "group_size = 4": "group_size = 3"}
settings = DemoSettings(test_tasks=48, train_tasks=32, changes=changes | grpo)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
try:
    command.learn(Path(sys.argv[1]), settings, serve=False, fresh=False)
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


def start(data_dir: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SPANLOOP_DATA_DIR"}
    command = [sys.executable, "-c", SCRIPT, str(data_dir)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def has_collected(data_dir: Path) -> bool:
    if not (data_dir / "control.db").exists():
        return False
    return any(each.step(StepName.COLLECT).is_finished for each in LoopRounds(data_dir).list())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_learns_and_goes_on_after_an_interruption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = start(tmp_path / "data")
    while first.poll() is None and not has_collected(tmp_path / "data"):
        time.sleep(0.5)
    time.sleep(15)  # into the job
    first.send_signal(signal.SIGINT)
    out, errors = first.communicate(timeout=120)
    assert first.returncode == 130, (out, errors)
    assert "the same command continues" in errors

    second = start(tmp_path / "data")
    out, errors = second.communicate()
    with capsys.disabled():
        sys.stdout.write(f"\n{errors}\n{out}")
    assert "(done before)" in errors
    assert "step 10 of 10, round 2" in errors
    gained = re.search(r"paired difference \+(\d+) %", out)
    assert gained is not None
    assert int(gained[1]) > 0
    agreed = re.search(r"mean absolute difference ([\d.]+)", out)
    assert agreed is not None
    assert 0 < float(agreed[1]) < 0.05
    rows = re.search(r"([\d,]+) of ([\d,]+) rows exact", out)
    assert rows is not None
    assert rows[1] == rows[2]
