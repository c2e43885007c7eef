"""The navigation: every built-in page, then those of packages, each in its group.

Invariant: a page that cannot be loaded has an entry as well, and says there what is wrong with it.
"""
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false

import logging
import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import streamlit as st
from streamlit.navigation.page import Page as StreamlitPage

from spanloop.dashboard import resources, visits
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import show_error
from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.settings import load_configuration

from .page import PAGE_POINT, Page, PageContext

_log: Final = logging.getLogger("dashboard.pages")


class _Entry(NamedTuple):
    name: str
    page: Page


class BrokenPage(Page):
    """Stands for a page that cannot be loaded."""

    icon: ClassVar[str] = ":material/error:"

    what: str
    next_step: str

    def show(self, context: PageContext) -> None:
        """Draw why the page cannot be loaded."""
        del context
        raise ConfigurationError(self.what, next_step=self.next_step)


def sections() -> dict[str, list[StreamlitPage]]:
    """Return Streamlit's pages by group, for ``st.navigation``; the built-in pages come first."""
    grouped: dict[str, list[StreamlitPage]] = {"": []}
    for name, page in _entries(resources.data_dir().path):
        entry = st.Page(
            _drawing(name, page),
            title=page.title or name.replace("_", " ").replace("-", " ").capitalize(),
            icon=page.icon,
            url_path=url_path(name),
            default=name == next(iter(PAGE_POINT.built_in)),
        )
        grouped.setdefault(page.group, []).append(entry)
    return grouped


def url_path(name: str) -> str:
    """Return the path of a page in the address."""
    return re.sub(r"[^\w-]", "-", name)


def paths() -> frozenset[str]:
    """Return the paths of all pages in the address."""
    return frozenset(url_path(name) for name, _ in _entries(resources.data_dir().path))


def preload(data_dir: Path) -> None:
    """Load the pages before the first visitor, who would wait for their imports: 2.5 s of CPU time."""
    try:
        names = [entry.name for entry in _entries(data_dir)]
    except SpanloopError as error:
        _log.warning("the pages cannot be loaded: %s", error.what)
        return
    _log.info("loaded the pages %s", ", ".join(names))


def check_pages(options: Mapping[str, Mapping[str, object]]) -> None:
    """Check the options of pages before the dashboard starts.

    Args:
        options: ``[dashboard.pages]``: page → option → value.

    Raises:
        ConfigurationError: There is no such page, it cannot be loaded, or an option cannot be used.
    """
    for name, values in options.items():
        PAGE_POINT.find(name, values)


@st.cache_resource(show_spinner=False, max_entries=1)
def _entries(data_dir: Path) -> tuple[_Entry, ...]:
    """Load the pages once in a process: packages do not change while it runs."""
    options = load_configuration(data_dir).dashboard.pages
    return tuple(_Entry(name, _load(name, options.get(name, {}))) for name in PAGE_POINT.names)


def _load(name: str, options: Mapping[str, object]) -> Page:
    try:
        return PAGE_POINT.find(name, options)
    except ConfigurationError as error:
        _log.warning("page %s cannot be loaded: %s", name, error.what)
        return BrokenPage(what=error.what, next_step=error.next_step)


def _drawing(name: str, page: Page) -> Callable[[], None]:
    def draw() -> None:
        try:
            page.show(PageContext(resources.data_dir(), visits.visitor()))
        except SpanloopError as error:
            show_error(error)
        except Exception as error:  # noqa: BLE001 - the border to a package's code: it costs its own place
            _log.exception("page %s raised", name)
            source = type(page).__module__
            st.error(
                f"The page {escape_md(name)} ({escape_md(source)}) raised "
                f"{type(error).__name__}: {escape_md(str(error))}",
                icon=":material/error:",
            )
            st.code("".join(traceback.format_exception(error)), language="python")

    return draw
