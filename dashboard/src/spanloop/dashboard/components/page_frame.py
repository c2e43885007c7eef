"""The frame of every page: its title, its time range, and what it says when something is missing.

Invariant: an error of ours becomes one message with the next command. Anything else is a bug and stays one.
"""
# pyright: reportUnknownMemberType=false

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components.markup import plain
from spanloop.dashboard.queries import policy_versions as version_reads
from spanloop.dashboard.view_models.series import RANGES, since_s
from spanloop.semconv.errors import NotRunningError, SpanloopError, StoreError
from spanloop.store import Store

DEFAULT_RANGE: Final = "All"


@contextmanager
def page(title: str, subtitle: str = "") -> Generator[None]:
    """Draw the title; turn an error of ours inside the block into a message."""
    st.title(title, anchor=False)
    if subtitle:
        st.caption(plain(subtitle))
    try:
        yield
    except SpanloopError as error:
        problem(error)


def problem(error: SpanloopError) -> None:
    """What went wrong and what to do next."""
    st.error(plain(error.what), icon=":material/error:")
    if isinstance(error, NotRunningError):
        next_step("Start spanloop on this data directory, then reload:", resources.command("up"))
        return
    if error.next_step:
        st.caption(f"Next: {plain(error.next_step)}")
    if isinstance(error, StoreError):
        next_step("Is ClickHouse still running? This says what is:", resources.command("status"))


def nothing_yet(what: str, how: str, command: str) -> None:
    """An empty page: what is missing and the command that brings it."""
    st.info(plain(what), icon=":material/inbox:")
    next_step(how, command)


def missing(what: str, how: str, command: str, *, icon: str) -> None:
    """One line about something that does not run while the page works without it."""
    st.warning(f"{what} {how} `{command}`", icon=icon)


def next_step(how: str, command: str) -> None:
    """One sentence and one command to copy."""
    st.caption(how)
    st.code(command, language="bash")


def time_range(key: str = "range") -> int:
    """A control for how far back a page looks; seconds since the epoch, 0 for everything."""
    chosen = st.segmented_control(
        "Time range", list(RANGES), default=DEFAULT_RANGE, key=key, label_visibility="collapsed", required=True
    )
    return since_s(chosen or DEFAULT_RANGE, resources.now().timestamp())


def task_set(store: Store) -> str:
    """A control that narrows a page to tasks of one set (``test-``, ``train-``); the prefix, empty for all.

    Drawn only where task ids fall into sets. Versions compare fairly on the same tasks only.
    """
    sets = version_reads.task_sets(store)
    if len(sets) < 2:
        return ""
    chosen: str | None = st.selectbox(
        "Tasks",
        sets,
        index=None,
        placeholder="all tasks",
        key="tasks",
        bind="query-params",
        label_visibility="collapsed",
        width=200,
    )
    return chosen or ""
