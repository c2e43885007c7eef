"""The page that leads from `spanloop up` to a set of hosts, run as written; the demo, and kills over it."""

import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from spanloop.foundation.control.engines import dispose_engines
from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobSpec

from ...collector.collector.collectors import PROTOBUF
from ...roles.load import Load, Reached, trace_body
from ..ledger import Ledger
from ..support import find_ids, wait_for
from .deployment import BIN, CLUSTER, Deployment, cannot_run, deployment
from .network import HOME
from .page import Block
from .services import Service
from .storm import LEDGER_IDS, check, settle, storm

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(reason := cannot_run()), reason=reason)]

HOSTS = (
    "laptop", "ch1", "ch2", "ch3", "ch4", "db", "bucket", "collector1", "collector2", "convert1", "convert2",
    "train1", "train2", "gateway1", "gateway2", "dashboard", "app",
)  # fmt: skip
KILLS, PAUSE_S = 30, 30.0
SUBMIT_S = 150.0
LOST_WITH_ITS_SERVER = ("bucket",)
"""This stand-in keeps everything in memory."""
USER = "ann", "four random words"
RAY = "train1:6379"
IDS_OF_THE_LAPTOP = range(2 * LEDGER_IDS, 2 * LEDGER_IDS + 3)
AGENT = """
from openai import OpenAI
client = OpenAI()
model = client.models.list().data[0].id
answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}], max_tokens=8)
print("the agent was answered:", model, answer.id)
"""
MODEL = "from spanloop.demo.tiny_model import *; build_tiny_model(Path('a-model'), training_steps=0)"


class Walked(NamedTuple):
    """Hosts on which the page was walked."""

    hosts: Deployment
    printed: str
    """By its commands."""
    walked_s: float


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """The hosts of the page, after its last step."""
    began_s = time.monotonic()
    with deployment(tmp_path_factory.mktemp("page") / "hosts", HOSTS) as hosts:
        use_a_laptop(hosts)
        printed = hosts.walk(_files_of_the_app)
        yield Walked(hosts, printed, time.monotonic() - began_s)


@pytest.fixture
def address(walked: Walked, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """The store of the hosts, whose settings this process has."""
    for name, value in walked.hosts.variables().items():
        monkeypatch.setenv(name, value)
    yield Address.parse(os.environ["SPANLOOP_CLICKHOUSE_URL"], cluster=CLUSTER)
    dispose_engines()


@pytest.mark.timeout(2400)
def test_the_page_leads_from_up_to_hosts_over_which_the_demo_passes(
    walked: Walked, address: Address, print_at_end: Callable[[str], None]
) -> None:
    verdict = re.search(r"\d+ checks, all hold; the tiny demo took \d+ s", walked.printed)
    assert verdict is not None, walked.printed
    print_at_end(f"hosts: {verdict[0]}; all steps of the page took {walked.walked_s:.0f} s")
    assert "✗" not in walked.printed, walked.printed
    assert "the agent was answered" in walked.printed
    assert set(IDS_OF_THE_LAPTOP) <= set(find_ids(address))


@pytest.mark.timeout(3000)
def test_kills_on_the_hosts_of_the_page_lose_and_double_nothing(
    walked: Walked, address: Address, tmp_path: Path, print_at_end: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("SPANLOOP_SEED_OF_KILLS") or random.SystemRandom().randrange(10**6))
    began_s = time.monotonic()
    hosts = walked.hosts
    operator = DataDir(tmp_path / "operator").open()
    collectors = [hosts.url(name, "collector") for name in ("collector1", "collector2")]
    gateways = [hosts.url(name, "gateway") for name in ("gateway1", "gateway2")]
    dashboard = hosts.url("dashboard", "dashboard")
    reached = Reached(collectors, gateways, dashboard, os.environ["SPANLOOP_KEY"], operator)
    registry = Registry(operator)
    deployed = registry.deployed()
    assert deployed is not None
    base = registry.lineage(deployed.reference)[0]
    services = [each for each in hosts.supervisor.services.values() if each.role not in LOST_WITH_ITS_SERVER]
    with (
        Ledger(tmp_path / "ledger") as ledger,
        Load(reached, USER, base.name, jobs_of(base.reference), ledger, senders=2, submit_every_s=SUBMIT_S) as load,
    ):
        killed = storm(hosts.supervisor, services, kills=KILLS, seed=seed, pause_s=PAUSE_S)
        time.sleep(20)
        answered = load.answers[-1:]
        wait_for(lambda: load.answers[-1:] != answered, "a gateway to answer again", timeout_s=300)
    stormed_s = time.monotonic() - began_s
    account = settle(load, ledger, address, operator, collectors, timeout_s=1500)
    print_at_end(
        f"hosts: seed {seed}, {len(killed)} kills in {stormed_s:.0f} s, settled after "
        f"{time.monotonic() - began_s:.0f} s: {', '.join(sorted(killed))}; {account}; "
        f"gateways refused {dict(load.refusals)}, dashboard {dict(load.logins)}"
    )
    alone = {name for name in hosts.supervisor.ended_alone if not hosts.supervisor.services[name].may_end}
    assert not alone, [hosts.supervisor.services[name].end_of_log() for name in alone]
    check(account)
    assert load.logins["200"] > 0


def jobs_of(base: str) -> list[JobSpec]:
    """Return what is trained while roles are killed: by a Ray of the job's own, and by that of the hosts."""
    alone = JobSpec.of(
        kind="dr_grpo", base=base, policy_version=base, steps=2, batch_groups=4, group_size=4, max_passes=1000,
        kl_budget=None, max_prompt_tokens=512, max_response_tokens=512, max_attempts=100,
    )  # fmt: skip
    over_hosts = JobSpec.of(
        kind="sft", outcomes="all", base=base, policy_version=base, steps=2, max_prompt_tokens=512,
        max_response_tokens=512, max_attempts=100, ray_address=RAY,
    )  # fmt: skip
    return [alone, over_hosts]


def use_a_laptop(hosts: Deployment) -> None:
    """Let the laptop run `up` for a while, with a few spans and a model."""
    laptop = hosts.network["laptop"]
    up = Service(laptop, "up", [str(BIN / "spanloop"), "up", "--no-dashboard", "--data-dir", "laptop"])
    up.start()
    collector = laptop.srv / "laptop" / "run" / "collector.json"
    wait_for(lambda: collector.exists() or up.has_ended, "the laptop's collector")
    assert not up.has_ended, up.end_of_log()
    body = trace_body(IDS_OF_THE_LAPTOP, IDS_OF_THE_LAPTOP[0], time.time_ns())
    assert httpx.post("http://127.0.0.1:4318/v1/traces", content=body, headers={"content-type": PROTOBUF}).is_success
    laptop.run([sys.executable, "-c", MODEL])
    laptop.run([str(BIN / "spanloop"), "models", "add", "mine", "a-model", "--data-dir", str(HOME / "laptop")])
    up.terminate()


def _files_of_the_app(hosts: Deployment, block: Block) -> None:
    """Copy to the app's host what its user has there."""
    if block.hosts == ("app",):
        folder = hosts.network["app"].srv
        (folder / "agent.py").write_text(AGENT)
        (folder / "app-key").write_text((hosts.network.shared / "secrets" / "app-key").read_text())
