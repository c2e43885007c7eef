"""``POST /v1/chat/completions``: forward the request to the engine, capture its tokens, respond.

Invariant: the last part of a response (all of it without ``stream``, else the chunk with the last finish reason)
leaves only after its captures were recorded. A request is repeated, on new weights or by the champion after the
candidate of a canary failed, only if nothing of its response was sent.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..api_errors import ApiError, DefectError, UnavailableError
from ..canary.call import CanaryCall
from ..canary.canaries import Canaries
from ..canary.shadow import Answered, Shadows
from ..capture.recorder import Recorder
from ..capture.sampling_record import record_sampling
from ..capture.tokens import CaptureBuilder, CaptureContext
from ..engine.admission import EngineSlot
from ..engine.vllm_api import VllmApi
from ..metrics import Metrics
from . import sse
from .answers import AnswerBuilder
from .cancel_on import ClientGoneError, PreemptedError, cancel_on
from .request import ChatRequest, for_client, to_json
from .sessions import pseudonym_of

_log: Final = logging.getLogger(__name__)
_CLIENT_GONE: Final = 499
_RELAYED_HEADERS: Final = ("retry-after",)


class Services(Protocol):
    """The parts of the gateway that a chat request uses."""

    canaries: Canaries
    recorder: Recorder
    shadows: Shadows
    metrics: Metrics
    client: httpx.AsyncClient
    """HTTP client for the engine."""


class ChatHandler:
    """Handles one request; an ASGI application, so that it notices a disconnect while the engine works.

    Args:
        request: The validated request.
        services: The parts of the gateway to use.
        authorization: The client's ``Authorization`` header, passed to the engine.
        session: The session of the call; empty without one.
    """

    def __init__(self, request: ChatRequest, services: Services, *, authorization: str = "", session: str = "") -> None:
        self._request = request
        self._services = services
        self._headers = {"content-type": "application/json"}
        if authorization:
            self._headers["authorization"] = authorization
        self._call = services.canaries.route(request.model, session)
        self._answered_by = ""
        self._builder = CaptureBuilder(request.choice_count)
        self._answer = AnswerBuilder()
        self._client_gone = asyncio.Event()
        self._began_s = time.monotonic()
        self._started_ns = time.time_ns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to the request."""
        connection = _Connection(scope, receive, send, self._before_answer)
        watcher = asyncio.create_task(_watch_disconnect(receive, self._client_gone))
        respond = self._answer_stream if self._request.is_stream else self._answer_whole
        try:
            while not await self._try_once(respond, connection):
                self._services.metrics.count("repeated_total")
        finally:
            watcher.cancel()
            metrics = self._services.metrics
            metrics.count("requests_total", status=str(connection.status), stream=str(self._request.is_stream).lower())
            metrics.count("request_seconds_total", time.monotonic() - self._began_s)
        await self._finish_call(connection)
        self._copy_to_shadow(connection)

    async def _try_once(self, respond: Any, connection: "_Connection") -> bool:
        """Respond once; return False to try again: a swap preempted the request, or the champion is to answer."""
        try:
            async with self._admit() as slot:
                builder = self._builder = CaptureBuilder(self._request.choice_count)
                self._answer = AnswerBuilder()
                self._answered_by = slot.endpoint.deployment.label
                try:
                    await cancel_on(
                        respond(slot, builder, connection), client_gone=self._client_gone, preempted=slot.preempted
                    )
                except PreemptedError:
                    if not connection.has_started:
                        return False
                    await connection.end_with_error(
                        "The model was replaced during the response; send the request again.", "model_replaced"
                    )
                except httpx.TransportError as error:
                    if self._falls_back(connection, f"the engine stopped: {type(error).__name__}"):
                        return False
                    await self._report_engine_loss(connection, error)
                finally:
                    # Does nothing after a complete response, which is recorded already.
                    await self._record(slot, builder)
        except ClientGoneError:
            connection.status = _CLIENT_GONE
        except ApiError as error:
            if self._falls_back(connection, error.message, code=error.code):
                return False
            await connection.send_error(error)
        except Exception as error:  # noqa: BLE001 - a defect ends its own request only, in the caller's format
            await self._answer_defect(connection, error)
        return True

    async def _answer_defect(self, connection: "_Connection", error: Exception) -> None:
        _log.error("a defect ended a chat request", exc_info=error)
        self._services.metrics.count("defects_total")
        answer = DefectError(error)
        if connection.is_streaming:
            await connection.end_with_error(answer.message, "internal_error")
        elif not connection.has_started:
            await connection.send_error(answer)

    def _copy_to_shadow(self, connection: "_Connection") -> None:
        """Send a copy of an answered call to the candidate of a shadow."""
        candidate = self._call.shadow
        if candidate is None or connection.status != HTTPStatus.OK or connection.error_code:
            return
        usage, services = self._builder.usage, self._services
        answered = Answered(
            self._answer.build(),
            usage.response_id,
            self._answered_by,
            time.monotonic() - self._began_s,
            usage.response_tokens,
        )
        services.shadows.copy(candidate, self._request, answered, services.recorder.record_shadow)

    def _falls_back(self, connection: "_Connection", failure: str, *, code: str | None = None) -> bool:
        """Let the champion answer what the candidate of a canary failed to; return False if it cannot."""
        if connection.has_started or not self._call.may_fall_back:
            return False
        self._call.fall_back(failure, code=code)
        self._answered_by = ""
        return True

    def _before_answer(self) -> None:
        """Let a session that the candidate failed stay with the champion, before the caller can send its next call."""
        if self._call.failure and self._call.is_counted:
            self._services.canaries.fell_back(self._call.session)
            self._services.metrics.count("canary_fallbacks_total")

    async def _finish_call(self, connection: "_Connection") -> None:
        """Record a call that a canary compares."""
        call = self._call
        if call.candidate is None or call.arm is None:
            return
        usage = self._builder.usage
        await self._services.recorder.record_call(
            CanaryCall(
                canary_id=call.candidate.canary.id,
                call_id=secrets.token_hex(8),
                session=pseudonym_of(call.session, call.candidate.canary.salt),
                arm=call.arm,
                policy_version=self._answered_by,
                response_id=usage.response_id,
                trace_id=self._request.trace.trace_id,
                status=connection.status,
                error=call.error(connection.status, connection.error_code),
                prompt_tokens=usage.prompt_tokens,
                response_tokens=usage.response_tokens,
                started_ns=self._started_ns,
                duration_ns=int((time.monotonic() - self._began_s) * 1e9),
            )
        )

    @contextlib.asynccontextmanager
    async def _admit(self) -> AsyncGenerator[EngineSlot]:
        """Wait for admission while the client stays connected."""
        context = self._call.admit(self._request.model)
        if self._call.is_held:
            slot = await cancel_on(context.__aenter__(), client_gone=self._client_gone, preempted=asyncio.Event())
        else:
            slot = await context.__aenter__()
        try:
            yield slot
        finally:
            await context.__aexit__(None, None, None)

    async def _answer_whole(self, slot: EngineSlot, builder: CaptureBuilder, connection: "_Connection") -> None:
        response = await self._services.client.post(
            f"{slot.endpoint.base_url}/v1/chat/completions",
            content=self._request.for_engine(slot.endpoint.served_name),
            headers=self._headers,
        )
        if response.status_code != 200:
            await self._relay_engine_error(response, response.content, slot, connection)
            return
        document = _decode_document(response.content)
        self._add(builder, document)
        await self._record(slot, builder)
        body = to_json(for_client(document, self._request, slot.endpoint.deployment.label))
        await connection.send_whole(body)

    async def _answer_stream(self, slot: EngineSlot, builder: CaptureBuilder, connection: "_Connection") -> None:
        async with self._services.client.stream(
            "POST",
            f"{slot.endpoint.base_url}/v1/chat/completions",
            content=self._request.for_engine(slot.endpoint.served_name),
            headers=self._headers,
        ) as response:
            if response.status_code != 200:
                await self._relay_engine_error(response, await response.aread(), slot, connection)
                return
            is_ended = False
            # Read past [DONE], to the end of the body: only then the HTTP connection can be reused.
            async for data in sse.decode(response.aiter_bytes()):
                if data == sse.DONE:
                    is_ended = True
                    await connection.send_chunk(sse.encode(sse.DONE))
                    continue
                document = _decode_document(data)
                self._add(builder, document)
                if builder.is_finished:
                    await self._record(slot, builder)
                chunk = for_client(document, self._request, slot.endpoint.deployment.label)
                await connection.send_chunk(sse.encode(to_json(chunk)))
            if not is_ended:
                raise httpx.RemoteProtocolError("the stream ended without [DONE]")
            await connection.finish()

    def _add(self, builder: CaptureBuilder, document: dict[str, Any]) -> None:
        builder.add(document)
        if self._call.shadow is not None:
            self._answer.add(document)

    async def _record(self, slot: EngineSlot, builder: CaptureBuilder) -> None:
        if builder.is_empty or builder.is_built:
            return
        deployment = slot.endpoint.deployment
        context = CaptureContext(
            model=deployment.name,
            policy_version=deployment.label,
            tokenizer=deployment.tokenizer,
            sampling=record_sampling(self._request.document, slot.endpoint.facts.sampling),
            trace=self._request.trace,
            started_ns=self._started_ns,
        )
        duration_ns = int((time.monotonic() - self._began_s) * 1e9)
        await self._services.recorder.record(builder.build(context, duration_ns=duration_ns))

    async def _relay_engine_error(
        self, response: httpx.Response, body: bytes, slot: EngineSlot, connection: "_Connection"
    ) -> None:
        """Send the engine's error on; a 500 of an unhealthy server means that vLLM's engine process died."""
        if (
            response.status_code >= 500
            and not await VllmApi(slot.endpoint.base_url, self._services.client).is_healthy()
        ):
            raise httpx.RemoteProtocolError(f"status {response.status_code}")
        if self._call.may_fall_back:
            # The champion may accept what the candidate rejects; if it does not either, its error is the answer.
            raise ApiError(response.status_code, f"status {response.status_code}: {body[:200]!r}")
        await connection.relay_error(response, body)

    async def _report_engine_loss(self, connection: "_Connection", error: httpx.TransportError) -> None:
        what = f"The engine stopped during the response ({type(error).__name__}); it restarts automatically."
        if connection.has_started:
            await connection.end_with_error(what, "engine_lost")
        else:
            await connection.send_error(UnavailableError(what, code="engine_lost", retry_after_s=5))


