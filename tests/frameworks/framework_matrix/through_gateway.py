"""Run an unchanged app against the gateway in front of the scripted model; check its answers and captures."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx

from spanloop.foundation.keys.local_tokens import admin_token
from spanloop.foundation.paths import DataDir
from spanloop.gateway.model_names import ModelNames
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store.client import Address, Connection

from .checks import expected_steps, script_of
from .environments import Environment
from .recording import TIMED_OUT, TIMEOUT_S, AppRun, app_environment, database_url, run_app, wait_until
from .rows import Row
from .scripted_model.script import COMMAND, MODEL, SCHEMA_ANSWER

_SERVED: Final = "served"
"""The name of a real model."""
_CONTEXT_TOKENS: Final = 4096
_NAMES: Final = ("gpt-4o", "claude-sonnet-5")
"""Models that the apps' sources name."""
COLUMNS: Final = {
    "chat": ("report", "async", "threads", "delegate"),
    "stream": ("stream",),
    "tool round trip": ("report", "stream", "shell"),
    "schema": ("schema",),
}
"""Column → the scripts whose tickets it needs."""
_STREAMED: Final = frozenset({"shell"})
"""Scripts of coding agents, which stream every answer."""


def run_through_gateway(
    row: Row, environment: Environment, address: Address, model_url: str, work: Path
) -> dict[str, str | None]:
    """Return what is wrong in each column; empty where everything is right, None where the app has no such task."""
    work.mkdir(parents=True)
    database = replace(address, database=f"g_{work.parent.name}_{work.name}")
    ModelNames(DataDir(work / "data").open()).set(MODEL, list(_NAMES))
    with _gateway(database, work, "--upstream", model_url) as url:
        wait_until(lambda: _health(url)["engine"] == "serving", "the gateway does not serve")
        more = row.environment | {"MATRIX_GATEWAY": "1"}
        run = run_app(environment.plain_command, app_environment(url, work, more))
        (work / "app.stderr").write_text(run.stderr + "".join(f"\n{t}: {e}" for t, e in run.errors.items()))
        wait_until(lambda: _health(url)["captures"]["waiting_records"] == 0, "the gateway does not store its captures")
    return cells(row, run, _captured(database) if run.answers else 0)


@contextmanager
def serving(model: Path, address: Address, work: Path) -> Generator[Callable[[Row, Environment], str]]:
    """Serve a model folder by a gateway with vLLM.

    Yields what runs the chat of a row, and returns what is wrong with it; empty where nothing is.
    """
    database = replace(address, database="served")
    directory = DataDir(work / "data").open()
    ModelNames(directory).set(_SERVED, list(_NAMES))
    with _gateway(database, work, "--max-model-len", str(_CONTEXT_TOKENS)) as url:
        document = {"name": _SERVED, "version": "v1", "path": str(model.resolve())}
        headers = {"authorization": f"Bearer {admin_token(directory)}"}
        httpx.post(f"{url}/admin/deploy", json=document, headers=headers, timeout=2 * TIMEOUT_S).raise_for_status()

        stored = 0

        def chat(row: Row, environment: Environment) -> str:
            nonlocal stored
            variables = app_environment(url, work, row.environment | {"MATRIX_GATEWAY": "chat"})
            run = run_app(environment.plain_command, variables)
            (work / f"{row.name}.json").write_text(json.dumps(run._asdict(), indent=1))
            wait_until(lambda: not _health(url)["captures"]["waiting_records"], "the gateway does not store captures")
            for error in run.errors.values():
                return f"the app failed: {_last_line(error)}"
            if not any(answer.strip() for answer in run.answers.values()):
                return f"no answer: {_last_line(run.stderr)}"
            before, stored = stored, _captured(database, with_tokens=True)
            return "" if stored > before else "the answer's tokens are not captured"

        yield chat


@contextmanager
def _gateway(database: Address, work: Path, *options: str) -> Generator[str]:
    directory = DataDir(work / "data").open()
    command = (sys.executable, "-m", "spanloop.gateway", "--data-dir", str(directory.path), "--port", "0")
    with (work / "gateway.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options],
            env=os.environ | {CLICKHOUSE_URL_ENV: database_url(database)},
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: directory.running("gateway") is not None, "the gateway does not start")
        running = directory.running("gateway")
        assert running is not None
        yield running.url
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _health(url: str) -> dict[str, Any]:
    document: dict[str, Any] = httpx.get(f"{url}/healthz").json()
    return document


def _captured(database: Address, *, with_tokens: bool = False) -> int:
    """Return how many answers of the model are stored, all of them or those with their tokens."""
    connection = Connection(database)
    try:
        query = "SELECT uniqExact(response_id) AS answers FROM generations WHERE is_complete >= {least: UInt8}"
        rows = connection.query(query, doing="reading captures", parameters={"least": int(with_tokens)})
        return int(rows["answers"].item())
    finally:
        connection.close()


def cells(row: Row, run: AppRun, captured: int) -> dict[str, str | None]:
    """Return what is wrong in each column, and with the captures."""
    wrong = {ticket: _wrong(ticket, answer) for ticket, answer in run.answers.items()}
    wrong |= {ticket: f"the app failed: {_last_line(error)}" for ticket, error in run.errors.items()}
    if run.code == TIMED_OUT or not wrong:
        return {"chat": "the app did not end" if wrong else f"the app failed: {_last_line(run.stderr)}"}
    columns: dict[str, str | None] = {}
    for column, scripts in COLUMNS.items():
        streams = _STREAMED if column in {"chat", "stream"} else frozenset[str]()
        reasons = [reason for ticket, reason in wrong.items() if script_of(ticket) in {*scripts, *streams}]
        columns[column] = next(filter(None, reasons), "") if reasons else None
    calls = sum(_calls(row, ticket) for ticket in run.answers)
    columns["captures"] = "" if captured >= calls else f"{captured} of {calls} answers are captured"
    return columns


def _calls(row: Row, ticket: str) -> int:
    """Return the model calls of a ticket; a coding agent may make more, for a title."""
    return {"schema": 1, "shell": 2}.get(script_of(ticket)) or expected_steps(row, ticket)


def _wrong(ticket: str, answer: str) -> str:
    match script_of(ticket):
        case "schema":
            is_right = json.loads(answer) == SCHEMA_ANSWER
        case "shell":
            written = re.search("'(.*)'", COMMAND)
            is_right = written is not None and f"Done with {ticket}" in answer and answer.endswith(written[1])
        case _:
            is_right = f"Done with {ticket}" in answer
    return "" if is_right else f"another answer: {answer:.80}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:120]
