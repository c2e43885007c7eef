"""``/login`` and ``/logout``.

Invariant: a form is accepted only from this dashboard's own page in the same browser. Each attempt to log in is limited
and in the audit log. A password is neither stored nor logged.
"""

import asyncio
import secrets
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from spanloop.dashboard.visits import Visitor
from spanloop.foundation.keys.audit import FAILED, OK

from .authentication import Authentication, Refused
from .login_page import HEADERS, login_page, logout_page, message_page
from .metrics import FrontMetrics
from .requests import FrontRequest

_MAX_FORM_BYTES: Final = 16 * 1024
_WRONG: Final = "User or password is wrong."
_STALE: Final = "This form is out of date. Try again."


class Login:
    """The endpoints.

    Args:
        authentication: Holds users, logins and their limits.
        metrics: Counts the logins.
    """

    def __init__(self, authentication: Authentication, metrics: FrontMetrics) -> None:
        self._authentication = authentication
        self._metrics = metrics
        # Each check of a password takes 64 MiB and a tenth of a second.
        self._checks = asyncio.Semaphore(2)

    async def show_login(self, request: Request) -> Response:
        """Draw the form, or go on when there is nothing to log in to."""
        front = FrontRequest(request, self._authentication.proxy)
        next_path = local_path(request.query_params.get("next", "/"))
        visitor = self._authentication.visitor(front)
        if isinstance(visitor, Visitor):
            return RedirectResponse(next_path, HTTPStatus.SEE_OTHER)
        if not visitor.can_log_in:
            return _page(message_page(visitor.message), HTTPStatus.FORBIDDEN)
        return self._form(front, next_path)

    async def log_in(self, request: Request) -> Response:
        """Check user and password, and begin a session."""
        front = FrontRequest(request, self._authentication.proxy)
        fields = await _read_form(request)
        if fields is None:
            return Response("The form is too large.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        next_path, name = local_path(fields.get("next", "/")), fields.get("user", "").strip()[:64]
        visitor = self._authentication.visitor(front)
        if isinstance(visitor, Refused) and not visitor.can_log_in:
            return _page(message_page(visitor.message), HTTPStatus.FORBIDDEN)
        cookie = front.cookies.get(self._authentication.form_cookie, "")
        if not self._authentication.is_own_form(front, cookie, fields.get("token", "")):
            return self._form(front, next_path, name=name, error=_STALE, status=HTTPStatus.FORBIDDEN)
        wait_s = self._authentication.login_limits.begin(name, front.address)
        if wait_s:
            self._metrics.count("logins_total", result="limited")
            error = f"Too many attempts. Try again in {wait_s} seconds."
            response = self._form(front, next_path, name=name, error=error, status=HTTPStatus.TOO_MANY_REQUESTS)
            response.headers["Retry-After"] = str(wait_s)
            return response
        async with self._checks:
            user = await asyncio.to_thread(self._authentication.users.verify, name, fields.get("password", ""))
        role = "" if user is None else user.role.value
        result = FAILED if user is None else OK
        await asyncio.to_thread(self._audit, name, role, front.address, "log in", result)
        self._metrics.count("logins_total", result=result)
        if user is None:
            return self._form(front, next_path, name=name, error=_WRONG, status=HTTPStatus.UNAUTHORIZED)
        self._authentication.login_limits.succeed(name, front.address)
        response = RedirectResponse(next_path, HTTPStatus.SEE_OTHER, headers=HEADERS)
        self._set_cookie(response, self._authentication.session_cookie, self._authentication.logins.begin(user), front)
        response.delete_cookie(self._authentication.form_cookie, path="/login")
        return response

    async def show_logout(self, request: Request) -> Response:
        """Draw the form that ends the session."""
        front = FrontRequest(request, self._authentication.proxy)
        visitor = self._authentication.visitor(front)
        if isinstance(visitor, Refused) or not visitor.has_session:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        token = self._authentication.form_token(front.cookies.get(self._authentication.session_cookie, ""))
        return _page(logout_page(token=token, name=visitor.name, role=visitor.role.value))

    async def log_out(self, request: Request) -> Response:
        """End the session, and with it every page that it has open."""
        front = FrontRequest(request, self._authentication.proxy)
        fields = await _read_form(request) or {}
        identity = front.cookies.get(self._authentication.session_cookie, "")
        if not self._authentication.is_own_form(front, identity, fields.get("token", "")):
            return _page(message_page(_STALE), HTTPStatus.FORBIDDEN)
        visitor = self._authentication.visitor(front)
        if isinstance(visitor, Visitor):
            await asyncio.to_thread(self._audit, visitor.name, visitor.role.value, front.address, "log out", OK)
        self._authentication.logins.end(identity)
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER, headers=HEADERS)
        response.delete_cookie(self._authentication.session_cookie, path="/")
        return response

    def _form(
        self,
        front: FrontRequest,
        next_path: str,
        *,
        name: str = "",
        error: str = "",
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Response:
        cookie = front.cookies.get(self._authentication.form_cookie, "") or secrets.token_urlsafe(24)
        text = login_page(token=self._authentication.form_token(cookie), next_path=next_path, name=name, error=error)
        response = _page(text, status)
        self._set_cookie(response, self._authentication.form_cookie, cookie, front, path="/login")
        return response

    def _set_cookie(self, response: Response, name: str, value: str, front: FrontRequest, path: str = "/") -> None:
        response.set_cookie(name, value, path=path, httponly=True, samesite="lax", secure=front.is_tls)

    def _audit(self, user: str, role: str, address: str, action: str, result: str) -> None:
        self._authentication.audit.add(
            user=user, role=role, address=address, action=action, object_="dashboard", result=result
        )


def local_path(path: str) -> str:
    """Return ``path`` if it leads to this dashboard, else ``/``."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\", "/login", "/logout"))
    return path if is_local and path.isprintable() and "\\" not in path else "/"


def _page(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return HTMLResponse(text, status, headers=HEADERS)


async def _read_form(request: Request) -> dict[str, str] | None:
    """Return the fields of a posted form; None when it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM_BYTES:
            return None
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20)
    return {name: values[0] for name, values in fields.items()}