class _Connection:
    """The connection to the client.

    Args:
        scope: As in ASGI, like ``receive`` and ``send``.
        receive: Receives messages.
        send: Sends messages.
        before_answer: Called before the first part of an answer with the status 200.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, before_answer: Callable[[], None]) -> None:
        self._scope = scope
        self._before_answer = before_answer
        self._receive = receive
        self._send = send
        self.has_started = False
        self.is_streaming = False
        """Whether a stream was begun and not ended."""
        self.status = 0
        self.error_code = ""
        """Of the error event that ended a stream."""

    async def send_whole(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        if status == HTTPStatus.OK:
            self._before_answer()
        self.has_started, self.status = True, status
        response = Response(body, status_code=status, headers=headers, media_type="application/json")
        await response(self._scope, self._receive, self._send)

    async def send_chunk(self, data: bytes) -> None:
        """Send a part of a stream."""
        if not self.has_started:
            self._before_answer()
            self.has_started, self.status = True, 200
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self.is_streaming = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        self.is_streaming = False
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def end_with_error(self, message: str, code: str) -> None:
        """End a started stream with an error event, which OpenAI's clients raise."""
        self.error_code = code
        await self.send_chunk(sse.encode(to_json(UnavailableError(message, code=code).body())))
        await self.finish()

    async def send_error(self, error: ApiError) -> None:
        response = error.response()
        self.has_started, self.status = True, error.status
        await response(self._scope, self._receive, self._send)

    async def relay_error(self, response: httpx.Response, body: bytes) -> None:
        """Send the engine's error unchanged."""
        headers = {name: response.headers[name] for name in _RELAYED_HEADERS if name in response.headers}
        await self.send_whole(body, response.status_code, headers)


async def _watch_disconnect(receive: Receive, client_gone: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    client_gone.set()


def _decode_document(data: bytes) -> dict[str, Any]:
    try:
        document: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ApiError(502, f"The engine's response is not JSON, or nested too deep: {data[:200]!r}") from error
    if not isinstance(document, dict):
        raise ApiError(502, f"The engine's response is JSON of type {type(document).__name__}, expected an object.")
    return cast("dict[str, Any]", document)
