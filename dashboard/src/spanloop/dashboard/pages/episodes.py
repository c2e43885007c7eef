"""List episodes with filters; ``?episode=…`` shows one episode in detail."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import episode_detail, tables
from spanloop.dashboard.components.page_frame import empty_state, page, select_time_range
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import episodes
from spanloop.store import Store

_PAGE_ROWS = 100


class EpisodesPage(Page):
    """The list of episodes, or one of them."""

    title: ClassVar[str] = "Episodes"
    icon: ClassVar[str] = ":material/forum:"

    def show(self, context: PageContext) -> None:
        """Draw the list, or the episode that the URL names."""
        episode_id = st.query_params.get("episode", "")
        if episode_id:
            with page("Episode", episode_id):
                episode_detail.show(context.store(), episode_id)
            return
        with page("Episodes", "One row is one attempt at a task. Click a row to open it."):
            _list(context.store())


def _list(store: Store) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        since = select_time_range("episodes_range")
        only_tool_errors = st.toggle("With tool errors", key="errors", bind="query-params")
    filters = _filters(store, with_tool_errors=only_tool_errors)
    page_number = int(st.session_state.get("episodes_page", 1))
    matches = episodes.fetch_episodes(
        store, since, filters, max_rows=_PAGE_ROWS + 1, skip_rows=(page_number - 1) * _PAGE_ROWS
    )
    if matches.is_empty():
        if filters == episodes.EpisodeFilter() and not since and page_number == 1:
            empty_state("No episode yet.", "Convert stored spans into episodes:", resources.cli_command("convert"))
        else:
            st.info("No episode matches these filters.", icon=":material/filter_alt_off:")
            if page_number > 1:
                st.button("Back to the first page", on_click=lambda: st.session_state.update(episodes_page=1))
        return
    page_rows = matches.head(_PAGE_ROWS)
    selected_id = tables.pick_row(
        tables.episode_rows(page_rows),
        page_rows["episode_id"].to_list(),
        key="episodes",
        columns=tables.episode_columns(),
    )
    if selected_id:
        st.query_params["episode"] = selected_id
        st.rerun()
    if matches.height > _PAGE_ROWS or page_number > 1:
        st.number_input("Page", min_value=1, value=1, key="episodes_page", width=140)
        st.caption(f"{_PAGE_ROWS} episodes per page, newest first.")


def _filters(store: Store, *, with_tool_errors: bool) -> episodes.EpisodeFilter:
    facets = episodes.fetch_episode_facets(store)
    outcome, version, agent, text = st.columns([2, 3, 3, 4])
    return episodes.EpisodeFilter(
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
