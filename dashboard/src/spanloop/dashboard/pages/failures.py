"""Group failures by fingerprint, with owner, count and versions; ``?group=…`` shows one group."""
# pyright: reportUnknownMemberType=false

from functools import partial
from typing import Any, ClassVar

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import (
    actions,
    charts,
    collecting,
    failure_table,
    filter_bar,
    markup,
    record_list,
    tables,
)
from spanloop.dashboard.components.job_form import dialog
from spanloop.dashboard.components.judging import rules
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, link_back, linked_page, no_span_yet, page
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import failures, lists, overview, sources
from spanloop.dashboard.queries.data_sets import fetch_failing
from spanloop.dashboard.view_models.filters import Filters
from spanloop.dashboard.view_models.formatting import DASH, percent
from spanloop.dashboard.view_models.version_statistics import counts_by_version, failure_shares
from spanloop.store import Store

_MAX_MEMBERS = 200
_MAX_VERSIONS = 6
_MAX_CLASSES = 8
_CHARTS_IN_A_ROW = 4


class FailuresPage(Page):
    """Failures by group, by tool, or one by one."""

    title: ClassVar[str] = "Failures"
    icon: ClassVar[str] = ":material/error:"

    def show(self, context: PageContext) -> None:
        """Draw the list, or the group that the URL names."""
        fingerprint = st.query_params.get("group", "")
        if fingerprint:
            with page("Failure group", fingerprint):
                _group(context.store(), fingerprint)
            return
        if rule := st.query_params.get("rule", ""):
            with page("Rule", f"What people say where {rule} has a verdict."):
                rules.show_rule(context.store(), rule)
            return
        with page(
            "Failures",
            "Failures with one fingerprint are one group. Each has an owner: only the policy's own lower its reward. "
            "Tools are sorted by failures; press / to search and f to filter.",
        ):
            _failures(context.store())


def _failures(store: Store) -> None:
    filters = filter_bar.read_filters()
    filter_bar.show(store, filters, page="failures", search_hint="Words in the messages of failures")
    groups, shares, single, people = st.tabs(
        ["Groups and tools", "From version to version", "One by one", "Rules and people"],
        key="failures_view",
        on_change="rerun",
    )
    if groups.open:
        with groups:
            _draw_groups(store, filters)
    if shares.open:
        with shares:
            _draw_shares(store, filters)
    if single.open:
        with single:
            _draw_list(store, filters)
    if people.open:
        with people:
            rules.show(store)


def _draw_groups(store: Store, filters: Filters) -> None:
    record_list.say_what_is_read(filters)
    groups = failures.fetch_groups(store, filters)
    if groups.is_empty():
        _empty(store, is_filtered=not filters.is_empty)
        return
    versions = failures.fetch_versions(store, filters)
    left, right = st.columns([5, 3], gap="medium")
    with left:
        _groups(store, filters, groups, versions)
    with right:
        _tools(store, filters)


def _draw_shares(store: Store, filters: Filters) -> None:
    record_list.say_what_is_read(filters)
    versions = failures.fetch_versions(store, filters)
    if versions.is_empty():
        _empty(store, is_filtered=not filters.is_empty)
    else:
        _shares(versions, failures.fetch_rates(store, filters))


def _draw_list(store: Store, filters: Filters) -> None:
    matches, sort = record_list.read_page(store, sources.FAILURES, lists.fetch_failures, filters)
    if matches.rows.is_empty():
        record_list.show_no_match(matches, filters, "failures", "failure")
        return
    state = record_list.list_state(
        matches,
        sources.FAILURES,
        filters,
        sort,
        path="failures",
        noun="failure",
        collect=collecting.adder(
            store,
            lambda store: fetch_failing(store, filters),
            f"failures?{filters.query()}",
            total=record_list.total_text(matches),
            episodes=dict(matches.rows.select("failure_id", "episode_id").iter_rows()),
        ),
    )
    failure_table.show_list(matches.rows, state)


def _groups(store: Store, filters: Filters, groups: pl.DataFrame, versions: pl.DataFrame) -> None:
    st.subheader("Groups", anchor=False)
    counts = failures.fetch_group_versions(store, filters, groups["fingerprint"].to_list())
    newest = versions.tail(_MAX_VERSIONS)
    by_version = counts_by_version(newest, groups, counts)
    names: list[str] = newest["policy_version"].to_list()
    tables.show_rows(
        [
            {
                "owner": tables.tag(row["fault_owner"]),
                "class": row["error_class"],
                "tool": row["tool_name"],
                "message": row["message"],
                "failures": row["failures"],
                "recovered": row["recovered"],
                "trend": row["trend"] if len(names) > 1 else None,
                "last_seen": row["last_seen"],
            }
            for row in by_version.iter_rows(named=True)
        ],
        {
            "owner": Column("owner", "tag", width=96),
            "class": Column("class", width=128),
            "tool": Column("tool", width=72),
            "message": Column("newest message", "preview"),
            "failures": Column("count", "number", width=54),
            "recovered": Column("recovered", "number", "Episodes continued and did not fail because of these", 76),
            **(
                {"trend": Column("trend", "bars", f"Share of the episodes of {', '.join(names)}", 62)}
                if len(names) > 1
                else {}
            ),
            "last_seen": tables.time_column("last seen"),
        },
        [address("failures", group=each) for each in by_version["fingerprint"].to_list()],
        key="groups",
    )
    if groups.height == failures.MAX_GROUPS:
        st.caption(f"Only the {failures.MAX_GROUPS} most frequent groups are shown.")


