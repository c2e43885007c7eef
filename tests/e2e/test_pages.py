"""The dashboard in a real browser, on what the tiny demo stored: every page, and a job from the form to its end.

``SPANLOOP_SCREENSHOTS=folder`` keeps the screenshots of the job; ``make screenshots`` takes those of all pages
from an existing data directory.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from spanloop.training.jobs.states import JobState
from spanloop.training.run.job_api import JobApi

from ..dashboard.cli.support import SPANLOOP, Up, eventually, everything_up

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
JOB_TIMEOUT_S = 300

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """A running spanloop on the data of a tiny demo, in a folder whose name may appear in screenshots."""
    with tempfile.TemporaryDirectory(prefix="spanloop-") as folder:
        command = [str(SPANLOOP), "demo", "--tiny", "--data-dir", folder]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert completed.returncode == 0, completed.stderr + completed.stdout
        with everything_up(Path(folder)) as running:
            yield running


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()


def test_a_job_is_scheduled_from_the_page_and_seen_to_finish(up: Up, page: Page, tmp_path: Path) -> None:
    screenshots = Path(os.environ.get("SPANLOOP_SCREENSHOTS", tmp_path))
    page.goto(f"http://127.0.0.1:{up.ports['dashboard']}/jobs?jobs_view=New+job")
    page.get_by_role("spinbutton", name="Steps", exact=True).fill("2")
    page.get_by_role("spinbutton", name="Steps", exact=True).press("Enter")
    page.get_by_role("spinbutton", name="Groups in a batch").fill("2")
    page.get_by_role("spinbutton", name="Groups in a batch").press("Enter")
    page.wait_for_timeout(1000)
    page.get_by_role("button", name="Start it").click()
    page.get_by_text("running").first.wait_for(timeout=60_000)
    page.wait_for_timeout(3000)
    page.screenshot(path=screenshots / "job-running.png")

    api = JobApi(up.data_dir)
    newest = api.list(limit=1)[0]
    ended = {JobState.SUCCEEDED, JobState.FAILED}
    assert eventually(lambda: api.get(newest.id).state in ended, JOB_TIMEOUT_S)
    assert api.get(newest.id).state is JobState.SUCCEEDED, api.get(newest.id).error
    page.get_by_text("succeeded").first.wait_for(timeout=30_000)
    page.screenshot(path=screenshots / "job-succeeded.png")


def test_every_page_opens_on_the_demos_data(up: Up, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "screenshots.py"), "--out", str(tmp_path)]
    command += ["--data-dir", str(up.data_dir)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
