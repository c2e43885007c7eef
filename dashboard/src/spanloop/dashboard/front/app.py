"""The front's ASGI application: health, metrics, login, and the pages behind the authentication.

Invariant: no page sees a request that was refused, or a header with which a client names its own
visit. A connection of a page ends within `CHECK_S` after its visitor's session.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spanloop.dashboard.visits import HEADER, Visitor, open_visit
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.keys.api_keys import KeyRing, bearer_secret, check_key
from spanloop.foundation.keys.api_keys import Scope as KeyScope
from spanloop.foundation.paths import DataDir
from spanloop.foundation.telemetry.status import Status, status_routes

from .authentication import Authentication, Refused
from .login import Login
from .login_page import HEADERS, message_page
from .metrics import FrontMetrics
from .requests import FrontRequest

CHECK_S: Final = 1.0
_POLICY_VIOLATION: Final = 1008
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PAGE_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"content-security-policy", b"frame-ancestors 'self'"),
    (b"referrer-policy", b"same-origin"),
)
Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def create_front(
    data_dir: DataDir, authentication: Authentication, pages: ASGIApp, lifespan: Lifespan | None = None
) -> Starlette:
    """Create the application.

    Args:
        data_dir: Holds the API keys, of which ``/metrics`` needs one.
        authentication: Decides who sees the pages.
        pages: The application of the pages.
        lifespan: Starts and stops it.
    """
    metrics = FrontMetrics(authentication.logins)
    keys = KeyRing(data_dir)
    status = Status("dashboard")
    status.set("serving")
    login = Login(authentication, metrics)

    return Starlette(
        routes=[
            *status_routes(status, metrics, keys, metrics.measure),
            Route("/login", login.show_login, methods=["GET"]),
            Route("/login", login.log_in, methods=["POST"]),
            Route("/logout", login.show_logout, methods=["GET"]),
            Route("/logout", login.log_out, methods=["POST"]),
            Mount("/", app=_Authenticated(authentication, keys, metrics, pages)),
        ],
        exception_handlers={DataDirectoryError: _report_unreadable},
        lifespan=lifespan,
    )


class _Authenticated:
    """The pages behind the authentication."""

    def __init__(self, authentication: Authentication, keys: KeyRing, metrics: FrontMetrics, pages: ASGIApp) -> None:
        self._authentication = authentication
        self._keys = keys
        self._metrics = metrics
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = FrontRequest(HTTPConnection(scope), self._authentication.proxy)
        visitor = self._authentication.visitor(request)
        is_page = scope["type"] == "http"
        is_safe = is_page and scope["method"] in _SAFE_METHODS
        if isinstance(visitor, Visitor) and not is_safe and request.is_from_another_site:
            visitor = Refused("another site sent this request")
        if isinstance(visitor, Refused):
            response = self._refuse(scope, request, visitor)
            self._metrics.count("refused_requests_total", status=str(response.status_code))
            if is_page:
                await response(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        if is_page:
            await self._pages(_with_visit(scope, ""), receive, _with_headers(send))
            return
        with open_visit(visitor) as visit:
            async with _ending(receive, send, partial(self._authentication.is_still, visitor, request)) as connection:
                await self._pages(_with_visit(scope, visit), *connection)

    def _refuse(self, scope: Scope, request: FrontRequest, refused: Refused) -> Response:
        secret = bearer_secret(request.headers.get("authorization", ""))
        if secret is not None:
            denied = check_key(self._keys, secret, KeyScope.READ)
            if denied is None or denied.status is HTTPStatus.FORBIDDEN:
                return _refusal(HTTPStatus.FORBIDDEN, "pages need a login; an API key reads /metrics only")
            return _refusal(denied.status, denied.message)
        is_navigation = scope.get("method") == "GET" and "text/html" in request.headers.get("accept", "")
        if refused.can_log_in and is_navigation:
            query = scope["query_string"].decode("latin-1")
            path = scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"/login?next={quote(path, safe='/')}", HTTPStatus.SEE_OTHER, headers=HEADERS)
        if is_navigation:
            return HTMLResponse(message_page(refused.message), HTTPStatus.FORBIDDEN, headers=HEADERS)
        return _refusal(HTTPStatus.UNAUTHORIZED if refused.can_log_in else HTTPStatus.FORBIDDEN, refused.message)


@contextlib.asynccontextmanager
async def _ending(receive: Receive, send: Send, is_valid: Callable[[], bool]) -> AsyncGenerator[tuple[Receive, Send]]:
    """Yield a connection that closes once ``is_valid`` is false, before anything more is received."""
    ended = asyncio.create_task(_until_invalid(is_valid))
    is_closed = False

    async def receive_next() -> Message:
        nonlocal is_closed
        message = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({message, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if ended.done() or not message.done():
                message.cancel()
        if not ended.done() and is_valid():
            return message.result()
        if not is_closed:
            is_closed = True
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "the session has ended"})
        return {"type": "websocket.disconnect", "code": _POLICY_VIOLATION}

    async def send_on(message: Message) -> None:
        if not is_closed:
            await send(message)

    try:
        yield receive_next, send_on
    finally:
        ended.cancel()


async def _until_invalid(is_valid: Callable[[], bool]) -> None:
    while True:
        await asyncio.sleep(CHECK_S)
        if not is_valid():
            return


def _with_visit(scope: Scope, visit: str) -> Scope:
    """Return the scope with the header of the visit instead of what the client sent in its place."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() != HEADER.encode()]
    return {**scope, "headers": [*headers, (HEADER.encode(), visit.encode())] if visit else headers}


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_PAGE_HEADERS]}
        await send(message)

    return send_with_headers


def _refusal(status: HTTPStatus, message: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    return JSONResponse({"error": message}, status, headers)


async def _report_unreadable(_: Request, error: Exception) -> Response:
    what = error.what if isinstance(error, DataDirectoryError) else str(error)
    return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, what)