def _tools(store: Store, filters: Filters) -> None:
    st.subheader("Tools by failures", anchor=False)
    tools = failures.fetch_tools(store, filters)
    known, made_up = tools.filter("is_known"), tools.filter(~pl.col("is_known"))
    if known.is_empty():
        st.caption("No tool was called.")
    else:
        tables.show_rows(
            [_tool_row(row) for row in known.iter_rows(named=True)],
            {
                "tool": Column("tool"),
                "failures": Column("failed", "number", "Failures with this tool, by whoever", 64),
                "calls": Column(
                    "calls", "number", "Calls in messages of the model; spans where no message names the tool", 64
                ),
                "share": Column("share", "number", "Failures of all calls", 64),
                "by_policy": Column("by policy", "number", "The policy called it wrongly", 74),
                "by_tool": Column("by tool", "number", "The tool itself failed", 64),
            },
            [address("failures", tool=each) for each in known["tool"].to_list()],
            key="tools",
        )
    if not made_up.is_empty():
        with st.expander(f"{made_up.height} names that no tool has"):
            tables.show_rows(
                [{"tool": row["tool"], "failures": row["failures"]} for row in made_up.iter_rows(named=True)],
                {"tool": Column("name"), "failures": Column("called", "number", width=80)},
                [address("failures", tool=each) for each in made_up["tool"].to_list()],
                key="made_up",
            )


def _tool_row(row: dict[str, Any]) -> dict[str, object]:
    return {
        "tool": row["tool"],
        "failures": row["failures"],
        # calls that earlier converters did not count
        "calls": row["calls"] or {"text": DASH, "key": 0},
        "share": {"text": percent(row["failures"], row["calls"]), "key": row["failures"] / max(1, row["calls"])},
        "by_policy": row["policy_failures"],
        "by_tool": row["tool_failures"],
    }


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
            charts.draw(charts.share_bars(frame, highest, first["fault_owner"]), column)
    if len(classes) > _MAX_CLASSES:
        st.caption(f"{len(classes) - _MAX_CLASSES} rarer classes are only in the table.")


def _empty(store: Store, *, is_filtered: bool) -> None:
    if is_filtered:
        st.info("No failure matches.", icon=":material/filter_alt_off:")
    elif overview.fetch_totals(store, 0).episodes:
        st.success("Nothing has failed so far.", icon=":material/check:")
    else:
        no_span_yet(store, "No episode yet, so nothing could fail.")


def _group(store: Store, fingerprint: str) -> None:
    link_back("failures", "All groups")
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
    _decide(store, fingerprint, newest["error_class"])
    recovered = int(members["is_recovered"].sum())
    columns = st.columns(4)
    columns[0].metric("Failures", f"{members.height}{'+' if members.height == _MAX_MEMBERS else ''}")
    columns[1].metric("Episodes", members["episode_id"].n_unique())
    columns[2].metric("Recovered", recovered)
    columns[3].metric("Policy versions", members["policy_version"].n_unique())
    st.subheader("From version to version", anchor=False)
    everything = Filters()
    _shares(
        failures.fetch_versions(store, everything), failures.fetch_rates(store, everything, fingerprint=fingerprint)
    )
    st.subheader("Episodes", anchor=False)
    failure_table.show(members)


def _decide(store: Store, fingerprint: str, error_class: str) -> None:
    """Draw what an operator can do about a group."""
    with st.container(horizontal=True, vertical_alignment="center"):
        tasks = failures.fetch_tasks_of_class(store, Filters(), error_class)
        others = (
            ", or from all attempts at their tasks, except for tasks of evaluations"
            if tasks
            else "; other attempts are left out, because the tasks have no name or are tasks of evaluations"
        )
        about = (
            f"The policy learns from episodes with a failure of the class {error_class}, recovered ones included"
            f"{others}. A policy gradient needs good and bad attempts at one task."
        )
        selections: dict[str, dialog.Selection] = {"All attempts at its tasks": {"task_ids": tasks}} if tasks else {}
        dialog.train_button({**selections, "Episodes with the failure": {"failure_classes": (error_class,)}}, about)
        if actions.button("Add to data set", icon=":material/playlist_add:", key="collect_group"):
            episodes = partial(fetch_failing, store, Filters(), fingerprint=fingerprint)
            collecting.add_dialog(
                store, episodes, f"failures?group={fingerprint}", "the episodes with a failure of the group"
            )
        if actions.may_act():
            st.page_link(
                linked_page("alerts"),
                label="Watch the class",
                icon=":material/add_alert:",
                query_params={"name": error_class.replace("_", "-"), "when": f"{error_class} above 5% over 1h"},
            )
