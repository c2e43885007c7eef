"""List the versions of data sets; ``?set=NAME@VERSION`` shows one, with its composition, rejections and leakage."""
# pyright: reportUnknownMemberType=false

import tempfile
from io import BytesIO
from pathlib import Path
from typing import ClassVar, Final
from zipfile import ZIP_DEFLATED, ZipFile

import polars as pl
import streamlit as st

from spanloop.dashboard import resources, visits
from spanloop.dashboard.components import actions, tables
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.job_form import dialog
from spanloop.dashboard.components.job_form.evaluate import evaluate_button
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import draw_again, empty_state, link_back, page, show_command
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.view_models.filters import source_text
from spanloop.dashboard.view_models.formatting import DASH, percent
from spanloop.store import Store
from spanloop.store.data_set_contents import fetch_composition, fetch_leakage, fetch_rejections
from spanloop.store.data_sets import DataSet, delete_data_set, fetch_data_sets, fetch_members, find_data_set
from spanloop.training.exports.episode_files import export_data_set, export_kinds

_LABELS: Final = {
    "outcome": "outcome",
    "service": "service",
    "agent": "agent",
    "model": "model",
    "policy": "version",
    "owner": "fault owner",
    "class": "failure class",
    "judged": "judged by people",
}
_MAX_DOWNLOAD: Final = 10_000
"""Episodes of the largest version that a page exports, because the archive is made in memory."""
_MAX_LISTED: Final = 200
_ARCHIVE: Final = "data_set_archive"
"""Session state: the newest export, by version and format."""


class DataSetsPage(Page):
    """Data sets."""

    title: ClassVar[str] = "Data sets"
    icon: ClassVar[str] = ":material/dataset:"

    def show(self, context: PageContext) -> None:
        """Draw the list, or the version that the URL names."""
        if reference := st.query_params.get("set", ""):
            with page("Data set", reference):
                _version(context.store(), find_data_set(context.store(), reference))
            return
        with page(
            "Data sets",
            "A version names episodes at their revisions and never changes. "
            "Lists of episodes and failures have the button “Add to data set”.",
        ):
            _list(context.store())


def _list(store: Store) -> None:
    data_sets = fetch_data_sets(store)
    if not data_sets:
        empty_state(
            "No data set yet.",
            "Filter the episodes, then press “Add to data set”; or on the command line:",
            resources.cli_command("dataset add NAME --filter outcome=failure"),
        )
        return
    tables.show_rows(
        [
            {
                "data_set": each.reference,
                "episodes": each.episodes,
                "added": each.added,
                "rejected": sum(each.rejected.values()),
                "source": source_text(each.source, resources.time_zone()),
                "comment": each.comment,
                "by": each.created_by,
                "created": each.created_at,
            }
            for each in data_sets
        ],
        {
            "data_set": Column("data set", width=150),
            "episodes": Column("episodes", "number", width=76),
            "added": Column("added", "number", "Episodes that the version before lacks", 66),
            "rejected": Column("not added", "number", "Chosen episodes that the version had already", 76),
            "source": Column("added by", "preview", "The filters, or the selection"),
            "comment": Column("comment", "preview"),
            "by": Column("by", width=90),
            "created": tables.time_column("made"),
        },
        [address("data_sets", set=each.reference) for each in data_sets],
        key="data_sets",
    )


def _version(store: Store, data_set: DataSet) -> None:
    link_back("data_sets", "All data sets")
    columns = st.columns(4)
    columns[0].metric("Episodes", f"{data_set.episodes:,}")
    columns[1].metric("Added", f"{data_set.added:,}")
    columns[2].metric("Not added", f"{sum(data_set.rejected.values()):,}")
    columns[3].metric("Forgotten", f"{data_set.forgotten:,}")
    by = "" if data_set.created_by == visits.ANYONE else f" by {escape_md(data_set.created_by)}"
    made = f"Added{by}: {escape_md(source_text(data_set.source, resources.time_zone()))}."
    st.caption(f"{made} {escape_md(data_set.comment)}")
    _buttons(store, data_set)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.subheader("Composition", anchor=False)
        _composition(fetch_composition(store, data_set), data_set.episodes)
    with right:
        st.subheader("Steps", anchor=False)
        _rejections(fetch_rejections(store, data_set))
        st.subheader("Leakage", anchor=False)
        _leakage(fetch_leakage(store, data_set))
    st.subheader("Episodes", anchor=False)
    _episodes(fetch_members(store, data_set))


def _buttons(store: Store, data_set: DataSet) -> None:
    with st.container(horizontal=True):
        about = f"The {data_set.episodes:,} episodes of {data_set.reference}."
        dialog.train_button({data_set.reference: {"data_set": data_set.reference}}, about)
        options = f"--reader-option data_set={data_set.reference} --agent 'python app.py' --model MODEL"
        commands = (resources.cli_command(f"run stored-traces: {options}"), resources.cli_command("evaluate MODEL"))
        evaluate_button(
            data_set=data_set.reference,
            commands={"Or run your agent on the data set's tasks, then evaluate the model:": "\n".join(commands)},
        )
        with st.popover("Export", icon=":material/download:"):
            _export(store, data_set)
        if actions.may_act():
            with st.popover("Delete", icon=":material/delete:"):
                _delete(store, data_set)


