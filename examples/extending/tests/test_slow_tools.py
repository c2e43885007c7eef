"""The page shows the slowest tools; the store's answer is replaced."""

import polars as pl
from streamlit.testing.v1 import AppTest


def show(rows: list[dict[str, object]]) -> None:
    """Draw the page; Streamlit runs this body as a program of its own."""
    from unittest.mock import Mock

    import polars as pl

    from spanloop.dashboard.page import PAGE_POINT

    PAGE_POINT.find("slow-tools", {"most": "5"}).show(Mock(query=Mock(return_value=pl.DataFrame(rows))))


def test_the_page_shows_a_table_or_says_that_there_is_none() -> None:
    app = AppTest.from_function(show, args=([],), default_timeout=60).run()
    assert not app.exception
    assert (app.title[0].value, app.info[0].value) == ("Slow tools", "No tool has been called yet.")
    rows = [{"tool": "buy", "calls": 2, "mean_ms": 31.5}]
    app = AppTest.from_function(show, args=(rows,), default_timeout=60).run()
    assert not app.exception
    assert pl.from_pandas(app.dataframe[0].value).to_dicts() == rows
