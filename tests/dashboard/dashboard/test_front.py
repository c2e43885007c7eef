"""The dashboard's front: login, sessions, forms, limits of attempts, a proxy's header, and pages behind all of it."""
# pyright: reportPrivateUsage=false

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from argon2 import PasswordHasher
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from spanloop.dashboard import visits
from spanloop.dashboard.front import app as front_app
from spanloop.dashboard.front.app import create_front
from spanloop.dashboard.front.authentication import Authentication
from spanloop.dashboard.front.login import local_path
from spanloop.dashboard.front.login_limits import USER_AND_ADDRESS, WINDOW_S, LoginLimits
from spanloop.dashboard.front.logins import LOGIN_S
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.keys import users as users_module
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.audit import AuditLog
from spanloop.foundation.keys.exposure import check_dashboard_exposure
from spanloop.foundation.keys.users import Role, Users
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Dashboard, TrustedProxy

PASSWORD = "four random words"
HTML = {"accept": "text/html"}


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(users_module, "_HASHER", hasher)
    monkeypatch.setattr(users_module, "_DUMMY_HASH", hasher.hash("nobody's"))


async def _page(request: Request) -> Response:
    return PlainTextResponse(f"page {request.headers.get(visits.HEADER)}")


async def _stream(socket: WebSocket) -> None:
    """Answer each message with who sent it, as a page would know."""
    await socket.accept()
    try:
        while True:
            await socket.receive_text()
            visitor = visits._visits[socket.headers[visits.HEADER]]
            await socket.send_text(f"{visitor.name} {visitor.role}")
    except WebSocketDisconnect:
        return


PAGES = Starlette(
    routes=[WebSocketRoute("/_stcore/stream", _stream), Route("/{path:path}", _page, methods=["GET", "PUT"])]
)


class Browser(TestClient):
    """A browser on the dashboard."""

    def log_in(self, name: str, password: str = PASSWORD, **fields: str) -> Any:
        form = self.get("/login").text
        token = re.search(r'name="token" value="([0-9a-f]+)"', form)
        assert token is not None, form
        data = {"user": name, "password": password, "token": token[1], **fields}
        return self.post("/login", data=data, headers={"origin": "http://localhost"})


MakeBrowser = Callable[..., Browser]


@pytest.fixture
def authentication(data_dir: DataDir) -> Authentication:
    return Authentication(data_dir, host="127.0.0.1", port=8501, proxy=None)


@pytest.fixture
def browser(data_dir: DataDir, authentication: Authentication) -> MakeBrowser:
    """Makes browsers on one dashboard."""
    front = create_front(data_dir, authentication, PAGES)

    def make(host: str = "localhost", client: tuple[str, int] = ("127.0.0.1", 1)) -> Browser:
        return Browser(front, base_url=f"http://{host}", follow_redirects=False, client=client)

    return make


@pytest.fixture
def users(data_dir: DataDir) -> Users:
    ring = Users(data_dir)
    ring.create("ann", Role.OPERATOR, PASSWORD)
    ring.create("vic", Role.VIEWER, PASSWORD)
    return ring


def stream_of(browser: Browser, **headers: str) -> Any:
    return browser.websocket_connect(f"ws://{browser.base_url.netloc.decode()}/_stcore/stream", headers=headers)


def ask(stream: Any) -> str:
    stream.send_text("?")
    return str(stream.receive_text())


def test_without_users_everybody_of_this_machine_is_an_operator(browser: MakeBrowser) -> None:
    for host in ("localhost", "127.0.0.1:8501", "[::1]:8501"):
        assert browser(host).get("/jobs").text == "page None"
    with stream_of(browser()) as stream:
        assert ask(stream) == "anyone operator"


def test_without_users_another_name_of_this_machine_is_refused(browser: MakeBrowser) -> None:
    rebound = browser("attacker.example")
    assert rebound.get("/", headers=HTML).status_code == 403
    assert "spanloop users create NAME --role operator" in rebound.get("/", headers=HTML).text
    with pytest.raises(WebSocketDisconnect), stream_of(rebound):
        pass


