"""Run the matrix: ``python -m framework_matrix [ROW ...]``."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address
from spanloop.store.discovery import embedded_address

from . import environments, javascript, results
from .checks import CHECKS, rewards, script_of
from .environments import CommandFailedError, Environment
from .facts import Tasks, read_tasks
from .recording import TIMED_OUT, Recorded, app_environment, collecting, drain, read_store, run_app
from .results import SCENARIOS, RowResult
from .rows import ROWS as PYTHON_ROWS
from .rows import Row
from .scripted_model.server import scripted_model
from .through_gateway import run_through_gateway, serving

ROWS = (*PYTHON_ROWS, *javascript.ROWS)
_MEMORY_BYTES = 1 << 30
UNTRACED = "spanloop: model calls to"
"""How the line begins that names a host whose model nothing traces."""


def main() -> int:
    """Run the rows one after another and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m framework_matrix", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"default: all of {', '.join(row.name for row in ROWS)}")
    parser.add_argument("--try", nargs="+", dest="tried", metavar="PACKAGE", help="with other instrumentors, unsaved")
    parser.add_argument("--oldest", action="store_true", help="find the oldest release that is recorded completely")
    parser.add_argument("--gateway", action="store_true", help="run through the gateway only")
    parser.add_argument("--model", type=Path, help="chat with this model folder through the gateway, and nothing else")
    options = parser.parse_args()
    if unknown := set(options.rows) - {row.name for row in ROWS}:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    chosen = [row for row in ROWS if row.name in (options.rows or {row.name for row in ROWS})]
    if options.model:
        return 1 if run_chats(chosen, options.model) else 0
    if options.gateway:
        return 1 if run_clients(chosen) else 0
    if options.tried or options.oldest:
        with _running("tried") as run_row:
            for row in chosen:
                if options.oldest:
                    _find_oldest(row, run_row)
                else:
                    print(_line(run_row(row._replace(instrumentors=tuple(options.tried)))), flush=True)
        return 0
    return 1 if run_rows(options.rows) else 0


def run_rows(names: list[str]) -> list[str]:
    """Run the named rows, else those that a killed run left, else all.

    Returns:
        What the results of earlier runs have and this run's have not.
    """
    pending = results.Pending(environments.FOLDER / "pending.json")
    chosen = [row for row in ROWS if row.name in (names or pending.start([row.name for row in ROWS]))]
    before, lost = results.load(), list[str]()
    started = time.monotonic()
    with _running("work") as run_row:
        for row in chosen:
            result = run_row(row)
            results.save(row.name, result)
            pending.finish(row.name)
            print(_line(result), flush=True)
            lost += results.lost(before.get(row.name), result)
    print(f"{len(chosen)} rows in {(time.monotonic() - started) / 60:.1f} minutes")
    for problem in lost:
        print(f"no longer recorded: {problem}", file=sys.stderr)
    return lost


def run_clients(rows: list[Row]) -> list[str]:
    """Run the rows that speak an API of the gateway through it, and nothing else.

    Returns:
        What is missing.
    """
    missing: list[str] = []
    before = results.load()
    with _running("gateway") as run_row:
        for row in rows:
            if not row.is_gateway_client:
                continue
            result = run_row(row._replace(is_recorded=False))
            earlier = before.get(row.name)
            if earlier is not None and row.is_recorded:
                result = earlier._replace(gateway=result.gateway, gateway_version=result.gateway_version)
            results.save(row.name, result)
            print(_line(result), flush=True)
            missing += [f"{row.title}: {column}" for column, reason in result.gateway.items() if reason]
    return missing


def run_chats(rows: list[Row], model: Path) -> list[str]:
    """Let the rows that speak an API of the gateway chat with a model that it serves.

    Returns:
        What is missing.
    """
    work = environments.FOLDER / "served"
    shutil.rmtree(work, ignore_errors=True)
    wheel, missing = environments.build_wheel(), list[str]()
    directory = DataDir(work / "clickhouse").open()
    with (
        EmbeddedClickHouse(directory, memory_cap_bytes=_MEMORY_BYTES),
        serving(model, embedded_address(directory), work) as chat,
    ):
        for row in rows:
            if not row.is_gateway_client or row.has_long_prompts:
                continue
            try:
                environment = javascript.prepare(row) if row.is_javascript else environments.prepare(row, wheel)
            except CommandFailedError as error:
                reason = f"not installable: {error}"
            else:
                reason = chat(row, environment)
                results.save_served(row.name, reason)
            print(f"{row.title}: {reason or 'right'}", flush=True)
            missing += [f"{row.title}: {reason}"] if reason else []
    return missing


@contextmanager
def _running(folder: str) -> Generator[Callable[[Row], RowResult]]:
    """Start the scripted model and ClickHouse; yield what runs a row and returns its result, unsaved."""
    work = environments.FOLDER / folder
    shutil.rmtree(work, ignore_errors=True)
    wheel = environments.build_wheel()
    directory = DataDir(work / "clickhouse").open()
    with scripted_model() as model_url, EmbeddedClickHouse(directory, memory_cap_bytes=_MEMORY_BYTES):
        address = embedded_address(directory)
        numbers = count()
        yield lambda row: _run_row(row, wheel, address, model_url, work / f"{row.name}_{next(numbers)}")


