"""Who may see the pages: everybody of this machine, users who logged in, or users whom a proxy names.

Invariant: from the first user on a login is needed, and with a proxy that names users nobody comes around it. What
cannot be decided is refused.
"""

import hmac
import secrets
from typing import Final, NamedTuple

from spanloop.dashboard.visits import ANYONE, Visitor
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.keys.audit import AuditLog
from spanloop.foundation.keys.exposure import is_loopback
from spanloop.foundation.keys.users import Role, Users
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import TrustedProxy

from .login_limits import LoginLimits
from .logins import Logins
from .requests import FrontRequest


class Refused(NamedTuple):
    """Why a request sees no page."""

    message: str
    can_log_in: bool = False


class Authentication:
    """Decides about requests to the pages.

    Args:
        data_dir: Holds the users.
        port: The dashboard's, part of the cookies' names, since browsers share cookies between ports.
        host: The address that the dashboard listens on.
        proxy: The proxy in front, if it is trusted.
    """

    def __init__(self, data_dir: DataDir, *, host: str, port: int, proxy: TrustedProxy | None) -> None:
        self.users: Final = Users(data_dir)
        self.logins: Final = Logins(self.users)
        self.login_limits: Final = LoginLimits()
        self.audit: Final = AuditLog(data_dir)
        self.proxy: Final = proxy
        self.session_cookie: Final = f"spanloop_session_{port}"
        self.form_cookie: Final = f"spanloop_form_{port}"
        self._is_local = is_loopback(host)
        self._form_secret = secrets.token_bytes(32)
        self._make_user = f"spanloop users create NAME --role operator --data-dir {data_dir.path}"

    def visitor(self, request: FrontRequest) -> Visitor | Refused:
        """Return who sends a request, or why it is refused. DataDirectoryError: the users cannot be read."""
        if self.proxy is not None and self.proxy.header:
            return self._named_by(self.proxy, request)
        if not self.users.is_required:
            if not self._is_local:
                return Refused(f"this dashboard has no users; make one: {self._make_user}")
            if not request.is_for_this_machine:
                return Refused(
                    "a dashboard without users answers under a name of this machine only, such as localhost; "
                    f"for other names make a user: {self._make_user}"
                )
            return Visitor(ANYONE, Role.OPERATOR, request.address)
        user = self.logins.user_of(request.cookies.get(self.session_cookie, ""))
        if user is None:
            return Refused("log in first", can_log_in=True)
        return Visitor(user.name, user.role, request.address, has_session=True)

    def is_still(self, visitor: Visitor, request: FrontRequest) -> bool:
        """Whether the visitor may go on; no when the users cannot be read."""
        try:
            return self.visitor(request) == visitor
        except DataDirectoryError:
            return False

    def form_token(self, subject: str) -> str:
        """Return the hidden field of a form that belongs to a cookie's value; another site cannot know it."""
        return hmac.digest(self._form_secret, subject.encode("utf-8", "surrogatepass"), "sha256").hex()

    def is_own_form(self, request: FrontRequest, subject: str, token: str) -> bool:
        """Whether a posted form is one that this dashboard gave to this browser."""
        is_token = hmac.compare_digest(self.form_token(subject).encode(), token.encode("utf-8", "surrogatepass"))
        return bool(subject) and is_token and not request.is_from_another_site

    def _named_by(self, proxy: TrustedProxy, request: FrontRequest) -> Visitor | Refused:
        if not request.is_from_proxy:
            return Refused("this dashboard is reached through its proxy only ([dashboard.trusted_proxy])")
        # Two values: the proxy added its own behind one that the client sent.
        names = [name.strip() for name in request.headers.getlist(proxy.header)]
        if len(names) != 1 or not names[0]:
            return Refused(
                f"the proxy must send one {proxy.header}, as [dashboard.trusted_proxy] says; got {len(names)}"
            )
        roles = request.headers.getlist(proxy.role_header) if proxy.role_header else [proxy.role]
        is_operator = [role.strip().lower() for role in roles] == [Role.OPERATOR]
        return Visitor(names[0], Role.OPERATOR if is_operator else Role.VIEWER, request.address)