@pytest.mark.usefixtures("users")
def test_nothing_is_shown_before_the_login(browser: MakeBrowser) -> None:
    stranger = browser()
    page = stranger.get("/jobs?jobs_view=Schedules", headers=HTML)
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/jobs%3Fjobs_view%3DSchedules")
    for path in ("/", "/_stcore/health", "/_stcore/host-config", "/static/app.js", "/media/x"):
        assert stranger.get(path).status_code == 401
    assert stranger.put("/_stcore/upload_file/a/b").status_code == 401
    with pytest.raises(WebSocketDisconnect), stream_of(stranger):
        pass
    forged = {visits.HEADER: "x", "cookie": "spanloop_session_8501=x"}
    assert stranger.get("/", headers=forged).status_code == 401
    assert stranger.get("/healthz").status_code == 200


@pytest.mark.usefixtures("users")
def test_a_login_leads_to_the_page_and_has_the_users_role(browser: MakeBrowser, data_dir: DataDir) -> None:
    ann, vic = browser(), browser()
    done = ann.log_in("ann", next="/jobs?jobs_view=Schedules")
    assert (done.status_code, done.headers["location"]) == (303, "/jobs?jobs_view=Schedules")
    cookie = done.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie
    assert ann.get("/jobs").text == "page None"
    assert vic.log_in("vic").status_code == 303
    with stream_of(ann) as first, stream_of(vic, **{visits.HEADER: "forged"}) as second:
        assert ask(first) == "ann operator"
        assert ask(second) == "vic viewer"
    assert visits.open_visits() == 0
    logged = [(entry.user, entry.role, entry.action, entry.result) for entry in AuditLog(data_dir).read()]
    assert logged == [("ann", "operator", "log in", "ok"), ("vic", "viewer", "log in", "ok")]
    assert PASSWORD not in data_dir.audit.read_text()


@pytest.mark.usefixtures("users")
def test_a_wrong_password_an_unknown_user_and_a_foreign_form_are_refused(
    browser: MakeBrowser, data_dir: DataDir
) -> None:
    stranger = browser()
    for name, password in (("ann", "wrong password"), ("eve", PASSWORD)):
        refused = stranger.log_in(name, password)
        assert refused.status_code == 401
        assert "User or password is wrong." in refused.text
    assert "<script>" not in stranger.log_in("<script>", "x").text
    foreign = {"user": "ann", "password": PASSWORD}
    assert stranger.post("/login", data=foreign).status_code == 403
    assert stranger.post("/login", data={**foreign, "token": "0" * 64}).status_code == 403
    token = re.search(r'value="([0-9a-f]{64})"', stranger.get("/login").text)
    assert token is not None
    form = {**foreign, "token": token[1]}
    assert stranger.post("/login", data=form, headers={"origin": "http://attacker.example"}).status_code == 403
    assert browser().post("/login", data=form).status_code == 403
    assert stranger.get("/").status_code == 401
    assert [entry.result for entry in AuditLog(data_dir).read()] == ["failed"] * 3
    assert stranger.post("/login", content=b"x" * 20_000).status_code == 413


@pytest.mark.usefixtures("users")
def test_attempts_are_limited_by_user_and_address(browser: MakeBrowser) -> None:
    here, there = browser(), browser(client=("10.0.0.9", 1))
    for _ in range(USER_AND_ADDRESS):
        assert here.log_in("ann", "wrong password").status_code == 401
    limited = here.log_in("ann")
    assert limited.status_code == 429
    assert 0 < int(limited.headers["retry-after"]) <= WINDOW_S
    assert here.log_in("vic").status_code == 303
    assert there.log_in("ann").status_code == 303


