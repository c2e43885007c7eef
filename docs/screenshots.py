"""Save a screenshot of every dashboard page over a data directory, with headless Chromium.

``python docs/screenshots.py --data-dir ~/.spanloop --out docs/screenshots``

The script uses a running dashboard, else it starts ClickHouse and the dashboard until it ends. It exits with 1 and
names the pages that show an exception, an error message or another heading.
"""

import argparse
import html
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl
from playwright.sync_api import Page, sync_playwright

from spanloop.client import Client
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import default_data_dir
from spanloop.store import connect
from spanloop.training.models.registry import Registry

CHROMIUM: Final = "/usr/bin/chromium"
WIDTH: Final = 1280
HEIGHT: Final = 900
MAX_HEIGHT: Final = 1500
START_TIMEOUT_S: Final = 60
READY_TIMEOUT_MS: Final = 30_000
SETTLE_MS: Final = 500
DRAWN: Final = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  return app && app.getAttribute('data-test-script-state') === 'notRunning'
    && !document.querySelector('[data-testid=stSkeleton]');
}"""
CONTENT_HEIGHT: Final = "() => document.querySelector('[data-testid=stMainBlockContainer]')?.scrollHeight ?? 0"


@dataclass(frozen=True)
class Shot:
    """One page to open.

    Attributes:
        name: The file's stem.
        path: Path and query below the dashboard's address; ``{model}`` is the newest version in the registry.
        heading: The title that the page must show.
        click_first_row: Whether to open the first row of the page's table first.
        then: Parameters that are added to the address of what the row opened.
        click: Selector of what is clicked at last.
        top: Selector of what is scrolled to the window's top; empty makes the window as high as the content.
    """

    name: str
    path: str
    heading: str
    click_first_row: bool = False
    then: str = ""
    click: str = ""
    top: str = ""


SHOTS: Final = (
    Shot("overview", "", "Overview"),
    Shot("episodes", "episodes", "Episodes", top="h1"),
    Shot("transitions", "transitions", "Transitions", top="h1"),
    Shot("episode-conversation", "episodes?errors=1..", "Episode", click_first_row=True),
    Shot("episode-spans", "episodes?errors=1..", "Episode", click_first_row=True, then="view=Spans"),
    Shot("episode-rewards", "episodes?outcome=failure", "Episode", click_first_row=True, then="view=Rewards"),
    Shot("episode-transitions", "episodes?outcome=failure", "Episode", click_first_row=True, then="view=Transitions"),
    Shot(
        "transition-tokens", "episodes?outcome=failure", "Episode", click_first_row=True, then="view=Transitions&step=0"
    ),
    Shot("episode-tokens", "episodes", "Episode", click_first_row=True, then="view=Tokens"),
    Shot("episode-failures", "episodes?outcome=failure", "Episode", click_first_row=True, then="view=Failures"),
    Shot("judge", "episodes?outcome=failure&queue=20", "Judge"),
    Shot("data-set", "data_sets", "Data set", click_first_row=True, top="h1"),
    Shot("data-sets", "data_sets", "Data sets", top="h1"),
    Shot("traces", "traces", "Traces", top="h1"),
    Shot("trace", "traces", "Trace", click_first_row=True),
    Shot("span", "traces?errors=1..", "Trace", click_first_row=True, click="[role=treeitem] >> nth=-1"),
    Shot("sessions", "sessions", "Sessions", top="h1"),
    Shot("session", "sessions", "Session", click_first_row=True),
    Shot("failures", "failures", "Failures"),
    Shot("failure-group", "failures", "Failure group", click_first_row=True, top="h1"),
    Shot(
        "train-on-failures",
        "failures",
        "Failure group",
        click_first_row=True,
        click="button:has-text('Train')",
        top="h1",
    ),
    Shot("numbers", "numbers?view=Errors+over+time&by=class", "Numbers"),
    Shot("latency", "numbers?view=Latency&by=model", "Numbers"),
    Shot("agents", "numbers?view=Agents&errors=1..", "Numbers"),
    Shot("rewards", "evaluations?view=Rewards", "Evaluations"),
    Shot("training", "evaluations?view=Training", "Evaluations"),
    Shot("evaluations", "evaluations", "Evaluations"),
    Shot("compare", "evaluations?view=Task+by+task", "Evaluations", top="h3:has-text('Task ')"),
    Shot("rounds", "rounds", "Rounds"),
    Shot("jobs", "jobs", "Jobs"),
    Shot("job", "jobs", "Job", click_first_row=True),
    Shot("job-form", "jobs?jobs_view=New+job", "Jobs"),
    Shot("schedules", "jobs?jobs_view=Schedules", "Jobs"),
    Shot("models", "models", "Models"),
    Shot("model", "models?model={model}", "Models"),
    Shot("alerts", "alerts?rule=bad-answers", "Alerts"),
)

QUESTIONS: Final = (
    """(
    client.outcomes("policy", "time=30d")
    .select("policy", "episodes", "success", "success_low", "success_high")
)""",
    """(
    client.failure_groups("owner=policy&time=30d")
    .select("error_class", "failures", "episodes", "recovered", "message")
    .head(3)
)""",
    """(
    client.episodes("outcome=failure&time=30d", sort="-tokens", limit=3)
    .select("episode_id", "task_id", "policy_version", "tokens", "reward")
)""",
)
"""What the picture of the reading client asks."""
SESSION: Final = """<body style="margin:0;padding:20px;background:#171614;color:#e9e7e1">
<pre style="margin:0;font:14px/19px 'Source Code Pro',monospace">{text}</pre></body>"""


def main(arguments: list[str] | None = None) -> int:
    """Take the screenshots; return 1 when a page is broken."""
    parser = argparse.ArgumentParser(description="Save a screenshot of every dashboard page.")
    parser.add_argument(
        "--data-dir", type=Path, default=default_data_dir(), help="data directory (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/screenshots"), help="folder (default: %(default)s)")
    parser.add_argument("--height", type=int, default=HEIGHT, help="least height of the window, in pixels")
    parser.add_argument("--dark", action="store_true", help="use the dark theme")
    parser.add_argument("--only", nargs="*", default=[], help="names of the only screenshots to take")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    directory = DataDir(options.data_dir).open()
    models = Registry(directory).list()
    broken: list[str] = []
    with running_dashboard(directory) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": WIDTH, "height": options.height}, color_scheme="dark" if options.dark else "light"
        )
        for shot in SHOTS:
            if options.only and shot.name not in options.only:
                continue
            page = context.new_page()
            path = shot.path.replace("{model}", models[0].reference if models else "")
            problem = take(page, f"{url}/{path}", shot, options.out)
            print(f"{shot.name}: {problem or 'ok'}", flush=True)
            if problem:
                broken.append(shot.name)
            page.close()
        if not options.only or "ask" in options.only:
            ask(context.new_page(), directory, options.out)
            print("ask: ok", flush=True)
        browser.close()
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


@contextmanager
def running_dashboard(directory: DataDir) -> Generator[str]:
    """Yield the URL of the running dashboard over ``directory``, else of one that ends with the block."""
    service = directory.running("dashboard")
    if service is not None:
        yield service.url
        return
    with ExitStack() as stack:
        stack.enter_context(connect(directory, start=True))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        command = [sys.executable, "-m", "spanloop.dashboard", "--data-dir", str(directory.path), "--port", port]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        stack.callback(process.wait, START_TIMEOUT_S)
        stack.callback(process.terminate)
        deadline = time.monotonic() + START_TIMEOUT_S
        while (service := directory.running("dashboard")) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"The dashboard did not start on {directory.path}.")
            time.sleep(0.2)
        yield service.url


def take(page: Page, url: str, shot: Shot, out: Path) -> str:
    """Save one screenshot; return the page's problem, empty when it has none."""
    page.goto(url)
    page.locator("h1").first.wait_for(timeout=READY_TIMEOUT_MS)
    wait_until_drawn(page)
    if shot.click_first_row and not click_first_row(page):
        page.screenshot(path=out / f"{shot.name}.png")
        return "" if page.locator("[data-testid=stAlert]").count() else "no table to click"
    heading = page.locator("h1").first
    if shot.click_first_row:
        page.get_by_role("heading", name=shot.heading, exact=True, level=1).wait_for(timeout=READY_TIMEOUT_MS)
        wait_until_drawn(page)
    if shot.then:
        page.goto(f"{page.url}&{shot.then}")
        page.locator("h1").first.wait_for(timeout=READY_TIMEOUT_MS)
        wait_until_drawn(page)
    if shot.click:
        page.locator(shot.click).first.click()
        wait_until_drawn(page)
    if shot.top and page.locator(shot.top).count():
        page.locator(shot.top).first.evaluate("(each) => each.scrollIntoView()")
    else:
        fit(page)
    page.screenshot(path=out / f"{shot.name}.png")
    if page.locator("[data-testid=stException]").count():
        return f"an exception: {page.locator('[data-testid=stException]').first.inner_text()[:300]}"
    errors = page.locator("[data-testid=stAlertContentError]")
    if errors.count():
        return f"an error message: {errors.first.inner_text()[:300]}"
    actual_heading = heading.inner_text()
    return "" if actual_heading == shot.heading else f"heading {actual_heading!r}, expected {shot.heading!r}"


