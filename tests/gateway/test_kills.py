"""kill -9 of the gateway in every state of a canary and of a deployment: a ledger of sessions, calls and versions."""

import os
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from ..training.training_running import url_of
from .support import TIMEOUT_S, Process, StandIn, serving, wait_until, write_model

CANDIDATE = "m@v0"
SESSIONS = 16
ASKERS = 4


class Storm:
    """A gateway that is killed while sessions ask it, and what its answers said."""

    def __init__(self, data_dir: DataDir, upstream: str) -> None:
        self.data_dir, self.upstream, self.kills = data_dir, upstream, 0
        self.models: dict[str, set[str]] = defaultdict(set)
        """Session → the versions that answered it."""
        self.answers: dict[str, tuple[str, str]] = {}
        """Response id → session, version."""
        self.sessions: list[str] = []
        self.refused = Counter[int]()
        self._chance = random.Random(23)
        self._lock = threading.Lock()
        self.start()

    def start(self) -> None:
        process = Process(self.data_dir, "--upstream", self.upstream)
        wait_until(lambda: process.health()["engine"] == "serving")
        self.process = process

    def kill_within(self, seconds: float) -> None:
        time.sleep(self._chance.uniform(0, seconds))
        self.process.process.kill()
        self.process.process.wait(TIMEOUT_S)
        self.kills += 1

    def admin(self, path: str, /, **body: Any) -> httpx.Response:
        token = (self.data_dir.gateway / "admin.token").read_text().strip()
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S) as client:
            url = f"{self.process.url}/admin/{path}"
            return client.post(url, json=body) if body or path.endswith("stop") else client.get(url)

    def canary(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.admin("canary").json()["canary"]
        return found

    def killed_during(self, request: Callable[[], httpx.Response], seconds: float) -> None:
        """Kill it while it handles an administrator's request, and start it again."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(request)
            self.kill_within(seconds)
            error = asked.exception()
        assert error is None or isinstance(error, httpx.HTTPError), error
        self.start()

    @contextmanager
    def asking(self) -> Generator[None]:
        """Several callers ask in the current sessions, one after another, until the block ends."""
        done = threading.Event()

        def ask(seed: int) -> None:
            chance = random.Random(seed)
            while not done.is_set():
                self._ask(chance.choice(self.sessions))

        with ThreadPoolExecutor(ASKERS) as pool:
            askers = [pool.submit(ask, seed) for seed in range(ASKERS)]
            try:
                yield
            finally:
                done.set()
        for asker in askers:
            asker.result()

    def _ask(self, session: str) -> None:
        body = {"messages": [{"role": "user", "content": "hi"}]}
        url = f"{self.process.url}/v1/chat/completions"
        try:
            response = httpx.post(url, json=body, headers={"x-session-id": session}, timeout=TIMEOUT_S)
        except httpx.HTTPError:
            return  # killed; the caller asks again
        with self._lock:
            if response.status_code == 200:
                document = response.json()
                self.models[session].add(document["model"])
                self.answers[document["id"]] = session, document["model"]
            else:
                self.refused[response.status_code] += 1


@pytest.fixture
def candidate_url(tmp_path: Path) -> Generator[str]:
    stand_in = StandIn(write_model(tmp_path / "models" / "v0", 0), first_id=1 << 20)
    with serving(stand_in.app()) as url:
        yield url


@pytest.fixture
def storm(
    store: Store, address: Address, data_dir: DataDir, upstream: str, monkeypatch: pytest.MonkeyPatch
) -> Generator[Storm]:
    assert store.database == address.database
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url_of(address))
    running = Storm(data_dir, upstream)
    yield running
    running.process.process.kill()
    running.process.process.wait(TIMEOUT_S)


def deploy(storm: Storm, number: int, models: Path) -> None:
    """Kill it during a deployment, repeat the deployment, and try one with an older token."""

    def body(version: int) -> dict[str, Any]:
        path = str(models / f"v{version}")
        return {"name": "m", "version": f"v{version}", "path": path, "holder": "job a", "token": version}

    write_model(models / f"v{number}", number)
    storm.killed_during(lambda: storm.admin("deploy", **body(number)), 0.1)
    deployed = storm.admin("deploy", **body(number))
    assert deployed.status_code == 200, deployed.text
    assert storm.admin("deploy", **body(number - 1)).status_code == 409


def start_canary(storm: Storm, request: dict[str, Any]) -> str:
    """Kill it while a canary starts: then the canary runs, or can be started again."""
    storm.killed_during(lambda: storm.admin("canary", **request), 0.1)
    if storm.canary() is None:
        started = storm.admin("canary", **request)
        assert started.status_code == 200, started.text
    running = storm.canary()
    assert running is not None
    return str(running["id"])


def stop_canary(storm: Storm) -> None:
    """Kill it while a canary ends: then the canary has ended, or can be ended again."""
    storm.killed_during(lambda: storm.admin("canary/stop"), 0.1)
    if storm.canary() is not None:
        assert storm.admin("canary/stop").status_code == 200
    assert storm.canary() is None


def check_ledger(storm: Storm, address: Address, canaries: list[str]) -> str:
    """Compare what callers were answered with what is stored; return the line to print."""
    # What was on disk before a kill is inserted after it.
    wait_until(lambda: storm.process.health()["captures"]["waiting_records"] == 0)
    connection = Connection(address)
    calls = connection.query("SELECT * FROM canary_calls FINAL", doing="reading calls").to_dicts()
    captured = Counter(connection.query("SELECT response_id FROM generations", doing="reading captures")["response_id"])
    connection.close()
    compared = {identity: answer for identity, answer in storm.answers.items() if answer[0].startswith("session-")}
    counted = {row["response_id"]: row for row in calls}
    lost = compared.keys() - counted.keys()
    assert max(captured.values()) == 1
    assert storm.answers.keys() <= captured.keys(), "the tokens of an answer are not captured"
    assert len(counted) == len(calls), "a call is counted twice"
    assert {row["canary_id"] for row in calls} <= set(canaries)
    assert all(counted[each]["policy_version"] == compared[each][1] for each in compared.keys() - lost)
    arms = {(row["canary_id"], row["session"], row["arm"]) for row in calls}
    assert len(arms) == len({arm[:2] for arm in arms}), "a session has two arms"
    # A call is counted just after its answer: at most those that a kill found between the two are missing.
    assert len(lost) <= ASKERS * storm.kills
    return (
        f"gateway: kills={storm.kills} answers={len(storm.answers)} captured={len(captured)}"
        f" in_canaries={len(compared)} counted={len(calls)} answered_but_not_counted={len(lost)}"
        f" refused={dict(storm.refused)}"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_9_in_every_state_changes_no_sessions_version_and_leaves_no_stale_deployment(
    storm: Storm, candidate_url: str, address: Address, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models, canaries = tmp_path / "models", list[str]()
    request = {"name": "m", "version": "v0", "path": str(models / "v0"), "upstream": candidate_url, "share": 0.5}
    for number in range(1, 1 + 5 * int(os.environ.get("SPANLOOP_FAULTS", "1"))):
        deploy(storm, number + 1, models)
        storm.sessions = [f"session-{number}-{each}" for each in range(SESSIONS)]
        canaries.append(start_canary(storm, request))
        with storm.asking():
            for _ in range(2):
                storm.kill_within(1.0)
                storm.start()
            time.sleep(0.3)
        running = storm.canary()
        assert running is not None
        assert running["id"] == canaries[-1]
        stop_canary(storm)
        after = f"after-{number}"
        storm.sessions = [after]
        with storm.asking():
            wait_until(lambda after=after: bool(storm.models[after]))  # type: ignore[misc]
        assert storm.models[after] == {f"m@v{number + 1}"}, "a stale version answers"
    assert {session: versions for session, versions in storm.models.items() if len(versions) != 1} == {}
    assert {CANDIDATE} in storm.models.values()
    line = check_ledger(storm, address, canaries)
    with capsys.disabled():
        sys.stdout.write(f"\n{line}\n")
