"""``POST /v1/chat/completions``: forward the request to the engine, capture its tokens, respond.

Invariant: the last part of a response (all of it without ``stream``, else the chunk with the last finish reason)
leaves only after its captures were recorded. A request is repeated, on new weights, by another engine or by the
champion after the candidate of a canary failed, only if nothing of its response was sent.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Protocol

from starlette.types import Receive, Scope, Send

from ..api_errors import ApiError, DefectError, UnavailableError
from ..canary.call import CanaryCall
from ..canary.canaries import Canaries
from ..canary.shadow import Answered, Shadows
from ..capture.recorder import Recorder
from ..capture.sampling_record import record_sampling
from ..capture.tokens import CaptureBuilder, CaptureContext
from ..client.connection import EngineConnectionError
from ..client.engine_client import EngineClient, EngineResponse, EngineStream
from ..continuation.answer_messages import AnswerMessages
from ..continuation.continuer import Continuation, Continuer
from ..engine.admission import Caller
from ..engine.gate import EngineGate, EngineSlot
from ..engine.vllm_api import VllmApi
from ..metered_keys import UNMETERED, MeteredCall, MeteredKeys
from ..metrics import Metrics
from ..model_names import ModelNames
from . import sse
from .answer_format import AnswerFormat, ChatFormat
from .answers import AnswerBuilder
from .connection import ClientConnection
from .engine_documents import decode_document, with_label
from .interruption import ClientGoneError, Interruptible, PreemptedError
from .request import ChatRequest
from .sessions import conversation_of, pseudonym_of

_log: Final = logging.getLogger(__name__)
_CLIENT_GONE: Final = 499
HISTORY_HEADER: Final = "x-spanloop-history"
"""Of a response whose request does not go on from the whole history that its conversation had."""


class Services(Protocol):
    """The parts of the gateway that a chat request uses."""

    canaries: Canaries
    names: ModelNames
    recorder: Recorder
    shadows: Shadows
    metered: MeteredKeys
    metrics: Metrics
    continuer: Continuer
    client: EngineClient
    """HTTP client for the engine."""


class ChatHandler:
    """Handles one request; an ASGI application, so that it notices a disconnect while the engine works.

    Args:
        request: The validated request.
        services: The parts of the gateway to use.
        authorization: The client's ``Authorization`` header, passed to the engine.
        session: The session of the call; empty without one.
        key: The caller's API key, by its name, or the header ``Authorization`` where the gateway has no keys.
        answer_format: The format of the answer; None is that of Chat Completions.
        headers: Further header fields of the response.
        metered: Counts the tokens of the call.
    """

    def __init__(
        self,
        request: ChatRequest,
        services: Services,
        *,
        authorization: str = "",
        session: str = "",
        key: str = "",
        answer_format: AnswerFormat | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        metered: MeteredCall = UNMETERED,
    ) -> None:
        self._request = request
        self._services = services
        self._key = key
        self._continuation: Continuation | None = None
        self._messages: AnswerMessages | None = None
        """Of an answer from which the conversation can be continued."""
        self._format = answer_format or ChatFormat(request)
        self._response_headers = headers
        self._metered = metered
        self._headers = {"authorization": authorization} if authorization else {}
        self._model = services.names.resolve(request.model)
        self._call = services.canaries.route(self._model, session)
        self._conversation = conversation_of(session, key, request.document)
        self._is_repeated = False
        self._failed: EngineGate | None = None
        """The engine that did not answer."""
        self._answered_by = ""
        self._builder = CaptureBuilder(request.choice_count)
        self._answer = AnswerBuilder()
        self._is_client_gone = False
        self._running: Interruptible | None = None
        self._began_s = time.monotonic()
        self._started_ns = time.time_ns()

    @property
    def used_tokens(self) -> int:
        """Tokens of prompt and response."""
        usage = self._builder.usage
        return usage.prompt_tokens + usage.response_tokens

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to the request."""
        connection = ClientConnection(send, self._format, self._before_answer)
        connection.headers.update(self._response_headers)
        watcher = asyncio.create_task(self._watch_disconnect(receive))
        respond = self._answer_stream if self._request.is_stream else self._answer_whole
        try:
            while not await self._try_once(respond, connection):
                self._is_repeated = True
                self._services.metrics.count("repeated_total")
        finally:
            watcher.cancel()
            metrics = self._services.metrics
            metrics.count("requests_total", status=str(connection.status), stream=str(self._request.is_stream).lower())
            metrics.count("request_seconds_total", time.monotonic() - self._began_s)
        await self._finish_call(connection)
        self._copy_to_shadow(connection)

    async def _try_once(self, respond: Any, connection: ClientConnection) -> bool:
        """Respond once; return False to try again: a swap preempted the request, or the champion is to answer."""
        try:
            async with self._admit() as slot:
                builder = self._builder = CaptureBuilder(self._request.choice_count)
                self._answer = AnswerBuilder()
                self._messages = AnswerMessages() if self._services.continuer.is_exact(slot.endpoint) else None
                self._answered_by = slot.endpoint.deployment.label
                try:
                    with self._interruptible(slot):
                        await respond(slot, builder, connection)
                except PreemptedError:
                    if not connection.has_started:
                        return False
                    await connection.end_with_error(
                        "The model was replaced during the response; send the request again.", "model_replaced"
                    )
                except EngineConnectionError as error:
                    if self._falls_back(connection, f"the engine stopped: {error}") or self._moves(connection, slot):
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

    async def _answer_defect(self, connection: ClientConnection, error: Exception) -> None:
        _log.error("a defect ended a chat request", exc_info=error)
        self._services.metrics.count("defects_total")
        answer = DefectError(error)
        if connection.is_streaming:
            await connection.end_with_error(answer.message, "internal_error")
        elif not connection.has_started:
            await connection.send_error(answer)

    def _copy_to_shadow(self, connection: ClientConnection) -> None:
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

    def _falls_back(self, connection: ClientConnection, failure: str, *, code: str | None = None) -> bool:
        """Let the champion answer what the candidate of a canary failed to; return False if it cannot."""
        if connection.has_started or not self._call.may_fall_back:
            return False
        self._call.fall_back(failure, code=code)
        self._answered_by = ""
        return True

    def _can_move(self, connection: ClientConnection, slot: EngineSlot) -> bool:
        """Return whether another engine may answer what one did not: once, while the client has received nothing."""
        return not connection.has_started and self._failed is None and self._call.champion.has_other(slot)

    def _moves(self, connection: ClientConnection, slot: EngineSlot) -> bool:
        """Let another engine answer; return False if none can."""
        if not self._can_move(connection, slot):
            return False
        self._failed = slot.gate
        self._services.metrics.count("retried_total")
        return True

    def _before_answer(self) -> None:
        """Let a session that the candidate failed stay with the champion, before the caller can send its next call."""
        if self._call.failure and self._call.is_counted:
            self._services.canaries.fell_back(self._call.session)
            self._services.metrics.count("canary_fallbacks_total")

    async def _finish_call(self, connection: ClientConnection) -> None:
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

    def _interruptible(self, slot: EngineSlot | None = None) -> Interruptible:
        """Return a block that a disconnect of the client, and a swap that preempts the slot, end."""
        is_preempted = slot is not None and slot.is_preempted
        error = ClientGoneError() if self._is_client_gone else PreemptedError() if is_preempted else None
        block = self._running = Interruptible(error)
        if slot is not None:
            slot.on_preempt = lambda: block.interrupt(PreemptedError())
        return block

    async def _watch_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_client_gone = True
        if self._running is not None:
            self._running.interrupt(ClientGoneError())

    @contextlib.asynccontextmanager
    async def _admit(self) -> AsyncGenerator[EngineSlot]:
        """Wait for admission while the client stays connected."""
        caller = Caller(self._key, self._conversation, self._is_repeated, self._failed)
        context = self._call.admit(self._model, caller)
        with self._interruptible():
            slot = await context.__aenter__()
        try:
            yield slot
        finally:
            await context.__aexit__(None, None, None)

    async def _request_engine(
        self, slot: EngineSlot, connection: ClientConnection
    ) -> AbstractAsyncContextManager[EngineStream]:
        endpoint, request = slot.endpoint, self._request
        continuation = self._continuation = await self._services.continuer.continue_exactly(
            request, endpoint, self._key, self._headers
        )
        if continuation is None:
            path, body = request.path, request.for_engine(endpoint.served_name, refused=endpoint.facts.refused_fields)
        else:
            path, body = continuation.route.path, continuation.body
        if continuation is not None and not continuation.alignment.is_whole:
            connection.headers[HISTORY_HEADER] = f"differs after token {continuation.alignment.exact}"
        return self._services.client.stream("POST", endpoint.base_url + path, content=body, headers=self._headers)

    def _decode(self, data: bytes) -> dict[str, Any]:
        document, continuation = decode_document(data), self._continuation
        is_stream = self._request.is_stream
        return document if continuation is None else continuation.route.to_chat(document, is_stream=is_stream)

    async def _answer_whole(self, slot: EngineSlot, builder: CaptureBuilder, connection: ClientConnection) -> None:
        async with await self._request_engine(slot, connection) as stream:
            response = await stream.read_all()
        if response.status_code != 200:
            await self._relay_engine_error(response, slot, connection)
            return
        document = self._decode(response.content)
        self._add(builder, document)
        await self._record(slot, builder)
        await connection.send_whole(self._format.whole(document, slot.endpoint.deployment.label))

    async def _answer_stream(self, slot: EngineSlot, builder: CaptureBuilder, connection: ClientConnection) -> None:
        async with await self._request_engine(slot, connection) as stream:
            if stream.status_code != 200:
                await self._relay_engine_error(await stream.read_all(), slot, connection)
                return
            decoder, is_ended, label = sse.Decoder(), False, slot.endpoint.deployment.label
            # Events that arrive together leave together. The body is read past [DONE], to its end: only then the
            # connection can be reused.
            while part := await stream.read():
                events: list[bytes] = []
                for data in decoder.feed(part):
                    if data == sse.DONE:
                        is_ended = True
                        events.append(self._format.done())
                        continue
                    document = self._decode(data)
                    self._add(builder, document)
                    if builder.is_finished:
                        await self._record(slot, builder)
                    events.append(self._format.events(document, label))
                if is_ended and stream.is_complete:
                    await connection.send_part(b"".join(events), is_last=True)
                elif events:
                    await connection.send_part(b"".join(events))
            if not is_ended:
                raise EngineConnectionError("the stream ended without [DONE]")
            if connection.is_streaming:
                await connection.send_part(b"", is_last=True)

    def _add(self, builder: CaptureBuilder, document: dict[str, Any]) -> None:
        if "id" in document:
            document["id"] = self._format.response_id(str(document["id"]))
        builder.add(self._request.to_capture(document))
        if self._messages is not None:
            self._messages.add(document)
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
        captures = builder.build(context, duration_ns=duration_ns)
        self._metered.count(builder.usage.prompt_tokens + builder.usage.response_tokens)
        if self._messages is not None:
            self._services.continuer.keep(
                self._request,
                slot.endpoint,
                self._key,
                captures=captures,
                answers=self._messages,
                continuation=self._continuation,
            )
        await self._services.recorder.record(captures)

    async def _relay_engine_error(
        self, response: EngineResponse, slot: EngineSlot, connection: ClientConnection
    ) -> None:
        """Send the engine's error on, unless it is a 500 that another engine may not have.

        A 500 of an unhealthy server means that vLLM's engine process died.
        """
        if response.status_code >= 500 and (
            self._can_move(connection, slot)
            or not await VllmApi(slot.endpoint.base_url, self._services.client).is_healthy()
        ):
            raise EngineConnectionError(f"status {response.status_code}")
        if self._call.may_fall_back:
            # The champion may accept what the candidate rejects; if it does not either, its error is the answer.
            raise ApiError(response.status_code, f"status {response.status_code}: {response.content[:200]!r}")
        await connection.relay_error(response, with_label(response.content, slot))

    async def _report_engine_loss(self, connection: ClientConnection, error: EngineConnectionError) -> None:
        what = f"The engine stopped during the response ({error}); it restarts automatically."
        if connection.has_started:
            await connection.end_with_error(what, "engine_lost")
        else:
            await connection.send_error(UnavailableError(what, code="engine_lost", retry_after_s=5))
