"""Run an example agent of ``examples/`` under ``opentelemetry-instrument``, as a user does.

Its folder has ``tasks.py``, which writes task files from a seed, and ``agent.py``, which attempts the tasks of a file.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError, ServiceError
from spanloop.runtime import service_health
from spanloop.semconv.environment import DATA_DIR_ENV

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanloop.foundation.paths import DataDir

OTEL_PREFIX: Final = "OTEL_"
_PROGRESS: Final = re.compile(r"(\d+)/(\d+) attempts, mean reward ([\d.]+)")
_DRAIN_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.2
_TAIL_CHARACTERS: Final = 2_000


class ExampleAgent(NamedTuple):
    """An example agent, its task files, and the arguments that name its data."""

    name: str
    """Name of its model in the registry, and of its evaluations."""
    folder: Path
    """The folder of ``tasks.py`` and ``agent.py``."""
    train: str = "train.jsonl"
    """File of the training tasks in the folder that ``tasks.py`` fills."""
    test: str = "test.jsonl"
    arguments: tuple[str, ...] = ()
    """Arguments of ``agent.py`` before the task file; ``{tasks}`` stands for the folder that ``tasks.py`` fills."""


class AgentRun(NamedTuple):
    """How the agent is run."""

    tasks: str
    """Name of the task file."""
    attempts: int = 1
    """Attempts at each task."""
    script: Path = Path("agent.py")
    """The program; a relative path is in the agent's folder."""
    base_url: str = ""
    """OpenAI-compatible endpoint; empty for the gateway's."""
    model: str = ""
    """Name of the model at ``base_url``; empty for the agent's name."""


def office_agent() -> ExampleAgent:
    """Return the demo's agent."""
    folder = Path(__file__).parents[2] / "examples" / "office"
    return ExampleAgent("office", folder, arguments=("{tasks}/office.sqlite",))


def write_tasks(agent: ExampleAgent, folder: Path, *, seed: int, train: int | None, test: int | None) -> None:
    """Let the agent's ``tasks.py`` write its task files and data into ``folder``, which is created if missing.

    Args:
        agent: The agent.
        folder: Where to write.
        seed: Seed of the tasks.
        train: Number of training tasks; None for the default of ``tasks.py``.
        test: Number of test tasks, which share no value with the training tasks; None for the default.
    """
    command = [sys.executable, "tasks.py", str(folder.absolute()), "--seed", str(seed)]
    for option, count in (("--train", train), ("--test", test)):
        command += [] if count is None else [option, str(count)]
    completed = subprocess.run(command, cwd=agent.folder, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise ConfigurationError(f"Tasks could not be generated: {completed.stderr.strip()[-_TAIL_CHARACTERS:]}")


def run_agent(
    data_dir: "DataDir",
    agent: ExampleAgent,
    folder: Path,
    run: AgentRun,
    *,
    on_progress: "Callable[[int, int, float], None]",
) -> float:
    """Run the agent on every task of a file; return its mean reward.

    Args:
        data_dir: The data directory of the running spanloop.
        agent: The agent.
        folder: A folder that `write_tasks` filled.
        run: Its tasks and its model.
        on_progress: Receives the finished attempts, all attempts and the mean reward so far.

    Raises:
        ServiceError: The gateway has stopped, or the agent ended with an error.
    """
    gateway = data_dir.find("gateway")
    if gateway is None:
        raise ServiceError("The gateway has stopped.", next_step=f"Read {data_dir.logs / 'gateway.log'}")
    # The agent must be traced without any OpenTelemetry setting.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OTEL_PREFIX)}
    environment |= {DATA_DIR_ENV: str(data_dir.path), "OPENAI_BASE_URL": run.base_url or f"{gateway.url}/v1"}
    command = [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable, str(run.script)]
    command += [argument.format(tasks=folder) for argument in agent.arguments]
    command += [str(folder / run.tasks), "--model", run.model or agent.name, "--attempts", str(run.attempts)]
    mean = 0.0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command, cwd=agent.folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
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
