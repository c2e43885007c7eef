"""Kills drawn over all services of a deployment, and the account of what the set has stored afterwards."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobState

from ...roles.converted import captures, contents, convert_undisturbed, is_equal, spooled
from ...roles.load import Load
from ..ledger import Balance, Ledger, balance
from ..support import find_ids, wait_for
from .services import Service, Supervisor

LEDGER_IDS = 2**32
"""The ledger's spans have ids below; those of agents are random."""


def storm(supervisor: Supervisor, services: Sequence[Service], *, kills: int, seed: int, pause_s: float) -> list[str]:
    """Kill services, each drawn anew; the supervisor starts them again. Return the names of the killed."""
    chance = random.Random(seed)
    killed: list[str] = []
    while len(killed) < kills:
        time.sleep(chance.uniform(pause_s / 10, pause_s))
        service = chance.choice(services)
        if supervisor.kill(service):
            killed.append(service.name)
    return killed


class Account(NamedTuple):
    """What is stored after the kills."""

    spans: Balance
    episodes: int
    transitions: int
    doubled_transitions: int
    submitted: int
    scheduled: int
    lost_jobs: int
    """Acknowledged, and not stored."""
    ends: dict[str, int]
    """How often jobs ended in which state."""
    ends_on_ray: dict[str, int]
    """The same, of jobs on the Ray of the hosts."""
    attempts: int
    """Of all jobs together."""
    versions_of_a_job: dict[int, int]
    """Number of versions that a job with success made → number of jobs."""
    versions_without_success: int
    """Made by jobs that failed."""
    answers: int
    """Of the gateways."""
    lost_captures: int
    doubled_captures: int

    def __str__(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in self._asdict().items())


def settle(
    load: Load,
    ledger: Ledger,
    address: Address,
    operator: DataDir,
    collectors: Sequence[str],
    *,
    timeout_s: float,
    compares: bool = True,
) -> Account:
    """Wait until the hosts have done what they were given, and count.

    Args:
        load: What they were given; it has ended.
        ledger: Of the spans.
        address: The store.
        operator: A data directory from which jobs are read.
        collectors: URLs of the collectors.
        timeout_s: Limit of each wait.
        compares: Convert the same spans once more, undisturbed; without, one transition is expected of each span.
    """
    for url in collectors:
        wait_for(lambda url=url: spooled(url) == 0, f"the spool of {url} to be empty", timeout_s)  # type: ignore[misc]
    api = JobApi(operator)

    def have_all_jobs_ended() -> bool:
        jobs = api.list(limit=10_000)
        return set(load.scheduled) <= {job.schedule_id for job in jobs} and all(job.is_finished for job in jobs)

    wait_for(have_all_jobs_ended, "all jobs to end", timeout_s)
    if compares:
        undisturbed = convert_undisturbed(address)
        wait_for(lambda: is_equal(contents(address), undisturbed), "the rows of an undisturbed run", timeout_s)
    else:
        spans = len(find_ids(address))
        wait_for(lambda: contents(address)[1].height == spans, "a transition of each span", timeout_s)
    converted = contents(address)
    stored = {key: count for key, count in find_ids(address).items() if key < LEDGER_IDS}
    jobs = api.list(limit=10_000)
    ids = {job.id for job in jobs}
    of_schedules = {job.schedule_id for job in jobs}
    versions = Counter(version.job_id for version in Registry(operator).list())
    captured = captures(address)
    return Account(
        spans=balance(ledger.path, stored),
        episodes=converted[0].height,
        transitions=converted[1].height,
        doubled_transitions=int(converted[1].select(pl.struct("episode_id", "step").is_duplicated().sum()).item()),
        submitted=len(load.submitted),
        scheduled=len(load.scheduled),
        lost_jobs=len(set(load.submitted) - ids) + len(set(load.scheduled) - of_schedules),
        ends=dict(Counter(str(job.state) for job in jobs if not job.spec.run.ray_address)),
        ends_on_ray=dict(Counter(str(job.state) for job in jobs if job.spec.run.ray_address)),
        attempts=sum(job.attempt for job in jobs),
        versions_of_a_job=dict(Counter(versions[job.id] for job in jobs if job.state is JobState.SUCCEEDED)),
        versions_without_success=sum(versions[job.id] for job in jobs if job.state is not JobState.SUCCEEDED),
        answers=len(load.answers),
        lost_captures=len(set(load.answers) - set(captured)),
        doubled_captures=captured.total() - len(captured),
    )


def check(account: Account) -> None:
    """Assert that nothing acknowledged is lost or doubled, and that each job has one end."""
    assert account.spans.is_clean
    assert account.spans.acknowledged > 0
    assert account.transitions > 0
    assert account.doubled_transitions == 0
    assert account.lost_jobs == account.lost_captures == account.doubled_captures == 0
    assert {*account.ends, *account.ends_on_ray} == {str(JobState.SUCCEEDED)}
    assert set(account.versions_of_a_job) == {1}, "one version of each job"
    assert account.versions_without_success == 0
