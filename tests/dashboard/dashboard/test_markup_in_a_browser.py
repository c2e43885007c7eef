"""Streamlit's own reader of Markdown draws stored texts as they are.

``SPANLOOP_SCREENSHOTS=folder`` keeps the screenshot.
"""

import json
import os
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

from ...ports import free_port
from ..cli.support import eventually
from . import markdown_elements
from .markdown_elements import TEXTS_ENV
from .test_login_in_a_browser import chromium, page_of
from .test_service import needs_chromium

TEXTS = [
    ":material/delete: :smile: :material_delete: :streamlit: :+1:",
    "swe-bench:lock:17 ev/ok:100:",
    "a->b <- c >= d <= e -> f <-> g -- h ~= i",
    "https://example.com/x?a=1 HTTP://EXAMPLE.COM",
    "www.example.com WWW.example.com.",
    "mailto:someone@example.com someone.else+1@mail.example.com",
    "shop-tiny@v1 my_model_@v2.1",
    "x:red[y] :blue-background[z] x:small :help[a] :red",
    ":small[] :::note ::leaf[x]{a=b}",
    "$x$ $$y$$ \\(z\\) $5 and $6",
    "== ... -- --- *** ___ === ~~x~~ ==y==",
    "**b** _i_ `c` ``d`` [l](http://e) ![i](http://e) <b>h</b> <http://e> [^1] [ ] x",
    "&amp; &copy; &#65; &",
    "\\*a\\* \\",
    "1. one",
    "12) twelve",
    "- item",
    "+",
    "# heading",
    "> quote",
    "| a | b |",
    "    indented",
    " led and trailed ",
    "two\n\nparagraphs\n=\nand\n- lines\r\n```",
]
KINDS = (
    "emphasis",
    "markdown",
    "caption",
    "heading",
    "error",
    "button",
    "metric",
    "expander",
    "progress",
    "toggle",
    "selectbox",
)
_TEXT = """(element) => {
    const copy = element.cloneNode(true);
    copy.querySelectorAll('summary [data-testid=stIconMaterial]').forEach((icon) => icon.remove());
    return copy.textContent;
}"""
"""Text of an element without the arrow of an expander."""

_PIECES = [
    *" \n.:-=<>@~*_`[](){}|#$&!/\\+'\"^1a",
    "www",
    "http",
    "://",
    "smile",
    "red",
    "small",
    "amp;",
    "x.com",
    "material/",
]


def generated(count: int) -> list[str]:
    """Texts of random pieces, which differ when their white space collapses."""
    rng = random.Random(1)
    texts = ("".join(rng.choice(_PIECES) for _ in range(rng.randrange(1, 14))) for _ in range(count))
    return list({" ".join(text.split()): text for text in texts if text.strip()}.values())


@contextmanager
def elements(texts: list[str], log: Path) -> Generator[str]:
    """A server that draws the texts, and its address."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(markdown_elements.__file__), f"--server.port={port}"]
    command += ["--server.headless=true", "--server.address=127.0.0.1", "--browser.gatherUsageStats=false"]
    environment = os.environ | {TEXTS_ENV: json.dumps(texts), "OMP_NUM_THREADS": "1"}

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False

    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        assert eventually(answers), log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def drawn(page: Page, kind: str, number: int) -> str:
    """What an element shows; white space collapses as in a browser."""
    found = page.locator(f".st-key-{kind}-{number}")
    text = found.locator("input").input_value() if kind == "selectbox" else str(found.evaluate(_TEXT))
    return " ".join(text.split())


@needs_chromium
def test_stored_text_is_drawn_as_it_is_by_every_element(tmp_path: Path) -> None:
    shots = Path(os.environ.get("SPANLOOP_SCREENSHOTS", str(tmp_path)))
    texts = [*TEXTS, *generated(16)]
    with elements(texts, tmp_path / "log") as url, chromium() as browser:
        page = page_of(browser)
        page.goto(url)
        page.get_by_text("All drawn.").wait_for()
        expect(page.get_by_role("combobox")).to_have_count(len(texts))
        expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
        page.set_viewport_size({"width": 1280, "height": 3_000})
        page.screenshot(path=shots / "hostile-texts.png")
        expected = {(kind, text): " ".join(text.split()) for text in texts for kind in KINDS}
        found = {(kind, text): drawn(page, kind, number) for number, text in enumerate(texts) for kind in KINDS}
        for text in texts:
            expected["emphasis", text] = f"✕ {expected['emphasis', text]} failed"
            expected["selectbox", text] = " ".join(text.replace("\r", "").replace("\n", "").split())
        assert {key: value for key, value in found.items() if value != expected[key]} == {}
        content = page.locator("[data-testid=stMainBlockContainer]")
        for selector in ("a", "img", ".katex", "code", "ul", "ol", "blockquote", "table", "b", "em", "del", "hr"):
            assert content.locator(selector).count() == 0, selector
