"""Time from the address bar until a page of the dashboard can be used, in headless Chromium.

    python benchmarks/first_view.py

The dashboard shows the recordings that come with spanloop (``spanloop up --sample``). Cold: the browser has nothing of
it in its cache. Warm: the browser has opened the page before. A page can be used when its first figure or row is in
sight. Every time is a median of five. Named baseline: an empty page from the same server. The last line is ``ratio
warm_ms=… cold_ms=…``: the times of the slowest page.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, BrowserContext, sync_playwright
from trace_page import CHROMIUM, ROUNDS, dashboard, timed_ms

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.runtime.sample import restore_sample

PAGES: Final = {"": ".figures a", "episodes": "tbody tr", "failures": "tbody tr", "traces": "tbody tr"}
"""Page → what is in sight when it can be used."""
BASELINE: Final = "_stcore/health"


def open_ms(context: BrowserContext, url: str, selector: str) -> float:
    """Return the milliseconds until a new tab shows what the selector names."""
    page = context.new_page()

    def open_page() -> None:
        page.goto(url)
        page.locator(selector).first.wait_for()

    elapsed_ms = timed_ms(open_page)
    page.close()
    return elapsed_ms


def measure(browser: Browser, url: str, selector: str) -> tuple[float, float]:
    """Return the medians with a warm and a cold cache, milliseconds."""
    cold: list[float] = []
    for _ in range(ROUNDS):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        cold.append(open_ms(context, url, selector))
        context.close()
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    warm = [open_ms(context, url, selector) for _ in range(ROUNDS + 1)][1:]
    context.close()
    return statistics.median(warm), statistics.median(cold)


def main() -> None:
    """Open every page, and print the line that programs read."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    slowest = (0.0, 0.0)
    print(f"{'page':<12} {'warm ms':>8} {'cold ms':>8}")
    with tempfile.TemporaryDirectory(prefix="spanloop-") as folder, sync_playwright() as playwright:
        data_dir = DataDir(Path(folder) / "data")
        restore_sample(data_dir)
        with EmbeddedClickHouse(data_dir), dashboard(data_dir) as url:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for name, selector in {BASELINE: "body", **PAGES}.items():
                warm, cold = measure(browser, f"{url}/{name}", selector)
                print(f"{name or 'overview':<12} {warm:>8.0f} {cold:>8.0f}", flush=True)
                if name != BASELINE:
                    slowest = max(slowest[0], warm), max(slowest[1], cold)
            browser.close()
    print(f"ratio warm_ms={slowest[0]:.0f} cold_ms={slowest[1]:.0f}")


if __name__ == "__main__":
    main()
