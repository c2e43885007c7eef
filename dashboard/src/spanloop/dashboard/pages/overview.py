"""How it goes: counts, success over time and by policy version, the newest failures, what runs."""
# pyright: reportUnknownMemberType=false

import os
from collections.abc import Callable

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, tables
from spanloop.dashboard.components.page_frame import missing, nothing_yet, page, time_range
from spanloop.dashboard.queries import episodes as reads
from spanloop.dashboard.queries import policy_versions as version_reads
from spanloop.dashboard.view_models.formatting import ago, count, number, percent
from spanloop.dashboard.view_models.series import bucket_s, covered_s
from spanloop.datadir.service_states import service_states
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store


def render() -> None:
    """Draw the page."""
    with page("Overview"):
        _services()
        _loop()


def _loop() -> None:
    store = resources.store()
    since = time_range()
    found = reads.totals(store, since)
    if found.last_ingested_at is None:
        nothing_yet(
            "No span has arrived yet.",
            "Run any agent that uses the OpenAI SDK; no code change and no environment variable is needed:",
            "opentelemetry-instrument python app.py",
        )
        return
    _numbers(found)
    if not found.episodes:
        if since:
            st.info("No episode started in this time range.", icon=":material/schedule:")
        else:
            nothing_yet(
                f"{count(found.spans)} spans are stored and not converted into episodes yet.",
                "Convert them:",
                resources.command("convert"),
            )
        return
    _charts(store, since)
    _latest_failures(store, since)


def _numbers(found: reads.Totals) -> None:
    rated = found.successes + found.failures
    columns = st.columns(6)
    columns[0].metric("Episodes", count(found.episodes), help=f"{found.steps:,} steps of the policy")
    columns[1].metric(
        "Success rate",
        percent(found.successes, rated),
        help=f"{found.successes:,} of {rated:,} episodes whose outcome is known",
    )
    columns[2].metric("Mean reward", number(found.mean_reward), help="Over the episodes that have a reward")
    columns[3].metric(
        "Tool errors",
        percent(found.tool_errors, found.tool_calls),
        help=f"{found.tool_errors:,} of {found.tool_calls:,} tool calls",
    )
    columns[4].metric(
        "Trainable",
        percent(found.trainable_transitions, found.transitions),
        help=f"{found.trainable_transitions:,} of {found.transitions:,} transitions",
    )
    columns[5].metric(
        "Tokens",
        count(found.input_tokens + found.output_tokens),
        help=f"{found.input_tokens:,} in, {found.output_tokens:,} out",
    )
    arrived = ago(found.last_ingested_at, resources.now())
    st.caption(f"{count(found.spans)} spans stored · the newest arrived {arrived}")


def _charts(store: Store, since: int) -> None:
    versions = version_reads.policy_versions(store, since)
    size_s = bucket_s(covered_s(versions["first_seen"].to_list(), versions["last_seen"].to_list()))
    over_time = reads.outcomes_over_time(store, since, size_s)
    left, right = st.columns(2)
    with left:
        st.subheader("Episodes by outcome", anchor=False)
        st.altair_chart(charts.outcomes_over_time(over_time, size_s))
    with right:
        st.subheader("Success rate by policy version", anchor=False)
        _rated(charts.success_by_version, versions)
    left, right = st.columns(2)
    with left:
        st.subheader("Success rate over time", anchor=False)
        _rated(charts.success_over_time, over_time)
    with right:
        st.subheader("Tokens", anchor=False)
        st.altair_chart(charts.tokens_over_time(over_time, size_s))


def _rated(chart: Callable[[pl.DataFrame], charts.AnyChart], frame: pl.DataFrame) -> None:
    if int((frame["successes"] + frame["failures"]).sum()):
        st.altair_chart(chart(frame))
    else:
        st.caption("No episode has a known outcome yet: an app tells it by sending a reward.")


def _latest_failures(store: Store, since: int) -> None:
    st.subheader("Latest failures", anchor=False)
    failures = reads.latest_failures(store, since)
    if failures.is_empty():
        st.caption("None.")
        return
    chosen = tables.pick_row(
        tables.failures(failures),
        failures["episode_id"].to_list(),
        key="latest_failures",
        columns=tables.failure_columns(),
    )
    if chosen:
        st.switch_page("../pages/episodes.py", query_params={"episode": chosen})


@st.fragment(run_every=10)
def _services() -> None:
    """One line: what runs, and which version answers."""
    directory = resources.data_dir()
    states = service_states(directory.path, os.environ.get(CLICKHOUSE_URL_ENV, ""))
    parts = [f"{':green[●]' if state.is_running else ':gray[○]'} {state.name}" for state in states]
    deployed = resources.registry().deployed()
    if deployed and any(state.name == "gateway" and state.is_running for state in states):
        parts.append(f"serving **{deployed.reference}**")
    st.markdown("\u2003".join(parts))
    stopped = [state for state in states if not state.is_running and state.name != "dashboard"]
    if stopped:
        missing(
            f"Not running: {', '.join(f'{state.name} ({state.purpose})' for state in stopped)}.",
            "Start everything with",
            resources.command("up"),
            icon=":material/power_off:",
        )


render()
