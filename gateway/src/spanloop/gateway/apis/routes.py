"""Routes of the APIs that models answer: chat, responses, messages and text completions; tokens; stored responses.

Invariant: a request is authenticated and admitted before its body is read, its admission ends with its response, and
an error has the form of the API that was called.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from spanloop.foundation.keys.api_keys import Scope
from spanloop.foundation.keys.limits import Admission

from ..api_errors import ApiError
from ..authentication import Authenticator, secret_of
from ..chat.answer_format import AnswerFormat, ChatFormat
from ..chat.completions import ChatHandler, Services
from ..chat.request import ChatRequest
from ..chat.sessions import session_of
from ..client.connection import EngineConnectionError
from ..client.json_codec import encode_json
from ..engine.admission import Caller
from . import messages_request, responses_request
from .body_reader import BodyReader
from .fields import expect_text, read_object
from .messages_format import MessagesFormat, engine_message, messages_error
from .response_store import Origin, ResponseStore, StoredResponse
from .responses_format import ResponsesFormat
from .text_completions import TextFormat, TextRequest

CHAT_PATH: Final = "/v1/chat/completions"
MESSAGES_PATH: Final = "/v1/messages"
GENERATION_PATHS: Final = frozenset({CHAT_PATH, MESSAGES_PATH, "/v1/responses", "/v1/completions"})
"""Paths whose requests a model answers."""
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_TOKENS_TIMEOUT_S: Final = 60.0


class Generation(NamedTuple):
    """A request that a model answers."""

    request: ChatRequest
    answer_format: AnswerFormat


Prepare = Callable[[bytes, Headers, str], Generation]
"""From the body, the header fields and the caller's key."""


class ApiRoutes:
    """Handlers of the routes.

    Args:
        services: The parts of the gateway that answer.
        authenticator: Checks keys.
        store: Of the Responses API.
        bodies: Reads the bodies of requests.
        max_choices: Limit of the choices of a request.
    """

    def __init__(
        self,
        services: Services,
        authenticator: Authenticator,
        store: ResponseStore,
        bodies: BodyReader,
        *,
        max_choices: int,
    ) -> None:
        self._max_choices = max_choices
        self._services = services
        self._authenticator = authenticator
        self._store = store
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(CHAT_PATH, self._generating(_prepare_chat), methods=["POST"]),
            Route("/v1/completions", self._generating(_prepare_text), methods=["POST"]),
            Route("/v1/responses", self._generating(self._prepare_response), methods=["POST"]),
            Route("/v1/responses/{id}", self._read_response, methods=["GET"]),
            Route("/v1/responses/{id}", self._delete_response, methods=["DELETE"]),
            Route("/v1/responses/{id}/input_items", self._list_input_items, methods=["GET"]),
            Route(MESSAGES_PATH, self._generating(_prepare_message), methods=["POST"]),
            Route(f"{MESSAGES_PATH}/count_tokens", self._count_tokens, methods=["POST"]),
            Route("/tokenize", self._relay_tokens, methods=["POST"]),
            Route("/detokenize", self._relay_tokens, methods=["POST"]),
        ]

    def _generating(self, prepare: Prepare) -> "_GenerationEndpoint":
        return _GenerationEndpoint(
            prepare, self._services, self._authenticator, self._bodies, max_choices=self._max_choices
        )

    def _prepare_response(self, body: bytes, headers: Headers, key: str) -> Generation:
        document = read_object(body)
        items = responses_request.input_items(document)
        previous = document.get("previous_response_id")
        if previous is not None:
            stored = self._stored(key, expect_text(previous, "previous_response_id"), "previous_response_id")
            items = [*stored.conversation, *items]

        request = ChatRequest.of_document(responses_request.to_chat(document, items), headers.get("traceparent"))
        origin = Origin(
            trace_id=request.trace.trace_id,
            session_id=session_of(headers, request.trace),
            user_id=str(document.get("user") or document.get("safety_identifier") or ""),
            previous=str(previous or ""),
        )

        def store(response: dict[str, Any]) -> None:
            if document.get("store") is not False:
                self._store.write(key, response, items, origin)

        return Generation(request, ResponsesFormat(document, store))

    def _stored(self, key: str, identity: str, param: str | None = None) -> StoredResponse:
        stored = self._store.read(key, identity)
        if stored is None:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                f"There is no stored response {identity!r:.120} of this API key; it may have been made with store: "
                "false, by another key, or be older than the retention.",
                code="previous_response_not_found" if param else "response_not_found",
                param=param,
            )
        return stored

    async def _read_response(self, request: Request) -> Response:
        with self._authenticator.admit(request, Scope.SERVE) as admission:
            return JSONResponse(self._stored(self._key(request, admission), request.path_params["id"]).response)

    async def _list_input_items(self, request: Request) -> Response:
        with self._authenticator.admit(request, Scope.SERVE) as admission:
            stored = self._stored(self._key(request, admission), request.path_params["id"])
            items = [{"id": f"item_{at}", **item} for at, item in enumerate(stored.input_items)][::-1]
            ends = {"first_id": items[0]["id"] if items else None, "last_id": items[-1]["id"] if items else None}
            return JSONResponse({"object": "list", "data": items, "has_more": False, **ends})

    async def _delete_response(self, request: Request) -> Response:
        with self._authenticator.admit(request, Scope.SERVE) as admission:
            key, identity = self._key(request, admission), request.path_params["id"]
            self._stored(key, identity)
            self._store.delete(key, identity)
            return JSONResponse({"id": identity, "object": "response", "deleted": True})

    async def _count_tokens(self, request: Request) -> Response:
        with self._authenticator.admit(request, Scope.SERVE) as admission:
            with self._bodies.share() as share:
                document = read_object(await share.read(request, admission.body_bytes))
                chat = messages_request.to_chat(document, needs_limit=False)
                fields = ("model", "messages", "tools", "chat_template_kwargs")
                body = {name: chat[name] for name in fields if name in chat}
                response = await self._call_engine("/tokenize", body, self._key(request, admission))
            if response.status_code != HTTPStatus.OK:
                content = messages_error(response.status_code, engine_message(bytes(response.body)))
                return Response(content, response.status_code, media_type="application/json")
            count = read_object(bytes(response.body)).get("count")
            return JSONResponse({"input_tokens": count})

    async def _relay_tokens(self, request: Request) -> Response:
        with self._authenticator.admit(request, Scope.SERVE) as admission, self._bodies.share() as share:
            document = read_object(await share.read(request, admission.body_bytes))
            return await self._call_engine(request.url.path, document, self._key(request, admission))

    async def _call_engine(self, path: str, document: Mapping[str, Any], key: str) -> Response:
        """Return the engine's response to a request that generates nothing."""
        model = self._services.names.resolve(str(document.get("model") or ""))
        async with self._services.canaries.route(model, "").admit(model, Caller(key)) as slot:
            body = encode_json({**document, "model": slot.endpoint.served_name})
            try:
                response = await self._services.client.request(
                    "POST", slot.endpoint.base_url + path, content=body, timeout_s=_TOKENS_TIMEOUT_S
                )
            except EngineConnectionError as error:
                raise ApiError(503, f"The engine does not answer: {error}.", code="engine_lost") from error
        return Response(response.content, response.status_code, media_type="application/json")

    def _key(self, request: Request, admission: Admission) -> str:
        return admission.key or ("" if self._authenticator.is_required else request.headers.get("authorization", ""))


