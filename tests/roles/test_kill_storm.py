"""kill -9 of every role at random instants, while spans are sent, questions asked and jobs submitted: a ledger."""

import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import httpx
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.datadir import DataDir
from spanloop.pipeline import run
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.training.jobs import JobApi, JobState
from spanloop.training.registry import Registry

from ..control.postgresql_server import PostgreSqlServer
from ..faults.ledger import Ledger, balance
from ..faults.support import find_ids
from .load import Load
from .processes import Killable, PostgreSql, Roles, wait_for

KILLS = 3
"""Of each role."""
CONVERTED = ("episodes", "transitions", "trajectories", "failures")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kill_9_of_every_role_loses_and_doubles_nothing(
    *, roles: Roles, postgresql: PostgreSqlServer | None, tmp_path: Path
) -> None:
    """A script stands for the training; everything else is what users run."""
    operator = DataDir(tmp_path / "operator").open()
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama"}')
    (model / "model.safetensors").write_bytes(b"weights of the base")
    Registry(operator).add("tiny", model)
    api = JobApi(operator)
    roles.start()
    collectors = [roles.url("collector-1"), roles.url("collector-2")]
    for url in (*collectors, roles.url("gateway")):
        wait_for(lambda url=url: answers(url), f"{url} to answer")  # type: ignore[misc]
    targets: list[Killable] = [*roles.all, *([PostgreSql(postgresql)] if postgresql else [])]
    began_s = time.monotonic()
    with (
        Ledger(tmp_path / "ledger") as ledger,
        Load(collectors, roles.url("gateway"), ledger, api) as load,
    ):
        kills = storm(targets)
        for each in roles.all:
            assert not each.has_ended, f"{each.name} ended by itself: {each.log.read_text()[-2000:]}"
    for url in collectors:
        wait_for(lambda url=url: spooled(url) == 0, f"the spool of {url} to be empty")  # type: ignore[misc]
    wait_for(lambda: all(job.is_finished for job in api.list()), "all jobs to end", timeout_s=600)
    of_spans = balance(ledger.path, find_ids(roles.address))
    undisturbed = convert_undisturbed(roles.address)
    wait_for(
        lambda: contents(roles.address)[0].height == undisturbed[0].height,
        "all episodes to be converted",
        timeout_s=300,
    )
    wait_for(lambda: is_equal(contents(roles.address), undisturbed), "the rows of an undisturbed run")
    converted = contents(roles.address)
    doubled = int(converted[1].select(pl.struct("episode_id", "step").is_duplicated().sum()).item())
    jobs, versions = api.list(limit=10_000), Counter(version.job_id for version in Registry(operator).list())
    captured = captures(roles.address)
    print(  # noqa: T201 - `pytest -rP` shows it
        f"ledger: {kills} kills in {time.monotonic() - began_s:.0f} s; spans {of_spans}; {converted[0].height} "
        f"episodes, {converted[1].height} transitions, doubled={doubled}; {len(load.submitted)} jobs submitted, "
        f"{len(load.scheduled)} scheduled, {load.unknown_submissions} unknown, {len(jobs)} stored, ended "
        f"{dict(Counter(str(job.state) for job in jobs))}, attempts {sum(job.attempt for job in jobs)}; gateway "
        f"answered {len(load.answers)}, refused {dict(load.refusals)}, captured {captured.total()}, "
        f"doubled={sum(captured.values()) - len(captured)}"
    )
    assert of_spans.is_clean
    assert of_spans.acknowledged > 0
    assert converted[1].height > 0
    assert doubled == 0
    for got, expected in zip(converted, undisturbed, strict=True):
        assert_frame_equal(got, expected)
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    assert set(load.submitted) <= {job.id for job in jobs}
    of_schedules = Counter(job.schedule_id for job in jobs if job.schedule_id is not None)
    assert set(load.scheduled) <= set(of_schedules)
    assert set(of_schedules.values()) == {1}, "each schedule is for one job"
    assert {job.id: versions[job.id] for job in jobs} == {job.id: 1 for job in jobs}, "one version of each job"
    assert not list(roles.shared.glob("jobs/*/violation")), "no job ran twice at a time"
    assert set(captured.values()) <= {1}
    assert set(load.answers) <= set(captured)


def storm(targets: list[Killable]) -> int:
    """Kill each target several times, in any order, and start it again a while later; return the number of kills."""
    chance = random.Random(18)
    order = [target for target in targets for _ in range(KILLS)]
    chance.shuffle(order)
    for target in order:
        time.sleep(chance.uniform(1, 5))
        target.kill()
        time.sleep(chance.uniform(0, 6))
        target.start()
    time.sleep(5)
    return len(order)


def answers(url: str) -> bool:
    """Whether a service answers."""
    try:
        return httpx.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def spooled(url: str) -> int:
    """Return how many records wait in a collector's spool."""
    try:
        return int(httpx.get(f"{url}/healthz", timeout=5).json()["spool"]["records"])
    except (httpx.HTTPError, ValueError, KeyError):
        return -1


def contents(address: Address) -> list[pl.DataFrame]:
    """Read what was converted, less the numbers of the revisions: they count how often something was rewritten."""
    connection = Connection(address)
    tables = [
        connection.query(
            f"SELECT * EXCEPT (converted_at, revision) FROM {table} FINAL WHERE (episode_id, revision) IN "
            "(SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0) ORDER BY ALL",
            doing="reading what was converted",
        )
        for table in CONVERTED
    ]
    connection.close()
    return tables


def is_equal(got: list[pl.DataFrame], expected: list[pl.DataFrame]) -> bool:
    """Whether the tables have the same rows."""
    return all(one.equals(other) for one, other in zip(got, expected, strict=True))


def convert_undisturbed(address: Address) -> list[pl.DataFrame]:
    """Convert the same spans and captures in a database of their own, by one run that nothing disturbs."""
    calm = replace(address, database="undisturbed")
    with Store.open(calm) as store:
        for table in ("otel_traces", "generations"):
            columns = ", ".join(f"`{name}`" for name in store.schema(table))
            store.connection.command(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM `{address.database}`.{table}",
                doing="copying what was stored",
            )
        run(store)
    return contents(calm)


def captures(address: Address) -> Counter[str]:
    """Count the captures of each answer of the gateway."""
    connection = Connection(address)
    rows = connection.query("SELECT response_id, count() FROM generations GROUP BY 1", doing="counting captures")
    connection.close()
    return Counter({str(response_id): int(count) for response_id, count in rows.iter_rows()})
