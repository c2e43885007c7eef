"""Drive the app without a browser: open a page, read its text, click a row."""

from typing import Any

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


def table(app: AppTest, number: int = 0) -> pl.DataFrame:
    """Return the content of one of the page's tables, with null for every missing value."""
    content: Any = app.dataframe[number].value
    return pl.from_pandas(content)  # pyright: ignore[reportUnknownVariableType] (polars' overloads over Any)


def click_row(app: AppTest, key: str, row: int) -> AppTest:
    """Click a cell of a row of the table with that key."""
    selection: dict[str, Any] = {"rows": [], "columns": [], "cells": [(row, table(app).columns[0])]}
    app.session_state[key] = {"selection": selection}
    return app.run()


def button(app: AppTest, label: str) -> Button:
    """Return the button with the label."""
    return next(element for element in app.button if element.label == label)
