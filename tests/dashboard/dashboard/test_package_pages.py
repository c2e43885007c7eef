"""Pages of packages: their place in the navigation, their options, and what one that fails costs."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.navigation.page import Page as StreamlitPage

from spanloop.dashboard.navigation import check_pages
from spanloop.dashboard.page import PAGE_POINT
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir

from .dashboard_driver import PAGES, open_page, registered_pages, text_of

MODULE = """
import streamlit as st
from spanloop.dashboard.page import Page
from spanloop.foundation.errors import ConfigurationError

class Greeting(Page):
    '''Greets whoever looks.'''
    title = "Hello"
    icon = ":material/waving_hand:"
    group = "Tiny"
    word: str = "Hello"
    def show(self, context):
        st.title(f"{self.word} {context.visitor.role}")

def counts(context, step: int = 1):
    st.title(f"step {step} in {context.data_dir.path.name}")

counts.title = "Counts"

def breaks(context):
    st.title("Breaks")
    raise ZeroDivisionError("no *rows*")

def refuses(context):
    raise ConfigurationError("There is no table acme.", next_step="Create it.")

def stops(context):
    st.title("Stops")
    st.stop()
"""
ENTRY_POINTS = """
[spanloop.pages]
greeting = tiny_pages:Greeting
counts = tiny_pages:counts
breaks = tiny_pages:breaks
refuses = tiny_pages:refuses
stops = tiny_pages:stops
gone = tiny_pages:nothing
jobs = tiny_pages:counts
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The distribution ``tiny-pages`` as an installer leaves it."""
    info = tmp_path / "tiny_pages-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-pages\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (info / "RECORD").write_text("tiny_pages.py,,\n")
    (tmp_path / "tiny_pages.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("tiny_pages", None)


@pytest.mark.usefixtures("stopped")
def test_a_page_has_its_title_icon_and_group_in_the_navigation(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: dict[str, list[str]] = {}
    draw_navigation = st.navigation

    def navigation(sections: dict[str, list[StreamlitPage]], **settings: Any) -> StreamlitPage:
        groups.update({group: [page.title for page in pages] for group, pages in sections.items()})
        return draw_navigation(sections, **settings)

    monkeypatch.setattr(st, "navigation", navigation)
    app = open_page("greeting")
    assert app.title[0].value == "Hello operator"
    assert {group: titles[-1] for group, titles in groups.items()} == {"": "Stops", "Tiny": "Hello"}
    pages = registered_pages(app)
    assert list(pages) == ["", *PAGES[1:], "breaks", "counts", "gone", "refuses", "stops", "greeting"]
    shown = {name: (info["page_name"], info["icon"]) for name, info in pages.items()}
    assert shown["greeting"] == ("Hello", ":material/waving_hand:")
    assert shown["counts"] == ("Counts", ":material/extension:")
    assert shown["gone"] == ("Gone", ":material/error:")
    assert shown[""] == ("Overview", ":material/dashboard:")


def test_options_come_from_the_configuration(stopped: DataDir) -> None:
    text = '[dashboard.pages.greeting]\nword = "Hi"\n[dashboard.pages.counts]\nstep = 3\n'
    (stopped.path / "spanloop.toml").write_text(text)
    assert open_page("greeting").title[0].value == "Hi operator"
    assert open_page("counts").title[0].value == f"step 3 in {stopped.path.name}"


@pytest.mark.parametrize(
    ("page", "options", "message"),
    [
        (
            "greeting",
            {"wrd": "x"},
            "Options of dashboard page 'greeting': there is no option 'wrd'.*did you mean 'word'",
        ),
        ("counts", {"step": "x"}, "option 'step' is 'x', expected a valid integer"),
        ("nobody", {}, "No dashboard page is called 'nobody'"),
        ("gone", {}, "Entry point 'gone' .*tiny-pages 1.0 cannot be loaded"),
    ],
)
def test_wrong_options_of_a_page_are_known_before_the_dashboard_starts(
    page: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_pages({page: options})


@pytest.mark.usefixtures("stopped")
def test_a_page_that_raises_shows_its_error_in_its_own_place(caplog: pytest.LogCaptureFixture) -> None:
    app = open_page("breaks")
    assert not app.exception
    assert app.title[0].value == "Breaks"
    assert "The page breaks (tiny\\_pages) raised ZeroDivisionError: no \\*rows\\*" in app.error[0].value
    assert 'raise ZeroDivisionError("no *rows*")' in app.code[0].value
    assert "page breaks raised" in caplog.text
    assert open_page("greeting").title[0].value == "Hello operator"


@pytest.mark.usefixtures("stopped")
def test_a_page_that_cannot_be_loaded_or_lacks_something_says_so() -> None:
    assert "Entry point 'gone' of group spanloop.pages in tiny-pages 1.0 cannot be loaded" in text_of(open_page("gone"))
    refused = text_of(open_page("refuses"))
    assert "There is no table acme." in refused
    assert "Next: Create it." in refused
    stopped = open_page("stops")
    assert not stopped.error
    assert stopped.title[0].value == "Stops"


def test_a_built_in_page_keeps_its_name() -> None:
    (line,) = [line for line in PAGE_POINT.listed() if line.name == "jobs" and line.source == "tiny-pages 1.0"]
    assert line.problem == "a built-in has the same name, and is used"
    assert PAGE_POINT.find("jobs").title == "Jobs"
