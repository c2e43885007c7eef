"""The login in a real browser: nothing before it, no operator's button for a viewer, an operator's click in the log.

``SPANLOOP_SCREENSHOTS=folder`` keeps the screenshots.
"""

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from spanloop.dashboard.front.app import CHECK_S
from spanloop.foundation.keys.audit import AuditLog
from spanloop.foundation.keys.users import Role, Users
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs.states import JobState
from spanloop.training.run.job_api import JobApi

from ...foundation.keys.certificates import make_certificate
from .dashboard_seeding import Seeded
from .test_service import CHROMIUM, dashboard, needs_chromium

PASSWORD = "four random words"
expect.set_options(timeout=60_000)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), needs_chromium]


@contextmanager
def chromium() -> Generator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


def page_of(browser: Browser, bodies: list[str] | None = None) -> Page:
    page = browser.new_context(viewport={"width": 1280, "height": 900}, ignore_https_errors=True).new_page()
    page.set_default_timeout(60_000)
    if bodies is not None:
        page.on("response", lambda response: bodies.append(response.url))
    return page


def log_in(page: Page, name: str, password: str = PASSWORD) -> None:
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def see_nothing_before_the_login(browser: Browser, url: str, shots: Path) -> None:
    urls: list[str] = []
    page = page_of(browser, urls)
    page.goto(f"{url}/models")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    page.screenshot(path=shots / "login.png")
    log_in(page, "ann", "wrong password")
    expect(page.get_by_role("alert")).to_have_text("User or password is wrong.")
    page.screenshot(path=shots / "login-failed.png")
    assert "shop-tiny" not in page.content()
    assert {each.partition("?")[0] for each in urls} <= {f"{url}/models", f"{url}/login", "data:,"}


def see_no_action_as_a_viewer(browser: Browser, url: str, job_id: str, shots: Path) -> Page:
    page = page_of(browser)
    page.goto(f"{url}/jobs?job={job_id}")
    log_in(page, "vic")
    expect(page.get_by_text("Job settings")).to_be_visible()
    expect(page.get_by_text("vic · viewer")).to_be_visible()
    expect(page.get_by_role("link", name="All jobs")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel this job")).to_have_count(0)
    page.screenshot(path=shots / "viewer.png")
    page.goto(f"{url}/models?model=shop-tiny@v1")
    expect(page.get_by_role("heading", name="shop-tiny@v1")).to_be_visible()
    expect(page.get_by_role("link", name="Its episodes")).to_be_visible()
    expect(page.get_by_role("button", name="Serve this version")).to_have_count(0)
    page.goto(f"{url}/jobs?jobs_view=New+job")
    expect(page.get_by_role("radio", name="Schedules")).to_be_visible()
    expect(page.get_by_text("New job")).to_have_count(0)
    return page


def cancel_a_job_as_an_operator(browser: Browser, url: str, job_id: str, shots: Path) -> None:
    page = page_of(browser)
    page.goto(f"{url}/jobs?job={job_id}")
    log_in(page, "ann")
    page.get_by_role("button", name="Cancel this job").click()
    expect(page.get_by_role("button", name="Run it again")).to_be_visible()
    page.screenshot(path=shots / "operator.png")
    page.get_by_role("link", name="Log out").click()
    expect(page.get_by_text("You are logged in as ann, operator.")).to_be_visible()
    page.screenshot(path=shots / "logout.png")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.goto(f"{url}/jobs")
    expect(page.get_by_label("Password")).to_be_visible()


def test_viewer_and_operator_in_a_browser(seeded: Seeded, seeded_environment: DataDir, tmp_path: Path) -> None:
    assert seeded.episodes
    shots = Path(os.environ.get("SPANLOOP_SCREENSHOTS", tmp_path))
    users, api = Users(seeded_environment), JobApi(seeded_environment)
    users.create("ann", Role.OPERATOR, PASSWORD)
    users.create("vic", Role.VIEWER, PASSWORD)
    job = next(job for job in api.list() if job.state is JobState.QUEUED)
    with dashboard(seeded_environment) as (url, process), chromium() as browser:
        listening = [each for each in psutil.Process(process.pid).net_connections() if each.status == "LISTEN"]
        assert [each.laddr[1] for each in listening] == [int(url.rpartition(":")[2])]
        see_nothing_before_the_login(browser, url, shots)
        viewer = see_no_action_as_a_viewer(browser, url, job.id, shots)
        cancel_a_job_as_an_operator(browser, url, job.id, shots)
        users.remove("vic")
        viewer.wait_for_timeout(3_000 * CHECK_S)
        viewer.reload()
        expect(viewer.get_by_label("Password")).to_be_visible()
    assert api.get(job.id).state is JobState.CANCELLED
    logged = [
        (each.user, each.role, each.action, each.object, each.result) for each in AuditLog(seeded_environment).read()
    ]
    assert ("ann", "operator", "cancel job", job.id, "ok") in logged
    assert {user for user, *_ in logged} == {"ann", "vic"}
    assert {action for _, _, action, *_ in logged} == {"log in", "log out", "cancel job"}


def test_with_tls_the_browser_speaks_https_alone(stopped: DataDir, tmp_path: Path) -> None:
    tls = make_certificate(tmp_path)
    Users(stopped).create("ann", Role.OPERATOR, PASSWORD)
    options = ["--certificate-file", str(tls.certificate), "--private-key-file", str(tls.private_key)]
    with dashboard(stopped, *options) as (url, _), chromium() as browser:
        assert url.startswith("https://127.0.0.1:")
        page = page_of(browser)
        page.goto(f"{url}/jobs")
        log_in(page, "ann")
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        cookies = {str(each.get("name")): each for each in page.context.cookies()}
        session = next(cookie for name, cookie in cookies.items() if re.fullmatch(r"spanloop_session_\d+", name))
        assert (session.get("secure"), session.get("httpOnly"), session.get("sameSite")) == (True, True, "Lax")
