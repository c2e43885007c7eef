"""Parts that all pages share: title, filters, and messages for errors and empty data.

Invariant: a `SpanloopError` becomes one message with the next command. Any other exception is a bug and is not caught.
"""
# pyright: reportUnknownMemberType=false

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NoReturn

import streamlit as st
from streamlit.navigation.page import Page as StreamlitPage

from spanloop.dashboard import resources
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.queries import overview, policy_versions
from spanloop.dashboard.view_models.formatting import short_id
from spanloop.dashboard.view_models.series import RANGES, since_s
from spanloop.foundation.errors import NotRunningError, SpanloopError, StoreError
from spanloop.store import Store

DEFAULT_RANGE: Final = "All"
_LIST: Final = "newest_list"
"""Session state: path and parameters of the list that was shown last."""


@contextmanager
def page(title: str, subtitle: str = "") -> Generator[None]:
    """Draw the title; show a `SpanloopError` of the block as a message."""
    name = f"{title} {short_id(subtitle)}" if " " not in subtitle and subtitle else title
    st.set_page_config(page_title=f"{name} · spanloop")
    st.title(title, anchor=False)
    if subtitle:
        st.caption(escape_md(subtitle))
    try:
        yield
    except SpanloopError as error:
        show_error(error)


def linked_page(name: str) -> StreamlitPage:
    """Return a built-in page, for ``st.page_link`` and ``st.switch_page``; Streamlit tells pages by their URL."""
    return st.Page(lambda: None, title=name.capitalize(), url_path=name)


def remember_list(path: str) -> None:
    """Remember the address of a list, to which `link_back` leads from what is opened there."""
    pairs = [(name, value) for name in st.query_params for value in st.query_params.get_all(name)]
    st.session_state[_LIST] = (path, pairs)


def link_back(path: str, label: str) -> None:
    """Draw the link to a list, with its filters where the visitor came from there."""
    listed, pairs = st.session_state.get(_LIST, ("", []))
    st.page_link(
        linked_page(path), label=label, icon=":material/arrow_back:", query_params=pairs if listed == path else None
    )


def draw_again() -> NoReturn:
    """Draw the page once more.

    A filter or link that was clicked meanwhile comes first: ``st.rerun`` alone takes the address that this run began
    with, and the page would no longer show what its address says.
    """
    st.empty()  # Streamlit looks for a newer request at each element.
    st.rerun()


def show_error(error: SpanloopError) -> None:
    """Draw an error and its next step."""
    st.error(escape_md(error.what), icon=":material/error:")
    if isinstance(error, NotRunningError):
        show_command("Start spanloop on this data directory, then reload:", resources.cli_command("up"))
        return
    if error.next_step:
        st.caption(f"Next: {escape_md(error.next_step)}")
    if isinstance(error, StoreError):
        show_command("Check whether ClickHouse still runs:", resources.cli_command("status"))


def empty_state(what: str, how: str, command: str) -> None:
    """Draw what an empty page lacks and the command that creates it."""
    st.info(escape_md(what), icon=":material/inbox:")
    show_command(how, command)


def no_span_yet(store: Store, what: str) -> None:
    """Draw why a list of episodes is empty: no span has arrived, or none is converted yet."""
    if overview.fetch_totals(store, 0).last_ingested_at is not None:
        empty_state(
            f"{what} Spans are stored, and the pipeline converts them within seconds.",
            "Where no pipeline runs, convert them:",
            resources.cli_command("convert"),
        )
        return
    st.info(f"{escape_md(what)} No span has arrived.", icon=":material/inbox:")
    show_command(
        "Run your app so, in its own environment; no line of its code changes. "
        "How to record JavaScript, and every framework, is in the documentation under “Trace an app”:",
        "pip install /path/to/spanloop          # the checkout, once\n"
        "spanloop instrument --install          # what your model's SDK needs, once\n"
        "opentelemetry-instrument python app.py",
    )
    show_command("Or look around first, in recordings:", resources.cli_command("up --sample"))


def show_not_running(what: str, how: str, command: str, *, icon: str) -> None:
    """Draw one line about a service that does not run; the page works without it."""
    st.warning(f"{what} {how} `{command}`", icon=icon)


def show_command(how: str, command: str) -> None:
    """Draw one sentence and one command to copy."""
    st.caption(how)
    st.code(command, language="bash")


def select_time_range(key: str = "range") -> tuple[int, str]:
    """Draw the time range control; the address states what is chosen.

    Returns:
        The start in seconds since the epoch, 0 for all time, and the range as lists have it in their address.
    """
    label = st.segmented_control(
        "Time range",
        list(RANGES),
        default=DEFAULT_RANGE,
        key=key,
        bind="query-params",
        label_visibility="collapsed",
        required=True,
    )
    chosen = label or DEFAULT_RANGE
    since = since_s(chosen, resources.now().timestamp())
    return since, chosen.replace(" ", "") if since else ""


def select_task_prefix(store: Store) -> str:
    """Draw a control for the prefix of task ids (``test-``, ``train-``); return the prefix, empty for all tasks.

    Drawn only where task ids have at least two prefixes. Only results on the same tasks compare fairly.
    """
    prefixes = policy_versions.fetch_task_prefixes(store)
    if len(prefixes) < 2:
        return ""
    prefix: str | None = st.selectbox(
        "Tasks",
        prefixes,
        index=None,
        placeholder="all tasks",
        key="tasks",
        bind="query-params",
        label_visibility="collapsed",
        width=200,
    )
    return prefix or ""