def test_an_attempt_is_possible_again_after_the_window() -> None:
    now_s = [0.0]
    attempts = LoginLimits(lambda: now_s[0])
    assert [attempts.begin("ann", "10.0.0.9") for _ in range(USER_AND_ADDRESS)] == [0] * USER_AND_ADDRESS
    wait_s = attempts.begin("ann", "10.0.0.9")
    assert wait_s == WINDOW_S
    now_s[0] += wait_s
    assert attempts.begin("ann", "10.0.0.9") == 0
    for number in range(USER_AND_ADDRESS):
        assert attempts.begin("ann", f"2001:db8::{number}") == 0
    assert attempts.begin("ann", "2001:db8::ffff") > 0
    assert attempts.begin("ann", "2001:db8:0:1::1") == 0


def test_a_logout_ends_the_session_and_its_open_pages(
    browser: MakeBrowser, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert users.is_required
    monkeypatch.setattr(front_app, "CHECK_S", 0.02)
    ann = browser()
    ann.log_in("ann")
    with stream_of(ann) as stream:
        assert ask(stream) == "ann operator"
        assert ann.post("/logout", data={"token": "0" * 64}).status_code == 403
        token = re.search(r'value="([0-9a-f]{64})"', ann.get("/logout").text)
        assert token is not None
        session = ann.cookies["spanloop_session_8501"]
        assert ann.post("/logout", data={"token": token[1]}).headers["location"] == "/login"
        with pytest.raises(WebSocketDisconnect):
            stream.receive_text()
    assert "spanloop_session_8501" not in ann.cookies
    assert ann.get("/", headers={"cookie": f"spanloop_session_8501={session}"}).status_code == 401


@pytest.mark.parametrize("change", ["remove", "password"])
def test_a_changed_user_cannot_click_any_more(browser: MakeBrowser, users: Users, change: str) -> None:
    ann, vic = browser(), browser()
    ann.log_in("ann")
    vic.log_in("vic")
    with stream_of(ann) as stream, stream_of(vic) as other:
        assert ask(stream) == "ann operator"
        if change == "remove":
            users.remove("ann")
        else:
            users.set_password("ann", "other random words")
        stream.send_text("click")
        with pytest.raises(WebSocketDisconnect):
            stream.receive_text()
        assert ask(other) == "vic viewer"
    assert ann.get("/").status_code == 401


def test_a_session_ends_by_itself(
    authentication: Authentication, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = users.verify("ann", PASSWORD)
    assert user is not None
    session = authentication.logins.begin(user)
    assert authentication.logins.user_of(session) == user
    monkeypatch.setattr(authentication.logins, "_clock", lambda: time.monotonic() + LOGIN_S)
    assert authentication.logins.user_of(session) is None


@pytest.mark.usefixtures("users")
def test_another_site_can_open_no_page_of_a_logged_in_user(browser: MakeBrowser) -> None:
    ann = browser()
    ann.log_in("ann")
    for headers in ({"origin": "http://attacker.example"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
        with pytest.raises(WebSocketDisconnect), stream_of(ann, **headers):
            pass
        assert ann.put("/_stcore/upload_file/a/b", headers=headers).status_code == 403
    with stream_of(ann, origin="http://localhost") as stream:
        assert ask(stream) == "ann operator"


def test_metrics_need_a_key_with_the_scope_read_and_no_key_opens_a_page(
    browser: MakeBrowser, users: Users, data_dir: DataDir
) -> None:
    assert users.is_required
    client = browser()
    assert "spanloop_dashboard_sessions 0" in client.get("/metrics").text
    ring = KeyRing(data_dir)
    read, admin, ingest = (ring.create(scope, [scope]).secret for scope in (Scope.READ, Scope.ADMIN, Scope.INGEST))

    def status(path: str, key: str) -> int:
        return int(client.get(path, headers={"authorization": f"Bearer {key}"}).status_code)

    assert [client.get("/metrics").status_code, status("/metrics", "x")] == [401, 401]
    assert [status("/metrics", key) for key in (read, admin, ingest)] == [200, 200, 403]
    assert [status("/", key) for key in (read, admin, ingest, "x")] == [403, 403, 403, 401]


def test_unreadable_users_and_keys_refuse_everything(browser: MakeBrowser, data_dir: DataDir) -> None:
    data_dir.users.write_text("broken")
    data_dir.keys.write_text("broken")
    client = browser()
    assert [client.get(path).status_code for path in ("/", "/metrics")] == [401, 503]
    assert client.log_in("ann").status_code == 503


@pytest.fixture
def proxied(data_dir: DataDir) -> MakeBrowser:
    """Makes clients of a dashboard behind a proxy at 10.0.0.1 that names users and roles."""
    fields = {"from": ["10.0.0.1"], "header": "X-Forwarded-User", "role_header": "X-Role"}
    authentication = Authentication(data_dir, host="0.0.0.0", port=8501, proxy=TrustedProxy.model_validate(fields))
    front = create_front(data_dir, authentication, PAGES)

    def make(address: str) -> Browser:
        return Browser(front, base_url="http://localhost", follow_redirects=False, client=(address, 1))

    return make


def test_a_proxys_header_names_user_and_role(proxied: MakeBrowser) -> None:
    proxy = proxied("10.0.0.1")
    for role, known in (("operator", "operator"), ("viewer", "viewer"), ("root", "viewer"), ("", "viewer")):
        with stream_of(proxy, **{"x-forwarded-user": "ann", "x-role": role}) as stream:
            assert ask(stream) == f"ann {known}"
    assert proxy.get("/").status_code == 403
    two = [("x-forwarded-user", "ann"), ("x-forwarded-user", "vic")]
    assert proxy.get("/", headers=two).status_code == 403


def test_only_the_proxy_is_believed(proxied: MakeBrowser) -> None:
    client = proxied("10.0.0.2")
    headers = {"x-forwarded-user": "ann", "x-role": "operator", "x-forwarded-for": "10.0.0.1"}
    assert client.get("/", headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), stream_of(client, **headers):
        pass


def test_beyond_loopback_it_needs_users_or_a_proxy(data_dir: DataDir) -> None:
    check_dashboard_exposure(data_dir, "127.0.0.1", Dashboard())
    with pytest.raises(ConfigurationError, match=r"would listen on 0\.0\.0\.0.*it has no users") as refused:
        check_dashboard_exposure(data_dir, "0.0.0.0", Dashboard())
    assert f"spanloop users create NAME --role operator --data-dir {data_dir.path}" in str(refused.value)
    only_tls = TrustedProxy.model_validate({"from": ["10.0.0.1"]})
    with pytest.raises(ConfigurationError, match="it has no users"):
        check_dashboard_exposure(data_dir, "0.0.0.0", Dashboard(trusted_proxy=only_tls))
    names_users = TrustedProxy.model_validate({"from": ["10.0.0.0/8"], "header": "X-Forwarded-User"})
    check_dashboard_exposure(data_dir, "0.0.0.0", Dashboard(trusted_proxy=names_users))
    Users(data_dir).create("ann", Role.VIEWER, PASSWORD)
    check_dashboard_exposure(data_dir, "0.0.0.0", Dashboard())


@pytest.mark.usefixtures("users")
def test_behind_tls_the_cookie_is_secure(data_dir: DataDir) -> None:
    proxy = TrustedProxy.model_validate({"from": ["10.0.0.1"]})
    front = create_front(data_dir, Authentication(data_dir, host="0.0.0.0", port=8501, proxy=proxy), PAGES)
    for address, is_secure in (("10.0.0.1", True), ("10.0.0.2", False)):
        client = Browser(front, base_url="http://localhost", follow_redirects=False, client=(address, 1))
        form = client.get("/login", headers={"x-forwarded-proto": "https"})
        assert ("secure" in form.headers["set-cookie"].lower()) == is_secure


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [("/jobs?a=b", "/jobs?a=b"), *((each, "/") for each in ("", "x", "//evil", "/\\evil", "https://evil", "/a\r\nb"))],
)
def test_a_login_leads_to_this_dashboard_only(path: str, leads_to: str) -> None:
    assert local_path(path) == leads_to
