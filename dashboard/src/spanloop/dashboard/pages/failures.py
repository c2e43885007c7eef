"""Group failures by fingerprint, with owner, count and versions; ``?group=…`` shows one group."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar

import polars as pl
import streamlit as st
from streamlit.column_config import BarChartColumn, NumberColumn, TextColumn

from spanloop.converters.enums import FaultOwner
from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, markup, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import (
    empty_state,
    linked_page,
    page,
    select_task_prefix,
    select_time_range,
)
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import failures, overview, policy_versions
from spanloop.dashboard.view_models.version_statistics import counts_by_version, failure_shares
from spanloop.store import Store

_MAX_GROUPS = 200
_MAX_MEMBERS = 200
_MAX_VERSIONS = 6
_MAX_CLASSES = 8
_CHARTS_IN_A_ROW = 4


class FailuresPage(Page):
    """Failures by fingerprint, with owner, count and versions."""

    title: ClassVar[str] = "Failures"
    icon: ClassVar[str] = ":material/error:"

    def show(self, context: PageContext) -> None:
        """Draw the groups, or the group that the URL names."""
        fingerprint = st.query_params.get("group", "")
        if fingerprint:
            with page("Failure group", fingerprint):
                _group(context.store(), fingerprint)
            return
        with page(
            "Failures",
            "Failures with one fingerprint are one group; only the policy's own lower its reward. "
            "Click a row to open it.",
        ):
            _groups(context.store())


def _groups(store: Store) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        since = select_time_range("failures_range")
        owner = (
            st.selectbox(
                "Fault owner",
                [owner.value for owner in FaultOwner],
                index=None,
                placeholder="any owner",
                key="owner",
                bind="query-params",
                label_visibility="collapsed",
                width=200,
            )
            or ""
        )
        task_prefix = select_task_prefix(store)
    groups = failures.fetch_groups(store, since, fault_owner=owner, task_prefix=task_prefix, max_rows=_MAX_GROUPS)
    if groups.is_empty():
        _empty(store, is_filtered=bool(owner or since or task_prefix))
        return
    versions = policy_versions.fetch_versions(store, since, task_prefix)
    st.subheader("From version to version", anchor=False)
    _shares(versions, failures.fetch_rates(store, since, task_prefix=task_prefix, fault_owner=owner))
    st.subheader("Groups", anchor=False)
    counts = failures.fetch_group_versions(store, since, groups["fingerprint"].to_list(), task_prefix=task_prefix)
    newest = versions.tail(_MAX_VERSIONS)
    selected_id = tables.pick_row(
        _group_table(counts_by_version(newest, groups, counts), newest["policy_version"].to_list()),
        groups["fingerprint"].to_list(),
        key="groups",
        columns=_group_columns(newest["policy_version"].to_list()),
    )
    if selected_id:
        st.query_params["group"] = selected_id
        st.rerun()
    if groups.height == _MAX_GROUPS:
        st.caption(f"Only the {_MAX_GROUPS} most frequent groups are shown.")


def _shares(versions: pl.DataFrame, rates: pl.DataFrame) -> None:
    """Draw a chart for each class: the share of each version's episodes with it, on one common axis."""
    newest = versions.tail(_MAX_VERSIONS)
    shares = failure_shares(newest, rates).filter(pl.col("value").max().over("error_class", "fault_owner") > 0)
    episode_counts = " · ".join(
        f"{escape_md(name)}: {count:,}" for name, count in newest.select("policy_version", "episodes").rows()
    )
    if shares.is_empty():
        st.caption(f"Every failure was recovered. Episodes: {episode_counts}.")
        return
    st.caption(
        "Share of each version's episodes with such a failure, not recovered. The colour is the owner. "
        f"Episodes: {episode_counts}."
    )
    classes = shares.partition_by("error_class", "fault_owner", maintain_order=True)
    highest = min(1.0, float(shares["value"].max() or 0.0)) * 1.2  # type: ignore[arg-type]
    for start in range(0, min(len(classes), _MAX_CLASSES), _CHARTS_IN_A_ROW):
        columns = st.columns(_CHARTS_IN_A_ROW)
        for column, frame in zip(columns, classes[start : start + _CHARTS_IN_A_ROW], strict=False):
            first = frame.row(0, named=True)
            column.markdown(f"**{escape_md(first['error_class'])}** :gray[{escape_md(first['fault_owner'])}]")
            column.altair_chart(charts.share_bars(frame, highest, first["fault_owner"]))
    if len(classes) > _MAX_CLASSES:
        st.caption(f"{len(classes) - _MAX_CLASSES} rarer classes are only in the table.")


