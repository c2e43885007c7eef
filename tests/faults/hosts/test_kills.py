"""Three kills of roles on hosts: no acknowledged span is lost or doubled, and each job has one end."""

import os
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spanloop.foundation.control.engines import dispose_engines
from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address
from spanloop.training.run.job_api import JobSpec

from ...gateway.support import write_model
from ...roles.load import Load, Reached
from ..ledger import Ledger
from .deployment import CLUSTER, cannot_run, deployment
from .network import SHARED
from .storm import check, settle, storm

pytestmark = pytest.mark.skipif(bool(reason := cannot_run()), reason=reason)

HOSTS = ("laptop", "ch1", "ch3", "db", "bucket", "collector1", "collector2", "convert1", "convert2", "train1")
JOB_COMMAND = f"{sys.executable} {Path(__file__).parents[2] / 'training' / 'jobs' / 'tiny_runner.py'} work 3 0.5"
LOST_WITH_ITS_SERVER = ("bucket",)
"""This stand-in keeps everything in memory."""
ADD = f"""
export SPANLOOP_CONFIG={SHARED}/spanloop.toml
. {SHARED}/bucket.env
python -c "
from pathlib import Path
from spanloop.cli.options import data_directory
from spanloop.training.models.registry import Registry
Registry(data_directory(None)).add('tiny', Path('model'))
"
"""
LEFT_OUT = ("ray start", "serve dashboard", "--data-dir operator", "gateway2")
"""Commands of blocks that the small set does without."""


@pytest.mark.timeout(600)
def test_three_kills_lose_and_double_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, print_at_end: Callable[[str], None]
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    with deployment(tmp_path / "hosts", HOSTS) as hosts:
        hosts.blocks = [block for block in hosts.blocks if not any(text in block.text for text in LEFT_OUT)]
        hosts.network["train1"].environment["SPANLOOP_SERVE_RUNNER_RUNNER"] = JOB_COMMAND
        hosts.walk()
        for name, value in hosts.variables().items():
            monkeypatch.setenv(name, value)
        try:
            operator = DataDir(tmp_path / "operator").open()
            laptop = hosts.network["laptop"]
            write_model(laptop.srv / "model", 1)
            laptop.run(["bash", "-ec", ADD])
            collectors = [hosts.url(name, "collector") for name in ("collector1", "collector2")]
            reached = Reached(collectors, (), "", os.environ["SPANLOOP_KEY"], operator)
            jobs = [JobSpec.of(kind="grpo", base="tiny@v1", steps=3, max_attempts=100)]
            services = [each for each in hosts.supervisor.services.values() if each.role not in LOST_WITH_ITS_SERVER]
            with (
                Ledger(tmp_path / "ledger") as ledger,
                Load(reached, ("", ""), "", jobs, ledger, senders=1, submit_every_s=60) as load,
            ):
                killed = storm(hosts.supervisor, services, kills=3, seed=seed, pause_s=4)
                time.sleep(2)
            address = Address.parse(os.environ["SPANLOOP_CLICKHOUSE_URL"], cluster=CLUSTER)
            account = settle(load, ledger, address, operator, collectors, timeout_s=300, compares=False)
        finally:
            dispose_engines()
        hosts.supervisor.stop()
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        print_at_end(
            f"hosts: {cpu.ru_utime + cpu.ru_stime:.0f} CPU-seconds; seed {seed}, killed {', '.join(killed)}; {account}"
        )
        assert not hosts.supervisor.ended_alone
        check(account)
