"""Add episodes to a data set: a dialog that names it, over the filtered or selected rows of a list."""
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import polars as pl
import streamlit as st

from spanloop.dashboard import resources, visits
from spanloop.dashboard.components import actions
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import show_error
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.view_models.filters import source_text
from spanloop.foundation.errors import SpanloopError
from spanloop.store import Store
from spanloop.store.data_sets import Addition, add_to_data_set, current_episodes, fetch_data_sets

FIRST_NAME: Final = "first"
"""Name that the dialog offers where there is no data set."""

FetchEpisodes = Callable[[Store], pl.DataFrame]


def adder(
    store: Store, fetch: FetchEpisodes, source: str, *, total: str, episodes: Mapping[str, str] | None = None
) -> Callable[[Sequence[str]], None] | None:
    """Return what a list calls to add rows; None for a visitor who may not.

    Args:
        store: The store.
        fetch: Return all that is filtered, with the columns of ``data_set_episodes``.
        source: The filters, as the address of the page.
        total: How many rows are filtered.
        episodes: The episode of each row by the row's id; None where the ids are those of episodes.
    """

    def add(ids: Sequence[str]) -> None:
        chosen = sorted({episodes[each] if episodes else each for each in ids})
        if chosen:
            about = f"{len(chosen):,} selected episode{'' if len(chosen) == 1 else 's'}"
            add_dialog(store, lambda: current_episodes(store, chosen), f"{len(ids)} selected of {source}", about)
        else:
            of = "the episodes of " if episodes else ""
            about = f"{of}{source_text(source, resources.time_zone())} ({total})"
            add_dialog(store, lambda: fetch(store), source, about)

    return add if actions.may_act() else None


@st.dialog("Add to data set")
def add_dialog(store: Store, fetch: Callable[[], pl.DataFrame], source: str, about: str) -> None:
    """Ask for the name, and add the episodes.

    Args:
        store: The store.
        fetch: Return the episodes.
        source: The filters, or the selection, that the version is made by.
        about: What is added, in words.
    """
    st.caption(escape_md(f"Adds {about}."))
    names = list(dict.fromkeys(each.name for each in fetch_data_sets(store)))
    name: str | None = st.selectbox(
        "Data set",
        names or [FIRST_NAME],
        accept_new_options=True,
        key="data_set_name",
        help="One of the data sets, whose next version this makes, or a new name.",
    )
    comment = st.text_input("Comment", key="data_set_comment", placeholder="none")
    if not actions.button("Add", icon=":material/playlist_add:", key="data_set_add", is_primary=True) or not name:
        return
    try:
        addition = actions.act(
            Action.ADD_TO_DATA_SET,
            name,
            lambda: _add(store, name, fetch(), source=source, comment=comment),
            describe=lambda added: f"{added.data_set.reference}: {added.added} added",
        )
    except SpanloopError as error:
        show_error(error)
        return
    _show(addition)


def _add(store: Store, name: str, episodes: pl.DataFrame, *, source: str, comment: str) -> Addition:
    return add_to_data_set(store, name, episodes, created_by=visits.visitor().name, source=source, comment=comment)


def _show(addition: Addition) -> None:
    data_set = addition.data_set
    counts = [f"{addition.added:,} added", *(f"{count:,} {escape_md(why)}" for why, count in addition.rejected.items())]
    st.success(
        f"{', '.join(counts)}. {data_set.reference} has {data_set.episodes:,} episodes.", icon=":material/check:"
    )
    st.markdown(f"[Open {data_set.reference}]({address('data_sets', set=data_set.reference)})")
