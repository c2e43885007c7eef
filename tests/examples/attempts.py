"""Run an example's agent on its task file against a scripted model, and convert the spans that a collector received."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
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


_CALL: Final = """
import asyncio, inspect, json, sys, agent
result = agent.{function}(json.loads(sys.argv[1]))
print(asyncio.run(result) if inspect.iscoroutine(result) else result)
"""


def run_example(
    name: str,
    function: str,
    *,
    tasks: Sequence[Mapping[str, Any]],
    script: Sequence[Reply],
    address: Address,
    data_dir: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Attempted:
    """Make one attempt of ``examples/NAME`` at each task, as the task runner does.

    Args:
        name: The example.
        function: Of its ``agent.py``; it is called with a task's fields.
        tasks: Their fields, with ``id``.
        script: The model's answers.
        address: An empty store, which gets the spans.
        data_dir: The data directory.
        variables: Further environment variables of the agent.
    """
    with modelling() as model, collecting(address, address.database, data_dir) as database:
        model.script = script
        done = [
            _call(name, function, fields=task, number=number, url=model.url, data_dir=data_dir, variables=variables)
            for number, task in enumerate(tasks)
        ]
        drain(data_dir)
        recorded = read_store(database, {})
    return Attempted(
        "".join(each.stdout for each in done),
        "".join(each.stderr for each in done),
        max(each.returncode for each in done),
        model.requests,
        recorded.transitions,
        recorded.spans,
    )


def _call(
    name: str,
    function: str,
    *,
    fields: Mapping[str, Any],
    number: int,
    url: str,
    data_dir: Path,
    variables: Mapping[str, str],
) -> "subprocess.CompletedProcess[str]":
    rest = {key: value for key, value in fields.items() if key not in {"id", "task_id"}}
    code = _CALL.format(function=function)
    environment = {
        DATA_DIR_ENV: str(data_dir),
        "OPENAI_BASE_URL": url,
        "OPENAI_MODEL": "tiny",
        "OPENAI_API_KEY": "not-needed",
        EXIT_TIMEOUT_ENV: "60",
        TASK_ID_ENV: str(fields.get("id") or fields["task_id"]),
        EPISODE_ID_ENV: f"{number:x}".rjust(32, "e"),
    }
    return subprocess.run(
        [str(BIN / "opentelemetry-instrument"), sys.executable, "-c", code, json.dumps(rest)],
        env={**clean_environment(), **environment, **variables},
        cwd=EXAMPLES / name,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


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
    with (
        modelling() as model,
        collecting(address, address.database, data_dir) as database,
        EnvironmentPool(PoolSettings(settings, os.environ, f"{data_dir}/", EXAMPLES / name)) as pool,
        serving(Endpoint(pool)) as url,
    ):
        model.script = script
        session = pool.open(task, 0)
        assert not session.outcome.failure, session.outcome.failure
        variables = {ENVIRONMENT_URL_ENV: url, ENVIRONMENT_SESSION_ENV: session.key}
        done = _call(name, function, fields=task, number=0, url=model.url, data_dir=data_dir, variables=variables)
        pool.release(session)
        drain(data_dir)
        recorded = read_store(database, {})
    attempted = Attempted(
        done.stdout, done.stderr, done.returncode, model.requests, recorded.transitions, recorded.spans
    )
    return attempted, session.outcome
