"""Run an example's agent on its task file against a scripted model, and convert the spans that a collector received."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

import polars as pl
from framework_matrix.recording import Recorded, collecting, drain, read_store

from spanloop.evaluation.environments import EnvironmentSettings, Outcome
from spanloop.evaluation.environments.endpoint import Endpoint, serving
from spanloop.evaluation.environments.pool import EnvironmentPool, PoolSettings
from spanloop.evaluation.runner.agent import AgentSettings
from spanloop.evaluation.runner.answers import Output
from spanloop.evaluation.runner.attempt import AttemptEnd, TaskAttempt
from spanloop.evaluation.runner.callable_agent import CallableAgent
from spanloop.evaluation.tasks import Task
from spanloop.semconv.environment import (
    DATA_DIR_ENV,
    ENVIRONMENT_SESSION_ENV,
    ENVIRONMENT_URL_ENV,
    EXIT_TIMEOUT_ENV,
)
from spanloop.store.client import Address

from ..instrumentation.support import EXAMPLES, Attributes, Reply, clean_environment, modelling


class Attempted(NamedTuple):
    """Answers, requests and stored rows of an agent's attempts."""

    answers: list[str]
    """Of each attempt."""
    errors: list[str]
    """Of attempts that ended with one."""
    requests: list[Attributes]
    """The requests to the model, in order."""
    transitions: pl.DataFrame
    spans: pl.DataFrame


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
        attempts = [_attempt(task["id"], task, number, {}) for number, task in enumerate(tasks)]
        ends = _made(name, function, attempts, {**_environment(model.url, data_dir), **variables})
        drain(data_dir)
        recorded = read_store(database, {})
    return _attempted(ends, model.requests, recorded)


def _made(
    name: str, function: str, attempts: Sequence[TaskAttempt], environment: Mapping[str, str]
) -> list[AttemptEnd]:
    settings = AgentSettings(
        f"agent:{function}", environment, mark_prefix=uuid4().hex, cwd=EXAMPLES / name, timeout_s=120
    )
    agent = CallableAgent(settings, output=Output.LINE)
    try:
        return [end for attempt in attempts if (end := agent.attempt(attempt, lambda: False)) is not None]
    finally:
        agent.close()


def _attempted(ends: Sequence[AttemptEnd], requests: list[Attributes], recorded: Recorded) -> Attempted:
    return Attempted(
        [end.answer for end in ends],
        [end.error for end in ends if end.error],
        requests,
        recorded.transitions,
        recorded.spans,
    )


def _environment(url: str, data_dir: Path) -> dict[str, str]:
    return {
        **clean_environment(),
        DATA_DIR_ENV: str(data_dir),
        "OPENAI_BASE_URL": url,
        "OPENAI_MODEL": "tiny",
        "OPENAI_API_KEY": "not-needed",
        EXIT_TIMEOUT_ENV: "60",
    }


def _attempt(task_id: str, fields: Mapping[str, Any], number: int, variables: Mapping[str, str]) -> TaskAttempt:
    rest = {key: value for key, value in fields.items() if key not in {"id", "task_id"}}
    return TaskAttempt(number, Task(task_id, rest, ""), 1, f"{number:x}".rjust(32, "e"), (), 0, variables)


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
        attempts = [_attempt(task["task_id"], task, 0, variables)]
        ends = _made(name, function, attempts, _environment(model.url, data_dir))
        pool.release(session)
        drain(data_dir)
        recorded = read_store(database, {})
    return _attempted(ends, model.requests, recorded), session.outcome