def _empty(store: Store, *, is_filtered: bool) -> None:
    if is_filtered:
        st.info("No failure matches.", icon=":material/filter_alt_off:")
    elif overview.fetch_totals(store, 0).episodes:
        st.success("Nothing has failed so far.", icon=":material/check:")
    else:
        empty_state(
            "No episode yet, so nothing could fail.",
            "Convert stored spans into episodes:",
            resources.cli_command("convert"),
        )


def _group_table(groups: pl.DataFrame, versions: list[str]) -> pl.DataFrame:
    return groups.select(
        "fault_owner", "error_class", "tool_name", "message", "failures", "recovered", *versions, "trend", "last_seen"
    )


def _group_columns(versions: list[str]) -> tables.Columns:
    by_version: tables.Columns = {
        name: NumberColumn(name, help=f"Episodes of {escape_md(name)} that had it, recovered or not", width=75)
        for name in versions
    }
    return by_version | {
        "fault_owner": TextColumn("owner", width=80),
        "error_class": TextColumn("class", width=130),
        "tool_name": TextColumn("tool", width=80),
        "message": TextColumn("newest message", width=190),
        "failures": NumberColumn("count", width=55),
        "recovered": NumberColumn("recovered", help="Episodes continued and did not fail because of these", width=80),
        "trend": BarChartColumn(
            "trend", help="Share of each version's episodes that had it, oldest version first", y_min=0, width=75
        ),
        "last_seen": tables.time_column("last seen"),
    }


def _group(store: Store, fingerprint: str) -> None:
    if st.button("All groups", icon=":material/arrow_back:", type="tertiary"):
        st.query_params.pop("group", None)
        st.rerun()
    members = failures.fetch_latest(store, 0, fingerprint=fingerprint, max_rows=_MAX_MEMBERS)
    if members.is_empty():
        empty_state(
            "No current failure has this fingerprint.",
            "A new conversion may have replaced the episodes. Convert again:",
            resources.cli_command("convert"),
        )
        return
    newest = members.row(0, named=True)
    tool = f" · tool **{escape_md(newest['tool_name'])}**" if newest["tool_name"] else ""
    owner, error_class = escape_md(newest["fault_owner"]), escape_md(newest["error_class"])
    st.markdown(f"Owner **{owner}** · class **{error_class}**{tool}")
    st.html(markup.text_block(newest["message"]))
    recovered = int(members["is_recovered"].sum())
    columns = st.columns(4)
    columns[0].metric("Failures", f"{members.height}{'+' if members.height == _MAX_MEMBERS else ''}")
    columns[1].metric("Episodes", members["episode_id"].n_unique())
    columns[2].metric("Recovered", recovered)
    columns[3].metric("Policy versions", members["policy_version"].n_unique())
    st.subheader("From version to version", anchor=False)
    _shares(policy_versions.fetch_versions(store, 0), failures.fetch_rates(store, 0, fingerprint=fingerprint))
    st.subheader("Episodes", anchor=False)
    st.caption("Click a row to open the episode.")
    selected_id = tables.pick_row(
        tables.failure_rows(members), members["episode_id"].to_list(), key="members", columns=tables.failure_columns()
    )
    if selected_id:
        st.switch_page(linked_page("episodes"), query_params={"episode": selected_id, "view": "Failures"})
