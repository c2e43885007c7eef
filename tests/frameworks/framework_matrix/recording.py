"""Run an app under ``opentelemetry-instrument`` against a real collector, and convert what arrived."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import polars as pl

from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run as convert
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV, EXIT_TIMEOUT_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection

TIMEOUT_S = 300.0
TIMED_OUT = 124
"""The exit code of an app that was ended after `TIMEOUT_S`."""
_TRANSITIONS = """
SELECT t.*, e.trace_ids AS trace_ids FROM transitions AS t
INNER JOIN (SELECT episode_id, revision, trace_ids FROM episodes FINAL WHERE is_deleted = 0) AS e
    ON t.episode_id = e.episode_id AND t.revision = e.revision
ORDER BY t.episode_id, t.step
"""
_SPANS = "SELECT TraceId, SpanId, ParentSpanId, SpanName, ScopeName, StatusCode, SpanAttributes FROM otel_traces"


class AppRun(NamedTuple):
    """What one process of an app said and how it ended."""

    answers: dict[str, str]
    """Ticket → answer."""
    errors: dict[str, str]
    """Ticket → traceback."""
    stderr: str
    code: int


class Recorded(NamedTuple):
    """What the store holds after an app's runs."""

    runs: dict[str, AppRun]
    transitions: pl.DataFrame
    spans: pl.DataFrame


@contextmanager
def collecting(address: Address, name: str, data_dir: Path) -> Generator[Address]:
    """Run a real collector on a database of its own, announced in ``data_dir``; yields the database's address."""
    database = replace(address, database=name)
    directory = DataDir(data_dir).open()
    with (data_dir / "collector.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "spanloop.collector", "--data-dir", str(data_dir), "--port", "0", "--no-grpc"],
            env=os.environ | {CLICKHOUSE_URL_ENV: database_url(database)},
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: directory.running("collector") is not None, "the collector does not start")
        yield database
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def database_url(address: Address) -> str:
    """Return an address as the URL that processes of spanloop read."""
    user = f"{quote(address.user)}:{quote(address.password)}"
    return f"{address.scheme}://{user}@{address.host}:{address.port}/{address.database}"


def drain(data_dir: Path) -> None:
    """Wait until everything that the collector acknowledged is in ClickHouse."""
    running = DataDir(data_dir).running("collector")
    assert running is not None

    def is_empty() -> bool:
        report: dict[str, Any] = httpx.get(f"{running.url}/healthz").json()
        return int(report["spool"]["records"]) == 0

    wait_until(is_empty, "the collector does not write")


def wait_until(condition: Callable[[], bool], problem: str) -> None:
    """Wait until a condition holds. TimeoutError: it does not within `TIMEOUT_S`."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        time.sleep(0.05)


def run_app(command: Sequence[str], environment: Mapping[str, str]) -> AppRun:
    """Run an app's command, and read what it says about its tasks."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        stdout, stderr, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        stdout, stderr, code = _text(error.stdout), _text(error.stderr) + f"\ntook over {TIMEOUT_S} s", TIMED_OUT
    lines = [json.loads(line) for line in stdout.splitlines() if line.startswith('{"ticket"')]
    return AppRun(
        answers={line["ticket"]: line["answer"] for line in lines if "answer" in line},
        errors={line["ticket"]: line["error"] for line in lines if "error" in line},
        stderr=stderr,
        code=code,
    )


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def app_environment(model_url: str, data_dir: Path, more: Mapping[str, str]) -> dict[str, str]:
    """The environment of an app: this process's without telemetry, and the scripted model for every provider."""
    ours = ("OTEL_", "SPANLOOP_", "TRACELOOP_", "OPENAI_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    keys = ("OPENAI", "ANTHROPIC", "GOOGLE", "MISTRAL")
    return {
        **kept,
        **{f"{name}_API_KEY": "none" for name in keys},
        "CO_API_KEY": "none",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "MODEL_URL": model_url,
        "OPENAI_BASE_URL": f"{model_url}/v1",
        "ANTHROPIC_BASE_URL": model_url,
        "GOOGLE_GEMINI_BASE_URL": model_url,
        "CO_API_URL": model_url,
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": model_url,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
        "CREWAI_DISABLE_TELEMETRY": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
        DATA_DIR_ENV: str(data_dir),
        EXIT_TIMEOUT_ENV: "60",
        **more,
    }


def read_store(database: Address, runs: dict[str, AppRun]) -> Recorded:
    """Convert what arrived, and read it."""
    with Store(database) as store:
        convert(store)
    connection = Connection(database)
    try:
        transitions = connection.query(_TRANSITIONS, doing="reading transitions")
        return Recorded(runs, transitions, connection.query(_SPANS, doing="reading spans"))
    finally:
        connection.close()