class _GenerationEndpoint:
    """Answers the requests of one API; an ASGI application. Arguments are as those of `ApiRoutes`."""

    def __init__(
        self,
        prepare: Prepare,
        services: Services,
        authenticator: Authenticator,
        bodies: BodyReader,
        *,
        max_choices: int,
    ) -> None:
        self._prepare = prepare
        self._services = services
        self._authenticator = authenticator
        self._bodies = bodies
        self._max_choices = max_choices

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        with self._authenticator.admit(request, Scope.SERVE) as admission, self._bodies.share() as share:
            body = await share.read(request, admission.body_bytes)
            authorization = request.headers.get("authorization", "")
            if authorization and self._authenticator.is_required:
                authorization = ""  # an API key of this gateway is not the engine's
            key = admission.key or authorization
            generation = self._prepare(body, request.headers, key)
            generation.request.check_choices(self._max_choices)
            with self._services.metered.begin(secret_of(request)) as metered:
                handler = ChatHandler(
                    generation.request,
                    self._services,
                    authorization=authorization,
                    session=session_of(request.headers, generation.request.trace),
                    key=key,
                    answer_format=generation.answer_format,
                    headers={"x-request-id": _request_id(request)},
                    metered=metered,
                )
                try:
                    await handler(scope, receive, send)
                finally:
                    admission.charge(handler.used_tokens)


def error_response(path: str, error: ApiError) -> Response:
    """Return an error in the form of the API that a path belongs to."""
    response = error.response()
    if path.startswith(MESSAGES_PATH):
        response.body = messages_error(error.status, error.message)
        response.headers["content-length"] = str(len(response.body))
    return response


def _prepare_chat(body: bytes, headers: Headers, _key: str) -> Generation:
    request = ChatRequest.parse(body, headers.get("traceparent"))
    return Generation(request, ChatFormat(request))


def _prepare_text(body: bytes, headers: Headers, _key: str) -> Generation:
    request = TextRequest.parse(body, headers.get("traceparent"))
    return Generation(request, TextFormat(request))


def _prepare_message(body: bytes, headers: Headers, _key: str) -> Generation:
    request = ChatRequest.of_document(messages_request.to_chat(read_object(body)), headers.get("traceparent"))
    return Generation(request, MessagesFormat())


def _request_id(request: Request) -> str:
    identity = request.headers.get("x-request-id", "")
    return identity if _REQUEST_ID.fullmatch(identity) else f"req_{secrets.token_hex(12)}"
