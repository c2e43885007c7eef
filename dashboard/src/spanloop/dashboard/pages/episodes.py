"""Episodes: a list with filters; with ``?episode=…`` one episode with all that is known about it."""
# pyright: reportUnknownMemberType=false

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import episode as episode_view
from spanloop.dashboard.components import tables
from spanloop.dashboard.components.page_frame import nothing_yet, page, time_range
from spanloop.dashboard.queries import episodes as reads
from spanloop.store import Store

_PAGE_ROWS = 100


def render() -> None:
    """Draw the list, or the one episode that the address names."""
    chosen = st.query_params.get("episode", "")
    if chosen:
        with page("Episode", chosen):
            episode_view.show(resources.store(), chosen)
        return
    with page("Episodes", "One row is one attempt at a task. Click a row to open it."):
        _list(resources.store())


def _list(store: Store) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        since = time_range("episodes_range")
        errors_only = st.toggle("With tool errors", key="errors", bind="query-params")
    chosen = _filters(store, with_tool_errors=errors_only)
    page_number = int(st.session_state.get("episodes_page", 1))
    found = reads.episodes(store, since, chosen, max_rows=_PAGE_ROWS + 1, skip_rows=(page_number - 1) * _PAGE_ROWS)
    if found.is_empty():
        if chosen == reads.EpisodeFilter() and not since and page_number == 1:
            nothing_yet("No episode yet.", "Episodes are made of stored spans by:", resources.command("convert"))
        else:
            st.info("No episode matches these filters.", icon=":material/filter_alt_off:")
            if page_number > 1:
                st.button("Back to the first page", on_click=lambda: st.session_state.update(episodes_page=1))
        return
    shown = found.head(_PAGE_ROWS)
    picked = tables.pick_row(
        tables.episodes(shown), shown["episode_id"].to_list(), key="episodes", columns=tables.episode_columns()
    )
    if picked:
        st.query_params["episode"] = picked
        st.rerun()
    if found.height > _PAGE_ROWS or page_number > 1:
        st.number_input("Page", min_value=1, value=1, key="episodes_page", width=140)
        st.caption(f"{_PAGE_ROWS} episodes a page, the newest first.")


def _filters(store: Store, *, with_tool_errors: bool) -> reads.EpisodeFilter:
    facets = reads.episode_facets(store)
    outcome, version, agent, text = st.columns([2, 3, 3, 4])
    return reads.EpisodeFilter(
        outcome=outcome.selectbox(
            "Outcome",
            ["success", "failure", "unknown"],
            index=None,
            placeholder="any outcome",
            key="outcome",
            bind="query-params",
        )
        or "",
        policy_version=version.selectbox(
            "Policy version",
            facets["policy_version"],
            index=None,
            placeholder="any version",
            key="policy",
            bind="query-params",
        )
        or "",
        agent_name=agent.selectbox(
            "Agent", facets["agent_name"], index=None, placeholder="any agent", key="agent", bind="query-params"
        )
        or "",
        text=text.text_input(
            "Search", placeholder="part of a task, session or episode id", key="search", bind="query-params"
        ),
        with_tool_errors=with_tool_errors,
    )


render()