def _delete(store: Store, data_set: DataSet) -> None:
    name = data_set.name
    st.markdown(
        f"All versions of {escape_md(name)} go. The episodes stay, and jobs keep what they trained on. "
        "A schedule that names the data set fails from then on."
    )
    if actions.button("Delete all versions", icon=":material/delete:", key="data_set_delete"):
        actions.act(
            Action.DELETE_DATA_SET,
            name,
            lambda: delete_data_set(store, name),
            describe=lambda versions: f"{versions} versions",
        )
        st.query_params.clear()
        draw_again()


def _export(store: Store, data_set: DataSet) -> None:
    kind = str(st.selectbox("Format", export_kinds(), key="export_kind"))
    made = f"{data_set.reference} {kind}"
    if data_set.episodes <= _MAX_DOWNLOAD and actions.button("Make files", icon=":material/folder_zip:", key="export"):
        content = actions.act(Action.EXPORT_DATA_SET, made, lambda: _archive(store, data_set, kind))
        st.session_state[_ARCHIVE] = {made: content}
    if content := st.session_state.get(_ARCHIVE, {}).get(made):
        name = f"{data_set.name}-v{data_set.version}-{kind}.zip"
        st.download_button("Download", content, file_name=name, mime="application/zip", on_click="ignore")
    show_command("On the command line:", resources.cli_command(f"dataset export {data_set.reference} {kind} FOLDER"))


def _archive(store: Store, data_set: DataSet, kind: str) -> bytes:
    """Return the folder of an export as a ZIP archive."""
    buffer = BytesIO()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / data_set.name
        export_data_set(store, data_set, kind, folder)
        with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(file, file.relative_to(folder))
    return buffer.getvalue()


def _composition(composition: pl.DataFrame, episodes: int) -> None:
    rows = {name: composition.filter(pl.col("field") == name) for name in _LABELS}
    tables.show_rows(
        [
            {
                "field": label if number == 0 else "",
                "value": value or DASH,
                "episodes": count,
                "share": {"text": percent(count, episodes), "key": count},
            }
            for name, label in _LABELS.items()
            for number, (value, count) in enumerate(rows[name].select("value", "episodes").iter_rows())
        ],
        {
            "field": Column("", width=130),
            "value": Column("value"),
            "episodes": Column("episodes", "number", width=80),
            "share": Column("share", "number", width=64),
        },
        key="composition",
    )


def _rejections(rejections: pl.DataFrame) -> None:
    tables.show(
        rejections.with_columns(pl.col("reason").replace("", "can be trained on")),
        {
            "reason": Column("reason", help="Why a step cannot be trained on"),
            "steps": Column("steps", "number", width=70),
            "episodes": Column("episodes", "number", width=76),
        },
        key="rejections",
    )


def _leakage(leakage: pl.DataFrame) -> None:
    if leakage.is_empty():
        st.success("No evaluation shares a task with this data set.", icon=":material/check:")
        return
    st.warning(
        f"{leakage.height} evaluations share tasks with it: what is trained on it has seen them.",
        icon=":material/warning:",
    )
    tables.show(
        leakage.select("evaluation_id", "shared_tasks", "tasks", "episodes", "shared_episodes"),
        {
            "evaluation_id": Column("evaluation"),
            "shared_tasks": Column("shared", "number", "Tasks that both have", 60),
            "tasks": Column("of tasks", "number", width=66),
            "episodes": Column("episodes", "number", "Of this data set, attempts at shared tasks", 72),
            "shared_episodes": Column("same", "number", "Of these, counted by the evaluation itself", 56),
        },
        key="leakage",
    )


def _episodes(members: pl.DataFrame) -> None:
    shown = members.sort("started_at", "episode_id", descending=[True, False]).head(_MAX_LISTED)
    agent = pl.when(pl.col("agent_name") == "").then("service_name").otherwise("agent_name").alias("agent")
    tables.show(
        shown.select(
            "started_at", "outcome", agent, "policy_version", "task_id", "reward", "error_class", "episode_id"
        ),
        {
            "started_at": tables.time_column("started"),
            "outcome": Column("outcome", "tag", width=78),
            "agent": Column("agent", help="The service where the agent has no name", width=110),
            "policy_version": Column("version", width=110),
            "task_id": Column("task"),
            "reward": Column("reward", "number", width=64, form="+.2f"),
            "error_class": Column("failure class", width=140),
            "episode_id": Column("episode", "id", width=120),
        },
        [address("episodes", episode=each) for each in shown["episode_id"].to_list()],
        key="members",
    )
    if members.height > _MAX_LISTED:
        st.caption(f"The newest {_MAX_LISTED} of {members.height:,} episodes are shown.")
