"""The tiny demo over every role as a process, then kill -9 of each at random instants under load: a ledger."""

import random
import re
import time
from collections import Counter

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.foundation.keys.users import Role, Users
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec, JobState

from ..faults.ledger import Ledger, balance
from ..faults.support import find_ids, wait_for
from ..training.jobs.postgresql_server import PostgreSqlServer
from .converted import captures, contents, convert_undisturbed, is_equal, spooled
from .load import Load
from .processes import Killable, PostgreSql, Roles

NAMES = (
    "clickhouse", "collector-1", "collector-2", "pipeline-1", "pipeline-2", "scheduler-1", "scheduler-2", "runner-1",
    "runner-2", "gateway", "dashboard",
)  # fmt: skip
OPTIONS = {"pipeline": ("--interval-s", "1"), "gateway": ("--kv-cache-gib", "1")}
KILLS = 3
"""Of each role."""
USER = "ann", "four random words"
LEDGER_IDS = 2**32
"""The ledger's spans have ids below; the demo's are random."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kill_9_of_every_role_loses_and_doubles_nothing(
    *, roles: Roles, postgresql: PostgreSqlServer | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Users(roles.operator).create(USER[0], Role.OPERATOR, USER[1])
    for name in NAMES:
        roles.start(name, *OPTIONS.get(name.partition("-")[0], ()))
    doctor = roles.run("doctor")
    assert "✗" not in doctor.stdout, doctor.stdout
    demo = roles.run("demo", "--tiny", "--config", str(roles.configuration), timeout_s=900)
    with capsys.disabled():
        print(f"\n{doctor.stdout}\n{demo.stdout}")  # noqa: T201 - figures of the run
    assert demo.returncode == 0, demo.stderr
    assert re.search(r"\d+ checks, all hold", demo.stdout)
    registry, api = Registry(roles.operator), JobApi(roles.operator)
    deployed = registry.deployed()
    assert deployed is not None
    base = registry.lineage(deployed.reference)[0]
    training = JobSpec.of(
        kind="dr_grpo", base=base.reference, policy_version=base.reference, steps=4, batch_groups=4, group_size=4,
        max_passes=1000, kl_budget=None, max_prompt_tokens=512, max_response_tokens=512, max_attempts=100,
    )  # fmt: skip
    targets: list[Killable] = [*roles.started.values(), *([PostgreSql(postgresql)] if postgresql else [])]
    began_s = time.monotonic()
    with (
        Ledger(roles.folder / "ledger") as ledger,
        Load(roles.reached(), USER, base.name, [training], ledger) as load,
    ):
        kills = storm(targets)
        for each in roles.started.values():
            assert not each.has_ended, f"{each.name} ended by itself: {each.log.read_text()[-2000:]}"
        answered = load.answers[-1:]
        wait_for(lambda: load.answers[-1:] != answered, "the gateway to answer again", timeout_s=300)
    for url in roles.reached().collectors:
        wait_for(lambda url=url: spooled(url) == 0, f"the spool of {url} to be empty")  # type: ignore[misc]
    wait_for(lambda: all(job.is_finished for job in api.list(limit=10_000)), "all jobs to end", timeout_s=1500)
    address = roles.address
    of_spans = balance(ledger.path, {key: count for key, count in find_ids(address).items() if key < LEDGER_IDS})
    undisturbed = convert_undisturbed(address)
    wait_for(
        lambda: contents(address)[0].height == undisturbed[0].height, "all episodes to be converted", timeout_s=300
    )
    wait_for(lambda: is_equal(contents(address), undisturbed), "the rows of an undisturbed run")
    converted = contents(address)
    doubled = int(converted[1].select(pl.struct("episode_id", "step").is_duplicated().sum()).item())
    jobs, versions = api.list(limit=10_000), Counter(version.job_id for version in registry.list())
    captured = captures(address)
    with capsys.disabled():
        print(  # noqa: T201 - figures of the run
            f"ledger: {kills} kills, {time.monotonic() - began_s:.0f} s; spans {of_spans}; {converted[0].height} "
            f"episodes, {converted[1].height} transitions, doubled={doubled}; {len(load.submitted)} jobs submitted, "
            f"{len(load.scheduled)} scheduled, {load.unknown_submissions} unknown, {len(jobs)} stored, ended "
            f"{dict(Counter(str(job.state) for job in jobs))}, attempts {sum(job.attempt for job in jobs)}; gateway "
            f"answered {len(load.answers)}, refused {dict(load.refusals)}, captured {captured.total()}, "
            f"doubled={sum(captured.values()) - len(captured)}; dashboard {dict(load.logins)}"
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
    assert set(captured.values()) <= {1}
    assert set(load.answers) <= set(captured)
    assert load.logins["200"] > 0


def storm(targets: list[Killable]) -> int:
    """Kill each target several times, in any order, and start it again a while later; return the number of kills."""
    chance = random.Random(18)
    order = [target for target in targets for _ in range(KILLS)]
    chance.shuffle(order)
    for target in order:
        time.sleep(chance.uniform(1, 20))
        target.kill()
        time.sleep(chance.uniform(0, 10))
        target.start()
    time.sleep(10)
    return len(order)
