"""Swaps of weights and kills of engines under load, with two engines: a ledger of answers, versions and captures."""

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from spanloop.foundation.paths import DataDir

from .support import TIMEOUT_S, Process, StandIn, captures, data_of, serving, wait_until, write_model

CALLERS = 6
MOST_GROWTH_KIB = 20 * 1024
LONGEST_HOLD_S = 1.0
"""Of a request during a rolling swap: while one engine loads weights, the other one answers."""


class KillableEngine:
    """An engine that can end at once, with all of its connections, and start again with the weights of its folder."""

    def __init__(self, folder: Path, first_id: int) -> None:
        self.stand_in = StandIn(folder, first_id=first_id)
        self._app: ASGIApp = self.stand_in.app()
        self._is_dead = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_alive(message: Any) -> None:
            if self._is_dead:
                raise ConnectionResetError
            await send(message)

        if self._is_dead:
            raise ConnectionResetError
        await self._app(scope, receive, send_alive)

    def kill(self) -> None:
        self._is_dead = True
        wait_until(lambda: not self.stand_in.running)

    def start_again(self) -> None:
        self.stand_in.weights = 1
        self._is_dead = False


class Ledger:
    """The answers that callers received."""

    def __init__(self, url: str, count: int) -> None:
        self._url, self._numbers = url, iter(range(count))
        self._lock = threading.Lock()
        self.sent = 0
        self.versions: dict[str, str] = {}
        """Response id → version."""
        self.outcomes = Counter[str]()
        self.calls: list[tuple[float, float]] = []
        """Begin and end of each answered call, seconds of the monotonic clock."""

    def longest_s(self, begin_s: float, end_s: float) -> float:
        """The longest call that was answered while a swap ran."""
        return max((end - begin for begin, end in self.calls if begin < end_s and end > begin_s), default=0.0)

    def call_all(self) -> None:
        with httpx.Client(timeout=TIMEOUT_S) as client:
            while True:
                with self._lock:
                    number = next(self._numbers, None)
                    if number is None:
                        return
                    self.sent += 1
                self._call(client, number)

    def _call(self, client: httpx.Client, number: int) -> None:
        is_stream = number % 2 == 0
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": is_stream}
        headers = {"x-session-id": f"session {number % 50}"}
        began_s = time.monotonic()
        response = client.post(f"{self._url}/v1/chat/completions", json=body, headers=headers)
        ended_s = time.monotonic()
        documents = [each for each in data_of(response) if each != "[DONE]"] if is_stream else [response.json()]
        error: Any = documents[-1].get("error")
        code = None if error is None else error.get("code")
        with self._lock:
            self.outcomes[f"{response.status_code} {'stream' if is_stream else 'whole'} {code}"] += 1
            if error is None:
                self.calls.append((began_s, ended_s))
                self.versions[documents[0]["id"]] = documents[0]["model"]


@pytest.fixture
def engines(tmp_path: Path) -> list[KillableEngine]:
    folder = write_model(tmp_path / "models" / "v1", 1)
    return [KillableEngine(folder, 1 + (at << 24)) for at in range(2)]


@pytest.fixture
def process(engines: list[KillableEngine], data_dir: DataDir) -> Generator[Process]:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    with serving(engines[0]) as first, serving(engines[1]) as second:
        process = Process(data_dir, "--upstream", f"{first} {second}", "--first-backoff-s", "0.2")
        try:
            wait_until(lambda: states(process) == {"serving"})
            yield process
        finally:
            process.stop()
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)


def states(process: Process) -> set[str]:
    return {engine["state"] for engine in process.health()["engines"]}


def resident_kib(process: Process) -> int:
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def deploy(process: Process, number: int, folder: Path) -> None:
    token = (process.data_dir.gateway / "admin.token").read_text().strip()
    response = httpx.post(
        f"{process.url}/admin/deploy",
        json={"name": "stand-in", "version": f"v{number}", "path": str(folder)},
        headers={"Authorization": f"Bearer {token}"},
        timeout=TIMEOUT_S,
    )
    assert response.status_code == 200, response.text


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("count", "swaps", "kills"), [(300, 2, 1), pytest.param(10_000, 20, 5, marks=pytest.mark.slow)]
)
def test_swaps_and_kills_lose_no_capture_and_name_no_wrong_version(
    process: Process, engines: list[KillableEngine], tmp_path: Path, *, count: int, swaps: int, kills: int
) -> None:
    ledger = Ledger(process.url, count)
    events = swaps + kills
    killed_after = {round((at + 1) * events / (kills + 1)) for at in range(kills)}
    rolling: list[tuple[float, float]] = []
    versions, victims, resident = itertools.count(2), itertools.cycle(engines), dict[str, int]()

    def happen(at: int) -> None:
        if at in killed_after:
            victim = next(victims)
            victim.kill()
            wait_until(lambda: states(process) != {"serving"})
            victim.start_again()
            wait_until(lambda: states(process) == {"serving"})
        else:
            number = next(versions)
            began_s = time.monotonic()
            deploy(process, number, write_model(tmp_path / f"v{number}", number))
            rolling.append((began_s, time.monotonic()))

    def sent(share: float) -> Callable[[], bool]:
        return lambda: ledger.sent >= share * count

    with ThreadPoolExecutor(CALLERS) as pool:
        callers = [pool.submit(ledger.call_all) for _ in range(CALLERS)]
        for at in range(events):
            wait_until(sent((at + 0.5) / (events + 1)), timeout_s=600)
            if ledger.sent >= count / 5:
                resident.setdefault("early", resident_kib(process))
            happen(at)
        for caller in callers:
            caller.result()
    assert ledger.sent == sum(ledger.outcomes.values()) == count
    # A stream in flight on a killed engine is all that fails.
    assert set(ledger.outcomes) <= {"200 stream None", "200 whole None", "200 stream engine_lost"}, ledger.outcomes
    assert ledger.outcomes["200 stream engine_lost"] <= kills * CALLERS
    stored = {capture.response_id: capture for capture in captures(process) if capture.is_complete}
    assert set(ledger.versions) <= set(stored)
    for response_id, version in ledger.versions.items():
        capture = stored[response_id]
        weights = capture.response_token_ids[0] - 1000
        assert (capture.policy_version, weights) == (version, 1 if version.endswith("external") else int(version[10:]))
    assert not any(engine.stand_in.mixed for engine in engines)
    if count >= 10_000:
        assert max(ledger.longest_s(*each) for each in rolling) < LONGEST_HOLD_S
        assert resident_kib(process) - resident["early"] <= MOST_GROWTH_KIB
