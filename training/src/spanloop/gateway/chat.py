"""``POST /v1/chat/completions``: forward, capture, answer.

Invariant: the last part of an answer (the whole of it without ``stream``, the chunk with the last finish reason with
it) leaves only after its captures were recorded. A request is repeated on new weights only while nothing of its
answer was delivered.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from typing import Any, Final, Protocol, cast

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from . import reply, sse
from .admission import Gate, Lease
from .api_errors import AnswerError, UnavailableError
from .cancel_on import CallerGoneError, PreemptedError, unless
from .capture import Collector, Origin
from .chat_request import ChatRequest
from .metrics import Metrics
from .recorder import Recorder
from .vllm_api import VllmApi

_CALLER_GONE: Final = 499
_RELAYED_HEADERS: Final = ("retry-after",)


class Services(Protocol):
    """What answering needs."""

    @property
    def gate(self) -> Gate:
        """Who may use the engine."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Where captures go."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Where it is counted."""
        ...

    @property
    def client(self) -> httpx.AsyncClient:
        """For the engine."""
        ...


class ChatAnswer:
    """Answers one request; an ASGI application, because it must notice the caller's leaving while the engine works.

    Args:
        request: What the caller wants.
        services: What to use.
        authorization: The caller's ``Authorization`` header, handed on to the engine.
    """

    def __init__(self, request: ChatRequest, services: Services, authorization: str = "") -> None:
        self._request = request
        self._services = services
        self._headers = {"content-type": "application/json"}
        if authorization:
            self._headers["authorization"] = authorization
        self._gone = asyncio.Event()
        self._began_s = time.monotonic()
        self._started_ns = time.time_ns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        caller = _Caller(scope, receive, send)
        watcher = asyncio.create_task(_watch(receive, self._gone))
        attempt = self._stream if self._request.is_stream else self._whole
        try:
            while not await self._attempt(attempt, caller):
                self._services.metrics.count("repeated_total")
        finally:
            watcher.cancel()
            metrics = self._services.metrics
            metrics.count("requests_total", status=str(caller.status), stream=str(self._request.is_stream).lower())
            metrics.add_seconds("request_seconds_total", time.monotonic() - self._began_s)

    async def _attempt(self, attempt: Any, caller: "_Caller") -> bool:
        """One try; False when a swap took the engine away before anything was delivered."""
        try:
            async with self._admitted() as lease:
                collector = Collector(self._request.choice_count)
                try:
                    await unless(attempt(lease, collector, caller), gone=self._gone, preempted=lease.preempted)
                except PreemptedError:
                    if not caller.has_started:
                        return False
                    await caller.break_off("The model was replaced while it answered; ask again.", "model_replaced")
                except httpx.TransportError as error:
                    await self._engine_lost(caller, error)
                finally:
                    # Does nothing when the answer was complete: then everything is recorded already.
                    await self._record(lease, collector)
        except CallerGoneError:
            caller.status = _CALLER_GONE
        except AnswerError as error:
            await caller.refuse(error)
        return True

    @contextlib.asynccontextmanager
    async def _admitted(self) -> AsyncGenerator[Lease]:
        """Hold the caller at the gate, but not longer than it holds the line."""
        admission = self._services.gate.admit(self._request.model)
        if self._services.gate.is_held:
            lease = await unless(admission.__aenter__(), gone=self._gone, preempted=asyncio.Event())
        else:
            lease = await admission.__aenter__()
        try:
            yield lease
        finally:
            await admission.__aexit__(None, None, None)

    async def _whole(self, lease: Lease, collector: Collector, caller: "_Caller") -> None:
        answer = await self._services.client.post(
            f"{lease.route.base_url}/v1/chat/completions",
            content=self._request.for_engine(lease.route.served_name),
            headers=self._headers,
        )
        if answer.status_code != 200:
            await self._refuse_as(answer, answer.content, lease, caller)
            return
        document = _document(answer.content)
        collector.add(document)
        await self._record(lease, collector)
        body = reply.dump(reply.for_caller(document, self._request, lease.route.deployment.label))
        await caller.deliver_whole(body)

    async def _stream(self, lease: Lease, collector: Collector, caller: "_Caller") -> None:
        async with self._services.client.stream(
            "POST",
            f"{lease.route.base_url}/v1/chat/completions",
            content=self._request.for_engine(lease.route.served_name),
            headers=self._headers,
        ) as answer:
            if answer.status_code != 200:
                await self._refuse_as(answer, await answer.aread(), lease, caller)
                return
            is_ended = False
            # Read past [DONE], to the end of the body: only then the connection can be used again.
            async for data in sse.events(answer.aiter_bytes()):
                if data == sse.DONE:
                    is_ended = True
                    await caller.deliver(sse.event(sse.DONE))
                    continue
                document = _document(data)
                collector.add(document)
                if collector.is_finished:
                    await self._record(lease, collector)
                chunk = reply.for_caller(document, self._request, lease.route.deployment.label)
                await caller.deliver(sse.event(reply.dump(chunk)))
            if not is_ended:
                raise httpx.RemoteProtocolError("the stream ended without [DONE]")
            await caller.finish()

    async def _record(self, lease: Lease, collector: Collector) -> None:
        if collector.is_empty or collector.is_taken:
            return
        deployment = lease.route.deployment
        origin = Origin(
            model=deployment.name,
            policy_version=deployment.label,
            sampling=self._request.sampling(),
            trace=self._request.trace,
            started_ns=self._started_ns,
        )
        duration_ns = int((time.monotonic() - self._began_s) * 1e9)
        await self._services.recorder.record(collector.take(origin, duration_ns=duration_ns))

    async def _refuse_as(self, answer: httpx.Response, body: bytes, lease: Lease, caller: "_Caller") -> None:
        """Relay the engine's refusal; vLLM's server answers 500 for a while after its engine died."""
        if answer.status_code >= 500 and not await VllmApi(lease.route.base_url, self._services.client).is_healthy():
            raise httpx.RemoteProtocolError(f"status {answer.status_code}")
        await caller.relay_refusal(answer, body)

    async def _engine_lost(self, caller: "_Caller", error: httpx.TransportError) -> None:
        what = f"The engine went away while it answered ({type(error).__name__}); it is started again by itself."
        if caller.has_started:
            await caller.break_off(what, "engine_lost")
        else:
            await caller.refuse(UnavailableError(what, code="engine_lost", retry_after_s=5))


class _Caller:
    """The caller's connection."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self.has_started = False
        self.status = 0

    async def deliver_whole(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.has_started, self.status = True, status
        response = Response(body, status_code=status, headers=headers, media_type="application/json")
        await response(self._scope, self._receive, self._send)

    async def deliver(self, data: bytes) -> None:
        """A part of a stream."""
        if not self.has_started:
            self.has_started, self.status = True, 200
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def break_off(self, message: str, code: str) -> None:
        """End a stream that began, with an error event: OpenAI's clients raise it."""
        await self.deliver(sse.event(reply.dump(UnavailableError(message, code=code).body())))
        await self.finish()

    async def refuse(self, error: AnswerError) -> None:
        response = error.response()
        self.has_started, self.status = True, error.status
        await response(self._scope, self._receive, self._send)

    async def relay_refusal(self, answer: httpx.Response, body: bytes) -> None:
        """The engine's own error, as it is."""
        headers = {name: answer.headers[name] for name in _RELAYED_HEADERS if name in answer.headers}
        await self.deliver_whole(body, answer.status_code, headers)


async def _watch(receive: Receive, gone: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def _document(data: bytes) -> dict[str, Any]:
    try:
        document: object = json.loads(data)
    except ValueError as error:
        raise AnswerError(502, f"The engine answered with something that is not JSON: {data[:200]!r}") from error
    if not isinstance(document, dict):
        raise AnswerError(502, f"The engine answered with {type(document).__name__}, expected an object.")
    return cast("dict[str, Any]", document)
