"""Runs the example agent ``examples/office`` under ``opentelemetry-instrument``, as a user would."""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spanloop.runtime import service_health
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.semconv.errors import ConfigurationError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanloop.datadir import DataDir

OTEL_PREFIX: Final = "OTEL_"
_PROGRESS: Final = re.compile(r"(\d+)/(\d+) attempts, mean reward ([\d.]+)")
_SETTLE_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.2
_TAIL_CHARACTERS: Final = 2_000


def office_folder() -> Path:
    """Where the example agent lies: in an installed wheel beside this module, in a clone under ``examples``.

    Raises:
        ConfigurationError: It is in neither place.
    """
    here = Path(__file__)
    candidates = [here.with_name("office_agent"), *(parent / "examples" / "office" for parent in here.parents)]
    for folder in candidates:
        if (folder / "agent.py").exists():
            return folder
    raise ConfigurationError(
        "The demo's agent is not there: expected examples/office of the project.",
        next_step="Install spanloop again, or run the demo in a clone of the project.",
    )


def make_office(folder: Path, *, seed: int, train: int, test: int) -> None:
    """Write ``office.sqlite``, ``train.json`` and ``test.json``.

    Args:
        folder: Made when it is not there.
        seed: Of the questions.
        train: Questions to train on.
        test: Questions to evaluate with, none of which share wording or values with the former.
    """
    command = [sys.executable, "tasks.py", str(folder.absolute()), "--seed", str(seed)]
    command += ["--train", str(train), "--test", str(test)]
    done = subprocess.run(command, cwd=office_folder(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigurationError(f"The tasks could not be made: {done.stderr.strip()[-_TAIL_CHARACTERS:]}")


def run_office(
    data_dir: "DataDir",
    folder: Path,
    tasks: Path,
    *,
    model: str,
    attempts: int,
    on_progress: "Callable[[int, int, float], None]",
) -> float:
    """Let the agent attempt every task of a file; returns the mean reward that it saw.

    Args:
        data_dir: Of the running spanloop whose gateway answers.
        folder: That `make_office` filled.
        tasks: The task file.
        model: Name that the gateway serves.
        attempts: At each task.
        on_progress: Is told attempts done, attempts in all and the mean reward so far.

    Raises:
        ServiceError: The gateway is gone, or the agent ended with an error.
    """
    gateway = data_dir.running("gateway")
    if gateway is None:
        raise ServiceError("The gateway went away.", next_step=f"Read {data_dir.logs / 'gateway.log'}")
    # The point of it all: the agent's process has no OpenTelemetry setting.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OTEL_PREFIX)}
    environment |= {DATA_DIR_ENV: str(data_dir.path), "OPENAI_BASE_URL": f"{gateway.url}/v1"}
    command = [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable, "agent.py"]
    command += [str(folder / "office.sqlite"), str(tasks), "--model", model, "--attempts", str(attempts)]
    mean = 0.0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command, cwd=office_folder(), env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            for line in process.stdout or ():
                if found := _PROGRESS.match(line):
                    mean = float(found[3])
                    on_progress(int(found[1]), int(found[2]), mean)
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        if status:
            errors.seek(0)
            raise ServiceError(
                f"The agent ended with {status}:\n{errors.read().strip()[-_TAIL_CHARACTERS:]}",
                next_step=f"Read {data_dir.logs / 'gateway.log'} and {data_dir.logs / 'engine.log'}; then the same "
                "command goes on.",
            )
    _await_arrival(data_dir)
    return mean


def _await_arrival(data_dir: "DataDir") -> None:
    """Return when nothing waits in a spool any more: what was acknowledged can be queried.

    Raises:
        ServiceError: Something still waits after two minutes.
    """
    deadline_s = time.monotonic() + _SETTLE_TIMEOUT_S
    while True:
        spool, engine = service_health.spool_health(data_dir), service_health.gateway_health(data_dir)
        if spool is not None and engine is not None and not spool.waiting_bytes and not engine.waiting_bytes:
            return
        if time.monotonic() > deadline_s:
            raise ServiceError(
                "Spans or captures have not reached ClickHouse after two minutes.",
                next_step=f"Read {data_dir.logs / 'collector.log'}; nothing is lost, and the same command goes on.",
            )
        time.sleep(_POLL_S)
