"""Failures grouped by what they are: whose, how often, on which versions; with ``?group=…`` one group."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import BarChartColumn, NumberColumn, TextColumn

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, markup, tables
from spanloop.dashboard.components.markup import plain
from spanloop.dashboard.components.page_frame import nothing_yet, page, task_set, time_range
from spanloop.dashboard.queries import episodes as reads
from spanloop.dashboard.queries import policy_versions as version_reads
from spanloop.dashboard.view_models.version_statistics import counts_by_version, failure_shares
from spanloop.semconv.enums import FaultOwner
from spanloop.store import Store

_MAX_GROUPS = 200
_MAX_MEMBERS = 200
_MAX_VERSIONS = 6
_MAX_CLASSES = 8
_CHARTS_IN_A_ROW = 4


def render() -> None:
    """Draw the groups, or the one group that the address names."""
    group = st.query_params.get("group", "")
    if group:
        with page("Failure group", group):
            _group(resources.store(), group)
        return
    with page(
        "Failures",
        "Failures with one fingerprint are one group. Only the policy's own cost it reward. Click a row to open it.",
    ):
        _groups(resources.store())


def _groups(store: Store) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        since = time_range("failures_range")
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
        tasks = task_set(store)
    groups = reads.failure_groups(store, since, fault_owner=owner, task_prefix=tasks, max_rows=_MAX_GROUPS)
    if groups.is_empty():
        _none(store, is_filtered=bool(owner or since or tasks))
        return
    versions = version_reads.policy_versions(store, since, tasks)
    st.subheader("From version to version", anchor=False)
    _shares(versions, version_reads.failure_rates(store, since, task_prefix=tasks, fault_owner=owner))
    st.subheader("Groups", anchor=False)
    counts = version_reads.failure_group_versions(store, since, groups["fingerprint"].to_list(), task_prefix=tasks)
    newest = versions.tail(_MAX_VERSIONS)
    picked = tables.pick_row(
        _group_table(counts_by_version(newest, groups, counts), newest["policy_version"].to_list()),
        groups["fingerprint"].to_list(),
        key="groups",
        columns=_group_columns(newest["policy_version"].to_list()),
    )
    if picked:
        st.query_params["group"] = picked
        st.rerun()
    if groups.height == _MAX_GROUPS:
        st.caption(f"Only the {_MAX_GROUPS} most frequent groups are shown.")


def _shares(versions: pl.DataFrame, failures: pl.DataFrame) -> None:
    """One small chart for each class: the share of each version's episodes that failed so, on one common axis."""
    newest = versions.tail(_MAX_VERSIONS)
    shares = failure_shares(newest, failures).filter(pl.col("value").max().over("error_class", "fault_owner") > 0)
    acted = " · ".join(
        f"{plain(name)}: {count:,}" for name, count in newest.select("policy_version", "episodes").rows()
    )
    if shares.is_empty():
        st.caption(f"Every failure was recovered. Episodes: {acted}.")
        return
    st.caption(
        "Share of each version's episodes with such a failure that was not recovered; the colour is the owner. "
        f"Episodes: {acted}."
    )
    classes = shares.partition_by("error_class", "fault_owner", maintain_order=True)
    highest = min(1.0, float(shares["value"].max() or 0.0)) * 1.2  # type: ignore[arg-type]
    for first in range(0, min(len(classes), _MAX_CLASSES), _CHARTS_IN_A_ROW):
        columns = st.columns(_CHARTS_IN_A_ROW)
        for column, frame in zip(columns, classes[first : first + _CHARTS_IN_A_ROW], strict=False):
            head = frame.row(0, named=True)
            column.markdown(f"**{plain(head['error_class'])}** :gray[{plain(head['fault_owner'])}]")
            column.altair_chart(charts.share_bars(frame, highest, head["fault_owner"]))
    if len(classes) > _MAX_CLASSES:
        st.caption(f"{len(classes) - _MAX_CLASSES} rarer classes are in the table only.")


def _none(store: Store, *, is_filtered: bool) -> None:
    if is_filtered:
        st.info("No failure matches.", icon=":material/filter_alt_off:")
    elif reads.totals(store, 0).episodes:
        st.success("Nothing has failed so far.", icon=":material/check:")
    else:
        nothing_yet(
            "No episode yet, so nothing could fail.",
            "Episodes are made of stored spans by:",
            resources.command("convert"),
        )


def _group_table(groups: pl.DataFrame, versions: list[str]) -> pl.DataFrame:
    return groups.select(
        "fault_owner",
        "error_class",
        "tool_name",
        "message",
        "failures",
        "recovered",
        *versions,
        "trend",
        "last_seen",
    )


def _group_columns(versions: list[str]) -> tables.Columns:
    by_version: tables.Columns = {
        name: NumberColumn(name, help=f"Episodes of {name} that had it, recovered or not", width=75)
        for name in versions
    }
    return by_version | {
        "fault_owner": TextColumn("owner", width=80),
        "error_class": TextColumn("class", width=130),
        "tool_name": TextColumn("tool", width=80),
        "message": TextColumn("newest message", width=190),
        "failures": NumberColumn("count", width=55),
        "recovered": NumberColumn("recovered", help="Episodes went on and did not fail because of these", width=80),
        "trend": BarChartColumn(
            "trend", help="Share of each version's episodes that had it, oldest version first", y_min=0, width=75
        ),
        "last_seen": tables.when("last seen"),
    }


def _group(store: Store, fingerprint: str) -> None:
    if st.button("All groups", icon=":material/arrow_back:", type="tertiary"):
        st.query_params.pop("group", None)
        st.rerun()
    members = reads.latest_failures(store, 0, fingerprint=fingerprint, max_rows=_MAX_MEMBERS)
    if members.is_empty():
        nothing_yet(
            "No current failure has this fingerprint.",
            "Episodes may have been converted again since. What failed is found by:",
            resources.command("convert"),
        )
        return
    newest = members.row(0, named=True)
    tool = f" · tool **{plain(newest['tool_name'])}**" if newest["tool_name"] else ""
    owner, error_class = plain(newest["fault_owner"]), plain(newest["error_class"])
    st.markdown(f"Owner **{owner}** · class **{error_class}**{tool}")
    st.html(markup.text_block(newest["message"]))
    recovered = int(members["is_recovered"].sum())
    columns = st.columns(4)
    columns[0].metric("Failures", f"{members.height}{'+' if members.height == _MAX_MEMBERS else ''}")
    columns[1].metric("Episodes", members["episode_id"].n_unique())
    columns[2].metric("Recovered", recovered)
    columns[3].metric("Policy versions", members["policy_version"].n_unique())
    st.subheader("From version to version", anchor=False)
    _shares(version_reads.policy_versions(store, 0), version_reads.failure_rates(store, 0, fingerprint=fingerprint))
    st.subheader("Episodes", anchor=False)
    st.caption("Click a row to open the episode.")
    picked = tables.pick_row(
        tables.failures(members), members["episode_id"].to_list(), key="members", columns=tables.failure_columns()
    )
    if picked:
        st.switch_page("../pages/episodes.py", query_params={"episode": picked, "view": "Failures"})


render()
