"""Drive the app without a browser: open a page, read its text and its tables, follow a row."""

import json
import re
from html import unescape
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button
from streamlit.util import calc_hash

from spanloop.dashboard import visits
from spanloop.dashboard.page import PAGE_POINT
from spanloop.dashboard.service import APP
from spanloop.dashboard.visits import Visitor
from spanloop.foundation.keys.users import Role

PAGES = tuple(PAGE_POINT.built_in)


def visit_as_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages have an operator; without the front in front of them they have a viewer."""
    monkeypatch.setattr(visits, "visitor", lambda: Visitor(visits.ANYONE, Role.OPERATOR, "127.0.0.1"))


def open_page(page: str, **query: str) -> AppTest:
    """Open a page by its name, with query parameters."""
    app = AppTest.from_file(str(APP), default_timeout=60)
    app._page_hash = calc_hash(page)  # pyright: ignore[reportPrivateUsage] # switch_page knows pages of files only
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def registered_pages(app: AppTest) -> dict[str, dict[str, Any]]:
    """Return the entries of the navigation by their path in the address."""
    pages: dict[str, Any] = dict(app._registered_pages)  # pyright: ignore[reportPrivateUsage]
    return {info["url_pathname"]: info for info in pages.values()}


def text_of(app: AppTest) -> str:
    """Return a page's text outside tables and charts."""
    groups = (
        app.title,
        app.subheader,
        app.markdown,
        app.caption,
        app.error,
        app.warning,
        app.info,
        app.success,
        app.code,
    )
    return "\n".join(str(element.value) for group in groups for element in group) + "\n".join(
        element.proto.body for element in app.html
    )


def tables(app: AppTest) -> list[dict[str, Any]]:
    """Return what the page's tables draw."""
    return [
        json.loads(element.proto.json)
        for element in app.get("bidi_component")
        if element.proto.component_name == "spanloop_table"
    ]


def figures(app: AppTest) -> list[dict[str, str]]:
    """Return the figures of the page with the addresses that they link to."""
    shown = re.compile(r'<dt>(?P<label>.*?)</dt><dd>(?:<a href="(?P<href>.*?)">)?(?P<value>.*?)(?:</a>)?</dd>')
    return [
        {name: unescape(text or "") for name, text in match.groupdict().items()}
        for element in app.html
        for match in shown.finditer(element.proto.body)
    ]


def span_lines(app: AppTest) -> dict[str, list[Any]]:
    """Return the columns of the page's tree of spans."""
    (drawn,) = (
        json.loads(element.proto.json)
        for element in app.get("bidi_component")
        if element.proto.component_name == "spanloop_span_tree"
    )
    columns: dict[str, list[Any]] = json.loads(drawn["lines"])["columns"]
    return columns


def table(app: AppTest, number: int = 0) -> pl.DataFrame:
    """Return the content of one of the page's tables: texts as they are drawn, and numbers."""
    content = tables(app)[number]
    kinds: dict[str, str] = {column["id"]: column["kind"] for column in content["columns"]}
    return pl.DataFrame(
        {name: [_value(row["cells"][name], kind) for row in content["rows"]] for name, kind in kinds.items()},
        strict=False,
    )


def _value(drawn: Any, kind: str) -> Any:
    if not isinstance(drawn, dict):
        return drawn
    cell = cast("dict[str, Any]", drawn)
    is_missing = cell.get("key") == -1e300
    return None if is_missing else cell["key"] if kind == "number" else cell.get("text", cell.get("key"))


def links(app: AppTest, number: int = 0) -> list[str]:
    """Return the addresses of a table's rows."""
    return [row["href"] for row in tables(app)[number]["rows"]]


def page_links(app: AppTest) -> list[str]:
    """Return the labels of the page's links to other pages."""
    return [link.proto.label for link in app.get("page_link")]


def follow(address: str) -> AppTest:
    """Open a page by its address."""
    parts = urlsplit(address)
    return open_page(parts.path, **dict(parse_qsl(parts.query)))


def button(app: AppTest, label: str) -> Button:
    """Return the button with the label."""
    return next(element for element in app.button if element.label == label)
