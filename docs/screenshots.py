"""Open every page of a running dashboard in headless Chromium and save what it shows.

``python docs/screenshots.py --url http://127.0.0.1:8501 --out docs/screenshots``

A page that shows an exception, or nothing, is an error: the script then exits with 1 and says which.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

CHROMIUM: Final = "/usr/bin/chromium"
WIDTH: Final = 1280
HEIGHT: Final = 900
READY_TIMEOUT_MS: Final = 30_000
SETTLE_MS: Final = 500
DRAWN: Final = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  return app && app.getAttribute('data-test-script-state') === 'notRunning'
    && !document.querySelector('[data-testid=stSkeleton]');
}"""


@dataclass(frozen=True)
class Shot:
    """One page to open.

    Attributes:
        name: The file's stem.
        path: Path and query below the dashboard's address.
        heading: The title that the page must show.
        click_first_row: Open the first row of the page's table, and show what that leads to.
    """

    name: str
    path: str
    heading: str
    click_first_row: bool = False


SHOTS: Final = (
    Shot("overview", "", "Overview"),
    Shot("episodes", "episodes", "Episodes"),
    Shot("episode-conversation", "episodes?errors=true", "Episode", click_first_row=True),
    Shot("episode-spans", "episodes?errors=true&view=Spans", "Episode", click_first_row=True),
    Shot("episode-rewards", "episodes?errors=true&view=Rewards", "Episode", click_first_row=True),
    Shot("episode-transitions", "episodes?errors=true&view=Transitions", "Episode", click_first_row=True),
    Shot("episode-tokens", "episodes?view=Tokens", "Episode", click_first_row=True),
    Shot("episode-failures", "episodes?errors=true&view=Failures", "Episode", click_first_row=True),
    Shot("failures", "failures", "Failures"),
    Shot("failure-group", "failures", "Failure group", click_first_row=True),
    Shot("rewards", "rewards", "Rewards"),
    Shot("jobs", "jobs", "Jobs"),
    Shot("job", "jobs", "Job", click_first_row=True),
    Shot("job-form", "jobs?jobs_view=New+job", "Jobs"),
    Shot("schedules", "jobs?jobs_view=Schedules", "Jobs"),
    Shot("models", "models", "Models"),
)


def main(arguments: list[str] | None = None) -> int:
    """Take the screenshots; 1 when a page is broken."""
    parser = argparse.ArgumentParser(description="Save a screenshot of every dashboard page.")
    parser.add_argument("--url", default="http://127.0.0.1:8501", help="of a running dashboard (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("docs/screenshots"), help="folder (default: %(default)s)")
    parser.add_argument("--height", type=int, default=HEIGHT, help="of the window, in pixels")
    parser.add_argument("--dark", action="store_true", help="as a browser with a dark theme sees it")
    parser.add_argument("--only", nargs="*", default=[], help="names of single screenshots")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    broken: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": WIDTH, "height": chosen.height}, color_scheme="dark" if chosen.dark else "light"
        )
        for shot in SHOTS:
            if chosen.only and shot.name not in chosen.only:
                continue
            page = context.new_page()
            problem = take(page, chosen.url.rstrip("/"), shot, chosen.out)
            print(f"{shot.name}: {problem or 'ok'}")
            if problem:
                broken.append(shot.name)
            page.close()
        browser.close()
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def take(page: Page, url: str, shot: Shot, out: Path) -> str:
    """Save one screenshot; returns what is wrong with the page, empty when nothing is."""
    page.goto(f"{url}/{shot.path}")
    page.locator("h1").first.wait_for(timeout=READY_TIMEOUT_MS)
    wait_until_drawn(page)
    if shot.click_first_row and not click_first_row(page):
        page.screenshot(path=out / f"{shot.name}.png")
        return "" if page.locator("[data-testid=stAlert]").count() else "no table to click"
    heading = page.locator("h1").first
    if shot.click_first_row:
        page.get_by_role("heading", name=shot.heading, exact=True, level=1).wait_for(timeout=READY_TIMEOUT_MS)
        wait_until_drawn(page)
    page.screenshot(path=out / f"{shot.name}.png", full_page=True)
    if page.locator("[data-testid=stException]").count():
        return f"an exception: {page.locator('[data-testid=stException]').first.inner_text()[:300]}"
    shown = heading.inner_text()
    return "" if shown == shot.heading else f"heading {shown!r}, expected {shot.heading!r}"


def wait_until_drawn(page: Page) -> None:
    """Wait until the script has run and charts and tables have had time to draw."""
    for _ in range(2):
        page.wait_for_function(DRAWN, timeout=READY_TIMEOUT_MS)
        page.wait_for_timeout(SETTLE_MS)


def click_first_row(page: Page) -> bool:
    """Click a cell of the first table's first row; False when the page has no table."""
    tables = page.locator("[data-testid=stDataFrame]")
    if not tables.count():
        return False
    box = tables.first.bounding_box()
    if box is None:
        return False
    # Tables are drawn on a canvas: the header is 35 pixels high, and so is every row.
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 35 + 17)
    return True


if __name__ == "__main__":
    sys.exit(main())
