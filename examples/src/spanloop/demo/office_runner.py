"""Run the example agent ``examples/office`` under ``opentelemetry-instrument``, as a user does."""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from spanloop.runtime import service_health
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.semconv.errors import ConfigurationError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanloop.datadir import DataDir

OTEL_PREFIX: Final = "OTEL_"
_PROGRESS: Final = re.compile(r"(\d+)/(\d+) attempts, mean reward ([\d.]+)")
_DRAIN_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.2
_TAIL_CHARACTERS: Final = 2_000


class AgentRun(NamedTuple):
    """How the agent is run."""

    model: str
    """Name of the model at ``base_url``."""
    tasks: str
    """Name of the task file."""
    attempts: int = 1
    """Attempts at each task."""
    script: Path = Path("agent.py")
    """The program; a relative path is in the agent's folder."""
    base_url: str = ""
    """OpenAI-compatible endpoint; empty for the gateway's."""


def office_folder() -> Path:
    """Return the example agent's folder: beside this module in an installed wheel, under ``examples`` in a clone.

    Raises:
        ConfigurationError: The folder is in neither place.
    """
    here = Path(__file__)
    candidates = [here.with_name("office_agent"), *(parent / "examples" / "office" for parent in here.parents)]
    for folder in candidates:
        if (folder / "agent.py").exists():
            return folder
    raise ConfigurationError(
        "The demo's agent is missing: expected examples/office of the project.",
        next_step="Reinstall spanloop, or run the demo in a clone of the project.",
    )


def make_office(folder: Path, *, seed: int, train: int, test: int) -> None:
    """Write ``office.sqlite``, ``train.json`` and ``test.json`` into ``folder``, which is created if missing.

    The ``test`` test questions share no wording and no value with the ``train`` training questions.
    """
    command = [sys.executable, "tasks.py", str(folder.absolute()), "--seed", str(seed)]
    command += ["--train", str(train), "--test", str(test)]
    completed = subprocess.run(command, cwd=office_folder(), capture_output=True, text=True, check=False)
    if completed.returncode:
        raise ConfigurationError(f"Tasks could not be generated: {completed.stderr.strip()[-_TAIL_CHARACTERS:]}")


def run_office(
    data_dir: "DataDir", folder: Path, run: AgentRun, *, on_progress: "Callable[[int, int, float], None]"
) -> float:
    """Run the agent on every task of a file; return its mean reward.

    Args:
        data_dir: The data directory of the running spanloop.
        folder: A folder that `make_office` filled.
        run: The agent, its model and its tasks.
        on_progress: Receives the finished attempts, all attempts and the mean reward so far.

    Raises:
        ServiceError: The gateway has stopped, or the agent ended with an error.
    """
    gateway = data_dir.running("gateway")
    if gateway is None:
        raise ServiceError("The gateway has stopped.", next_step=f"Read {data_dir.logs / 'gateway.log'}")
    # The agent must be traced without any OpenTelemetry setting.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OTEL_PREFIX)}
    environment |= {DATA_DIR_ENV: str(data_dir.path), "OPENAI_BASE_URL": run.base_url or f"{gateway.url}/v1"}
    command = [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable, str(run.script)]
    command += [str(folder / "office.sqlite"), str(folder / run.tasks)]
    command += ["--model", run.model, "--attempts", str(run.attempts)]
    mean = 0.0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command, cwd=office_folder(), env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            for line in process.stdout or ():
                if progress := _PROGRESS.match(line):
                    mean = float(progress[3])
                    on_progress(int(progress[1]), int(progress[2]), mean)
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
                "command continues.",
            )
    _await_empty_spools(data_dir)
    return mean


def _await_empty_spools(data_dir: "DataDir") -> None:
    """Wait until both spools are empty, so that every acknowledged span and capture can be queried.

    Raises:
        ServiceError: Data still waits after two minutes.
    """
    deadline_s = time.monotonic() + _DRAIN_TIMEOUT_S
    while True:
        spool, gateway = service_health.spool_health(data_dir), service_health.gateway_health(data_dir)
        if spool is not None and gateway is not None and not spool.waiting_bytes and not gateway.waiting_bytes:
            return
        if time.monotonic() > deadline_s:
            raise ServiceError(
                "Spans or captures have not reached ClickHouse after two minutes.",
                next_step=f"Read {data_dir.logs / 'collector.log'}; nothing is lost, and the same command continues.",
            )
        time.sleep(_POLL_S)
