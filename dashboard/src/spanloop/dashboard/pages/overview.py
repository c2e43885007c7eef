"""Show counts, success over time and by policy version, the newest failures and the services."""
# pyright: reportUnknownMemberType=false

from collections.abc import Callable
from typing import ClassVar, Final

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, failure_table, figures
from spanloop.dashboard.components.figures import Figure
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import (
    empty_state,
    no_span_yet,
    page,
    select_time_range,
    show_error,
    show_not_running,
)
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import failures, overview, policy_versions
from spanloop.dashboard.view_models.formatting import ago, count, number, percent
from spanloop.dashboard.view_models.series import choose_bucket_s, time_span_s
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths.service_states import ServiceState, service_states
from spanloop.store import Store

_REFRESH_S: Final = 20


class OverviewPage(Page):
    """Services, counts, and what is missing."""

    title: ClassVar[str] = "Overview"
    icon: ClassVar[str] = ":material/dashboard:"

    def show(self, context: PageContext) -> None:
        """Draw the page."""
        del context
        with page("Overview"):
            _services()
            _content()


@st.fragment(run_every=_REFRESH_S)
def _content() -> None:
    """Draw what the store holds, and again while it grows; an error of the block becomes a message."""
    try:
        _draw()
    except SpanloopError as error:
        show_error(error)


def _draw() -> None:
    store = resources.store()
    since, time_range = select_time_range()
    totals = overview.fetch_totals(store, since)
    if totals.last_ingested_at is None:
        no_span_yet(store, "Nothing to show yet.")
        return
    _totals(totals, time_range)
    if not totals.episodes:
        if since:
            st.info("No episode started in this time range.", icon=":material/schedule:")
        else:
            empty_state(
                f"{count(totals.spans)} spans are stored but not converted into episodes yet.",
                "Convert them:",
                resources.cli_command("convert"),
            )
        return
    _charts(store, since)
    _latest_failures(store, since)


def _totals(totals: overview.Totals, time_range: str) -> None:
    rated = totals.successes + totals.failures
    figures.show(
        [
            Figure(
                "Episodes",
                count(totals.episodes),
                f"{totals.steps:,} steps of the policy",
                address("episodes", time=time_range),
            ),
            Figure(
                "Success rate",
                percent(totals.successes, rated),
                f"{totals.successes:,} of {rated:,} episodes whose outcome is known; the link leads to the failed ones",
                address("episodes", time=time_range, outcome="failure"),
            ),
            Figure(
                "Mean reward",
                number(totals.mean_reward),
                "Over the episodes that have a reward; the link leads to the lowest ones",
                address("episodes", time=time_range, sort="reward", reward="..1000000"),
            ),
            Figure(
                "Tool errors",
                percent(totals.tool_errors, totals.tool_calls),
                f"{totals.tool_errors:,} of {totals.tool_calls:,} tool calls; the link leads to their episodes",
                address("episodes", time=time_range, errors="1..", sort="-errors"),
            ),
            Figure(
                "Trainable",
                percent(totals.trainable_transitions, totals.transitions),
                f"{totals.trainable_transitions:,} of {totals.transitions:,} transitions",
                address("transitions", time=time_range),
            ),
            Figure(
                "Tokens",
                count(totals.input_tokens + totals.output_tokens),
                f"{totals.input_tokens:,} in, {totals.output_tokens:,} out; the link leads to the longest episodes",
                address("episodes", time=time_range, sort="-tokens"),
            ),
        ]
    )
    newest_age = ago(totals.last_ingested_at, resources.now())
    st.caption(f"{count(totals.spans)} spans stored · the newest arrived {newest_age}")


def _charts(store: Store, since: int) -> None:
    versions = policy_versions.fetch_versions(store, since)
    size_s = choose_bucket_s(time_span_s(versions["first_seen"].to_list(), versions["last_seen"].to_list()))
    over_time = overview.fetch_outcomes_over_time(store, since, size_s)
    # The rows have their height before the charts are drawn: what is below them does not move.
    with st.container(key="charts_by_outcome"):
        left, right = st.columns(2)
        with left:
            st.subheader("Episodes by outcome", anchor=False)
            charts.draw(charts.outcomes_over_time(over_time, size_s))
        with right:
            st.subheader("Success rate by policy version", anchor=False)
            _chart_if_rated(charts.success_by_version, versions)
    with st.container(key="charts_over_time"):
        left, right = st.columns(2)
        with left:
            st.subheader("Success rate over time", anchor=False)
            _chart_if_rated(charts.success_over_time, over_time)
        with right:
            st.subheader("Tokens", anchor=False)
            charts.draw(charts.tokens_over_time(over_time, size_s))


def _chart_if_rated(chart: Callable[[pl.DataFrame], charts.Chart], frame: pl.DataFrame) -> None:
    if int((frame["successes"] + frame["failures"]).sum()):
        charts.draw(chart(frame))
    else:
        st.caption("No episode has a known outcome yet: send a reward from the app.")


def _latest_failures(store: Store, since: int) -> None:
    st.subheader("Latest failures", anchor=False)
    latest = failures.fetch_latest(store, since)
    if latest.is_empty():
        st.caption("None.")
        return
    failure_table.show(latest)


@st.fragment(run_every=10)
def _services() -> None:
    """Draw one line with the running services and the served version."""
    directory = resources.data_dir()
    states = service_states(directory.path)
    parts = [f"{_mark(state)} {state.name}" for state in states]
    deployed = resources.registry().deployed()
    if deployed and any(state.name == "gateway" and state.is_running for state in states):
        parts.append(f"serving **{escape_md(deployed.reference)}**")
    st.markdown("\u2003".join(parts))
    stopped = [state for state in states if not state.is_running and not state.note and state.name != "dashboard"]
    if stopped:
        show_not_running(
            f"Not running: {', '.join(f'{state.name} ({state.purpose})' for state in stopped)}.",
            "Start everything with",
            resources.cli_command("up"),
            icon=":material/power_off:",
        )


def _mark(state: ServiceState) -> str:
    if state.note:
        return ":blue[●]" if state.is_running else ":gray[?]"
    return ":green[●]" if state.is_running else ":gray[○]"
