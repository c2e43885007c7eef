"""A list page: its filter bar, one page of rows by key, and what an empty list lacks."""
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Sequence
from urllib.parse import urlencode

import streamlit as st

from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.tables import ListState, Page
from spanloop.dashboard.queries.conditions import ATTRIBUTE_TRACES, NEWEST_EPISODES, Words
from spanloop.dashboard.queries.lists import CURSOR_SEPARATOR, Cursor, ListPage
from spanloop.dashboard.queries.sources import Source, parse_sort
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store

Fetch = Callable[[Store, Filters, str, Cursor | None], ListPage]


def read_page(store: Store, source: Source, fetch: Fetch, filters: Filters) -> tuple[ListPage, str]:
    """Return the page that the address names, and its sort."""
    sort = st.query_params.get("sort", "")
    if parse_sort(source, sort) is None:
        st.warning(
            f"The list cannot be sorted by {escape_md(sort)}; one of {', '.join(source.sorts)} is possible.",
            icon=":material/link_off:",
        )
        sort = ""
    say_what_is_read(filters)
    return fetch(store, filters, sort, _cursor()), sort


def say_what_is_read(filters: Filters) -> None:
    """Say so where the filters read only the newest traces."""
    if {"attr", "user"} & set(filters.values):
        st.caption(
            "Attributes and users have no index: the spans of the newest "
            f"{ATTRIBUTE_TRACES:,} traces of the range of time are read. A shorter range reaches older ones."
        )


def list_state(
    page: ListPage,
    source: Source,
    filters: Filters,
    sort: str,
    *,
    path: str,
    noun: str,
    compare: str = "",
    judge: str = "",
    collect: Callable[[Sequence[str]], None] | None = None,
) -> ListState:
    """Return what surrounds the rows: total, pages, and the addresses that sort."""
    name, is_descending = parse_sort(source, sort) or (source.default_sort, True)
    hrefs: dict[str, str] = {}
    for column in source.sorts:
        # A first click sorts numbers and times from the largest on, and texts from A on.
        largest_first = source.sorts[column].sql_type != "String"
        turned = (not is_descending) if column == name else largest_first
        hrefs[column] = _address(path, filters, sort=f"{'-' if turned else ''}{column}")
    earlier, later = page.has_earlier, page.has_later
    before = page.cursor(0) if earlier else ""
    after = page.cursor(-1) if later else ""
    pages = [
        Page("|<", "First page", _address(path, filters, sort=sort) if earlier else ""),
        Page("<", "Previous page", _address(path, filters, sort=sort, before=before) if earlier else "", "prev"),
        Page(">", "Next page", _address(path, filters, sort=sort, after=after) if later else "", "next"),
        Page(">|", "Last page", _address(path, filters, sort=sort, before=CURSOR_SEPARATOR) if later else ""),
    ]
    is_paged = page.has_earlier or page.has_later
    return ListState(
        name=path,
        drawn=_address(path, filters, sort=sort),
        total=f"{total_text(page)} {noun}{'' if page.total == 1 else 's'}",
        range=_range(page, is_paged=is_paged),
        sort=f"{'-' if is_descending else ''}{name}",
        sort_href=hrefs,
        pages=pages if is_paged else (),
        filter_href=lambda name, value: _address(path, filters.with_value(name, value), sort=sort),
        compare_href=compare,
        judge_href=_address(path, filters, queue=judge) if judge else "",
        collect=collect,
    )


def total_text(page: ListPage) -> str:
    """Return how many rows match."""
    return f"about {page.total:,}" if page.is_estimate else f"{page.total:,}"


def show_no_match(page: ListPage, filters: Filters, path: str, noun: str) -> None:
    """Say that nothing matches, and how the search goes on."""
    st.info(f"No {noun} matches.", icon=":material/filter_alt_off:")
    if page.words and not page.words.is_partial:
        st.markdown(
            f"The search finds whole words. [Find parts of words too]({_address(path, filters, match='part')}), "
            f"in the newest {NEWEST_EPISODES:,} episodes of the range of time."
        )


def search_note(words: Words | None) -> None:
    """Say what a search left out."""
    if words is None:
        return
    if words.is_partial:
        st.caption(
            f"Parts of words are found too; only the newest {NEWEST_EPISODES:,} episodes of the range were read."
        )
    elif words.is_common:
        st.caption(f"The words are common: only the newest {NEWEST_EPISODES:,} episodes of the range were searched.")


def _cursor() -> Cursor | None:
    for name in ("before", "after"):
        if text := st.query_params.get(name, ""):
            return Cursor.parse(text, is_before=name == "before")
    return None


def _address(path: str, filters: Filters, **changes: str) -> str:
    query = filters.query(**changes)
    return f"{path}?{query}" if query else path


def _range(page: ListPage, *, is_paged: bool) -> str:
    if not is_paged:
        return ""
    return f"{page.rows.height} on this page"


def address(path: str, **parameters: str) -> str:
    """Return the address of a page with parameters."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{path}?{query}" if query else path
