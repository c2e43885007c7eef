"""Load on all roles: spans with a ledger, questions to the gateway, jobs."""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.otlp.wire import serialize
from spanloop.semconv.errors import SpanloopError
from spanloop.training.jobs import JobApi, JobKind, JobSpec

from ..collector.collectors import PROTOBUF
from ..faults.ledger import Ledger

CALLS = 3
"""Model calls of a trace."""
TIMEOUT_S = 60.0
SECOND_NS = 10**9


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


class Load:
    """Threads that work until they are stopped: a context manager.

    Args:
        collectors: URLs of the collectors.
        gateway: URL of the gateway.
        ledger: Of the spans.
        api: Where jobs are submitted.
        senders: Threads that send spans.
    """

    def __init__(
        self, collectors: Sequence[str], gateway: str, ledger: Ledger, api: JobApi, *, senders: int = 3
    ) -> None:
        self._collectors = [urlsplit(url) for url in collectors]
        self._gateway = gateway
        self._ledger = ledger
        self._api = api
        self._senders = senders
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(senders + 2)
        self.submitted: list[str] = []
        """Jobs that were acknowledged."""
        self.scheduled: list[str] = []
        """Schedules of one job each that were acknowledged."""
        self.unknown_submissions = 0
        self.answers: list[str] = []
        """Ids of the gateway's answers."""
        self.refusals = Counter[str]()

    def __enter__(self) -> Self:
        tasks: list[Callable[[], None]] = [*([self._send] * self._senders), self._ask, self._submit]
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
            connection.request("POST", "/v1/traces", body, {"Content-Type": PROTOBUF})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._ledger.unknown(ids)
        else:
            (self._ledger.acknowledged if response.status == 200 else self._ledger.refused)(ids)
        finally:
            connection.close()

    def _ask(self) -> None:
        with httpx.Client(timeout=TIMEOUT_S) as client:
            while not self._stopping.wait(0.3):
                try:
                    body = {"messages": [{"role": "user", "content": "hi"}]}
                    response = client.post(f"{self._gateway}/v1/chat/completions", json=body)
                except httpx.HTTPError as error:
                    self.refusals[type(error).__name__] += 1
                    continue
                if response.status_code == 200:
                    self.answers.append(response.json()["id"])
                else:
                    self.refusals[str(response.status_code)] += 1

    def _submit(self) -> None:
        spec = JobSpec(kind=JobKind.SFT, base="tiny@v1", steps=4, max_attempts=100)
        while not self._stopping.wait(3.0):
            try:
                self.submitted.append(self._api.submit(spec).id)
                self.scheduled.append(self._api.schedule(spec, at=datetime.now(UTC)).id)
            except SpanloopError:
                self.unknown_submissions += 1