def ask(page: Page, directory: DataDir, out: Path) -> None:
    """Save what a Python session shows that puts `QUESTIONS` to the store."""
    lines = [">>> from spanloop.client import Client", ">>> client = Client()"]
    with (
        Client(directory.path) as client,
        pl.Config(fmt_str_lengths=40, tbl_width_chars=130, tbl_hide_dtype_separator=True),
    ):
        for question in QUESTIONS:
            first, *rest = question.splitlines()
            answer = eval(question, {"client": client})  # noqa: S307 - the questions stand above
            lines += [f">>> {first}", *(f"... {line}" for line in rest), str(answer)]
    page.set_content(SESSION.format(text=html.escape("\n".join(lines))))
    page.screenshot(path=out / "ask.png", full_page=True)


def wait_until_drawn(page: Page) -> None:
    """Wait until the script has run and charts and tables have had time to draw."""
    for _ in range(2):
        page.wait_for_function(DRAWN, timeout=READY_TIMEOUT_MS)
        page.wait_for_timeout(SETTLE_MS)


def fit(page: Page) -> None:
    """Make the window as high as the page's content, up to MAX_HEIGHT, because the page scrolls inside the window."""
    height = int(page.evaluate(CONTENT_HEIGHT))
    if height > HEIGHT:
        page.set_viewport_size({"width": WIDTH, "height": min(height, MAX_HEIGHT)})
        page.wait_for_timeout(2 * SETTLE_MS)


def click_first_row(page: Page) -> bool:
    """Open the first row of the page's tables; False when no row opens anything."""
    row = page.locator("tbody tr.openable").first
    if not row.count():
        return False
    row.get_by_role("link").first.click()
    return True


if __name__ == "__main__":
    sys.exit(main())