def _find_oldest(row: Row, run_row: Callable[[Row], RowResult]) -> None:
    """Run the row with older releases until one is recorded completely, and save that one's version."""
    for version in row.oldest:
        result = run_row(row.at(version))
        print(_line(result._replace(version=version)), flush=True)
        if result.is_right:
            results.save_oldest(row.name, version)
            return


def _line(result: RowResult) -> str:
    reasons = (*result.cells.items(), *((f"gateway, {column}", reason) for column, reason in result.gateway.items()))
    missing = "; ".join(f"{column}: {reason}" for column, reason in reasons if reason)
    verdict = "right" if result.is_right else missing or result.note
    return f"{result.title} {result.version} ({result.seconds:.0f} s): {verdict}"


def _run_row(row: Row, wheel: Path, address: Address, model_url: str, work: Path) -> RowResult:
    started = time.monotonic()
    result = RowResult(row.title, "", row.instrumentors, {}, 0.0, row.impossible, row.is_javascript)
    if row.impossible:
        return result
    try:
        environment = javascript.prepare(row) if row.is_javascript else environments.prepare(row, wheel)
    except CommandFailedError as error:
        return result._replace(note=f"not installable: {error}")
    gateway: dict[str, str | None] = {}
    if row.is_gateway_client:
        gateway = run_through_gateway(row, environment, address, model_url, work / "gateway")
    version = environment.versions[row.package]
    result = result._replace(version=version, gateway=gateway, gateway_version=version if gateway else "")
    if not row.is_recorded:
        return result._replace(seconds=round(time.monotonic() - started, 1))
    bare = _record(row, environment, address, model_url, work / "bare", has_rewards=False)
    rewarded = None  # task() and reward() are Python's
    if not row.is_javascript:
        rewarded = _record(row, environment, address, model_url, work / "rewarded", has_rewards=True)
    cells = _cells(row, bare, rewarded)
    return result._replace(cells=cells, seconds=round(time.monotonic() - started, 1))


def _record(
    row: Row, environment: Environment, address: Address, model_url: str, work: Path, *, has_rewards: bool
) -> Recorded:
    work.mkdir(parents=True)
    database = f"m_{work.parent.name}_{work.name}"
    more = row.environment | ({"MATRIX_REWARDS": "1"} if has_rewards else {})
    variables = app_environment(model_url, work, more)
    with collecting(address, database, work) as stored:
        if row.is_javascript:
            variables |= javascript.variables(work)
        runs = {"tasks": run_app(environment.command, variables)}
        if not has_rewards:
            runs["crash"] = run_app([*environment.command, "crash"], variables)
        drain(work)
        recorded = read_store(stored, runs)
    for name, run in runs.items():
        (work / f"{name}.stderr").write_text(run.stderr + "".join(f"\n{t}: {e}" for t, e in run.errors.items()))
    recorded.transitions.write_parquet(work / "transitions.parquet")
    recorded.spans.write_parquet(work / "spans.parquet")
    return recorded


def _cells(row: Row, bare: Recorded, rewarded: Recorded | None) -> dict[str, str | None]:
    tasks, run = read_tasks(bare), bare.runs["tasks"]
    tickets = [*run.answers, *run.errors, "ticket-crash-1"]
    wrong = {ticket: _wrong(row, ticket, tasks) for ticket in tickets}
    for ticket, traceback in run.errors.items():
        wrong[ticket] = {"model calls": f"the app failed: {traceback.strip().splitlines()[-1][:80]}"}
    if not run.answers:
        wrong["ticket-report-1"] = {"model calls": f"the app failed: {run.stderr.strip()[-120:]}"}
    cells: dict[str, str | None] = {
        column: next((problems[column] for problems in wrong.values() if problems.get(column)), "") for column in CHECKS
    }
    if row.writes_calls:
        cells["call ids"] = None
    for column, script in SCENARIOS.items():
        of_script = [problems for ticket, problems in wrong.items() if script_of(ticket) == script]
        reasons = [f"{check}: {reason}" for problems in of_script for check, reason in problems.items() if reason]
        cells[column] = (reasons or [""])[0] if of_script else None
    if not cells["model calls"] and any(UNTRACED in one_run.stderr for one_run in bare.runs.values()):
        cells["model calls"] = "the app says that model calls are not traced"
    if run.code == TIMED_OUT:
        cells["model calls"] = "the app did not end"
    cells["rewards"] = None
    if rewarded is not None:
        scored = read_tasks(rewarded)
        wrong_rewards = (rewards(row, ticket, scored) for ticket in rewarded.runs["tasks"].answers)
        cells["rewards"] = next(filter(None, wrong_rewards), "")
    return cells


def _wrong(row: Row, ticket: str, tasks: Tasks) -> dict[str, str]:
    return {column: check(row, ticket, tasks) for column, check in CHECKS.items()}


if __name__ == "__main__":
    os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
    sys.exit(main())
