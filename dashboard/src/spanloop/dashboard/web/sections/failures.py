"""Failures grouped by what they are: whose, how often, on which versions; with ``?group=…`` one group."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import charts, markup, reads, resources, tables
from spanloop.dashboard.markup import plain
from spanloop.dashboard.page import nothing_yet, page, time_range
from spanloop.semconv.enums import FaultOwner
from spanloop.store import Store

_MAX_GROUPS = 200
_MAX_MEMBERS = 200


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
        owner = st.selectbox(
            "Fault owner",
            [owner.value for owner in FaultOwner],
            index=None,
            placeholder="any owner",
            key="owner",
            bind="query-params",
            label_visibility="collapsed",
            width=200,
        )
    groups = reads.failure_groups(store, since, fault_owner=owner or "", max_rows=_MAX_GROUPS)
    if groups.is_empty():
        _none(store, is_filtered=bool(owner or since))
        return
    picked = tables.pick_row(
        _group_table(groups), groups["fingerprint"].to_list(), key="groups", columns=_group_columns()
    )
    if picked:
        st.query_params["group"] = picked
        st.rerun()
    if groups.height == _MAX_GROUPS:
        st.caption(f"Only the {_MAX_GROUPS} most frequent groups are shown.")
    st.subheader("By policy version", anchor=False)
    by_version = reads.failures_by_version(store, since)
    if owner:
        by_version = by_version.filter(pl.col("fault_owner") == owner)
    if not by_version.is_empty():
        st.altair_chart(charts.failures_by_version(by_version))


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


def _group_table(groups: pl.DataFrame) -> pl.DataFrame:
    return groups.select(
        "failures",
        "episodes",
        "recovered",
        "fault_owner",
        "error_class",
        "tool_name",
        "message",
        "first_seen",
        "last_seen",
    )


def _group_columns() -> tables.Columns:
    return {
        "failures": NumberColumn("count", width=60),
        "episodes": NumberColumn("episodes", width=75),
        "recovered": NumberColumn("recovered", help="Episodes went on and did not fail because of these", width=80),
        "fault_owner": TextColumn("owner", width=95),
        "error_class": TextColumn("class", width=140),
        "tool_name": TextColumn("tool", width=110),
        "message": TextColumn("newest message", width=270),
        "first_seen": tables.when("first seen"),
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
    st.subheader("By policy version", anchor=False)
    st.altair_chart(charts.failures_by_version(reads.failures_by_version(store, 0, fingerprint=fingerprint)))
    st.subheader("Episodes", anchor=False)
    st.caption("Click a row to open the episode.")
    picked = tables.pick_row(
        tables.failures(members), members["episode_id"].to_list(), key="members", columns=tables.failure_columns()
    )
    if picked:
        st.switch_page("sections/episodes.py", query_params={"episode": picked, "view": "Failures"})


render()
