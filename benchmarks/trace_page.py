"""Time until a trace of many spans can be used in a browser: opened, scrolled, searched, and a span of it read.

    python benchmarks/trace_page.py [--spans 10000]

The trace is of an agent that makes a model call and a tool call in each round. A real dashboard over an embedded
ClickHouse draws it in headless Chromium; every time is a median of five. Named baseline: the same page with a trace of
100 spans. ``frame`` is the time of a frame while the tree is scrolled a screen a frame. The last line is
``ratio usable_ms=… ratio=…``: the time from the click in the address bar until lines of the tree are in sight, with the
app's code in the browser's cache, and that time in relation to the baseline.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store import connect

CHROMIUM: Final = "/usr/bin/chromium"
ROUNDS: Final = 5
START_TIMEOUT_S: Final = 100
SMALL: Final = 100
FILL: Final = """
INSERT INTO otel_traces (
    Timestamp, TraceId, SpanId, ParentSpanId, SpanName, ServiceName, SpanAttributes, Duration, StatusCode, StatusMessage
)
SELECT
    now64(9) - 3600 + number * 0.01, {trace:String}, lower(leftPad(hex(number + 1), 16, '0')),
    multiIf(
        number = 0, '', number % 3 = 1, '0000000000000001', lower(leftPad(hex(number + 1 - (number + 2) % 3), 16, '0'))
    ),
    multiIf(number = 0, 'invoke_agent crawler', number % 3 = 1, concat('round ', toString(intDiv(number, 3))),
        number % 3 = 2, 'chat small', 'execute_tool fetch_page'),
    'crawler',
    map(
        'gen_ai.operation.name', ['execute_tool', 'invoke_agent', 'chat'][1 + number % 3],
        'gen_ai.input.messages', concat(
            '[{"role":"user","parts":[{"type":"text","content":"Page ', toString(number), '? ',
            repeat('many words ', 250), '"}]}]'
        )
    ),
    10000000, if(number % 97 = 3, 'Error', 'Unset'), if(number % 97 = 3, 'the page did not load', '')
FROM numbers({spans:UInt64})
"""
FRAMES: Final = """async (scroller) => {
  const times = [];
  let last = performance.now();
  for (let frame = 0; frame < 60; frame += 1) {
    scroller.scrollTop = (frame * scroller.clientHeight) % Math.max(1, scroller.scrollHeight - scroller.clientHeight);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - last);
    last = performance.now();
  }
  return times.sort((left, right) => left - right)[30];
}"""


def timed_ms(run: Callable[[], object]) -> float:
    """Return the milliseconds that a function takes."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def measure(page: Page, url: str, trace: str, spans: int) -> dict[str, float]:
    """Return the medians of what a reader waits for."""
    lines, panel = page.get_by_role("treeitem"), page.locator(".st-key-span_panel")
    times: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        times.setdefault(name, []).append(value)

    def open_trace() -> None:
        page.goto(f"{url}/traces?trace={trace}")
        lines.first.wait_for()

    def open_span(number: int) -> None:
        lines.nth(number).click()
        panel.get_by_text("took").first.wait_for()

    def search() -> None:
        page.get_by_label("Find spans").fill(f"Page {spans // 2}?")
        page.keyboard.press("Enter")
        page.get_by_text(f"1 of {spans:,} spans").wait_for()

    open_trace()
    for number in range(ROUNDS):
        note("usable", timed_ms(open_trace))
        page.wait_for_timeout(1_000)
        note("frame", float(page.locator(".scroller").evaluate(FRAMES)))
        note("find a name", timed_ms(lambda: page.get_by_label("Find spans").fill("round 30")))
        page.get_by_label("Find spans").fill("")
        page.locator(".scroller").evaluate("(scroller) => { scroller.scrollTop = 0; }")
        note("read a span", timed_ms(partial(open_span, 2 + number)))
        page.wait_for_timeout(1_000)
        note("search in messages", timed_ms(search))
        page.wait_for_timeout(500)
    return {name: statistics.median(values) for name, values in times.items()}


@contextmanager
def dashboard(data_dir: DataDir) -> Generator[str]:
    """Run a dashboard over the ClickHouse of a data directory, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "spanloop.dashboard", "--data-dir", str(data_dir.path), "--port", port]
    with (data_dir.logs / "dashboard.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (running := data_dir.running("dashboard")) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert running is not None, (data_dir.logs / "dashboard.log").read_text(encoding="utf-8")
        yield running.url
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Fill both traces, measure the page with each, and print the line that programs read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--spans", type=int, default=10_000)
    spans: int = parser.parse_args().spans
    sizes = {"a" * 32: SMALL, "b" * 32: spans}
    with tempfile.TemporaryDirectory(prefix="spanloop-") as folder, sync_playwright() as playwright:
        data_dir = DataDir(Path(folder) / "data").open()
        with EmbeddedClickHouse(data_dir):
            with connect(data_dir) as store:
                for trace, size in sizes.items():
                    parameters = {"trace": trace, "spans": size}
                    store.connection.command(FILL, doing="filling", parameters=parameters)
            with dashboard(data_dir) as url:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
                small, large = (measure(page, url, trace, size) for trace, size in sizes.items())
                browser.close()
    print(f"{'ms':<20} {SMALL:>8,} {spans:>8,}")
    for name, value in large.items():
        print(f"{name:<20} {small[name]:>8.0f} {value:>8.0f}")
    print(f"ratio usable_ms={large['usable']:.0f} ratio={large['usable'] / small['usable']:.2f}")


if __name__ == "__main__":
    main()
