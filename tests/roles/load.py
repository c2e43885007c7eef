"""Load on all roles: spans with a ledger, questions to the gateway, training jobs, logins at the dashboard."""

import http.client
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import cycle
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.otlp.wire import serialize
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.training.run.job_api import JobApi, JobSpec

from ..collector.collector.collectors import PROTOBUF
from ..faults.ledger import Ledger

CALLS = 3
"""Model calls of a trace."""
TIMEOUT_S = 60.0
SUBMIT_EVERY_S = 60.0
LOG_IN_EVERY_S = 15.0
"""The dashboard limits the attempts from one address to 30 within five minutes."""
SECOND_NS = 10**9
TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


def trace_body(ids: Sequence[int], first_id: int, began_ns: int) -> bytes:
    """Make a request with some calls of one conversation, whose calls have the ids from ``first_id`` on."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for span_id in ids:
        number = span_id - first_id
        start_ns = began_ns + number * SECOND_NS // 10
        messages = [_message("user", f"conversation {first_id}")]
        for earlier in range(number):
            messages += [_message("assistant", f"answer {first_id + earlier}"), _message("user", f"go on {earlier}")]
        span = scope.spans.add(
            trace_id=first_id.to_bytes(16), span_id=span_id.to_bytes(8), name="openai.chat",
            start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + SECOND_NS // 20,
        )  # fmt: skip
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "tiny@v1",
            "gen_ai.response.model": "tiny@v1",
            "gen_ai.response.id": f"storm-{span_id}",
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.messages": json.dumps(
                [{**_message("assistant", f"answer {span_id}"), "finish_reason": "stop"}]
            ),
        }
        for name, value in attributes.items():
            span.attributes.add(key=name).value.string_value = value
    return serialize(request)


def _message(role: str, content: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


class Reached(NamedTuple):
    """Where the load finds the roles; those without an address get none."""

    collectors: Sequence[str]
    gateways: Sequence[str]
    dashboard: str
    key: str
    """An API key of all scopes that the load needs."""
    operator: DataDir
    """A data directory from which jobs are submitted."""


class Load:
    """Threads that work until they are stopped: a context manager.

    Args:
        roles: Where the roles are.
        user: Name and password of a user of the dashboard.
        model: What the gateways are asked for.
        jobs: What is submitted, in turns; schedules have the first.
        ledger: Of the spans.
        senders: Threads that send spans.
        submit_every_s: Pause between two submissions.
    """

    def __init__(
        self,
        roles: Reached,
        user: tuple[str, str],
        model: str,
        jobs: Sequence[JobSpec],
        ledger: Ledger,
        *,
        senders: int = 3,
        submit_every_s: float = SUBMIT_EVERY_S,
    ) -> None:
        self._collectors = [urlsplit(url) for url in roles.collectors]
        self._gateways, self._dashboard = roles.gateways, roles.dashboard
        self._authorization = {"Authorization": f"Bearer {roles.key}"}
        self._user, self._model, self._jobs = user, model, jobs
        self._ledger = ledger
        self._api = JobApi(roles.operator)
        self._senders = senders
        self._submit_every_s = submit_every_s
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(senders + 3)
        self.submitted: list[str] = []
        """Jobs that were acknowledged."""
        self.scheduled: list[str] = []
        """Schedules of one job each that were acknowledged."""
        self.unknown_submissions = 0
        self.answers: list[str] = []
        """Ids of the gateway's answers."""
        self.refusals = Counter[str]()
        """Of the gateway: status or error → how often."""
        self.logins = Counter[str]()
        """At the dashboard: status or error → how often."""

    def __enter__(self) -> Self:
        tasks: list[Callable[[], None]] = [*([self._send] * self._senders), self._submit]
        tasks += [self._ask] * bool(self._gateways) + [self._log_in] * bool(self._dashboard)
        self._running = [self._pool.submit(task) for task in tasks]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping.set()
        self._pool.shutdown()
        for running in self._running:
            running.result()

    def _send(self) -> None:
        """Send conversations, each in one request or in two to any two collectors."""
        chance = random.Random(threading.get_ident())
        while not self._stopping.is_set():
            ids = self._ledger.new_ids(CALLS)
            cut = chance.choice((1, 2, CALLS))
            began_ns = time.time_ns()
            for part in (ids[:cut], ids[cut:]):
                if part:
                    self._post(chance, part, trace_body(part, ids[0], began_ns))
                    self._stopping.wait(chance.uniform(0, 0.4))

    def _post(self, chance: random.Random, ids: Sequence[int], body: bytes) -> None:
        """Send once; what has no answer is never sent again. Without any collector it waits."""
        while True:
            parts = chance.choice(self._collectors)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=TIMEOUT_S)
            try:
                connection.connect()
            except OSError:
                if self._stopping.wait(0.2):
                    return
                continue
            break
        self._ledger.attempted(ids)
        try:
            connection.request("POST", "/v1/traces", body, {"Content-Type": PROTOBUF, **self._authorization})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._ledger.unknown(ids)
        else:
            (self._ledger.acknowledged if response.status == 200 else self._ledger.refused)(ids)
        finally:
            connection.close()

    def _ask(self) -> None:
        gateways = cycle(self._gateways)
        with httpx.Client(timeout=TIMEOUT_S, headers=self._authorization) as client:
            while not self._stopping.wait(0.3):
                try:
                    body = {"model": self._model, "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
                    response = client.post(f"{next(gateways)}/v1/chat/completions", json=body)
                except httpx.HTTPError as error:
                    self.refusals[type(error).__name__] += 1
                    continue
                if response.status_code == 200:
                    self.answers.append(response.json()["id"])
                else:
                    self.refusals[str(response.status_code)] += 1

    def _submit(self) -> None:
        for job in cycle(self._jobs):
            try:
                self.submitted.append(self._api.submit(job).id)
                self.scheduled.append(self._api.schedule(self._jobs[0], at=datetime.now(UTC)).id)
            except SpanloopError:
                self.unknown_submissions += 1
            if self._stopping.wait(self._submit_every_s):
                return

    def _log_in(self) -> None:
        """Log in anew each time, since a dashboard forgets its sessions when it is killed."""
        while not self._stopping.wait(LOG_IN_EVERY_S):
            with httpx.Client(base_url=self._dashboard, timeout=TIMEOUT_S) as client:
                try:
                    self.logins[log_in(client, *self._user)] += 1
                except httpx.HTTPError as error:
                    self.logins[type(error).__name__] += 1


def log_in(client: httpx.Client, name: str, password: str) -> str:
    """Log in, read a page, and return what became of it."""
    token = TOKEN.search(client.get("/login").text)
    data = {"user": name, "password": password, "token": token[1] if token else ""}
    client.post("/login", data=data, headers={"Origin": str(client.base_url).rstrip("/")})
    return str(client.get("/jobs").status_code)
