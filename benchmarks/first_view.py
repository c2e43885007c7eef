"""Time from the address bar until a page of the dashboard can be used, in headless Chromium.

    python benchmarks/first_view.py

The dashboard shows the recordings that come with spanloop (``spanloop up --sample``). Cold: the browser has nothing of
it in its cache. Warm: the browser has opened the page before. A page can be used when its first figure or row is in
sight. Every time is a median of five; a round opens all pages in turn, so that a slow moment of the machine meets all
of them. Named baseline: a page of one line, served by Streamlit itself to the same browser in the same round. The last
line is ``ratio warm_ms=… cold_ms=… warm=… cold=…``: the times of the slowest page, and its times in relation to the
baseline.
"""

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, BrowserContext, ViewportSize, sync_playwright
from trace_page import CHROMIUM, ROUNDS, START_TIMEOUT_S, dashboard

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.runtime.sample import restore_sample

PAGES: Final = {"overview": ".figures a", "episodes": "tbody tr", "failures": "tbody tr", "traces": "tbody tr"}
"""Page → what is in sight when it can be used."""
BASELINE: Final = "one line"
ONE_LINE: Final = "import streamlit as st\n\nst.write('One line.')\n"
IN_SIGHT_MS: Final = """(selector) => {
  const hosts = document.querySelectorAll(':is([data-testid^="stBidiComponent"], [data-testid^="stBidiComponent"] *)');
  const roots = [document, ...[...hosts].map((host) => host.shadowRoot).filter((root) => root)];
  const first = roots.map((root) => root.querySelector(selector)).find((element) => element);
  return first?.checkVisibility() && first.getBoundingClientRect().height > 0 && performance.now();
}"""
"""Asked at each frame of the browser. A locator would ask every 500 ms in the end, and round the time up to that."""
VIEWPORT: Final[ViewportSize] = {"width": 1440, "height": 900}


@contextlib.contextmanager
def one_line_page(folder: Path) -> Generator[str]:
    """Let Streamlit serve a page of one line, and yield its address."""
    script = folder / "one_line.py"
    script.write_text(ONE_LINE, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    options = {"address": "127.0.0.1", "port": str(port), "headless": "true", "fileWatcherType": "none"}
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--browser.gatherUsageStats=false"]
    process = subprocess.Popen(
        [*command, *(f"--server.{name}={value}" for name, value in options.items())], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def open_ms(context: BrowserContext, url: str, selector: str) -> float:
    """Return the milliseconds from the navigation until a new tab shows what the selector names."""
    page = context.new_page()
    page.goto(url, wait_until="commit")
    elapsed_ms = float(page.wait_for_function(IN_SIGHT_MS, arg=selector, polling="raf").json_value())
    page.close()
    return elapsed_ms


def measure(browser: Browser, pages: dict[str, tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return, for each page, the medians with a warm and a cold cache, milliseconds; ``pages`` has URL and selector."""
    warm: dict[str, list[float]] = {name: [] for name in pages}
    cold: dict[str, list[float]] = {name: [] for name in pages}
    for _ in range(ROUNDS):
        for name, (url, selector) in pages.items():
            with contextlib.closing(browser.new_context(viewport=VIEWPORT)) as context:
                cold[name].append(open_ms(context, url, selector))
                # Scripts are compiled for the cache when they are used for the second time.
                open_ms(context, url, selector)
                warm[name].append(open_ms(context, url, selector))
    return {name: (statistics.median(warm[name]), statistics.median(cold[name])) for name in pages}


def main() -> None:
    """Open every page, and print the line that programs read."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    with tempfile.TemporaryDirectory(prefix="spanloop-") as folder, sync_playwright() as playwright:
        data_dir = DataDir(Path(folder) / "data")
        restore_sample(data_dir)
        with EmbeddedClickHouse(data_dir), dashboard(data_dir) as url, one_line_page(Path(folder)) as baseline_url:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            paths = {name: "" if name == "overview" else name for name in PAGES}
            pages = {name: (f"{url}/{paths[name]}", selector) for name, selector in PAGES.items()}
            times = measure(browser, {BASELINE: (baseline_url, "[data-testid=stMarkdown] p"), **pages})
            browser.close()
    baseline = times[BASELINE]
    print(f"{'page':<12} {'warm ms':>8} {'cold ms':>8} {'warm':>6} {'cold':>6}  (ratio to {BASELINE})")
    for name, (warm, cold) in times.items():
        print(f"{name:<12} {warm:>8.0f} {cold:>8.0f} {warm / baseline[0]:>6.2f} {cold / baseline[1]:>6.2f}")
    warm, cold = (max(times[name][which] for name in PAGES) for which in (0, 1))
    print(f"ratio warm_ms={warm:.0f} cold_ms={cold:.0f} warm={warm / baseline[0]:.2f} cold={cold / baseline[1]:.2f}")


if __name__ == "__main__":
    main()
