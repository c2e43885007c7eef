"""Run an example's agent on its task file against a scripted model, and convert the spans that a collector received."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl
from framework_matrix.recording import collecting, drain, read_store

from spanloop.evaluation.environments import EnvironmentSettings, Outcome
from spanloop.evaluation.environments.endpoint import Endpoint, serving
from spanloop.evaluation.environments.pool import EnvironmentPool, PoolSettings
from spanloop.semconv.environment import (
    DATA_DIR_ENV,
    ENVIRONMENT_SESSION_ENV,
    ENVIRONMENT_URL_ENV,
    EPISODE_ID_ENV,
    EXIT_TIMEOUT_ENV,
    TASK_ID_ENV,
)
from spanloop.store.client import Address

from ..instrumentation.support import BIN, EXAMPLES, Attributes, Reply, clean_environment, modelling


class Attempted(NamedTuple):
    """What a run of an agent said, asked and left in the store."""

    stdout: str
    stderr: str
    code: int
    requests: list[Attributes]
    """The requests to the model, in order."""
    transitions: pl.DataFrame
    spans: pl.DataFrame


def run_example(
    name: str, tasks: Path, script: Sequence[Reply], address: Address, *arguments: str, model_name: str = "tiny"
) -> Attempted:
    """Run ``examples/NAME/agent.py`` on ``tasks`` under ``opentelemetry-instrument``.

    Args:
        name: The example.
        tasks: Its task file; its folder becomes the data directory.
        script: The model's answers.
        address: An empty store, which gets the spans.
        *arguments: Further arguments of the agent.
        model_name: What the agent calls the model.
    """
    command = [str(BIN / "opentelemetry-instrument"), sys.executable, str(EXAMPLES / name / "agent.py"), str(tasks)]
    data_dir = tasks.parent
    with modelling() as model, collecting(address, address.database, data_dir) as database:
        model.script = script
        environment = {DATA_DIR_ENV: str(data_dir), "OPENAI_BASE_URL": model.url, EXIT_TIMEOUT_ENV: "60"}
        done = subprocess.run(
            [*command, "--model", model_name, *arguments],
            env=clean_environment() | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        drain(data_dir)
        recorded = read_store(database, {})
    return Attempted(done.stdout, done.stderr, done.returncode, model.requests, recorded.transitions, recorded.spans)


_CALL: Final = """
import asyncio, inspect, json, sys, agent
result = agent.{function}(json.loads(sys.argv[1]))
print(asyncio.run(result) if inspect.iscoroutine(result) else result)
"""


def run_acting(
    name: str,
    function: str,
    *,
    settings: EnvironmentSettings,
    task: Mapping[str, Any],
    script: Sequence[Reply],
    address: Address,
    data_dir: Path,
) -> tuple[Attempted, Outcome]:
    """Make one attempt of ``examples/NAME`` in an environment, as the task runner does.

    Args:
        name: The example.
        function: Of its ``agent.py``; it is called with the task.
        settings: The environment.
        task: The task's fields, with ``task_id``.
        script: The model's answers.
        address: An empty store, which gets the spans.
        data_dir: The data directory.
    """
    folder = EXAMPLES / name
    code = _CALL.format(function=function)
    command = [str(BIN / "opentelemetry-instrument"), sys.executable, "-c", code, json.dumps(dict(task))]
    with (
        modelling() as model,
        collecting(address, address.database, data_dir) as database,
        EnvironmentPool(PoolSettings(settings, os.environ, f"{data_dir}/", folder)) as pool,
        serving(Endpoint(pool)) as url,
    ):
        model.script = script
        session = pool.open(task, 0)
        assert not session.outcome.failure, session.outcome.failure
        environment = {
            DATA_DIR_ENV: str(data_dir),
            "OPENAI_BASE_URL": model.url,
            "OPENAI_MODEL": "tiny",
            "OPENAI_API_KEY": "not-needed",
            EXIT_TIMEOUT_ENV: "60",
            TASK_ID_ENV: str(task["task_id"]),
            EPISODE_ID_ENV: "e" * 32,
            ENVIRONMENT_URL_ENV: url,
            ENVIRONMENT_SESSION_ENV: session.key,
        }
        done = subprocess.run(
            command,
            env=clean_environment() | environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        pool.release(session)
        drain(data_dir)
        recorded = read_store(database, {})
    attempted = Attempted(
        done.stdout, done.stderr, done.returncode, model.requests, recorded.transitions, recorded.spans
    )
    return attempted, session.outcome
